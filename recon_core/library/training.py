"""`train`: from data to a trained network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
from torch import Tensor

from recon_core.config import (
    DataConfig,
    ModelConfig,
    Recipe,
    Task,
    TrainConfig,
    TrainingConfig,
    parse_config,
)
from recon_core.errors import AfterimageError, InputError
from recon_core.kinds import perform
from recon_core.library.data import Data, load_data
from recon_core.library.pictures import table_html
from recon_core.library.running import (
    INSIST,
    MemoryObserver,
    Progress,
    Store,
    interruptible,
    refuse_unknown,
    showing,
    store_of,
)
from recon_core.losses import losses_of
from recon_core.models import Network, architecture_of
from recon_core.presets import DEFAULT_PRESET, FAR_MANY, Size, find_preset
from recon_core.runs.models import model_of
from recon_core.runs.observer import last_checkpoint
from recon_core.runs.requests import create_training
from recon_core.runs.signals import StopFlag
from recon_core.scheduling.memory import refuse_shortage, training_memory
from recon_core.store import Run, RunState
from recon_core.training import StopReason
from recon_core.training import train as run_training
from recon_core.units import log10_loss

_MANY = 100
_TARGETS = {"target_loss", "target_log_loss"}


@dataclass(frozen=True, eq=False, repr=False)
class TrainedModel:
    """A trained network and how training went."""

    network: Network
    """On centred inputs (k, C, H, W) or (k, 2); outputs (k, 1), or (k, classes)."""
    config: TrainConfig
    summary: Mapping[str, Any]
    """The last measurement: log_loss (natural logarithm), train_error, margin_min, on_margin, kkt_layer1, ..."""
    samples: Mapping[str, Tensor]
    """By training sample: outputs (n, C), margins (n,), multipliers, on_margin (n,) bool."""
    rows: tuple[Mapping[str, Any], ...]
    note: str
    """Why training ended."""
    stopped: bool = False
    """Interrupted by Ctrl-C: the network is as far as training got."""
    run: Run | None = None

    def history(self) -> pd.DataFrame:
        """One row for each measurement: step, seconds, log_loss, margins, KKT residual, test error."""
        return pd.DataFrame([dict(row) for row in self.rows])

    def __repr__(self) -> str:
        return (
            f"TrainedModel({self.network.architecture}, log10 loss {log10_loss(self.summary['log_loss']):.1f}, "
            f"train error {self.summary['train_error']:.1%}; {self.note})"
        )

    def _repr_html_(self) -> str:
        facts = {
            "network": self.network.architecture,
            "recipe": self.config.training.recipe,
            "loss": self.config.training.loss,
            "log10 loss": f"{log10_loss(self.summary['log_loss']):.1f}",
            "train error": f"{self.summary['train_error']:.1%}",
            "smallest margin": f"{self.summary['margin_min']:.4g}",
            "samples on the margin": f"{self.summary['on_margin']} of {self.summary['n']}",
        }
        return table_html(facts, f"Trained model: {self.note}")


def train(
    data: Data | None = None,
    *,
    preset: str | None = None,
    seed: int | None = None,
    store: Store | None = None,
    name: str | None = None,
    anyway: bool = False,
    progress: Progress = True,
    **settings: Any,
) -> TrainedModel:
    """Train a ReLU network.

    Args:
        data: samples from `load_data`; None for those of the preset.
        preset: named settings to start from; `afterimage presets` lists them.
        seed: seed of the initial weights.
        store: a folder or a RunStore, in which the training is kept as a run.
        name: name of that run.
        anyway: start even if memory may run out.
        progress: True for a progress bar, False for none, or a function of the fraction done and a message.
        **settings: those of `recon_core.config`: recipe, loss, weight_decay, epochs, target_loss, ...; widths, bias,
            init_scale, conv_kernel, ...; device. Defaults follow from the data and from each other: gradient flow far
            into the margin, or training to a stationary point where weight_decay is set.

    Ctrl-C returns the network as trained so far.

    >>> import recon_core as rc
    >>> model = rc.train(rc.load_data("circle", n=6), widths=50, epochs=20, progress=False)
    >>> model.network.architecture.widths
    (50,)
    """
    config, data = _request(data, preset, {**settings, **({} if seed is None else {"seed": seed})}, progress)
    architecture_of(config.model, data.samples.input_shape, data.samples.outputs)
    refuse_shortage(training_memory(config), anyway=anyway, insist=INSIST)
    if store is None:
        with interruptible() as stop, showing(progress, "train") as listener:
            return _in_memory(config, data, MemoryObserver(stop, listener))
    runs = store_of(store)
    config = config.model_copy(update={"data": data.config_in(runs)})
    run = create_training(runs, config, name or preset)
    with interruptible() as stop, showing(progress, "train") as listener:
        state = perform(run, stop, listener, data.samples)
    if state is RunState.CANCELLED:
        return _interrupted(run, config, data)
    if state is not RunState.DONE:
        raise AfterimageError(f"run {run.id} {state}: {run.status().message}")
    return TrainedModel(
        network=model_of(run).network,
        config=config,
        summary=run.result() or {},
        samples=run.tensors("samples"),
        rows=tuple(run.metrics()),
        note=run.status().message,
        run=run,
    )


def _in_memory(config: TrainConfig, data: Data, observer: MemoryObserver) -> TrainedModel:
    outcome = run_training(config, data.samples, observer)
    if outcome.reason is StopReason.DIVERGED:
        raise AfterimageError(f"training {outcome.reason}")
    stopped = outcome.reason is StopReason.CANCELLED
    return TrainedModel(
        network=outcome.network.requires_grad_(False),
        config=config,
        summary=outcome.summary,
        samples=outcome.samples,
        rows=observer.rows,
        note=f"interrupted after {outcome.summary['steps']} steps" if stopped else str(outcome.reason),
        stopped=stopped,
    )


def _interrupted(run: Run, config: TrainConfig, data: Data) -> TrainedModel:
    """What the run's checkpoint holds; the run itself can be resumed."""
    stop = StopFlag()
    stop.raised = True
    with run.writer() as writer:
        resume = last_checkpoint(writer)
    outcome = run_training(config, data.samples, MemoryObserver(stop, lambda fraction, message: None), resume)
    return TrainedModel(
        network=outcome.network.requires_grad_(False),
        config=config,
        summary=outcome.summary,
        samples=outcome.samples,
        rows=tuple(run.metrics()),
        note=f"interrupted after {outcome.summary['steps']} steps; "
        f"python -m recon_core runs resume {run.id} continues it",
        stopped=True,
        run=run,
    )


def _request(
    data: Data | None, preset: str | None, given: dict[str, Any], progress: Progress
) -> tuple[TrainConfig, Data]:
    """The settings of the run: the preset, or defaults that suit the data, overridden by the keywords."""
    own = {**ModelConfig.model_fields, **TrainingConfig.model_fields, "device": None}
    for key in given:
        if key in DataConfig.model_fields and key not in own:
            raise InputError(f"{key} is a setting of the data; give it to load_data")
    refuse_unknown(given, own, "train")
    base = None if preset is None else find_preset(preset).values(Size.QUICK)
    if data is None:
        wanted = dict((base or find_preset(DEFAULT_PRESET).values(Size.QUICK)).get("data", {}))
        data = load_data(wanted.pop("source", "cifar10"), progress=progress, **wanted)
    if given.get("loss") in losses_of(Task.REGRESSION) and data.config.task is Task.BINARY:
        data = data.as_regression()
    chosen = _usual(data, given) if base is None else base
    model = {**chosen.get("model", {}), **{key: given[key] for key in given if key in ModelConfig.model_fields}}
    training = dict(chosen.get("training", {}))
    if _TARGETS & given.keys():
        training = {key: value for key, value in training.items() if key not in _TARGETS}
    training |= {key: given[key] for key in given if key in TrainingConfig.model_fields}
    rest = {key: given[key] for key in ("device",) if key in given}
    return parse_config(
        TrainConfig, {"data": data.config.model_dump(), "model": model, "training": training, **rest}
    ), data


def _usual(data: Data, given: Mapping[str, Any]) -> dict[str, Any]:
    """Model and training settings for these data where no preset is named."""
    if data.planar:
        usual = find_preset("circle").values(Size.QUICK)
    elif data.config.task is Task.REGRESSION and "weight_decay" not in given:
        usual = find_preset("cifar10-l2").values(Size.QUICK)
    elif given.get("weight_decay"):
        usual = find_preset("cifar10-50-decay").values(Size.QUICK)
    else:
        usual = find_preset(DEFAULT_PRESET).values(Size.QUICK)
        if data.n > _MANY:
            usual["training"]["target_log_loss"] = FAR_MANY
    if given.get("recipe", Recipe.FLOW) != Recipe.FLOW or given.get("weight_decay"):
        usual["training"] = {}
    return usual
