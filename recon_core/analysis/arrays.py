"""From tensors to the arrays that results hold."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


def floats(tensor: Tensor) -> Floats:
    values: Floats = tensor.detach().cpu().double().numpy()
    return values


def integers(tensor: Tensor) -> Integers:
    values: Integers = tensor.detach().cpu().long().numpy()
    return values


def flags(tensor: Tensor) -> Flags:
    values: Flags = tensor.detach().cpu().bool().numpy()
    return values


def above(scores: Floats, threshold: float) -> Flags:
    """Which scores exceed the threshold. The threshold is rounded to float32 as scores are, so a tie stays a tie."""
    good: Flags = scores > float(np.float32(threshold))
    return good
