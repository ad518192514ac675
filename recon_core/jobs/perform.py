"""From a run in the store to its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from recon_core.errors import InputError
from recon_core.jobs.signals import StopFlag
from recon_core.store import Run, RunState, RunWriter

if TYPE_CHECKING:
    from recon_core.data import TaskData


Listener = Callable[[float | None, str], None]
"""Who watches from outside, e.g. a progress bar: the fraction done, None where nobody can know, and a message."""

Job = Callable[[Run, RunWriter, StopFlag, Listener, "TaskData | None"], None]


# Each job is imported when it is done: a process that attacks never loads the code that reads data.
def _training() -> Job:
    from recon_core.jobs.training import perform_training

    return perform_training


def _import() -> Job:
    from recon_core.jobs.models import perform_import

    return perform_import


def _reconstruction() -> Job:
    from recon_core.jobs.reconstruction import perform_reconstruction

    return perform_reconstruction


def _search() -> Job:
    from recon_core.jobs.search import perform_search

    return perform_search


def _trial() -> Job:
    from recon_core.jobs.search import perform_trial

    return perform_trial


def _matching() -> Job:
    from recon_core.jobs.matching import perform_matching

    return perform_matching


def _study() -> Job:
    from recon_core.jobs.study import perform_study

    return perform_study


# Kind of run -> what it does. A new kind is one entry.
JOBS: dict[str, Callable[[], Job]] = {
    "train": _training,
    "model": _import,
    "reconstruct": _reconstruction,
    "search": _search,
    "trial": _trial,
    "match": _matching,
    "study": _study,
}


def perform(
    run: Run, stop: StopFlag, listener: Listener = lambda fraction, message: None, data: TaskData | None = None
) -> RunState:
    """Do the run's work, or go on with it; `data` saves loading what the caller already has."""
    if run.kind not in JOBS:
        raise InputError(
            f"run {run.id} is of kind {run.kind!r}, which this version cannot do; it can: {', '.join(JOBS)}"
        )
    job = JOBS[run.kind]()
    with run.writer() as writer:
        job(run, writer, stop, listener, data)
    return run.status().state
