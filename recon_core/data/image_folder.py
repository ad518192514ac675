"""The user's own images in a folder with a subfolder per class.

Classes are the subfolders in order of name, images the picture files directly in them in order of
name; what begins with a dot, other kinds of file and links that lead out of the folder are passed
over. All images must have one size and be all grey or all colour. Of an animation the first frame
is read; a photograph is turned as its camera says.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from recon_core.data.own_limits import MAX_PIXELS, MAX_SET_BYTES
from recon_core.data.types import ImageSet, SourceInfo, Split
from recon_core.errors import InputError
from recon_core.observing import Listener

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif")
_FORMATS = ("PNG", "JPEG", "BMP", "WEBP", "GIF")

_EIGHT_BIT = {"1": "L", "L": "L", "LA": "L", "RGB": "RGB", "RGBA": "RGB", "P": "RGB", "PA": "RGB"}
"""Pillow's modes that are read, and what they are read as: grey or colour."""

_KIND = {1: "grey", 3: "colour"}


class _Listing(NamedTuple):
    class_names: tuple[str, ...]
    files: tuple[tuple[Path, ...], ...]


def describe_folder(path: str) -> SourceInfo:
    """Classes and counts; of the images only the first is opened."""
    listing = _list(path)
    return SourceInfo(
        name=Path(path).name or path,
        class_names=listing.class_names,
        train_n=sum(len(files) for files in listing.files),
        test_n=0,
        shape=_read(listing.files[0][0]).shape,
        note=f"images in {path}",
    )


def read_folder(path: str, progress: Listener | None = None) -> ImageSet:
    """Read every image of the folder."""
    listing = _list(path)
    files = [file for of_class in listing.files for file in of_class]
    labels = np.repeat(np.arange(len(listing.files)), [len(of_class) for of_class in listing.files])
    first = _read(files[0])
    if first.size * len(files) > MAX_SET_BYTES:
        raise InputError(
            f"{len(files)} images of {_size(first)} in {path!r} make more than {MAX_SET_BYTES >> 20} MiB; "
            "use fewer or smaller images"
        )
    images = np.empty((len(files), *first.shape), dtype=np.uint8)
    for number, file in enumerate(files):
        image = first if number == 0 else _read(file)
        if image.shape[1:] != first.shape[1:]:
            raise InputError(
                f"images must all have one size, but {_name(files[0])} is {_size(first)} and "
                f"{_name(file)} is {_size(image)}; resize them alike"
            )
        if image.shape[0] != first.shape[0]:
            raise InputError(
                f"images must be all grey or all colour, but {_name(files[0])} is {_KIND[first.shape[0]]} and "
                f"{_name(file)} is {_KIND[image.shape[0]]}; convert them alike"
            )
        images[number] = image
        if progress is not None:
            progress((number + 1) / len(files), "reading images")
    return ImageSet(Split(images, labels, np.arange(len(files))), None, listing.class_names)


def _list(path: str) -> _Listing:
    root = Path(os.path.expanduser(path))
    if not os.path.isdir(root):
        raise InputError(
            f"there is no folder {path!r}; data.path must be a folder with a subfolder of images per class"
        )
    try:
        inside = Path(os.path.realpath(root))
        folders = [entry for entry in _entries(root, inside) if entry.is_dir()]
        files = tuple(
            tuple(entry for entry in _entries(folder, inside) if entry.suffix.lower() in SUFFIXES and entry.is_file())
            for folder in folders
        )
    except OSError as error:
        raise InputError(f"the folder {path!r} cannot be read ({error}); check its permissions") from error
    if not folders:
        raise InputError(f"the folder {path!r} has no subfolders; put the images of each class into a subfolder of it")
    for folder, of_class in zip(folders, files, strict=True):
        if not of_class:
            raise InputError(
                f"the class folder {str(folder)!r} has no image files directly in it ({', '.join(SUFFIXES)}); "
                "add some or remove it"
            )
    return _Listing(tuple(folder.name for folder in folders), files)


def _entries(folder: Path, inside: Path) -> list[Path]:
    """What is in `folder` by name, without hidden entries and links that leave `inside`."""
    return [
        entry
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if not entry.name.startswith((".", "__")) and Path(os.path.realpath(entry)).is_relative_to(inside)
    ]


def _read(file: Path) -> NDArray[np.uint8]:
    """One image as (C, H, W) uint8, C 1 or 3."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(file, formats=_FORMATS) as image:
                if image.width * image.height <= MAX_PIXELS and image.mode in _EIGHT_BIT:
                    return _decode(image, file)
                width, height, mode = image.width, image.height, image.mode
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise InputError(f"{str(file)!r} is far too large an image; at most {MAX_PIXELS} pixels are read") from error
    except InputError:
        raise
    except Exception as error:  # a decoder may fail on a damaged file in any way it likes
        raise InputError(
            f"{str(file)!r} cannot be read as an image ({str(error) or type(error).__name__}); repair or remove it"
        ) from error
    if mode not in _EIGHT_BIT:
        raise InputError(f"{str(file)!r} has pixels of mode {mode}; save it as 8-bit grey or RGB")
    raise InputError(
        f"{str(file)!r} has {width}x{height} pixels, at most {MAX_PIXELS} are read (512x512); make it smaller"
    )


def _decode(image: Image.Image, file: Path) -> NDArray[np.uint8]:
    target = _EIGHT_BIT[image.mode]
    turned = ImageOps.exif_transpose(image)
    if turned.has_transparency_data:
        turned = turned.convert("RGBA")
        if turned.getchannel("A").getextrema() != (255, 255):
            raise InputError(f"{str(file)!r} has transparent pixels; flatten it onto a background")
    turned = turned.convert(target)
    pixels = np.asarray(turned, dtype=np.uint8)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _size(image: NDArray[np.uint8]) -> str:
    return f"{image.shape[2]}x{image.shape[1]}"


def _name(file: Path) -> str:
    return f"{file.parent.name}/{file.name}"
