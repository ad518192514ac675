"""The queue of runs: tickets in the store, handed out by one scheduler.

A ticket is an empty file `.queue/<number>-<run id>`; the first of its nine digits is its priority, so that sorted names
are the order in which runs start. What a person waits for goes before controls, and those before studies.

Whoever submits a run makes sure that a scheduler is there (`recon_core.scheduling.scheduler`). The scheduler holds a
lock while it lives, so there is one for a store. It is born with that lock: of many who submit at once only the first
starts a process.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from enum import IntEnum
from pathlib import Path
from threading import Lock, Thread
from typing import IO, NamedTuple

import recon_core
from recon_core.errors import InputError
from recon_core.scheduling.memory import free_memory
from recon_core.scheduling.ready import Held
from recon_core.store import Run, RunState, RunStore
from recon_core.store.files import explaining
from recon_core.store.lock import acquire, gate, is_held, sign
from recon_core.store.private import open_to_append, private_folder, touch_private

_TICKET = re.compile(r"(\d{9})-([a-z0-9][a-z0-9_-]{0,63})")


_PLACES = 100_000_000
READY_VARIABLE = "AFTERIMAGE_READY"
_HELD: dict[Path, Held] = {}
_HOLDING = Lock()
_SPARE = 2 * 2**30
"""Bytes that must be free before processes are held ready, which take a tenth of a gigabyte or three."""


class Priority(IntEnum):
    """Priority of a run in the queue; smaller starts first."""

    PERSON = 0
    CONTROL = 1
    STUDY = 2


class Ticket(NamedTuple):
    """A run's place in the queue."""

    folder: Path
    number: int
    run_id: str

    @property
    def path(self) -> Path:
        return self.folder / f"{self.number:09d}-{self.run_id}"

    @property
    def priority(self) -> Priority:
        return Priority(min(self.number // _PLACES, max(Priority)))

    @property
    def background(self) -> bool:
        """Whether it runs in the background: in a slot of its own, beside those of runs that a person started."""
        return self.priority is not Priority.PERSON


def usual_priority(run: Run) -> Priority:
    """The priority by kind of run: baselines are controls, searches and studies take long."""
    if run.kind in ("study", "search"):
        return Priority.STUDY
    return Priority.CONTROL if run.kind == "reconstruct" and run.config.get("baseline") else Priority.PERSON


def submit(run: Run, priority: Priority | None = None) -> None:
    """Add a run to the queue. It starts once all its parents are done and a slot is free."""
    state = run.status().state
    if state is not RunState.QUEUED:
        raise InputError(f"run {run.id} is {state} and cannot be queued; resume it, or start a new one")
    root = run.dir.parent
    folder = queue_folder(root)
    with explaining(folder):
        private_folder(folder)
    with gate(folder / "gate", exclusive=True):
        held = tickets(root)
        if run.id not in {ticket.run_id for ticket in held}:
            wanted = usual_priority(run) if priority is None else priority
            numbers = [ticket.number for ticket in held if ticket.priority is wanted]
            ticket = Ticket(folder, numbers[-1] + 1 if numbers else wanted * _PLACES, run.id)
            with explaining(ticket.path):
                touch_private(ticket.path)
    ensure_scheduler(root)


def resume(run: Run) -> None:
    """Put a run that ended early back into the queue; it goes on from its last checkpoint."""
    run.refuse_without_path()
    with run.writer() as writer:
        writer.requeue()
    submit(run)


def cancel(run: Run) -> bool:
    """Stop a queued or running run, so that it can be resumed. Returns whether there was anything to stop."""
    return run.request_cancel()


def move_up(run: Run) -> bool:
    """Move a queued run to the front of the queue. Returns whether it was in the queue."""
    folder = queue_folder(run.dir.parent)
    if not folder.is_dir():
        return False
    with gate(folder / "gate", exclusive=True):
        held = tickets(run.dir.parent)
        own = next((ticket for ticket in held if ticket.run_id == run.id), None)
        if own is None:
            return False
        others = [ticket for ticket in held if ticket.priority is Priority.PERSON and ticket is not own]
        with explaining(folder):
            for ticket in reversed(others):  # from the last, so that no two ever have the same number
                ticket.path.rename(ticket._replace(number=ticket.number + 1).path)
            own.path.rename(own._replace(number=others[0].number if others else Priority.PERSON * _PLACES).path)
    return True


def waiting(store: RunStore) -> list[str]:
    """Ids of the runs in the queue, the next one first."""
    return [ticket.run_id for ticket in tickets(store.root)]


def queue_folder(root: Path) -> Path:
    return root / ".queue"


def scheduler_lock(root: Path) -> Path:
    return queue_folder(root) / "dispatcher.lock"


def tickets(root: Path) -> list[Ticket]:
    """All tickets in order."""
    folder = queue_folder(root)
    try:
        names = sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):  # no ticket was ever made, or there is no store
        return []
    return [Ticket(folder, int(match[1]), match[2]) for match in map(_TICKET.fullmatch, names) if match]


def ensure_scheduler(root: Path) -> None:
    """Start a scheduler if there are tickets and none is running. Cheap, so it is called whenever the app is opened."""
    held = scheduler_lock(root)
    if is_held(held) or not tickets(root):
        return
    handle = acquire(held)
    if handle is None:  # another process was quicker
        return
    try:
        with explaining(queue_folder(root)), open_to_append(queue_folder(root) / "dispatcher.log") as log:
            process = _held_ready(root, handle, log) or subprocess.Popen(
                [*_scheduler(root), str(handle)],
                start_new_session=True,  # neither Ctrl-C in the app's terminal nor the end of the app stops it
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(handle,),
                env=module_environment(),
            )
        sign(handle, process.pid)
    finally:
        os.close(handle)  # the scheduler's copy keeps the lock
    Thread(target=process.wait, daemon=True).start()  # or it would stay behind as a zombie


def hold_ready(root: Path) -> None:
    """Have a scheduler wait, with a worker that has loaded what a training needs, so that the first run starts at once.

    They leave with this process, or when nothing was submitted for some minutes. Cheap where they wait already, and
    nothing is done where memory is short, a scheduler is at work, or AFTERIMAGE_READY is 0.
    """
    if os.environ.get(READY_VARIABLE) == "0":
        return
    with _HOLDING:
        held = _HELD.get(root)
        if held is not None and held.waits:
            return
        if held is not None:
            held.dismiss()
            del _HELD[root]
        if not is_held(scheduler_lock(root)) and free_memory().bytes > _SPARE:
            with contextlib.suppress(OSError):  # no process to be had now: the first run starts as any other
                _HELD[root] = Held(_scheduler(root), module_environment())


def _held_ready(root: Path, handle: int, log: IO[bytes]) -> subprocess.Popen[bytes] | None:
    with _HOLDING:
        held = _HELD.pop(root, None)
    return None if held is None else held.need(str(root), [handle, log.fileno()])


def _scheduler(root: Path) -> list[str]:
    return [sys.executable, "-m", "recon_core.scheduling.scheduler", str(root)]


def module_environment() -> dict[str, str]:
    """The environment in which `python -m recon_core...` is this very package, whatever the current folder is."""
    home = str(Path(recon_core.__file__).parent.parent)
    inherited = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{home}{os.pathsep}{inherited}" if inherited else home}
