"""Mean squared error of image pairs."""

from __future__ import annotations

from torch import Tensor

from recon_core.matching.pairs import check_pairs


def mse(x: Tensor, y: Tensor) -> Tensor:
    """Mean over all pixels and channels of (x - y)^2; (P, C, H, W) twice -> (P,), 0 on equals."""
    check_pairs(x, y)
    return (x - y).flatten(1).square().mean(dim=1)
