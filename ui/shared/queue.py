"""The queue of runs, kept running by whoever opens a page."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from threading import Thread

import streamlit as st
from streamlit.runtime import Runtime

from recon_core.errors import AfterimageError
from recon_core.scheduling import queue
from recon_core.store import default_root
from ui.shared.faults import errors_shown

_LOOK_SECONDS = 2.0


@st.cache_resource(show_spinner=False)
def _keeper() -> Thread:
    """Looks after the scheduler while no page is drawn: one that was killed is followed by another."""
    keeper = Thread(target=_keep, args=(default_root(),), daemon=True)
    keeper.start()
    return keeper


def _keep(root: Path) -> None:
    while True:
        time.sleep(_LOOK_SECONDS)
        with contextlib.suppress(AfterimageError, OSError):
            queue.ensure_scheduler(root)


def keep_queue_running() -> None:
    """Runs queued before the machine was switched off go on, whichever page is opened first.

    Where that is not possible, on a read-only store or a full disk, the page says so and shows what there is.
    """
    if type(Runtime.instance()) is Runtime:  # a server, which stays
        _keeper()
    with errors_shown():
        queue.ensure_scheduler(default_root())
