"""A small picture of each preset: the images it trains on, all of them, so that one sees what and how many."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F

from recon_core.analysis.pairs import Images
from recon_core.data import load_task
from recon_core.presets import find_preset

WIDTH, HEIGHT = 96, 64
_GROUND, _COLOURS = 1.0, ((0.13, 0.33, 0.63), (0.85, 0.37, 0.01))
_DOT = 2.5
_REACH = 1.25  # of the picture of points, over the circle's radius


def preset_picture(name: str) -> Images:
    """(3, HEIGHT, WIDTH) in [0, 1], of the quick size, which needs no download."""
    data = load_task(find_preset(name).config().data)
    if len(data.input_shape) == 1:
        return _points(data.train_x.numpy(), data.train_labels.numpy())
    return _grid((data.train_x + data.mean).clamp(0, 1).expand(-1, 3, -1, -1))


def _grid(images: torch.Tensor) -> Images:
    """As many columns as keep tiles square, all images, filled up with white."""
    count = len(images)
    side = max(
        min(WIDTH // columns, HEIGHT // math.ceil(count / columns)) for columns in range(1, min(count, WIDTH) + 1)
    )
    side = max(2, side)
    columns = WIDTH // side
    small = F.interpolate(images, size=(side, side), mode="area").numpy()
    picture = np.full((3, HEIGHT, WIDTH), _GROUND, dtype=np.float32)
    for place, image in enumerate(small):
        top, left = place // columns * side, place % columns * side
        if top + side <= HEIGHT:
            picture[:, top : top + side, left : left + side] = image
    return picture


def _points(points: np.ndarray, labels: np.ndarray) -> Images:
    rows, columns = np.mgrid[0:HEIGHT, 0:WIDTH]
    picture = np.full((3, HEIGHT, WIDTH), _GROUND, dtype=np.float32)
    scale = HEIGHT / 2 / _REACH
    for (x, y), label in zip(points, labels, strict=True):
        near = (columns - WIDTH / 2 - x * scale) ** 2 + (rows - HEIGHT / 2 + y * scale) ** 2 <= _DOT**2
        picture[:, near] = np.asarray(_COLOURS[int(label)])[:, None]
    return picture
