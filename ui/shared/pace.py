"""How far a run is, said only as far as it is known: no total, bar or time that somebody would have to invent."""

from __future__ import annotations

import math

from recon_core.config import TrainConfig, parse_config
from recon_core.errors import InputError
from recon_core.scheduling.overview import QueueOverview, queue_overview
from recon_core.scheduling.time_left import time_left
from recon_core.store import RunState, RunStore
from recon_core.units import LOG10_LOSS, log10_loss
from ui.shared.cached import store_read
from ui.shared.formatting import plain
from ui.shared.store import RunDetails, recent_runs


def pace(run: RunDetails) -> str:
    """In one line, for a place that reads markdown."""
    status = run.status
    if status.state is RunState.QUEUED:
        return plain(status.message or why_queued(run.id)) or "queued"
    if status.state is not RunState.RUNNING:
        return plain(status.message) or f"{status.step:,} steps"
    if run.kind == "train":
        return _training(run)
    steps = f"step {status.step:,}"
    if status.total and run.kind == "reconstruct":
        steps = f"{steps} of {status.total:,}"
    return f"unmixing, {steps}" if unmixes(run) else steps


def why_queued(run_id: str) -> str:
    """What a run in the queue waits for; empty for one that is not there."""
    return next((waiting.why for waiting in _queue().waiting if waiting.run.id == run_id), "")


@store_read(keep=4, seconds=1)
def _queue(store: RunStore) -> QueueOverview:
    return queue_overview(store, recent_runs())


@store_read(keep=256, seconds=1)
def seconds_left(store: RunStore, run_id: str) -> float | None:
    """What a run at work has to go; None where that is not known, which is more often than not."""
    runs = recent_runs()
    found = next((run for run in runs if run.id == run_id), None)
    return None if found is None else time_left(store, found, runs)


def unmixes(run: RunDetails) -> bool:
    """Whether an attack of recipe copies is still in its first stage, in which nothing is explained yet."""
    return fits_later(run) and run.last_metrics.get("multiplier_max") == 0


def fits_later(run: RunDetails) -> bool:
    """Whether an attack is at work that keeps what it has unmixed apart from the candidates it fits."""
    return run.status.state is RunState.RUNNING and run.config.get("settings", {}).get("recipe") == "copies"


def _training(run: RunDetails) -> str:
    """By its loss where it stops at one: how many steps that takes, nobody knows."""
    log_loss, step = run.last_metrics.get("log_loss"), run.last_metrics.get("step", run.status.step)
    if not isinstance(log_loss, float) or not math.isfinite(log_loss):
        return f"step {run.status.step:,}"
    text = f"step {step:,}, {LOG10_LOSS} {_decimal(log_loss)}"
    target = _log_target(run)
    return text if target is None else f"{text} on its way to {_decimal(target)}"


def _log_target(run: RunDetails) -> float | None:
    try:
        return parse_config(TrainConfig, run.config).training.log_target
    except InputError:  # an older version's settings
        return None


def _decimal(natural: float) -> str:
    """A natural logarithm as a decimal one."""
    value = log10_loss(natural)
    return f"{value:.1f}" if abs(value) < 10 else f"{value:.0f}"
