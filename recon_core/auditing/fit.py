"""Do these images look like the training set of this network? Said with numbers, before anything is counted."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from recon_core.auditing.normalisation import Preprocessing
from recon_core.auditing.residuals import LayerResiduals, layer_residuals
from recon_core.config import Task
from recon_core.data import TaskData
from recon_core.training.losses import Loss

_BATCH = 1024
_DOUBTFUL_BELOW = 0.9
_LOSSES = {Task.BINARY: "logistic", Task.MULTICLASS: "cross-entropy", Task.REGRESSION: "l2"}


class Likeness(StrEnum):
    FITS = "fits"
    DOUBTFUL = "doubtful"
    REFUSED = "refused"


@dataclass(frozen=True, eq=False)
class Outputs:
    """Outputs on some images: losses (k,), margins (k,), whether each is classified correctly (k,) bool."""

    losses: Tensor
    margins: Tensor

    @property
    def right(self) -> Tensor:
        return self.margins > 0

    @property
    def accuracy(self) -> float:
        return float(self.right.float().mean()) if len(self.margins) else math.nan


@dataclass(frozen=True, eq=False)
class Fit:
    """Attached images as their network sees them."""

    normalisation: Preprocessing
    data: TaskData
    members: Outputs
    held_out: Outputs | None
    guessing: float
    """Accuracy of always naming the largest class."""
    likeness: Likeness
    sentence: str
    residuals: LayerResiduals | None
    """KKT residuals at these images, 0 explained, 1 not at all; None where they were not measured."""


class _Tried(NamedTuple):
    choice: Preprocessing
    outputs: Tensor
    seen: Outputs

    @property
    def evenness(self) -> tuple[float, float]:
        """Accuracy, then the smallest margin in units of the median one.

        Training raises the smallest margins most, so those of the true inputs are the most even. The loss would not
        do: inputs divided by a smaller std have larger margins, whatever was trained on.
        """
        margins = self.seen.margins.nan_to_num(nan=-math.inf)
        return self.seen.accuracy, float(margins.min() / margins.median().clamp_min(1e-12))


def fit_of(
    network: nn.Module, data: TaskData, choices: Sequence[Preprocessing], task: Task, wanted: Callable[[], None]
) -> Fit:
    """The normalisation that fits best, and how well network and images then go together.

    `wanted` is asked before each slow step and may raise.
    """
    wanted()
    loss = Loss(_LOSSES[task], data.train_labels)
    tried = []
    for choice in choices:
        outputs = outputs_of(network, choice.inputs(choice.attach(data).train_x))
        tried.append(_Tried(choice, outputs, _judged(outputs, loss)))
    choice, outputs, seen = max(tried, key=lambda each: each.evenness)
    attached = choice.attach(data)
    held_out = None
    if len(attached.test_x):
        others = outputs_of(network, choice.inputs(attached.test_x))
        held_out = _judged(others, Loss(loss.name, attached.test_labels))
    wanted()
    own = next(network.parameters())
    residuals = layer_residuals(network, choice.inputs(attached.train_x).to(own), loss)
    guessing = float(torch.bincount(data.train_labels).max()) / data.n
    likeness, sentence = _verdict(seen.accuracy, guessing, outputs, data, task)
    return Fit(
        choice,
        attached,
        seen,
        held_out,
        guessing,
        likeness,
        sentence,
        residuals,
    )


def outputs_of(network: nn.Module, x: Tensor) -> Tensor:
    """Outputs (k, C), float64 on the CPU, of inputs (k, C, H, W)."""
    own = next(network.parameters())
    with torch.no_grad():
        return torch.cat([network(part.to(own)).double().cpu() for part in torch.split(x, _BATCH)])


def _judged(outputs: Tensor, loss: Loss) -> Outputs:
    rows = loss.rows(outputs)
    return Outputs(loss.sample_losses(rows.values), loss.margins(outputs))


def _verdict(accuracy: float, guessing: float, outputs: Tensor, data: TaskData, task: Task) -> tuple[Likeness, str]:
    """Below half the way from guessing to always right nothing is counted; below 90% a warning goes with the counts."""
    numbers = f"{accuracy:.0%} accuracy on its {data.n} images, where guessing gives {guessing:.0%}"
    if accuracy >= _DOUBTFUL_BELOW:
        return Likeness.FITS, f"the network has {numbers}"
    hint = _other_classes(outputs, data, accuracy) if task is Task.MULTICLASS else _other_sign(accuracy)
    if accuracy < (1 + guessing) / 2:
        return Likeness.REFUSED, f"this does not look like its training set: {numbers}{hint}"
    return Likeness.DOUBTFUL, f"this may not be its training set, or not all of it: {numbers}{hint}"


def _other_classes(outputs: Tensor, data: TaskData, accuracy: float) -> str:
    """Whether another order of the classes would explain the labels."""
    count = len(data.class_names)
    confusion = np.zeros((count, outputs.shape[1]))
    np.add.at(confusion, (data.train_labels.numpy(), outputs.argmax(1).numpy()), 1)
    rows, columns = linear_sum_assignment(confusion, maximize=True)
    best = confusion[rows, columns].sum() / data.n
    if best < max(_DOUBTFUL_BELOW, accuracy + 0.1):
        return ""
    order = [data.class_names[rows[list(columns).index(column)]] for column in sorted(columns)]
    shown = ", ".join(order[:10]) + (", ..." if len(order) > 10 else "")
    return f"; with its classes in the order {shown} it would be {best:.0%}"


def _other_sign(accuracy: float) -> str:
    return f"; with its two classes exchanged it would be {1 - accuracy:.0%}" if accuracy < 1 - _DOUBTFUL_BELOW else ""
