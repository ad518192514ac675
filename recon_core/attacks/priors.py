"""The natural-image prior: edges of an image are sparse, whatever it shows.

A mixture of images has gradients everywhere, an image has few and strong ones. With g the N finite differences of
an image between horizontal and vertical neighbours, all channels,

  r(x) = mean |g| / sqrt(mean g^2),   1 / sqrt(N) <= r <= 1,

which does not change with the scale of x. It measures 0.64 on centred CIFAR-10 images and 0.77 on random mixtures of
them (sqrt(2 / pi) = 0.80 would be Gaussian noise). Nothing here is learnt from data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from recon_core.errors import InputError


class EdgeRatio(NamedTuple):
    """r (m,) and its gradient, shaped like the coordinates it was asked at (m, r)."""

    value: Tensor
    gradient: Tensor


class EdgePrior:
    """r(V z) for coordinates z in a basis V (d, r) of inputs of shape (C, H, W).

    Finite differences are linear, so those of the basis are taken once: g = z G^T with G (N, r). Then
    dr/dg = (sign(g) - g mean|g| / mean g^2) / (N sqrt(mean g^2)), and dr/dz = dr/dg G. At g = 0, where |g| has a kink,
    this takes 0 of its subdifferential, as autograd does; of a flat image r and its gradient are 0.
    """

    def __init__(self, basis: Tensor, shape: Sequence[int]) -> None:
        if not describes_images(shape):
            raise InputError(f"edges need inputs of shape (C, H, W) with H and W above 1, got {tuple(shape)}")
        images = basis.T.reshape(-1, *shape)
        across, down = images[..., 1:] - images[..., :-1], images[..., 1:, :] - images[..., :-1, :]
        self.differences = torch.cat([across.flatten(1), down.flatten(1)], 1)

    def ratio(self, z: Tensor) -> EdgeRatio:
        """At coordinates z (m, r)."""
        g = z @ self.differences
        size = g.square().mean(1, keepdim=True).sqrt().clamp_min(torch.finfo(g.dtype).tiny ** 0.25)
        value = g.abs().mean(1, keepdim=True) / size
        slope = (g.sign() - g * (value / size)) / (g.shape[1] * size)
        return EdgeRatio(value[:, 0], slope @ self.differences.T)


def describes_images(shape: Sequence[int]) -> bool:
    """Whether inputs of this shape have neighbours in two directions."""
    return len(shape) == 3 and min(shape[1:]) > 1
