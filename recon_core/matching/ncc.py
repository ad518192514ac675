"""Normalised cross-correlation of image pairs."""

from __future__ import annotations

import torch
from torch import Tensor

from recon_core.matching.pairs import check_pairs


def ncc(x: Tensor, y: Tensor) -> Tensor:
    """Zero-mean normalised cross-correlation (Lewis 1995) over all pixels and channels.

    (P, C, H, W) twice -> (P,) in [-1, 1]; blind to brightness and contrast, NaN where an image is constant.
    """
    check_pairs(x, y)
    x, y = x.flatten(1), y.flatten(1)
    x = x - x.mean(dim=1, keepdim=True)
    y = y - y.mean(dim=1, keepdim=True)
    norms = torch.linalg.vector_norm(x, dim=1) * torch.linalg.vector_norm(y, dim=1)
    correlation: Tensor = (x * y).sum(dim=1) / norms
    return correlation.clamp(-1.0, 1.0)
