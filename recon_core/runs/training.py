"""A training run: its config from the store, its weights and numbers back into it."""

from __future__ import annotations

from recon_core.config import TrainConfig, parse_config
from recon_core.data import TaskData, load_task
from recon_core.observing import Listener
from recon_core.runs.contents import checked_result
from recon_core.runs.observer import StoreObserver, last_checkpoint
from recon_core.runs.signals import StopFlag
from recon_core.store import Run, RunState, RunWriter
from recon_core.training import StopReason, train

_STATES = {StopReason.CANCELLED: RunState.CANCELLED, StopReason.DIVERGED: RunState.FAILED}


def perform_training(run: Run, writer: RunWriter, stop: StopFlag, listener: Listener, data: TaskData | None) -> None:
    """Train, or go on training, and finish the run."""
    config = parse_config(TrainConfig, run.config)
    if data is None:
        data = load_task(config.data, progress=listener)
    writer.start(_known_steps(config))
    observer = StoreObserver(writer, stop, listener, "recording", total_known=False)
    outcome = train(config, data, observer, last_checkpoint(writer))
    state = _STATES.get(outcome.reason, RunState.DONE)
    if state is RunState.CANCELLED:
        writer.finish(state, None, f"{outcome.reason}: python -m recon_core runs resume {run.id}")
        return
    writer.save_tensors("weights", outcome.network.state_dict())
    writer.save_tensors("samples", outcome.samples)
    if outcome.recording:
        writer.save_tensors("recording", outcome.recording)
    about_data = {
        "fingerprint": data.fingerprint,
        "class_names": list(data.class_names),
        "input_shape": list(data.input_shape),
        "train_ids": data.train_ids.tolist(),
    }
    writer.finish(state, checked_result("train", {**outcome.summary, "data": about_data}), f"{outcome.reason}")


def _known_steps(config: TrainConfig) -> int | None:
    """Steps to the end; None for a training that ends at a loss, a residual or a time, which nobody can count."""
    settings = config.training
    other_ends = (settings.log_target, settings.target_residual, settings.max_seconds)
    return settings.epochs if all(end is None for end in other_ends) else None
