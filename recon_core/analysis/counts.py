"""How many reconstructions are good, as a function of the threshold and of the merge factor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from torch import Tensor

from recon_core.analysis.arrays import Floats, Integers, above, floats
from recon_core.errors import InputError
from recon_core.matching.protocol import check_threshold
from recon_core.matching.roc import Roc

THRESHOLDS = tuple(np.round(np.linspace(0.0, 1.0, 101), 2).tolist())


@dataclass(frozen=True, eq=False)
class CountByThreshold:
    """Good reconstructions at each SSIM threshold (T,), with the controls that were run."""

    thresholds: Floats
    good: Integers
    mean_image: Integers
    untrained: Integers | None
    non_members: Integers | None
    of: int
    non_members_of: int | None

    def to_frame(self) -> pd.DataFrame:
        columns = {"threshold": self.thresholds, "good": self.good, "mean_image": self.mean_image}
        for name in ("untrained", "non_members"):
            if (values := getattr(self, name)) is not None:
                columns[name] = values
        return pd.DataFrame(columns)


def count_by_threshold(
    ssim: Tensor,
    mean_image: Tensor,
    untrained: Tensor | None = None,
    non_members: Tensor | None = None,
    thresholds: Sequence[float] = THRESHOLDS,
) -> CountByThreshold:
    """From scores (n,) of the reconstructions and of each control."""
    for threshold in thresholds:
        check_threshold(threshold)

    def count(scores: Tensor) -> Integers:
        values = floats(scores)
        return np.array([above(values, threshold).sum() for threshold in thresholds], dtype=np.int64)

    return CountByThreshold(
        thresholds=np.asarray(thresholds, dtype=np.float64),
        good=count(ssim),
        mean_image=count(mean_image),
        untrained=None if untrained is None else count(untrained),
        non_members=None if non_members is None else count(non_members),
        of=len(ssim),
        non_members_of=None if non_members is None else len(non_members),
    )


@dataclass(frozen=True, eq=False)
class CountByFactor:
    """Good reconstructions at each merge factor B (F,), at one threshold."""

    factors: Floats
    good: Integers
    non_members: Integers | None
    threshold: float
    of: int

    def to_frame(self) -> pd.DataFrame:
        columns = {"merge_factor": self.factors, "good": self.good}
        if self.non_members is not None:
            columns["non_members"] = self.non_members
        return pd.DataFrame(columns)


def count_by_factor(
    factors: Tensor, ssim_by_factor: Tensor, threshold: float, non_members_by_factor: Tensor | None = None
) -> CountByFactor:
    """From factors (F,) and scores (F, n); see `recon_core.runs.matching.MERGE_FACTORS`."""
    check_threshold(threshold)
    if ssim_by_factor.ndim != 2 or len(factors) != len(ssim_by_factor):
        raise InputError(
            f"{len(factors)} merge factors need as many rows of scores, got shape {tuple(ssim_by_factor.shape)}"
        )
    return CountByFactor(
        factors=floats(factors),
        good=above(floats(ssim_by_factor), threshold).sum(axis=1),
        non_members=None
        if non_members_by_factor is None
        else above(floats(non_members_by_factor), threshold).sum(axis=1),
        threshold=threshold,
        of=ssim_by_factor.shape[1],
    )


@dataclass(frozen=True, eq=False)
class SortedSsim:
    """Training samples (n,) from best to worst reconstruction; those without one come last, as NaN."""

    ssim: Floats
    samples: Integers
    """Index of each in the training set."""

    def to_frame(self) -> pd.DataFrame:
        return pd.DataFrame({"rank": np.arange(1, len(self.ssim) + 1), "sample": self.samples, "ssim": self.ssim})


def sorted_ssim(ssim: Tensor) -> SortedSsim:
    scores = floats(ssim)
    order = np.argsort(-scores, kind="stable")  # NaN sorts last
    return SortedSsim(scores[order], order.astype(np.int64))


@dataclass(frozen=True, eq=False)
class RocCurve:
    """SSIM as a membership test: the ROC curve, its AUC, and the true-positive rate at 1% false positives."""

    thresholds: Floats
    false_positive_rates: Floats
    true_positive_rates: Floats
    auc: float
    tpr_at_1_percent_fpr: float

    def to_frame(self) -> pd.DataFrame:
        return pd.DataFrame(
            {
                "threshold": self.thresholds,
                "false_positive_rate": self.false_positive_rates,
                "true_positive_rate": self.true_positive_rates,
            }
        )


def roc_curve(roc: Roc) -> RocCurve:
    return RocCurve(
        thresholds=floats(roc.thresholds),
        false_positive_rates=floats(roc.false_positive_rates),
        true_positive_rates=floats(roc.true_positive_rates),
        auc=roc.auc,
        tpr_at_1_percent_fpr=roc.true_positive_rate_at(0.01),
    )
