"""Membership tests: how well a score tells training images from others, and how surely that is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import stats
from torch import Tensor

from recon_core.errors import InputError
from recon_core.matching.roc import Roc, roc

FALSE_POSITIVE_RATES = (0.01, 0.001)
CONFIDENCE = 0.95
_BISECTIONS = 60


class Interval(NamedTuple):
    """Holds the true value with `CONFIDENCE`."""

    low: float
    high: float


@dataclass(frozen=True)
class RateAt:
    """The true-positive rate at a false-positive rate of at most `allowed`, measured on k non-members.

    The interval is that of the members; the threshold was set on the same non-members, and `false_positives_high` is
    the largest false-positive rate it may really have. With k * allowed < 1 no false positive at all was allowed.
    """

    allowed: float
    rate: float
    interval: Interval
    false_positives_high: float
    resolved: bool
    """Whether there are enough non-members to measure this false-positive rate."""


@dataclass(frozen=True)
class MembershipTest:
    """How well one score tells members from non-members."""

    curve: Roc
    members: int
    non_members: int
    auc: float
    auc_interval: Interval
    at: tuple[RateAt, ...]


def membership_test(
    members: Tensor, non_members: Tensor, allowed: Sequence[float] = FALSE_POSITIVE_RATES
) -> MembershipTest:
    """From scores (n,) and (k,), larger meaning more like a member."""
    curve = roc(members, non_members)
    n, k = len(members), len(non_members)
    rates = []
    for limit in allowed:
        rate = curve.true_positive_rate_at(limit)
        most = math.floor(limit * k + 1e-9)
        rates.append(RateAt(limit, rate, exact_interval(round(rate * n), n), exact_interval(most, k).high, most >= 1))
    return MembershipTest(curve, n, k, curve.auc, auc_interval(curve.auc, n, k), tuple(rates))


def exact_interval(hits: int, of: int, confidence: float = CONFIDENCE) -> Interval:
    """Clopper and Pearson's interval of a share, from `hits` of `of` trials."""
    if not 0 <= hits <= of or of == 0:
        raise InputError(f"a share needs hits between 0 and the number of trials, got {hits} of {of}")
    tail = (1 - confidence) / 2
    low = 0.0 if hits == 0 else float(stats.beta.ppf(tail, hits, of - hits + 1))
    high = 1.0 if hits == of else float(stats.beta.ppf(1 - tail, hits + 1, of - hits))
    return Interval(low, high)


def auc_interval(auc: float, members: int, non_members: int) -> Interval:
    """Newcombe's score interval (2006, method 5), which keeps its width where the AUC is 0 or 1."""
    z = float(stats.norm.ppf((1 + CONFIDENCE) / 2))
    average = (members + non_members) / 2 - 1

    def reach(true: float) -> float:
        spread = 1 + average * ((1 - true) / (2 - true) + true / (1 + true))
        return z * math.sqrt(max(true * (1 - true) * spread / (members * non_members), 0.0))

    def edge(outside: float) -> float:
        inside = auc
        for _ in range(_BISECTIONS):
            middle = (inside + outside) / 2
            if abs(auc - middle) <= reach(middle):
                inside = middle
            else:
                outside = middle
        return inside

    return Interval(edge(0.0), edge(1.0))


def more_than_chance(hits: int, of: int, control_hits: int, control_of: int) -> float:
    """Fisher's exact p-value that the share of hits is no larger than the control's."""
    table = np.array([[hits, of - hits], [control_hits, control_of - control_hits]])
    return float(stats.fisher_exact(table, alternative="greater")[1])
