"""The queue for people: what is running, what is queued, and why it waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from recon_core.scheduling.queue import Ticket, tickets
from recon_core.scheduling.slots import background_slots, slots
from recon_core.store import RunState, RunStore, RunSummary

_ENDED = (RunState.CANCELLED, RunState.FAILED, RunState.INTERRUPTED)


@dataclass(frozen=True)
class Waiting:
    """A run in the queue."""

    run: RunSummary
    why: str
    seconds: float
    """Since it was queued, or last held up."""
    next: bool
    """Whether nothing that could be moved stands before it."""


@dataclass(frozen=True)
class QueueOverview:
    """All running and queued runs of a store."""

    running: tuple[RunSummary, ...]
    waiting: tuple[Waiting, ...]
    """In the order in which they will start."""


def queue_overview(store: RunStore, runs: Sequence[RunSummary]) -> QueueOverview:
    """By the tickets of `store`; `runs` are its runs, under the names they are to be shown with."""
    known = {run.id: run for run in runs}
    queued = [ticket for ticket in tickets(store.root) if _is_queued(known.get(ticket.run_id))]
    now = datetime.now(UTC)
    waiting = tuple(
        Waiting(known[ticket.run_id], _why(ticket, known), _since(known[ticket.run_id], now), place == 0)
        for place, ticket in enumerate(queued)
    )
    return QueueOverview(tuple(run for run in reversed(runs) if run.status.state is RunState.RUNNING), waiting)


def _is_queued(run: RunSummary | None) -> bool:
    return run is not None and run.status.state is RunState.QUEUED


def _since(run: RunSummary, now: datetime) -> float:
    asked = datetime.fromisoformat(run.status.updated or run.created)
    return max(0.0, (now - asked).total_seconds())


def _why(ticket: Ticket, known: Mapping[str, RunSummary]) -> str:
    for parent in known[ticket.run_id].parents:
        found = known.get(parent)
        if found is None:
            return "what it is made from was deleted"
        if found.status.state in _ENDED:
            return f"{_WORK.get(found.kind, 'a run')} before it is {found.status.state}; resume that first"
        if found.status.state is not RunState.DONE:
            return f"waits for {_WORK.get(found.kind, 'a run')} before it"
    if ticket.background:
        return "controls and studies take turns, after what you start"
    count = len(slots()) if not ticket.background else len(background_slots())
    return "waits for a free slot; one run at a time here" if count == 1 else f"waits for one of {count} slots"


_WORK = {"train": "the training", "reconstruct": "the attack", "model": "the import", "search": "the search"}
