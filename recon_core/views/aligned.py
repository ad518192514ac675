"""The same training images through several match runs: at every weight decay, or with every prior of the attack."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from recon_core.analysis.studies import AlignedGrid, Reconstructed, align
from recon_core.errors import AfterimageError
from recon_core.runs.match_source import model_run_of
from recon_core.store import RunState, RunStore, RunSummary


def aligned_matches(
    store: RunStore, named: Sequence[tuple[str, str]], most: int, threshold: float
) -> AlignedGrid | None:
    """Rows of finished match runs of images, each (label, id); None where fewer than two can be read."""
    found = [read for label, run_id in named if (read := _reconstructed(store, label, run_id)) is not None]
    return align(found, most, threshold) if len(found) > 1 else None


def matches_by_prior(store: RunStore, runs: Sequence[RunSummary], model_id: str) -> list[tuple[str, str]]:
    """The newest match run of an attack on that network with each prior there is, as (prior, id)."""
    attacks = {run.id: run for run in runs if run.kind == "reconstruct" and model_id in run.parents}
    found: dict[str, str] = {}
    for run in runs:  # the newest first
        if run.kind != "match" or run.status.state is not RunState.DONE:
            continue
        for attack in (attacks[parent] for parent in run.parents if parent in attacks):
            prior = _prior(store, attack.id)
            if prior is not None:
                found.setdefault(prior, run.id)
    return sorted(found.items())


def _prior(store: RunStore, attack_id: str) -> str | None:
    """What an attack took for granted of images; None for a baseline, and where it does not say."""
    try:
        run = store.open(attack_id)
        prior = None if run.config.get("baseline") else (run.result() or {}).get("prior")
    except AfterimageError:
        return None
    return prior if isinstance(prior, str) else None


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
