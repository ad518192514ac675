"""Cached reads for the Train page: curves, margins and table rows, keyed on what is on the disk."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from recon_core.analysis.training import (
    MarginHistogram,
    TrainingCurves,
    margin_histogram,
    margin_share,
    training_curves,
)
from recon_core.analysis.training_table import TrainedRun, lookup
from recon_core.config import Recipe, TrainConfig
from recon_core.errors import AfterimageError
from recon_core.runs.keys import key_of_training, own_images, training_key
from recon_core.store import Run, RunState, RunStore, RunSummary, default_root, layout
from recon_core.views.training_rows import spread_rows
from ui.shared.cached import RunKey, open_run, run_read, store_read
from ui.shared.runs import is_active
from ui.shared.store import recent_runs

# A chart that changes is drawn from scratch by the browser: not too often, and the less the slower the run moves.
_SHORTEST_WAIT, _LONGEST_WAIT = 2.0, 10.0  # seconds


class SampleFacts(NamedTuple):
    """What a finished training left about its samples."""

    histogram: MarginHistogram
    margin_share: float | None


class Measured(NamedTuple):
    """A run's measurements, and a name for this very state of them."""

    curves: TrainingCurves
    version: str


def measured(run_id: str) -> Measured:
    """So far, at most some seconds old."""
    run = open_run(run_id)
    status = run.status()
    if is_active(status):
        wait = min(max(status.seconds / 10, _SHORTEST_WAIT), _LONGEST_WAIT)
        version = _newest_version(run_id, int(time.monotonic() / wait))
    else:
        version = run.content_version()
    key = RunKey(str(default_root()), run_id, version)
    return Measured(_curves.at(key), " ".join(key))


@store_read(keep=64)
def _newest_version(store: RunStore, run_id: str, moment: int) -> str:
    """The same for a while, and for everybody who looks."""
    path = store.open(run_id).dir / layout.METRICS
    return f"{path.stat().st_size if path.exists() else 0} bytes"


@run_read(keep=64)
def _curves(run: Run) -> TrainingCurves:
    recipe = lookup(run.config, "training.recipe")
    return training_curves(spread_rows(run), steps_are_epochs=recipe in (Recipe.PAPER, Recipe.SGD))


def samples_of(run_id: str) -> SampleFacts | None:
    """None until the training is done."""
    return _samples(run_id) if open_run(run_id).has_tensors("samples") else None


@run_read(keep=64)
def _samples(run: Run) -> SampleFacts:
    samples = run.tensors("samples")
    return SampleFacts(
        margin_histogram(samples["margins"], samples["on_margin"]),
        margin_share(samples["multipliers"], samples["on_margin"]),
    )


def trained_before(config: TrainConfig) -> RunSummary | None:
    """The newest finished training that comes to the same network, else one that is queued or running."""
    key = _key_asked(config.model_dump_json())
    alike = [
        run
        for run in recent_runs()
        if run.kind == "train"
        and (run.status.state is RunState.DONE or is_active(run.status))
        and _key_made(run.id, str(run.status.state)) == key
    ]
    return next((run for run in alike if run.status.state is RunState.DONE), next(iter(alike), None))


@store_read(keep=64, seconds=30)  # the user's own images may change
def _key_asked(store: RunStore, config: str) -> str:
    asked = TrainConfig.model_validate_json(config)
    return training_key(asked, own_images(asked.data))


@store_read(keep=4096)
def _key_made(store: RunStore, run_id: str, state: str) -> str | None:
    try:
        return key_of_training(store.open(run_id))
    except AfterimageError:
        return None


def table_row(summary: RunSummary) -> TrainedRun:
    """One run for the table; a damaged one without settings and numbers."""
    status = summary.status
    settings, numbers = _row(summary.id, f"{status.state} {status.updated}")
    return TrainedRun(summary.id, summary.name, str(status.state), summary.created, status.seconds, settings, numbers)


@store_read(keep=1000)
def _row(store: RunStore, run_id: str, moment: str) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        run = store.open(run_id)
        rows = run.metrics(tail=1)
        return run.config, run.result() or (rows[-1] if rows else {})
    except AfterimageError:
        return {}, {}
