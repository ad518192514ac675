"""What the Experiments page reads, kept while it cannot have changed."""

from __future__ import annotations

import tempfile
from pathlib import Path

from recon_core.analysis.pairs import best_pairs
from recon_core.matching.protocol import GOOD_SSIM
from recon_core.plots.mosaic import pairs_mosaic
from recon_core.plots.sheet import png
from recon_core.store import Run, RunStore, default_root
from recon_core.views.experiments import Experiment, experiments, find_experiment
from ui.shared.cached import run_read, store_read
from ui.shared.store import recent_runs

PAIRS = 6


@store_read(keep=4, seconds=1, shared=True)
def all_experiments(store: RunStore) -> tuple[Experiment, ...]:
    """All of the store, the newest first, at most a second old."""
    return tuple(experiments(store, recent_runs()))


def one_experiment(model_id: str) -> Experiment:
    return find_experiment(RunStore(default_root()), recent_runs(), model_id)


@run_read(keep=256)
def thumbnail(match: Run, count: int = PAIRS) -> bytes | None:
    """The best pairs of a finished match run as one picture; None of points."""
    tensors = match.tensors("match")
    if "reconstructions" not in tensors:
        return None
    threshold = match.config.get("threshold", GOOD_SSIM)
    found = best_pairs(tensors["images"], tensors["reconstructions"], tensors["ssim"], count, threshold)
    return png(pairs_mosaic(found, columns=count))


def exported_experiment(model_id: str) -> bytes:
    """The network and all that was made from it, as a zip that another store can take in."""
    with tempfile.TemporaryDirectory(prefix="afterimage-") as folder:
        return RunStore(default_root()).export(model_id, Path(folder), with_dependents=True).read_bytes()
