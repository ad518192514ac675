"""The two terms beside stationarity: a lower bound on multipliers, a box for pixels (Haim et al. 2022, Eq. 7-8)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from recon_core.attacks.settings import Hinge


class Term(NamedTuple):
    """A penalty, a scalar tensor, and its gradient, shaped like what it is a penalty on."""

    value: Tensor
    gradient: Tensor


def multiplier_floor(lam: Tensor, lam_min: float, hinge: Hinge) -> Term:
    """sum_i max(lam_min - lam_i, 0), App. B.2 of Haim et al.; squared inside the sum in their code. lam (m,)."""
    return _summed((lam - lam_min).clamp_max_(0.0), hinge, 1.0)


def box_prior(x: Tensor, low: float, high: float, hinge: Hinge) -> Term:
    """How far pixels of x (m, d) stand outside [low, high].

    Linear: averaged over a candidate's d pixels and summed over candidates, Section 5.2 of Haim et al. (on
    [0, 1] there, before centring). Squared: summed over everything, as their code does on [-1, 1].
    """
    return _summed(x - x.clamp(low, high), hinge, 1.0 / x.shape[1])


def _summed(beyond: Tensor, hinge: Hinge, linear_scale: float) -> Term:
    """`beyond` is the signed distance past the bound, 0 inside; it is overwritten."""
    if hinge is Hinge.SQUARED:
        return Term(beyond.square().sum(), beyond.mul_(2.0))
    if hinge is Hinge.LINEAR:
        return Term(beyond.abs().sum() * linear_scale, beyond.sign_().mul_(linear_scale))
    return Term(beyond.new_zeros(()), torch.zeros_like(beyond))
