"""From attack space to pixels."""

from __future__ import annotations

from torch import Tensor


def stretch(images: Tensor) -> Tensor:
    """Map each image's smallest value to 0 and its largest to 1; (P, C, H, W) -> (P, C, H, W).

    A constant image has no contrast to stretch and becomes all zeros.
    """
    low = images.flatten(1).amin(dim=1).view(-1, 1, 1, 1)
    high = images.flatten(1).amax(dim=1).view(-1, 1, 1, 1)
    span = high - low
    return (images - low) / span.where(span > 0, 1.0)
