"""An executor of local processes, each with one run at a time."""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from recon_core.scheduling.protocol import ATTACKS, PATIENCE, Ended
from recon_core.scheduling.slots import core_count, slots, thread_environment
from recon_core.scheduling.worker_process import WorkerProcess
from recon_core.store import Run
from recon_core.store.private import open_to_append


def local_places(workers: int | None = None) -> list[dict[str, str]]:
    """The environment of each place here: one for each GPU, else for each core, with one thread.

    Several processes of one thread do more than one process of several threads: nothing waits for anything.
    """
    if any(slot.gpu is not None for slot in slots()):
        return [slot.environment() for slot in slots()][:workers]
    return [thread_environment(1) for _ in range(workers or core_count())]


@dataclass
class _Place:
    environment: Mapping[str, str]
    workers: dict[bool, WorkerProcess] = field(default_factory=dict)
    """By whether it attacks."""

    @property
    def busy(self) -> bool:
        return any(worker.busy for worker in self.workers.values())


class LocalExecutor:
    """Processes of this machine. They stop by themselves, with a checkpoint, when this process dies."""

    def __init__(self, places: Sequence[Mapping[str, str]], log: Path) -> None:
        self._places = [_Place(environment) for environment in places]
        self._log = log
        self._ended: queue.Queue[Ended] = queue.Queue()
        self._at_once = len(self._places)

    def free(self) -> int:
        return max(0, self._at_once - sum(place.busy for place in self._places))

    def places(self) -> int:
        return self._at_once

    def reduce(self) -> bool:
        before, self._at_once = self._at_once, max(1, self._at_once // 2)
        for place in [place for place in self._places if not place.busy][self._at_once :]:
            for worker in place.workers.values():  # an idle worker holds memory too
                worker.close()
        return self._at_once < before

    def submit(self, run: Run) -> None:
        place = next(place for place in self._places if not place.busy)
        attacks = run.kind in ATTACKS
        worker = place.workers.get(attacks)
        if worker is None or not worker.alive:
            worker = place.workers[attacks] = self._start(place)
        worker.perform(run.dir)

    def wait(self, seconds: float) -> list[Ended]:
        found = []
        with contextlib.suppress(queue.Empty):
            found.append(self._ended.get(timeout=seconds))
            while True:
                found.append(self._ended.get_nowait())
        return found

    def close(self) -> None:
        workers = [worker for place in self._places for worker in place.workers.values()]
        for worker in workers:  # all at once
            worker.close()
        deadline = time.monotonic() + PATIENCE
        for worker in workers:
            worker.end(max(0.1, deadline - time.monotonic()))

    def _start(self, place: _Place) -> WorkerProcess:
        with open_to_append(self._log) as log:
            return WorkerProcess(self._ended, place.environment, log, own_session=True)
