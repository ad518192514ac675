"""Every kind of run, and what performs it: from a run in the store to its result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from recon_core.errors import AfterimageError, InputError
from recon_core.observing import Listener, ignore
from recon_core.runs.signals import StopFlag
from recon_core.store import Run, RunState, RunStore, RunWriter
from recon_core.store.writer import lack_of_memory

if TYPE_CHECKING:
    from recon_core.data import TaskData


Job = Callable[[Run, RunWriter, StopFlag, Listener, "TaskData | None"], None]


def _without_data(attack: Callable[[Run, RunWriter, StopFlag, Listener], None]) -> Job:
    """An attack sees weights only, whatever data its caller has in memory."""
    return lambda run, writer, stop, listener, data: attack(run, writer, stop, listener)


# Each function is imported when it is called: a process that attacks never loads the code that reads data.
def _training() -> Job:
    from recon_core.runs.training import perform_training

    return perform_training


def _import() -> Job:
    from recon_core.runs.models import perform_import

    return perform_import


def _reconstruction() -> Job:
    from recon_core.runs.reconstruction import perform_reconstruction

    return _without_data(perform_reconstruction)


def _search() -> Job:
    from recon_core.studies.search import perform_search

    return perform_search


def _trial() -> Job:
    from recon_core.studies.search import perform_trial

    return _without_data(perform_trial)


def _matching() -> Job:
    from recon_core.runs.matching import perform_matching

    return perform_matching


def _audit() -> Job:
    from recon_core.runs.audit import perform_audit

    return perform_audit


def _study() -> Job:
    from recon_core.studies.study import perform_study

    return perform_study


# A new kind is one entry.
KINDS: dict[str, Callable[[], Job]] = {
    "train": _training,
    "model": _import,
    "reconstruct": _reconstruction,
    "search": _search,
    "trial": _trial,
    "match": _matching,
    "audit": _audit,
    "study": _study,
}


def perform(run: Run, stop: StopFlag, listener: Listener = ignore, data: TaskData | None = None) -> RunState:
    """Perform a run, or resume it; `data` spares loading what the caller already has in memory."""
    if run.kind not in KINDS:
        raise InputError(
            f"run {run.id} is of kind {run.kind!r}, which this version cannot do; it can: {', '.join(KINDS)}"
        )
    job = KINDS[run.kind]()
    try:
        with run.writer() as writer:
            job(run, writer, stop, listener, data)
    except (MemoryError, RuntimeError, OSError) as error:
        if lack_of_memory(error) is None:
            raise
        raise AfterimageError(f"{run.id} is {run.status().state}: {run.status().message}") from error
    return run.status().state


def import_zip(store: RunStore, path: Path) -> list[Run]:
    """Take in the runs of a zip. Each is checked against what its kind writes; one that fails is a row that says so."""
    from recon_core.runs.contents import fault_in
    from recon_core.studies import contents  # noqa: F401 - says what searches and studies write

    return store.import_zip(path, judge=fault_in)


def load_all() -> None:
    """Import what every kind needs; raises where a package is missing, e.g. on a node of a cluster."""
    for load in KINDS.values():
        load()


def perform_in(folder: Path, stop: StopFlag) -> str | None:
    """Perform the run in `folder`; a sentence where it could not be performed at all."""
    try:
        perform(RunStore(folder.parent).open(folder.name), stop)
    except AfterimageError as error:
        return str(error)
    except Exception as error:  # the run's log has the traceback; the next run may succeed
        return f"{type(error).__name__}: {error}"
    return None
