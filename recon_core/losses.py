"""Tasks and their loss functions. A new loss is one call of `register_loss`.

A loss is a function of one scalar per sample and its first two derivatives, written with methods of tensors so that
settings can be checked without torch:
  classification  f(s) of s = logsumexp over rivals of -margin; with two classes s = -y phi
  regression      f(e) of the error e = phi - target
`recon_core.training.losses` makes of it a loss of outputs and labels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from recon_core.names import RegisteredName

if TYPE_CHECKING:
    from torch import Tensor


class Task(StrEnum):
    BINARY = "binary"
    MULTICLASS = "multiclass"
    REGRESSION = "regression"


Scalar = Callable[["Tensor", float], "Tensor"]
"""Elementwise, from the scalar above and `huber_delta`, which only huber looks at."""


@dataclass(frozen=True)
class LossFunction:
    """f with f' and f''. `log_form`: f(s) is softplus(s), whose logarithm gradient flow follows far below underflow."""

    name: str
    task: Task
    description: str
    value: Scalar
    slope: Scalar
    curvature: Scalar
    log_form: bool = False

    @property
    def classifies(self) -> bool:
        return self.task is not Task.REGRESSION


LOSSES: dict[str, LossFunction] = {}
"""By name; the first of a task is its default."""


def register_loss(loss: LossFunction) -> LossFunction:
    """Make a loss known to settings, the command line, the form and training."""
    if loss.name in LOSSES:
        raise ValueError(f"there is a loss {loss.name!r} already; choose another name")
    LOSSES[loss.name] = loss
    return loss


def losses_of(task: str) -> tuple[str, ...]:
    """Names of the losses that go with a task, the usual one first."""
    return tuple(loss.name for loss in LOSSES.values() if loss.task == task)


class LossName(RegisteredName):
    """A registered loss by its name."""

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(LOSSES)

    @property
    def function(self) -> LossFunction:
        return LOSSES[self]


def _softplus(s: Tensor, _: float) -> Tensor:
    from torch.nn.functional import softplus

    return softplus(s)


def _sigmoid(s: Tensor, _: float) -> Tensor:
    return s.sigmoid()


def _sigmoid_slope(s: Tensor, _: float) -> Tensor:
    p = s.sigmoid()
    return p * (1 - p)


def _huber(error: Tensor, delta: float) -> Tensor:
    from torch.nn.functional import huber_loss

    return huber_loss(error, error.new_zeros(()).expand_as(error), delta=delta, reduction="none")


register_loss(
    LossFunction(
        "logistic",
        Task.BINARY,
        "log(1 + exp(-y phi)), Haim et al. 2022, Section 3",
        _softplus,
        _sigmoid,
        _sigmoid_slope,
        log_form=True,
    )
)
register_loss(
    LossFunction(
        "cross-entropy",
        Task.MULTICLASS,
        "cross-entropy of the softmax, Buzaglo et al. 2023",
        _softplus,
        _sigmoid,
        _sigmoid_slope,
        log_form=True,
    )
)
register_loss(
    LossFunction(
        "l2",
        Task.REGRESSION,
        "squared error",
        lambda error, _: error.square(),
        lambda error, _: 2.0 * error,
        lambda error, _: error.new_full((), 2.0).expand_as(error),
    )
)
register_loss(
    LossFunction(
        "l2.5",
        Task.REGRESSION,
        "error to the power of 2.5",
        lambda error, _: error.abs().pow(2.5),
        lambda error, _: 2.5 * error.sign() * error.abs().pow(1.5),
        lambda error, _: 3.75 * error.abs().sqrt(),
    )
)
register_loss(
    LossFunction(
        "huber",
        Task.REGRESSION,
        "squared up to huber_delta, straight beyond",
        _huber,
        lambda error, delta: error.clamp(-delta, delta),
        lambda error, delta: (error.abs() <= delta).to(error.dtype),
    )
)
