"""The queue of runs: tickets in the store, handed out by one scheduler.

A ticket is an empty file `.queue/<number>-<run id>`. Whoever submits one makes sure that a scheduler is
there (`recon_core.scheduling.scheduler`); the scheduler holds a lock while it lives, so there is one for a store. It is
born with that lock: of many who submit at once only the first starts a process.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import recon_core
from recon_core.errors import InputError
from recon_core.scheduling.slots import slots
from recon_core.store import Run, RunState, RunStore
from recon_core.store.files import explaining
from recon_core.store.lock import acquire, gate, is_held, sign

_TICKET = re.compile(r"(\d{9})-([a-z0-9][a-z0-9_-]{0,63})")


class Ticket(NamedTuple):
    """A run's place in line."""

    folder: Path
    number: int
    run_id: str

    @property
    def path(self) -> Path:
        return self.folder / f"{self.number:09d}-{self.run_id}"


def submit(run: Run) -> None:
    """Put a queued run in line. It starts once all its parents are done and a slot is free."""
    state = run.status().state
    if state is not RunState.QUEUED:
        raise InputError(f"run {run.id} is {state} and cannot be put in line; resume it, or start a new one")
    root = run.dir.parent
    folder = queue_folder(root)
    with explaining(folder):
        folder.mkdir(exist_ok=True)
    with gate(folder / "gate", exclusive=True):
        held = tickets(root)
        if run.id not in {ticket.run_id for ticket in held}:
            ticket = Ticket(folder, held[-1].number + 1 if held else 0, run.id)
            with explaining(ticket.path):
                ticket.path.touch()
    ensure_dispatcher(root)


def resume(run: Run) -> None:
    """Put a run that ended early back in line; it goes on from its last checkpoint."""
    with run.writer() as writer:
        writer.requeue()
    submit(run)


def cancel(run: Run) -> bool:
    """Stop a run, waiting or at work, so that it can be resumed. Whether there was anything to stop."""
    return run.request_cancel()


def waiting(store: RunStore) -> list[str]:
    """Ids of the runs in line, the next one first."""
    return [ticket.run_id for ticket in tickets(store.root)]


def slot_count() -> int:
    return len(slots())


def queue_folder(root: Path) -> Path:
    return root / ".queue"


def dispatcher_lock(root: Path) -> Path:
    return queue_folder(root) / "dispatcher.lock"


def tickets(root: Path) -> list[Ticket]:
    """All tickets in order."""
    folder = queue_folder(root)
    try:
        names = sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):  # nobody has put up any; no store at all
        return []
    return [Ticket(folder, int(match[1]), match[2]) for match in map(_TICKET.fullmatch, names) if match]


def ensure_dispatcher(root: Path) -> None:
    """See that somebody hands out the tickets, if there are any. Cheap: call it whenever the app is opened."""
    held = dispatcher_lock(root)
    if is_held(held) or not tickets(root):
        return
    handle = acquire(held)
    if handle is None:  # somebody else was quicker
        return
    try:
        with explaining(queue_folder(root)), (queue_folder(root) / "dispatcher.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "recon_core.scheduling.scheduler", str(root), str(handle)],
                start_new_session=True,  # neither Ctrl-C in the app's terminal nor the app's end is meant for it
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(handle,),
                env=module_environment(),
            )
        sign(handle, process.pid)
    finally:
        os.close(handle)  # the dispatcher's copy keeps the lock
    Thread(target=process.wait, daemon=True).start()  # or it would stay behind as a zombie


def module_environment() -> dict[str, str]:
    """The environment in which `python -m recon_core...` is this very package, whatever the current folder is."""
    home = str(Path(recon_core.__file__).parent.parent)
    inherited = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{home}{os.pathsep}{inherited}" if inherited else home}
