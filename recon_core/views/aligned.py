"""The same training images through several match runs: at every weight decay, or with every prior of the attack."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from recon_core.analysis.studies import AlignedGrid, Reconstructed, align
from recon_core.errors import AfterimageError
from recon_core.runs.match_source import model_run_of
from recon_core.store import RunStore


def aligned_matches(
    store: RunStore, named: Sequence[tuple[str, str]], most: int, threshold: float
) -> AlignedGrid | None:
    """Rows of finished match runs of images, each (label, id); None where fewer than two can be read."""
    found = [read for label, run_id in named if (read := _reconstructed(store, label, run_id)) is not None]
    return align(found, most, threshold) if len(found) > 1 else None


def _reconstructed(store: RunStore, label: str, run_id: str) -> Reconstructed | None:
    """None where it is of points, or gone."""
    try:
        run = store.open(run_id)
        tensors = run.tensors("match")
        model = model_run_of(store, store.open(run.config["runs"][0]))
        ids = np.asarray((model.result() or {})["data"]["train_ids"], dtype=np.int64)
    except (AfterimageError, KeyError, IndexError, TypeError):
        return None
    if "reconstructions" not in tensors or len(ids) != len(tensors["images"]):
        return None
    return Reconstructed(
        label=label,
        ids=ids,
        images=tensors["images"].numpy(),
        reconstructions=tensors["reconstructions"].numpy(),
        ssim=tensors["ssim"].double().numpy(),
        run_id=run_id,
    )
