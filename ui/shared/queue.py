"""The queue of runs, kept running by whoever opens a page, and taking from a double click one run."""

from __future__ import annotations

from datetime import datetime, timedelta

from recon_core.errors import AfterimageError
from recon_core.scheduling import queue
from recon_core.store import Run, RunState, RunStore, default_root
from ui.shared.faults import errors_shown

# From one click to the answer to the next one, on a busy machine. Who wants a run repeated waits longer than that.
DOUBLE_CLICK = timedelta(seconds=10)
_NEWEST = 5


def keep_queue_running() -> None:
    """Runs queued before the machine was switched off go on, whichever page is opened first.

    Where that is not possible, on a read-only store or a full disk, the page says so and shows what there is.
    """
    with errors_shown():
        queue.ensure_scheduler(default_root())


def submit_once(run: Run) -> Run:
    """Queue a run just made. Where the click before this one asked for the same, the run that it started remains."""
    store = RunStore(default_root())
    twin = _asked_before(store, run)
    if twin is None:
        queue.submit(run)
        return run
    store.delete(run.id)
    return twin


def _asked_before(store: RunStore, run: Run) -> Run | None:
    runs = {summary.id: summary for summary in store.list(run.kind)[:_NEWEST]}
    if run.id not in runs:
        return None
    own = runs.pop(run.id)
    made = datetime.fromisoformat(own.created)
    for other in runs.values():
        before = made - datetime.fromisoformat(other.created)
        waits_or_runs = other.status.state in (RunState.QUEUED, RunState.RUNNING)
        if not waits_or_runs or not timedelta(0) <= before <= DOUBLE_CLICK or other.parents != own.parents:
            continue
        try:
            found = store.open(other.id)
            if found.config == run.config:
                return found
        except AfterimageError:  # of another version, or deleted meanwhile
            continue
    return None
