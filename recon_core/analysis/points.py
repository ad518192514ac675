"""The planar counterpart of the match table: points instead of images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from torch import Tensor

from recon_core.analysis.arrays import Flags, Floats, Integers, flags, floats, integers


@dataclass(frozen=True, eq=False)
class PointTable:
    """Training points (n, 2) with the nearest candidate of their class; candidates (m, 2) with those that count."""

    points: Floats
    labels: Integers
    distances: Floats
    nearest: Integers
    candidates: Floats
    candidate_labels: Integers
    kept: Flags

    def to_frame(self) -> pd.DataFrame:
        return pd.DataFrame(
            {
                "sample": np.arange(len(self.points)),
                "x": self.points[:, 0],
                "y": self.points[:, 1],
                "label": self.labels,
                "distance": self.distances,
                "nearest": self.nearest,
            }
        )


def point_table(
    points: Tensor,
    labels: Tensor,
    distances: Tensor,
    nearest: Tensor,
    candidates: Tensor,
    candidate_labels: Tensor,
    kept: Tensor,
) -> PointTable:
    """From a planar matching, as the match run keeps it."""
    return PointTable(
        points=floats(points),
        labels=integers(labels),
        distances=floats(distances),
        nearest=integers(nearest),
        candidates=floats(candidates),
        candidate_labels=integers(candidate_labels),
        kept=flags(kept),
    )
