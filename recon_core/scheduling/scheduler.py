"""`python -m recon_core.scheduling.scheduler STORE [LOCK]`: start queued runs, as many at once as there are slots.

With `STORE --ready LINE` it waits until it is needed, see `recon_core.scheduling.ready`.

Each run is a process of its own that outlives this one. A slot is a lock which its worker inherits and holds
until it dies, so that a second scheduler, after the first was killed, counts the same slots as taken. LOCK is
the open file with which this process inherits its own lock, see `recon_core.scheduling.queue.ensure_scheduler`.

A second process stands by and waits for that lock: the kernel gives it away when the scheduler is killed, and whoever
stood by is the scheduler from then on. One that is killed while it stands by is replaced. Both at once are followed by
whoever opens a page or submits a run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import NoReturn

from recon_core.errors import AfterimageError, InputError
from recon_core.runs.titles import title_of
from recon_core.scheduling.killed import describer, lacked_memory
from recon_core.scheduling.queue import Ticket, module_environment, queue_folder, scheduler_lock, tickets
from recon_core.scheduling.ready import FLAG, Held, wait_until_needed, write_to
from recon_core.scheduling.slots import Slot, background_slots, slots
from recon_core.store import Run, RunState, RunStore, RunSummary, layout, lock
from recon_core.store.files import explaining, is_full
from recon_core.store.private import open_to_append

_POLL_SECONDS = 0.2
_READY_SECONDS = 600.0
"""For so long a process that is held ready waits to be needed."""
_ENDED = (RunState.CANCELLED, RunState.FAILED, RunState.INTERRUPTED)


@dataclass(frozen=True)
class _Worker:
    ticket: Ticket
    process: subprocess.Popen[bytes]
    queued: str | None
    """When the status that queued it was written."""
    describe: Callable[[int], str]
    """Words for the code that its process ends with."""


class ReadyWorker:
    """A worker that has loaded what a training needs, in the environment of the first slot."""

    KIND = "train"  # no other: what performs an attack never loads the code that reads data

    def __init__(self, root: Path) -> None:
        self._environment = slots()[0].environment()
        command = [sys.executable, "-m", "recon_core.worker", str(root)]
        self._held = Held(command, {**module_environment(), **self._environment})

    def begin(self, run: Run, slot: Slot, handle: int) -> subprocess.Popen[bytes] | None:
        """Begin the run in this slot; None where this worker is not meant for it, or does not wait any more."""
        if run.kind != self.KIND or slot.background or slot.environment() != self._environment:
            return None
        with explaining(run.dir / layout.LOG), open_to_append(run.dir / layout.LOG) as log:
            return self._held.need(str(run.dir), [handle, log.fileno()])

    def dismiss(self) -> None:
        self._held.dismiss()


class Prospect(Enum):
    """What will become of a ticket if nobody intervenes."""

    READY = "its parents are done"
    WAITING = "a parent is queued or running"
    BLOCKED = "a parent ended early"
    GONE = "its run is deleted, damaged, or no longer queued"


class Scheduler:
    """Starts the queued runs of one store until none is left that can start."""

    def __init__(self, root: Path, ready: ReadyWorker | None = None) -> None:
        self._store = RunStore(root)
        self._root = root
        self._ready = ready
        self._workers: list[_Worker] = []

    def work(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Start runs until nothing is left to do; `meanwhile` is called in every pass."""
        while self.hand_out() or self._workers:
            if self._ready is not None:  # not for a run of later: it takes memory
                self._ready.dismiss()
                self._ready = None
            time.sleep(_POLL_SECONDS)
            self.reap()
            meanwhile()

    def hand_out(self) -> bool:
        """Start what can start now. Returns whether some run is left that will be able to start later."""
        started = {worker.ticket.run_id for worker in self._workers}
        hopeful = False
        taken: set[bool] = set()
        parents: dict[str, RunState] = {}
        for ticket in tickets(self._root):
            if ticket.run_id in started or ticket.background in taken:
                continue
            prospect = self.prospect(ticket, parents)
            if prospect is Prospect.GONE:
                with self._gate():
                    if self.prospect(ticket) is Prospect.GONE:
                        _drop(ticket)
            elif prospect is Prospect.READY and not self._start(ticket):
                taken.add(ticket.background)  # all these slots, and the queue keeps its order
            hopeful |= prospect in (Prospect.READY, Prospect.WAITING)
        return hopeful

    def prospect(self, ticket: Ticket, known: dict[str, RunState] | None = None) -> Prospect:
        """`known` remembers the states of parents through one look at the line: many runs may wait for the same."""
        known = {} if known is None else known
        try:
            run = self._store.summary(ticket.run_id)
            if run.status.state is not RunState.QUEUED:  # cancelled while it waited, or taken up by somebody else
                return Prospect.GONE
            for parent in run.parents:
                if parent not in known:
                    known[parent] = self._store.summary(parent).status.state
        except AfterimageError:
            return Prospect.GONE
        for parent in run.parents:
            if known[parent] in _ENDED:
                name = title_of(self._store, self._store.summary(parent))
                self._explain(run, f"waits for {name}, which is {known[parent]}; resume that one first")
                return Prospect.BLOCKED
        if all(known[parent] is RunState.DONE for parent in run.parents):
            return Prospect.READY
        self._explain(run, "")  # what was said of a parent that has been resumed since
        return Prospect.WAITING

    def _explain(self, run: RunSummary, message: str) -> None:
        """Write into the run's status, once, why it waits; with a full disk, at a later pass."""
        if run.status.message != message:
            with contextlib.suppress(AfterimageError), self._store.open(run.id).writer() as writer:
                writer.requeue(message)

    def _start(self, ticket: Ticket) -> bool:
        """Start the run in a free slot. Returns False where there is none, or where the disk is too full."""
        if is_full(self._root):
            return False
        for slot in background_slots() if ticket.background else slots():
            if lock.is_held(self._slot_lock(slot)):
                continue
            try:
                if self._start_in(slot, ticket):
                    return True
            except AfterimageError:
                return False
        return False

    def _start_in(self, slot: Slot, ticket: Ticket) -> bool:
        run = self._store.open(ticket.run_id)
        handle = lock.acquire(self._slot_lock(slot))
        if handle is None:
            return False
        try:
            queued = run.status().updated
            describe = describer()
            ready = None if self._ready is None else self._ready.begin(run, slot, handle)
            self._workers.append(_Worker(ticket, ready or _spawn(run, slot, handle), queued, describe))
        finally:
            os.close(handle)  # the worker's copy keeps the lock
        return True

    def _slot_lock(self, slot: Slot) -> Path:
        return queue_folder(self._root) / f"slot-{slot.number}.lock"

    def _gate(self) -> contextlib.AbstractContextManager[None]:
        """Nobody puts up a ticket meanwhile: whoever resumes a run now would find its old one still there."""
        return lock.gate(queue_folder(self._root) / "gate", exclusive=True)

    def reap(self) -> None:
        """Free the slots of processes that have ended."""
        for worker in list(self._workers):
            if worker.process.poll() is None:
                continue
            # With the disk full nothing can be said about it yet: its place in the queue is kept until then.
            with contextlib.suppress(AfterimageError), self._gate():
                if not self._put_back(worker):
                    _drop(worker.ticket)
                self._workers.remove(worker)

    def _put_back(self, worker: _Worker) -> bool:
        """Whether somebody put the run back into the queue before its last process was seen to be gone."""
        try:
            run = self._store.open(worker.ticket.run_id)
        except InputError:  # deleted meanwhile
            return False
        status = run.status()
        if status.state is RunState.INTERRUPTED and lacked_memory(why := worker.describe(worker.process.returncode)):
            with run.writer() as writer:  # no other process knows
                writer.finish(RunState.FAILED, None, f"{why}, then resume it")
        if status.state is not RunState.QUEUED:
            return False
        if status.updated != worker.queued:
            return True
        with run.writer() as writer:
            code = worker.process.returncode
            writer.finish(RunState.FAILED, None, f"its process ended with code {code} before it began")
        return False


def _spawn(run: Run, slot: Slot, handle: int) -> subprocess.Popen[bytes]:
    # What the interpreter or a library says when it dies belongs to the run's own log.
    with explaining(run.dir / layout.LOG), open_to_append(run.dir / layout.LOG) as log:
        return subprocess.Popen(
            slot.command([sys.executable, "-m", "recon_core.worker", str(run.dir)]),
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(handle,),
            env={**module_environment(), **slot.environment()},
        )


def _drop(ticket: Ticket) -> None:
    with contextlib.suppress(OSError):
        ticket.path.unlink(missing_ok=True)


class _Successor:
    """A standby process that takes over when this one dies; `handle` is the scheduler's lock, held by this process."""

    def __init__(self, root: Path, handle: int) -> None:
        self._root, self._handle = root, handle
        self._pid: int | None = None

    def keep(self) -> None:
        """Start a standby process if there is none."""
        if self._pid is not None and os.waitpid(self._pid, os.WNOHANG) == (0, 0):
            return
        self._pid = None
        with contextlib.suppress(OSError):  # no memory for another process now; tried again in the next pass
            self._pid = os.fork()
        if self._pid == 0:
            self._stand_by()

    def dismiss(self) -> None:
        """End the standby process: this one is about to exit normally."""
        if self._pid is not None:
            with contextlib.suppress(OSError):
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
            self._pid = None

    def _stand_by(self) -> NoReturn:
        code = 1
        try:
            os.close(self._handle)  # or this process itself would keep the lock held
            code = _serve(self._root, lock.await_lock(scheduler_lock(self._root)))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)  # not into what the process before was about to do


def main(arguments: list[str]) -> int:
    if len(arguments) == 3 and arguments[1] == FLAG and arguments[2].isdecimal():
        return _wait(Path(arguments[0]).absolute(), int(arguments[2]))
    if len(arguments) not in (1, 2) or not all(map(str.isdecimal, arguments[1:])):
        sys.stderr.write("usage: python -m recon_core.scheduling.scheduler STORE [LOCK]\n")
        return 2
    root = Path(arguments[0]).absolute()
    return _serve(root, int(arguments[1]) if len(arguments) == 2 else lock.acquire(scheduler_lock(root)))


def _wait(root: Path, line: int) -> int:
    """Serve once somebody needs a scheduler, if anybody does."""
    worker = ReadyWorker(root)
    needed = wait_until_needed(line, _READY_SECONDS)
    if needed is None:
        return 0  # and the worker leaves too
    handle, log = needed.files
    write_to(log)
    return _serve(root, handle, worker)


def _serve(root: Path, handle: int | None, ready: ReadyWorker | None = None) -> int:
    """Run the scheduler for as long as there is work; `handle` holds its lock."""
    scheduler = Scheduler(root, ready)
    while handle is not None:
        successor = _Successor(root, handle)
        try:
            scheduler.work(successor.keep)
        finally:
            successor.dismiss()
            os.close(handle)
        # Whoever put up a ticket while this process was leaving found the lock still held and started nobody.
        if not any(scheduler.prospect(ticket) in (Prospect.READY, Prospect.WAITING) for ticket in tickets(root)):
            break
        handle = lock.acquire(scheduler_lock(root))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
