"""The row space of the first layer, where every sample that can be recovered lies.

Under gradient flow W_1 = sum_i Ubar_i x_i^T + its small initialisation, so x_i is in the row space of W_1 up to
noise. Its singular values show a knee: those of the initialisation follow the law of Marchenko and Pastur, and what
stands above that law's edge is data.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

# Above the edge by this factor, because the edge of a finite matrix is not sharp.
_ABOVE_EDGE = 1.02
# So few inputs leave no noise to look at.
_SMALLEST = 8
# Strong weight decay shrinks the initialisation below the rounding of float32, and rounding follows no such law:
# what is this small beside the largest value is not data either.
_ROUNDING = 8 * torch.finfo(torch.float32).eps


class RowSpace(NamedTuple):
    """Orthonormal columns (d, r), and all singular values of the first layer, largest first."""

    basis: Tensor
    singular_values: Tensor


def row_space(weight: Tensor, rank: int | None = None) -> RowSpace:
    """The part of the row space of weight (h, d) that stands above the noise of its initialisation.

    A given `rank` is taken instead: an untrained network has no knee, and is to be searched as widely as a trained one.
    """
    w = weight.detach().cpu().double()
    if w.shape[0] < w.shape[1]:
        # Through the smaller Gram matrix: several times sooner than an SVD of (h, d).
        squares, left = torch.linalg.eigh(w @ w.T)
        values = squares.flip(0).clamp_min(0).sqrt()
        kept = knee(values, w.shape[0], w.shape[1]) if rank is None else min(rank, len(values))
        vectors = w.T @ left.flip(1)[:, :kept]
        return RowSpace(torch.linalg.qr(vectors).Q, values)
    _, values, right = torch.linalg.svd(w, full_matrices=False)
    kept = knee(values, *w.shape) if rank is None else min(rank, len(values))
    return RowSpace(right[:kept].T.contiguous(), values)


def knee(values: Tensor, rows: int, columns: int) -> int:
    """How many singular values stand above the Marchenko-Pastur edge of noise that has their median."""
    small, large = min(rows, columns), max(rows, columns)
    if small <= _SMALLEST:
        return small
    ratio = small / large
    edge = float(values[small // 2]) * (1 + math.sqrt(ratio)) / _median_of_noise(ratio)
    return max(1, int((values > max(_ABOVE_EDGE * edge, _ROUNDING * float(values[0]))).sum()))


def _median_of_noise(ratio: float) -> float:
    """Median singular value of a noise matrix whose sides have this ratio, its longer side normed to 1."""
    low, high = (1 - math.sqrt(ratio)) ** 2, (1 + math.sqrt(ratio)) ** 2
    t = np.linspace(low, high, 20_001)
    density = np.sqrt(np.maximum((t - low) * (high - t), 0.0)) / np.maximum(t, 1e-12)
    mass = np.cumsum(density)
    return math.sqrt(float(t[np.searchsorted(mass, mass[-1] / 2)]))
