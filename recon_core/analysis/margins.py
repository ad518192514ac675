"""Margins of samples, the margin of the network, and distances to it."""

from __future__ import annotations

import torch
from torch import Tensor

from recon_core.errors import InputError


def own_outputs(outputs: Tensor, labels: Tensor) -> Tensor:
    """phi of each sample (n,): the output itself, or with several the one of the true class. outputs (n, C)."""
    _check(outputs, labels)
    if outputs.shape[1] == 1:
        return outputs[:, 0]
    return outputs.gather(1, labels.long()[:, None])[:, 0]


def sample_margins(outputs: Tensor, labels: Tensor) -> Tensor:
    """Margin q of each sample (n,), from outputs (n, C): y phi, or with several the true output less the best other.

    Negative exactly where the sample is misclassified.
    """
    _check(outputs, labels)
    if outputs.shape[1] == 1:
        return outputs[:, 0] * (labels.to(outputs.dtype) * 2 - 1)
    own = labels.long()[:, None]
    rivals = outputs.scatter(1, own, -torch.inf).amax(dim=1)
    return outputs.gather(1, own)[:, 0] - rivals


def network_margin(margins: Tensor) -> float | None:
    """The margin gamma of the network: the smallest margin of a correctly classified sample; None without one."""
    correct = margins[margins > 0]
    return float(correct.min()) if len(correct) else None


def margin_distances(outputs: Tensor, labels: Tensor) -> Tensor:
    """Signed distance to the margin (n,), the same for two classes and for many: q - gamma, from outputs (n, C).

    0 on the margin, positive beyond it, at most -gamma where the sample is misclassified. Haim et al. 2022, Fig. 4, and
    Buzaglo et al. 2023, Fig. 14, draw outputs; for samples that are classified correctly that differs by a shift.
    """
    margins = sample_margins(outputs, labels)
    return margins - (network_margin(margins) or 0.0)


def _check(outputs: Tensor, labels: Tensor) -> None:
    if outputs.ndim != 2 or len(outputs) != len(labels) or len(outputs) == 0:
        raise InputError(
            f"outputs must be (n, C) with one label each, got shapes {tuple(outputs.shape)} and {tuple(labels.shape)}"
        )
