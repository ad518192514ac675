"""Many pictures tightly packed in one PNG, pixel for pixel: a browser cuts its tiles out of it and enlarges them."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass

import numpy as np
from PIL import Image

from recon_core.analysis.pairs import Images
from recon_core.errors import InputError
from recon_core.plots.mosaic import Mosaic, pixels

_FAST = 1  # zlib level: a page waits for the encoder, and noise does not compress anyway


@dataclass(frozen=True)
class Sheet:
    """Tile i stands in row i // columns, column i % columns; sizes are in pixels of the images."""

    png: bytes
    count: int
    columns: int
    rows: int
    tile_width: int
    tile_height: int


def sheet(images: Images, *below: Images) -> Sheet:
    """Images (k, C, H, W) in [0, 1], one tile each; `below` holds what stands under each of them in its tile."""
    if any(len(other) != len(images) for other in below):
        raise InputError(f"{len(images)} images need as many below them, got {', '.join(str(len(b)) for b in below)}")
    tiles = np.concatenate([pixels(part) for part in (images, *below)], axis=1)
    count, height, width, channels = tiles.shape
    columns = max(1, math.isqrt(count))
    rows = max(1, math.ceil(count / columns))
    packed = np.zeros((rows * columns, height, width, channels), dtype=np.uint8)
    packed[:count] = tiles
    grid = packed.reshape(rows, columns, height, width, channels).swapaxes(1, 2)
    return Sheet(
        png(grid.reshape(rows * height, columns * width, channels), _FAST), count, columns, rows, width, height
    )


def png(picture: Mosaic, compress_level: int = 6) -> bytes:
    """An array of pixels as a file."""
    file = io.BytesIO()
    Image.fromarray(picture).save(file, format="PNG", compress_level=compress_level)
    return file.getvalue()
