"""How well a score tells members of the training set from images that were not in it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from recon_core.errors import InputError


@dataclass(frozen=True)
class Roc:
    """Receiver operating characteristic of "a member scores at least t", from strictest t to laxest.

    All (T + 1,), beginning at (0, 0) with threshold inf.
    """

    thresholds: Tensor
    false_positive_rates: Tensor
    true_positive_rates: Tensor

    @property
    def auc(self) -> float:
        """Area under the curve: the chance that a member outscores a non-member, ties counting half."""
        return float(torch.trapezoid(self.true_positive_rates, self.false_positive_rates))

    def true_positive_rate_at(self, false_positive_rate: float = 0.01) -> float:
        """The largest true-positive rate some threshold reaches with at most this false-positive rate.

        Points between thresholds would need a coin toss, so nothing is interpolated: with fewer than 100
        non-members, at most 1% means none.
        """
        if not 0 <= false_positive_rate <= 1:
            raise InputError(
                f"the false-positive rate must lie in [0, 1], got {false_positive_rate}; 0.01 is customary"
            )
        allowed = self.false_positive_rates <= false_positive_rate
        return float(self.true_positive_rates[allowed].max())


def roc(members: Tensor, non_members: Tensor) -> Roc:
    """ROC from scores (n,) and (k,), larger meaning more like a member; NaN (no candidate at all) ranks last."""
    if members.ndim != 1 or non_members.ndim != 1 or len(members) == 0 or len(non_members) == 0:
        raise InputError(
            "a ROC curve needs at least one member's and one non-member's score, "
            f"got shapes {tuple(members.shape)} and {tuple(non_members.shape)}"
        )
    scores = (
        torch.cat([members, non_members]).cpu().double().nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
    )
    is_member = torch.arange(len(scores)) < len(members)
    scores, order = scores.sort(descending=True)
    is_member = is_member[order]
    # Equal scores stand or fall together: only the last of each run is a point of the curve.
    last = torch.ones_like(is_member)
    last[:-1] = scores[1:] != scores[:-1]
    hits, alarms = is_member.cumsum(0)[last], (~is_member).cumsum(0)[last]
    start = torch.zeros(1, dtype=torch.float64)
    return Roc(
        thresholds=torch.cat([start + torch.inf, scores[last]]),
        false_positive_rates=torch.cat([start, alarms.double() / len(non_members)]),
        true_positive_rates=torch.cat([start, hits.double() / len(members)]),
    )
