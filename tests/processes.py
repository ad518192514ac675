"""What tests with real background runs share: waiting for them, and leaving none behind."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recon_core.scheduling import queue
from recon_core.store import RunState, RunStore, lock


def wait_for(condition: Callable[[], Any], seconds: float = 40.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def end_processes(root: Path) -> None:
    """Kill the dispatcher of a store, so that nothing new starts, then what is at work there."""
    held = queue.dispatcher_lock(root)
    if lock.is_held(held):
        _kill(int(lock.holder(held)))
    for summary in RunStore(root).list():
        if summary.status.pid and summary.status.state is RunState.RUNNING:
            _kill(summary.status.pid)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
