"""Cached reads of the Experiments page."""

from __future__ import annotations

import tempfile
from pathlib import Path

from recon_core.store import RunStore, default_root
from recon_core.views.experiments import Experiment, experiments, find_experiment
from ui.shared.cached import store_read
from ui.shared.store import recent_runs


@store_read(keep=4, seconds=1, shared=True)
def all_experiments(store: RunStore) -> tuple[Experiment, ...]:
    """All of the store, the newest first, at most a second old."""
    return tuple(experiments(store, recent_runs()))


def one_experiment(model_id: str) -> Experiment:
    return find_experiment(RunStore(default_root()), recent_runs(), model_id)


def exported_experiment(model_id: str) -> bytes:
    """The network and all that was made from it, as a zip that another store can take in."""
    with tempfile.TemporaryDirectory(prefix="afterimage-") as folder:
        return RunStore(default_root()).export(model_id, Path(folder), with_dependents=True).read_bytes()
