"""How far a sample is from where the network changes its mind."""

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


def margin_distances(outputs: Tensor, labels: Tensor) -> Tensor:
    """Distance to the margin (n,), from outputs (n, C).

    One output: |phi| less the smallest |phi|, so the margin itself is at 0 (Haim et al. 2022, Fig. 4).
    Several: true output less the best rival, negative where the sample is misclassified (Buzaglo et al. 2023, Fig. 14).
    """
    _check(outputs, labels)
    if outputs.shape[1] == 1:
        sizes = outputs[:, 0].abs()
        return sizes - sizes.min()
    own = labels.long()[:, None]
    rivals = outputs.scatter(1, own, -torch.inf).amax(dim=1)
    return outputs.gather(1, own)[:, 0] - rivals


def _check(outputs: Tensor, labels: Tensor) -> None:
    if outputs.ndim != 2 or len(outputs) != len(labels) or len(outputs) == 0:
        raise InputError(
            f"outputs must be (n, C) with one label each, got shapes {tuple(outputs.shape)} and {tuple(labels.shape)}"
        )
