"""Matching on the circle and its kin: points need no normalising, only the right class."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from recon_core.errors import InputError


@dataclass(frozen=True)
class PlanarMatching:
    """Distance of each training point to the nearest candidate of its class, and the other way round."""

    distances: Tensor
    """(N,), inf where no candidate has the point's class."""
    nearest: Tensor
    """(N,), index of that candidate, -1 without one."""
    candidate_distances: Tensor
    """(M,), of each candidate to the nearest training point of its class; inf without one or if non-finite."""
    non_finite: int
    """Candidates left out because they hold NaN or infinity."""

    def recovered(self, radius: float) -> int:
        """Training points with a candidate of their class within the radius."""
        return _count(self.distances, radius)

    def settled(self, radius: float) -> int:
        """Candidates within the radius of a training point of their class: what is not noise."""
        return _count(self.candidate_distances, radius)


def match_points(points: Tensor, classes: Tensor, candidates: Tensor, candidate_classes: Tensor) -> PlanarMatching:
    """Match points (N, p) with candidates (M, p); classes (N,) and (M,) are any labels that compare equal."""
    if points.ndim != 2 or candidates.ndim != 2 or points.shape[1] != candidates.shape[1]:
        raise InputError(
            "points and candidates must be (N, p) and (M, p) of one dimension, "
            f"got {tuple(points.shape)} and {tuple(candidates.shape)}"
        )
    if len(classes) != len(points) or len(candidate_classes) != len(candidates):
        raise InputError(
            f"each point needs a class, got {len(classes)} for {len(points)} points "
            f"and {len(candidate_classes)} for {len(candidates)} candidates"
        )
    if len(points) == 0 or len(candidates) == 0:
        raise InputError(f"there is nothing to match: {len(points)} training points and {len(candidates)} candidates")
    finite = torch.isfinite(candidates).all(dim=1)
    if not finite.any():
        raise InputError(f"all {len(candidates)} candidates hold NaN or infinite values; run again with a smaller rate")
    # The matrix-product shortcut loses the digits that matter at distance 0.
    distances = torch.cdist(points.to(candidates), candidates, compute_mode="donot_use_mm_for_euclid_dist")
    eligible = (classes[:, None] == candidate_classes) & finite
    distances = distances.where(eligible, torch.inf)
    closest = distances.min(dim=1)
    return PlanarMatching(
        distances=closest.values,
        nearest=closest.indices.where(torch.isfinite(closest.values), -1),
        candidate_distances=distances.amin(dim=0),
        non_finite=int((~finite).sum()),
    )


def _count(distances: Tensor, radius: float) -> int:
    if not radius > 0:
        raise InputError(f"the radius must be above 0, got {radius}; 0.03 and 0.1 suit the unit circle")
    return int((distances <= radius).sum())
