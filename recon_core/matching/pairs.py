"""What every image metric asks of its two batches."""

from __future__ import annotations

from torch import Tensor

from recon_core.errors import InputError


def check_pairs(x: Tensor, y: Tensor) -> None:
    """Metrics compare x[i] with y[i]: two float batches (P, C, H, W) of one shape."""
    if x.shape != y.shape:
        raise InputError(
            f"images are compared pair by pair and need one shape, got {tuple(x.shape)} and {tuple(y.shape)}"
        )
    if x.ndim != 4:
        raise InputError(f"images must come as a batch (P, C, H, W), got shape {tuple(x.shape)}; add the missing axes")
    if not (x.is_floating_point() and y.is_floating_point()):
        raise InputError(f"images must be floats in [0, 1], got {x.dtype} and {y.dtype}; divide 8-bit images by 255")
