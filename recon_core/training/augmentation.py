"""Random augmentation: training images are changed each time they are used."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from recon_core.config import Augmentation

SHIFT = 4
"""Pixels by which an image is moved at most, as is customary for CIFAR."""


def augment(images: Tensor, how: Augmentation, generator: torch.Generator) -> Tensor:
    """Centred images (n, C, H, W), each mirrored with probability 1/2 and, for flip-shift, moved.

    What comes in at the edge is 0: the mean image.
    """
    if how is Augmentation.NONE:
        return images
    n, _, height, width = images.shape
    mirrored = (torch.rand(n, generator=generator) < 0.5).to(images.device)
    changed = torch.where(mirrored[:, None, None, None], images.flip(3), images)
    if how is Augmentation.FLIP:
        return changed
    padded = F.pad(changed, (SHIFT, SHIFT, SHIFT, SHIFT))
    top, left = torch.randint(0, 2 * SHIFT + 1, (2, n, 1), generator=generator).to(images.device)
    rows = top + torch.arange(height, device=images.device)
    columns = left + torch.arange(width, device=images.device)
    each = torch.arange(n, device=images.device)[:, None, None]
    return padded[each, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
