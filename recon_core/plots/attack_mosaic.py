"""Candidates close together in one PNG, as wide as a page shows without shrinking it."""

from __future__ import annotations

import io
import math

import numpy as np
from PIL import Image

from recon_core.analysis.pairs import Images
from recon_core.errors import InputError
from recon_core.plots.mosaic import pixels

WIDEST = 1440
"""Pixels: a little below what Streamlit would shrink, and blur."""
_GAP = 4  # pixels of the page, left transparent so that it suits any theme
_FAST = 1  # zlib level: a page waits for the encoder, and noise does not compress anyway


def candidate_mosaic(images: Images, columns: int, widest: int = WIDEST) -> bytes:
    """Images (k, C, H, W) in [0, 1] as PNG, left to right, top to bottom, enlarged by a whole factor."""
    if len(images) == 0 or columns < 1:
        raise InputError(f"a mosaic needs at least 1 image and 1 column, got {len(images)} and {columns}")
    tiles = pixels(images)
    count, height, width, _ = tiles.shape
    columns = min(columns, count)
    scale = max(1, (widest // columns - _GAP) // width)
    rows = math.ceil(count / columns)
    laid = np.zeros((rows * columns, height * scale + _GAP, width * scale + _GAP, 4), dtype=np.uint8)
    laid[:count, : height * scale, : width * scale, :3] = tiles.repeat(scale, axis=1).repeat(scale, axis=2)
    laid[:count, : height * scale, : width * scale, 3] = 255
    grid = laid.reshape(rows, columns, *laid.shape[1:]).swapaxes(1, 2)
    picture = grid.reshape(rows * laid.shape[1], columns * laid.shape[2], 4)[:-_GAP, :-_GAP]
    file = io.BytesIO()
    Image.fromarray(picture).save(file, format="PNG", compress_level=_FAST)
    return file.getvalue()
