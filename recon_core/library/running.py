"""Shared by all calls of the library: progress, Ctrl-C, the store, and settings by keyword."""

from __future__ import annotations

import contextlib
import difflib
import os
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from recon_core.errors import AfterimageError, InputError
from recon_core.observing import Listener
from recon_core.runs.progress import progress_bar
from recon_core.runs.signals import StopFlag, stopping_on_signals
from recon_core.store import RunStore
from recon_core.store.writer import lack_of_memory

Progress = bool | Listener
"""True for a progress bar, False for silence, or a function of the fraction done (or None) and a message."""

Store = RunStore | Path | str

INSIST = "anyway=True"
"""What to pass to a call that was refused because there may not be enough memory."""


@contextlib.contextmanager
def showing(progress: Progress, title: str) -> Iterator[Listener]:
    """The listener that shows progress as asked."""
    if isinstance(progress, bool):
        with progress_bar(title, quiet=not progress) as listener:
            yield listener
    else:
        yield progress


@contextlib.contextmanager
def interruptible() -> Iterator[StopFlag]:
    """The first Ctrl-C ends the work and keeps its results so far; a second one raises KeyboardInterrupt as usual.

    An allocation that fails is an `AfterimageError` that says so.
    """
    try:
        if threading.current_thread() is not threading.main_thread():  # signals arrive in the main thread only
            yield StopFlag()
            return
        with stopping_on_signals(signal.SIGINT) as flag:  # SIGTERM is meant for the whole script
            yield flag
    except (MemoryError, RuntimeError, OSError) as error:
        if (short := lack_of_memory(error)) is None:
            raise
        raise AfterimageError(short) from error


class MemoryObserver:
    """The `Observer` of work that leaves no run: keeps the measurements, passes progress on."""

    def __init__(self, stop: StopFlag, listener: Listener) -> None:
        self._rows: dict[int, dict[str, Any]] = {}
        self._stop, self._listener = stop, listener

    @property
    def rows(self) -> tuple[dict[str, Any], ...]:
        return tuple(self._rows.values())

    def metrics(self, row: Mapping[str, Any]) -> None:
        self._rows[row["step"]] = dict(row)  # measured twice, e.g. at the end: the last counts, as in a store

    def progress(self, step: int, fraction: float, message: str) -> None:
        self._listener(fraction, message)

    def snapshot(self, step: int, tensors: Mapping[str, Tensor]) -> None:
        """Only the end result is shown."""

    def log(self, sentence: str) -> None:
        """The result says why it ended."""

    def checkpoint(self, step: int, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        """Nothing is resumed from memory."""

    def checkpoint_due(self) -> bool:
        return False

    def stop_requested(self) -> bool:
        return self._stop.raised


def store_of(store: Store) -> RunStore:
    return store if isinstance(store, RunStore) else RunStore(Path(os.path.expanduser(store)))


def refuse_unknown(given: Iterable[str], known: Iterable[str], whose: str) -> None:
    """Refuse an unknown keyword in one sentence."""
    names = list(known)
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=3)
            fix = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(names)}"
            raise InputError(f"unknown setting {name!r} of {whose}; {fix}")
