"""Many images as one array of pixels: a grid draws at once where a thousand pictures would crawl."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from recon_core.analysis.pairs import BestPairs, Images
from recon_core.errors import InputError
from recon_core.plots.style import GOOD, NOT_GOOD

Mosaic = NDArray[np.uint8]
"""(H, W, 3), 0..255."""

_SMALLEST_SIDE = 64  # pixels of a tile in a saved picture, at least
_BORDER, _GAP, _DASH = 1, 1, 2  # pixels of the image, before it is enlarged
_WHITE = (255, 255, 255)


def pairs_mosaic(
    pairs: BestPairs, columns: int = 10, arrangement: Literal["above", "beside"] = "above", scale: int | None = None
) -> Mosaic:
    """Training image above (or left of) its reconstruction, best pair first, framed by whether it is good.

    Blue frames are good, orange and dashed ones are not. `scale` enlarges by whole pixels.
    """
    axis = {"above": 0, "beside": 1}.get(arrangement)
    if axis is None:
        raise InputError(f"arrangement must be above or beside, got {arrangement!r}")
    tiles = [
        _framed(np.concatenate([image, reconstruction], axis=axis), _rgb(GOOD if good else NOT_GOOD), dashed=not good)
        for image, reconstruction, good in zip(
            pixels(pairs.images), pixels(pairs.reconstructions), pairs.good, strict=True
        )
    ]
    side = min(pairs.images.shape[2:])
    return _enlarge(_grid(tiles, columns), scale or _default_scale(side))


def image_mosaic(images: Images, columns: int = 10, scale: int | None = None) -> Mosaic:
    """Images (k, C, H, W) in [0, 1], left to right, top to bottom."""
    tiles = [_framed(image, _WHITE) for image in pixels(images)]
    return _enlarge(_grid(tiles, columns), scale or _default_scale(min(images.shape[2:])))


def framed_strip(images: Images, good: Sequence[bool | None] | None, scale: int | None = None) -> Mosaic:
    """Images (k, C, H, W) in [0, 1] in one row, framed as in `pairs_mosaic`, those that are None not at all."""
    marks = [None] * len(images) if good is None else good
    tiles = [
        _framed(image, _WHITE if mark is None else _rgb(GOOD if mark else NOT_GOOD), dashed=mark is False)
        for image, mark in zip(pixels(images), marks, strict=True)
    ]
    return _enlarge(_grid(tiles, len(tiles)), scale or _default_scale(min(images.shape[2:])))


def save_mosaic(mosaic: Mosaic, path: Path) -> Path:
    Image.fromarray(mosaic).save(path, format="PNG", optimize=True)
    return path


def _default_scale(side: int) -> int:
    return max(1, math.ceil(_SMALLEST_SIDE / side))


def pixels(images: Images) -> Mosaic:
    """(k, C, H, W) in [0, 1] -> (k, H, W, 3), 0..255; one channel becomes three, two get an empty third."""
    if images.ndim != 4 or images.shape[1] not in (1, 2, 3):
        raise InputError(f"images must be (k, C, H, W) with 1 to 3 channels, got {images.shape}")
    bright = (np.nan_to_num(images).clip(0.0, 1.0) * 255).round().astype(np.uint8)
    if images.shape[1] == 1:
        bright = bright.repeat(3, axis=1)
    elif images.shape[1] == 2:
        bright = np.concatenate([bright, np.zeros_like(bright[:, :1])], axis=1)
    return bright.transpose(0, 2, 3, 1)


def _framed(tile: Mosaic, colour: tuple[int, int, int], dashed: bool = False) -> Mosaic:
    height, width, _ = tile.shape
    outer = np.full((height + 2 * (_BORDER + _GAP), width + 2 * (_BORDER + _GAP), 3), 255, dtype=np.uint8)
    frame = outer[_GAP:-_GAP, _GAP:-_GAP]
    rows, columns = np.ogrid[: frame.shape[0], : frame.shape[1]]
    frame[(rows + columns) % (2 * _DASH) < (_DASH if dashed else 2 * _DASH)] = colour
    inner = _GAP + _BORDER
    outer[inner:-inner, inner:-inner] = tile
    return outer


def _grid(tiles: list[Mosaic], columns: int) -> Mosaic:
    if columns < 1 or not tiles:
        raise InputError(f"a grid needs at least 1 column and 1 image, got {columns} and {len(tiles)}")
    columns = min(columns, len(tiles))
    height, width, _ = tiles[0].shape
    rows = math.ceil(len(tiles) / columns)
    grid = np.full((rows * height, columns * width, 3), 255, dtype=np.uint8)
    for index, tile in enumerate(tiles):
        top, left = index // columns * height, index % columns * width
        grid[top : top + height, left : left + width] = tile
    return grid


def _enlarge(mosaic: Mosaic, scale: int) -> Mosaic:
    if scale < 1:
        raise InputError(f"a picture can be enlarged 1 time or more, got {scale}")
    return mosaic.repeat(scale, axis=0).repeat(scale, axis=1)


def _rgb(colour: str) -> tuple[int, int, int]:
    red, green, blue = bytes.fromhex(colour.removeprefix("#"))
    return red, green, blue
