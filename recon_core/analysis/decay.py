"""How weight decay changes what leaks: one model for each decay, all else the same (Buzaglo et al. 2023, Section 5)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from recon_core.errors import InputError


@dataclass(frozen=True)
class DecayPoint:
    """One model: its decay and the count with its controls. None means that control was not run."""

    model: str
    weight_decay: float
    """0 for none."""
    good: int
    of: int
    control_mean_image: int
    control_untrained: int | None
    non_members: int | None
    non_members_of: int | None
    train_error: float | None = None
    test_error: float | None = None


@dataclass(frozen=True)
class DecayCurve:
    """Models of one family by decay, those without any first."""

    points: tuple[DecayPoint, ...]
    threshold: float

    @property
    def without(self) -> tuple[DecayPoint, ...]:
        return tuple(point for point in self.points if point.weight_decay == 0)

    @property
    def with_decay(self) -> tuple[DecayPoint, ...]:
        return tuple(point for point in self.points if point.weight_decay > 0)

    @property
    def of(self) -> int:
        """Training images of the largest model."""
        return max(point.of for point in self.points)

    def to_frame(self) -> pd.DataFrame:
        return pd.DataFrame([{**vars(point), "threshold": self.threshold} for point in self.points])


def decay_curve(points: Iterable[DecayPoint], threshold: float) -> DecayCurve:
    ordered = sorted(points, key=lambda point: (point.weight_decay, point.model))
    if not ordered:
        raise InputError("a weight-decay curve needs at least 1 model, got none; match a model first")
    return DecayCurve(tuple(ordered), threshold)
