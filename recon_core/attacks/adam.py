"""Adam without an optimiser object: attacks keep its memories in their own state."""

from __future__ import annotations

from torch import Tensor

_BETAS = (0.9, 0.99)


def adam_direction(mean: Tensor, square: Tensor, slope: Tensor, step: int) -> Tensor:
    """Adam's direction at its `step`-th step, counted from 1; overwrites its two memories."""
    first, second = _BETAS
    mean.lerp_(slope, 1 - first)
    square.mul_(second).addcmul_(slope, slope, value=1 - second)
    return (mean / (1 - first**step)).div_((square / (1 - second**step)).sqrt_().add_(1e-12))
