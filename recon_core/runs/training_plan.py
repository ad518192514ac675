"""A training run planned before it is queued: data, network, sizes; an impossible request is refused here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import psutil

from recon_core.config import Task, TrainConfig
from recon_core.data import describe_source, load_task
from recon_core.data.embedded import EMBEDDED
from recon_core.data.tasks import plan_task, samples_per_side
from recon_core.errors import InputError
from recon_core.models import Architecture, architecture_of

# Weights, their gradients and the copies that a step makes of them.
_COPIES = 6


@dataclass(frozen=True)
class TrainingPlan:
    """`test_n` is None where it takes reading the whole set to know."""

    n: int
    test_n: int | None
    class_names: tuple[str, ...]
    architecture: str
    parameters: int


def plan_training(config: TrainConfig) -> TrainingPlan:
    """Settle data and network. Small sets are read for it, of large ones and the user's own only what they hold."""
    if config.data.source.planar or config.data.source in EMBEDDED:
        data = load_task(config.data)
        class_names, n, test_n, shape = data.class_names, data.n, len(data.test_x), data.input_shape
    else:
        info = describe_source(config.data.source, config.data.path)
        sides = plan_task(config.data, info.class_names).sides
        class_names, shape, test_n = tuple(side.name for side in sides), info.shape, None
        n = samples_per_side(config.data, len(sides)).per_side * len(sides)
        if n > info.train_n:
            raise InputError(f"{n} training samples were asked for, but {info.name} has {info.train_n}; ask for fewer")
    outputs = len(class_names) if config.data.task is Task.MULTICLASS else 1
    architecture = architecture_of(config.model, shape, outputs)
    parameters = sum(layer.parameters for layer in layers_of(architecture))
    _refuse_too_large(config, architecture, parameters)
    return TrainingPlan(n, test_n, class_names, str(architecture), parameters)


@dataclass(frozen=True)
class Layer:
    """A layer's weights, as a table lists them."""

    name: str
    shape: tuple[int, ...]
    bias: bool

    @property
    def parameters(self) -> int:
        return math.prod(self.shape) + (self.shape[0] if self.bias else 0)


def layers_of(architecture: Architecture) -> list[Layer]:
    """First to last, without making the network."""
    found = []
    shape = architecture.input_shape
    inputs = math.prod(shape)
    kernel, channels = architecture.conv_kernel, architecture.conv_channels
    if kernel is not None and channels is not None:
        found.append(Layer("convolution", (channels, shape[0], kernel, kernel), architecture.layer_biases[0]))
        inputs = channels * (shape[1] - kernel + 1) * (shape[2] - kernel + 1)
    for stage in architecture.stages:
        if stage.kind == "conv":
            within = shape[0] // stage.groups
            found.append(
                Layer("convolution", (stage.channels, within, *stage.kernel), architecture.layer_biases[len(found)])
            )
        shape = stage.output(shape)
        inputs = math.prod(shape)
    for takes, gives in pairwise((inputs, *architecture.widths, architecture.outputs)):
        found.append(Layer("dense", (gives, takes), architecture.layer_biases[len(found)]))
    return found


def _refuse_too_large(config: TrainConfig, architecture: Architecture, parameters: int) -> None:
    """Refused, because a worker that runs out of memory may end other processes too."""
    needed = parameters * _COPIES * (8 if config.model.dtype == "float64" else 4)
    there = psutil.virtual_memory().total
    if needed > there:
        raise InputError(
            f"a network {architecture} has {parameters:,} parameters and takes about {needed / 2**30:.0f} GB to train, "
            f"but this machine has {there / 2**30:.0f} GB; use smaller model.widths"
        )
