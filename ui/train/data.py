"""Cached reads for the Train page: curves, margins and table rows, keyed on what is on the disk."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import streamlit as st

from recon_core.analysis.training import (
    MarginHistogram,
    TrainingCurves,
    margin_histogram,
    margin_share,
    training_curves,
)
from recon_core.analysis.training_table import TrainedRun, lookup
from recon_core.config import Recipe
from recon_core.errors import AfterimageError
from recon_core.store import Run, RunStore, RunSummary, default_root, layout
from recon_core.views.training_rows import spread_rows
from ui.shared.runs import is_active

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
    root, run = str(default_root()), _open(run_id)
    status = run.status()
    if is_active(status):
        wait = min(max(status.seconds / 10, _SHORTEST_WAIT), _LONGEST_WAIT)
        version = _newest_version(root, run_id, int(time.monotonic() / wait))
    else:
        version = run.content_version()
    return Measured(_curves(root, run_id, version), f"{root} {run_id} {version}")


@st.cache_data(max_entries=64, show_spinner=False)
def _newest_version(root: str, run_id: str, moment: int) -> str:
    """The same for a while, and for everybody who looks."""
    path = RunStore(Path(root)).open(run_id).dir / layout.METRICS
    return f"{path.stat().st_size if path.exists() else 0} bytes"


@st.cache_data(max_entries=64, show_spinner=False)
def _curves(root: str, run_id: str, version: str) -> TrainingCurves:
    run = RunStore(Path(root)).open(run_id)
    recipe = lookup(run.config, "training.recipe")
    return training_curves(spread_rows(run), steps_are_epochs=recipe in (Recipe.PAPER, Recipe.SGD))


def samples_of(run_id: str) -> SampleFacts | None:
    """None until the training is done."""
    run = _open(run_id)
    return _samples(str(default_root()), run_id, run.content_version()) if run.has_tensors("samples") else None


@st.cache_data(max_entries=64, show_spinner=False)
def _samples(root: str, run_id: str, version: str) -> SampleFacts:
    samples = RunStore(Path(root)).open(run_id).tensors("samples")
    return SampleFacts(
        margin_histogram(samples["margins"], samples["on_margin"]),
        margin_share(samples["multipliers"], samples["on_margin"]),
    )


def table_row(summary: RunSummary) -> TrainedRun:
    """One run for the table; a damaged one without settings and numbers."""
    status = summary.status
    settings, numbers = _row(str(default_root()), summary.id, f"{status.state} {status.updated}")
    return TrainedRun(summary.id, summary.name, str(status.state), summary.created, status.seconds, settings, numbers)


@st.cache_data(max_entries=1000, show_spinner=False)
def _row(root: str, run_id: str, moment: str) -> tuple[dict, dict]:
    try:
        run = RunStore(Path(root)).open(run_id)
        rows = run.metrics(tail=1)
        return run.config, run.result() or (rows[-1] if rows else {})
    except AfterimageError:
        return {}, {}


def _open(run_id: str) -> Run:
    return RunStore(default_root()).open(run_id)
