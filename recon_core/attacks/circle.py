"""From 100 candidate points to the few that count: the stages of Haim et al. 2022, Section 4 and Fig. 2 c-f.

Every stage is a pure function of tensors, quick enough to follow a slider.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from recon_core.errors import InputError

PAPER_THRESHOLD = 5.0
"""Multipliers below this are dropped, in the paper's units: see `paper_multipliers`."""
PAPER_DISTANCE = 0.03
"""Points closer than this count as one."""


@dataclass(frozen=True)
class CircleStages:
    """The same m candidates at every stage, so that stages can be laid over one another."""

    initial: Tensor
    """(m, d), where the candidates started (Fig. 2c)."""
    final: Tensor
    """(m, d), where the attack left them (Fig. 2d)."""
    filtered: Tensor
    """(m,) bool: finite and with a multiplier of at least the threshold (Fig. 2e)."""
    deduplicated: Tensor
    """(m,) bool: those of `filtered` that no other one stands for (Fig. 2f)."""

    @property
    def kept(self) -> Tensor:
        """The reconstruction (k, d)."""
        return self.final[self.deduplicated]


def paper_multipliers(multipliers: Tensor, *, unit: float) -> Tensor:
    """Multipliers in the units of the paper's threshold, `unit` of which make up one of `multipliers`.

    Eq. 2 reads theta = sum_i c_i y_i grad phi(x_i), but like the authors' code we write c_i = scale * lam_i / m.
    The 5 of Section 4 must be such a lam with scale 1, that is m * c_i: read as c_i itself it would drop every
    point, since in networks trained on the circle the c_i of the training points are of the order of 0.01. So:

    - multipliers given as lam_i of c_i = scale * lam_i / m: `unit` = scale;
    - multipliers given as the coefficients c_i: `unit` = m.

    The size of c_i follows that of the weights (theta -> a theta makes c -> c a^(2 - L) in a network of L layers),
    so 5 suits networks of the paper's size of weights; elsewhere a share of the largest multiplier is safer.
    """
    if not 0 < unit < math.inf:
        raise InputError(f"unit must be a positive number, got {unit}")
    return multipliers * unit


def filter_multipliers(candidates: Tensor, multipliers: Tensor, *, threshold: float) -> Tensor:
    """(m,) bool: candidates (m, d) that are finite and whose multiplier is at least `threshold`."""
    _check(candidates, multipliers)
    if math.isnan(threshold):
        raise InputError("threshold must be a number, got nan")
    return (multipliers >= threshold) & candidates.isfinite().all(1)


def deduplicate(candidates: Tensor, among: Tensor, *, distance: float, seed: int) -> Tensor:
    """(m,) bool: a subset of `among` (m,) no two of which are closer than `distance`, gone through in random order.

    A point goes if one that stays is too close, so every point that goes has one that stays within `distance`.
    (The paper's sentence also allows a chain of neighbours to wipe itself out but for its end.)
    """
    if not 0 <= distance < math.inf:
        raise InputError(f"distance must be 0 or more, got {distance}")
    rows = among.nonzero()[:, 0].cpu()
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))]
    points = candidates.detach().cpu().double()[rows]
    stays = torch.zeros(len(rows), dtype=torch.bool)
    for index, point in enumerate(points):
        stays[index] = not ((points[stays] - point).norm(dim=1) < distance).any()
    mask = torch.zeros(len(candidates), dtype=torch.bool)
    mask[rows[stays]] = True
    return mask.to(candidates.device)


def circle_stages(
    initial: Tensor,
    final: Tensor,
    multipliers: Tensor,
    *,
    unit: float,
    threshold: float = PAPER_THRESHOLD,
    distance: float = PAPER_DISTANCE,
    seed: int = 0,
) -> CircleStages:
    """All stages of an attack that took candidates from `initial` to `final` (m, d) with `multipliers` (m,).

    `unit` turns the multipliers into those `threshold` is meant for; see `paper_multipliers`.
    """
    if initial.shape != final.shape:
        raise InputError(
            f"initial and final candidates must be alike, got {tuple(initial.shape)} and {tuple(final.shape)}"
        )
    filtered = filter_multipliers(final, paper_multipliers(multipliers, unit=unit), threshold=threshold)
    return CircleStages(initial, final, filtered, deduplicate(final, filtered, distance=distance, seed=seed))


def _check(candidates: Tensor, multipliers: Tensor) -> None:
    if candidates.ndim != 2 or multipliers.shape != candidates.shape[:1]:
        raise InputError(
            "candidates must be (m, d) with one multiplier each, "
            f"got {tuple(candidates.shape)} and {tuple(multipliers.shape)}"
        )
