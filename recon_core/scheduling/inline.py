"""An executor inside this process, for work too short to be worth starting another one."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from pathlib import Path

from recon_core.runs.signals import StopFlag
from recon_core.scheduling.protocol import Ended
from recon_core.store import Run


class InlineExecutor:
    """A thread of this process, with all the threads torch has here."""

    def __init__(self, perform: Callable[[Path, StopFlag], str | None]) -> None:
        self._perform = perform
        self._stop = StopFlag()
        self._thread: threading.Thread | None = None
        self._ended: queue.Queue[Ended] = queue.Queue()

    def free(self) -> int:
        return int(self._thread is None)

    def places(self) -> int:
        return 1

    def submit(self, run: Run) -> None:
        self._thread = threading.Thread(target=self._do, args=(run,), daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> list[Ended]:
        with contextlib.suppress(queue.Empty):
            ended = self._ended.get(timeout=seconds)
            self._thread = None
            return [ended]
        return []

    def reduce(self) -> bool:
        return False

    def close(self) -> None:
        """Waits for the current step to end: a thread cannot be killed."""
        self._stop.raised = True
        if self._thread is not None:
            self._thread.join()

    def _do(self, run: Run) -> None:
        self._ended.put(Ended(run.id, self._perform(run.dir, self._stop)))
