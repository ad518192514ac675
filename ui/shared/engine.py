"""The engine, loaded beside the first page: torch and all that the pages draw with take seconds the first time."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Sequence
from functools import cache
from threading import Thread

_LOG = logging.getLogger(__name__)


def load_in_background(modules: Sequence[str]) -> None:
    """Import `modules` in a thread of their own, once for a process; whoever needs one sooner waits for it as usual."""
    _load(tuple(modules))


@cache
def _load(modules: tuple[str, ...]) -> Thread:
    # Read when torch is loaded: threads of this process that wait must not burn a core that a run needs.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    thread = Thread(target=_import, args=(modules,), name="engine", daemon=True)
    thread.start()
    return thread


def _import(modules: tuple[str, ...]) -> None:
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception:  # the page that needs it says what is wrong
            _LOG.exception("%s could not be loaded", name)
