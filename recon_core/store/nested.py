"""A store inside a run: the trials of a search are runs too, kept beside its checkpoints until it is done."""

from __future__ import annotations

from pathlib import Path

from recon_core.store import layout
from recon_core.store.run import Run
from recon_core.store.store import RunStore

_TRIALS = "trials"


def trial_store(run: Run) -> RunStore:
    """The store of the trials of `run`; removed with the checkpoints when `run` is done."""
    return RunStore(run.dir / layout.CHECKPOINTS / _TRIALS)


def home_store(run: Run) -> RunStore:
    """The store of the runs that `run` was made from; for a trial, the store of its search."""
    return RunStore((_whole_of(run) or run.dir).parent)


def ancestors(run: Run) -> list[Run]:
    """All runs that `run` was made from, directly or not; a trial has those of its search."""
    home = home_store(run)
    whole = _whole_of(run)
    ids = list((run if whole is None else Run(whole)).parents)
    for known in ids:  # grows while it is walked
        ids.extend(parent for parent in home.open(known).parents if parent not in ids)
    return [home.open(known) for known in ids]


def _whole_of(run: Run) -> Path | None:
    """The folder of the search that `run` is a trial of, if it is one."""
    places = run.dir.parents
    return places[2] if (places[0].name, places[1].name) == (_TRIALS, layout.CHECKPOINTS) else None
