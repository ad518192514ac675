"""Processes of this machine, each with one run at a time."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from recon_core.scheduling.protocol import ATTACKS, PATIENCE, Ended
from recon_core.scheduling.queue import module_environment
from recon_core.scheduling.slots import core_count, slots, thread_environment
from recon_core.store import Run


def local_places(workers: int | None = None) -> list[dict[str, str]]:
    """The environment of each place here: one for each GPU, else for each core, with one thread.

    Several processes of one thread do more than one process of several threads: nothing waits for anything.
    """
    if any(slot.gpu is not None for slot in slots()):
        return [slot.environment() for slot in slots()][:workers]
    return [thread_environment(1) for _ in range(workers or core_count())]


@dataclass
class _Worker:
    """A process that does one run after the other; loading the libraries takes longer than some runs."""

    process: subprocess.Popen[str]
    current: str | None = None


@dataclass
class _Place:
    environment: Mapping[str, str]
    workers: dict[bool, _Worker] = field(default_factory=dict)
    """By whether it attacks."""

    @property
    def busy(self) -> bool:
        return any(worker.current is not None for worker in self.workers.values())


class LocalExecutor:
    """Processes of this machine. They stop by themselves, with a checkpoint, when this process dies."""

    def __init__(self, places: Sequence[Mapping[str, str]], log: Path) -> None:
        self._places = [_Place(environment) for environment in places]
        self._log = log
        self._ended: queue.Queue[Ended] = queue.Queue()

    def free(self) -> int:
        return sum(not place.busy for place in self._places)

    def places(self) -> int:
        return len(self._places)

    def submit(self, run: Run) -> None:
        place = next(place for place in self._places if not place.busy)
        attacks = run.kind in ATTACKS
        worker = place.workers.get(attacks)
        if worker is None or worker.process.poll() is not None:
            worker = place.workers[attacks] = self._start(place)
        worker.current = run.id
        assert worker.process.stdin is not None
        try:
            worker.process.stdin.write(f"{run.dir.absolute()}\n")
            worker.process.stdin.flush()
        except OSError:  # it died just now; its listener says so
            pass

    def wait(self, seconds: float) -> list[Ended]:
        found = []
        with contextlib.suppress(queue.Empty):
            found.append(self._ended.get(timeout=seconds))
            while True:
                found.append(self._ended.get_nowait())
        return found

    def close(self) -> None:
        workers = [worker for place in self._places for worker in place.workers.values()]
        for worker in workers:  # its input closed, a worker stops as soon as it can
            assert worker.process.stdin is not None
            with contextlib.suppress(OSError):
                worker.process.stdin.close()
        deadline = time.monotonic() + PATIENCE
        for worker in workers:
            try:
                worker.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()

    def _start(self, place: _Place) -> _Worker:
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "recon_core.worker", "--serve"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C is meant for whoever asked, who then stops the workers
                env={**module_environment(), **place.environment},
            )
        worker = _Worker(process)
        threading.Thread(target=self._listen, args=(worker,), daemon=True).start()
        return worker

    def _listen(self, worker: _Worker) -> None:
        """One line for each run that ended; the end of all lines is the end of the process."""
        assert worker.process.stdout is not None
        for line in worker.process.stdout:
            with contextlib.suppress(ValueError, KeyError, TypeError):  # whatever a library prints is not for us
                told = json.loads(line)
                ended = Ended(told["run"], told["trouble"])
                worker.current = None
                self._ended.put(ended)
        worker.process.stdout.close()
        code = worker.process.wait()
        if (lost := worker.current) is not None:
            worker.current = None
            self._ended.put(Ended(lost, f"its process ended with code {code}"))
