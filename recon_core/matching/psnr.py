"""Peak signal-to-noise ratio of image pairs."""

from __future__ import annotations

from torch import Tensor

from recon_core.matching.mse import mse


def psnr(x: Tensor, y: Tensor) -> Tensor:
    """10 log10(1 / mse) in decibels for images in [0, 1]; (P, C, H, W) twice -> (P,), inf on equals."""
    return -10.0 * mse(x, y).log10()
