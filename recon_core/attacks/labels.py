"""Labels of candidates, and the directions and signs that follow from them.

Labels are class indices; binary signs are +1 for label 1 and -1 for label 0, and this is where they convert.
"""

from __future__ import annotations

import torch
from torch import Tensor

from recon_core.attacks.settings import LabelPolicy
from recon_core.config import Task
from recon_core.errors import InputError


def assign_labels(policy: LabelPolicy, m: int, outputs: int) -> Tensor:
    """Class indices (m,), int64: the first half 1 and the second 0 (Haim et al. 2022, 3.2), or equal runs per class.

    Learnt signs start as 0; see `learnt_labels`.
    """
    if policy is LabelPolicy.HALF:
        if m % 2:
            raise InputError(f"m must be even, half the candidates for each class, got {m}; try {m + 1}")
        return (torch.arange(m) < m // 2).long()
    if policy is LabelPolicy.PER_CLASS:
        if m < outputs:
            raise InputError(f"m must be at least the number of classes {outputs}, got {m}")
        return torch.arange(m) * outputs // m
    return torch.zeros(m, dtype=torch.long)


def learnt_labels(multipliers: Tensor) -> Tensor:
    """Class 1 where the multiplier ended positive, class 0 elsewhere (m,)."""
    return (multipliers > 0).long()


def multiplier_signs(labels: Tensor, policy: LabelPolicy, dtype: torch.dtype) -> Tensor:
    """y_i of Eq. 6 (m,): +-1 for binary halves, 1 where the sign is in the direction (multiclass) or learnt."""
    if policy is LabelPolicy.HALF:
        return labels.to(dtype) * 2 - 1
    return torch.ones(len(labels), dtype=dtype, device=labels.device)


def output_directions(phi: Tensor, labels: Tensor, objective: Task) -> Tensor:
    """e (m, C), the output whose gradient a candidate contributes.

    One output: 1. Multiclass: +1 at the label and -1 at its best rival at this point (Buzaglo et al. 2023,
    Section 4); the rival is piecewise constant, so no derivative passes through the choice.
    """
    if objective is not Task.MULTICLASS:
        return torch.ones_like(phi)
    own = labels[:, None]
    rival = phi.scatter(1, own, -torch.inf).argmax(1, keepdim=True)
    return torch.zeros_like(phi).scatter_(1, own, 1.0).scatter_(1, rival, -1.0)
