"""What happens on a node: a run is performed in a temporary folder, and its files are sent back as they change."""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from recon_core.scheduling import sync
from recon_core.scheduling.protocol import PATIENCE, Ended
from recon_core.scheduling.worker_process import WorkerProcess
from recon_core.store import layout, lock
from recon_core.store.metrics import drop_torn_line
from recon_core.store.private import private_folder, touch_private

_FOLDER_PREFIX = "afterimage-node-"
_MIRROR_SECONDS = 1.0


class RunFiles(NamedTuple):
    """A run folder on its way to a node."""

    path: str
    """Below the store."""
    changes: list[sync.FileChange]
    attacks: bool = False


def perform_on_node(
    task: str, own: RunFiles, others: Sequence[Any], reports: Any, shares: dict[str, str]
) -> str | None:
    """Perform a run in a temporary folder; returns what kept it from being performed, if anything did."""
    import ray

    with _folder_of_its_own() as root:
        for files in [*ray.get(list(others)), own]:
            folder = root / files.path
            private_folder(folder, parents=True)
            sync.apply(folder, files.changes)
            touch_private(folder / layout.LOCK)
        folder = root / own.path
        drop_torn_line(folder / layout.METRICS)  # its writer would do so unseen by the watch below
        watch, actor_id = sync.Watch(folder), None

        def report(*, last: bool) -> bool:
            nonlocal actor_id
            while True:
                stop, answered_by = ray.get(reports.report.remote(task, actor_id, watch.changes(last=last)))
                if actor_id in (None, answered_by):
                    actor_id = answered_by
                    return bool(stop)
                actor_id, last = answered_by, True  # restarted, so it has lost all earlier reports
                watch.forget()

        trouble = _do(folder, own.attacks, shares, report)
        report(last=True)  # before the task ends: its own result could be lost with the node
        return trouble


@contextlib.contextmanager
def _folder_of_its_own() -> Iterator[Path]:
    """Gone afterwards; those of tasks that were killed go with the next one."""
    beside, prefix = Path(tempfile.gettempdir()), f"{_FOLDER_PREFIX}{os.getuid()}-"
    with contextlib.ExitStack() as stack:
        with lock.gate(beside / f"{prefix}gate", exclusive=True):  # one made just now is not locked yet
            for left in beside.glob(f"{prefix}*"):
                if left.is_dir() and not lock.is_held(left / layout.LOCK):
                    shutil.rmtree(left, ignore_errors=True)
            root = stack.enter_context(tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True))
            handle = lock.acquire(Path(root, layout.LOCK))
        if handle is not None:
            stack.callback(os.close, handle)
        yield Path(root)


def _do(folder: Path, attacks: bool, shares: dict[str, str], report: Callable[..., bool]) -> str | None:
    """In a process beside Ray's, which can be killed; it is kept for the next task, as loading torch takes seconds."""
    key = (attacks, *sorted(shares.items()))
    worker = _WORKERS.pop(key, None)
    if worker is None or not worker.process.alive:
        worker = _NodeWorker(shares)
    kept = False
    try:
        trouble = _done_by(worker, folder, report)
        kept = "CUDA_VISIBLE_DEVICES" not in os.environ  # else it would keep a share of the GPU that is somebody else's
        return trouble
    except _StuckError:
        return None  # its status says how far it came
    finally:
        if kept:
            _WORKERS[key] = worker
        else:
            worker.process.end(0.5)


class _StuckError(Exception):
    """A worker was asked to stop and did not do so in time."""


def _done_by(worker: _NodeWorker, folder: Path, report: Callable[..., bool]) -> str | None:
    """The trouble there was, if any."""
    worker.process.perform(folder)
    deadline = None
    while deadline is None or time.monotonic() < deadline:
        with contextlib.suppress(queue.Empty):
            return worker.answer(_MIRROR_SECONDS if deadline is None else 0.2)
        if report(last=False) and deadline is None:
            touch_private(folder / layout.CANCEL)
            deadline = time.monotonic() + PATIENCE - 1
    raise _StuckError


class _NodeWorker:
    """A worker of this node, and what it said."""

    def __init__(self, shares: dict[str, str]) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (open for as long as the process)
        self._ended: queue.Queue[Ended] = queue.Queue()
        self.process = WorkerProcess(self._ended, shares, self._said, describe=self._describe)

    def answer(self, seconds: float) -> str | None:
        """The trouble there was, if any; raises queue.Empty when there is no answer yet."""
        return self._ended.get(timeout=seconds).trouble

    def _describe(self, code: int) -> str:
        """With its last words: usually the name of a package that is missing there."""
        self._said.seek(max(0, self._said.seek(0, os.SEEK_END) - 2000))
        lines = self._said.read().decode(errors="replace").split("\n")
        said = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"its process on {socket.gethostname()} ended with code {code}" + (f": {said[:200]}" if said else "")


_WORKERS: dict[tuple[object, ...], _NodeWorker] = {}
"""Of this process, if it is one of Ray's: by whether they attack, and their share of the machine."""
