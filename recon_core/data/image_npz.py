"""The user's own images in an .npz file.

`images` (N, H, W), (N, H, W, C) or (N, C, H, W) with C 1 or 3, uint8 or floats in [0, 1]; `labels`
(N,) integers from 0. Optional: `test_images` and `test_labels`, `class_names` (label k is called
class_names[k]; without it classes are called by their labels). Channels are taken to be last where
both readings are possible. The file is untrusted: nothing is unpickled, and what an array claims
about its size is checked before it is read.
"""

from __future__ import annotations

import math
import os
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from recon_core.data.own_limits import MAX_PIXELS, MAX_SET_BYTES
from recon_core.data.types import ImageSet, Indices, Pixels, SourceInfo, Split
from recon_core.errors import InputError

_WANTED = "the file needs images (N, H, W), (N, H, W, C) or (N, C, H, W) and labels (N,)"


class _Header(NamedTuple):
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class _Labelling(NamedTuple):
    class_names: tuple[str, ...]
    train: Indices
    test: Indices | None


def describe_npz(path: str) -> SourceInfo:
    """Classes, counts and shape from headers and labels; no image is read."""
    with _Arrays(path) as arrays:
        labelling = _labelling(arrays)
        shape = arrays.header("images").shape
        channels = _channel_axis(arrays, "images")
        size = tuple(length for axis, length in enumerate(shape) if axis not in (0, channels))
        return SourceInfo(
            name=Path(path).name,
            class_names=labelling.class_names,
            train_n=shape[0],
            test_n=0 if labelling.test is None else len(labelling.test),
            shape=(1 if channels is None else shape[channels], *size),
            note=f"images in {path}",
        )


def read_npz(path: str) -> ImageSet:
    """Read all arrays and check them."""
    with _Arrays(path) as arrays:
        labelling = _labelling(arrays)
        images = _images(arrays, "images")
        train = Split(images, labelling.train, np.arange(len(images)))
        if labelling.test is None:
            return ImageSet(train, None, labelling.class_names)
        test_images = _images(arrays, "test_images")
        if test_images.shape[1:] != images.shape[1:]:
            raise InputError(
                f"test_images in {path!r} are {test_images.shape[1:]} and images {images.shape[1:]} (C, H, W); "
                "make them alike"
            )
        return ImageSet(train, Split(test_images, labelling.test, np.arange(len(test_images))), labelling.class_names)


class _Arrays:
    """The arrays of an .npz by name, each checked before it is read."""

    def __init__(self, path: str) -> None:
        self.path = path
        file = os.path.expanduser(path)
        if not os.path.isfile(file):
            raise InputError(f"there is no file {path!r}; data.path must be an .npz file with images and labels")
        try:
            self._zip = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, OSError, NotImplementedError, ValueError) as error:
            raise InputError(
                f"{path!r} is not an .npz file; save it with numpy.savez(path, images=..., labels=...)"
            ) from error
        self._members = {info.filename.removesuffix(".npy"): info for info in self._zip.infolist()}
        unpacked = sum(info.file_size for info in self._members.values())
        if unpacked > MAX_SET_BYTES:
            self._zip.close()
            raise InputError(
                f"{path!r} unpacks to {unpacked >> 20} MiB, at most {MAX_SET_BYTES >> 20} MiB are read; "
                "use fewer or smaller images, or save them as uint8"
            )

    def __enter__(self) -> _Arrays:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def header(self, name: str) -> _Header:
        """Shape and type of an array, found to agree with the bytes it has."""
        if name not in self._members:
            there = ", ".join(sorted(self._members)[:10]) or "nothing"
            raise InputError(f"{self.path!r} has no array {name!r} (it has {there}); {_WANTED}")
        info = self._members[name]
        try:
            with self._zip.open(info) as member:
                version = npy.read_magic(member)
                read_header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[version]
                shape, _fortran, dtype = read_header(member)
                start = member.tell()
        except Exception as error:  # zip and header of an untrusted file may be broken in any way
            raise self._damaged(name, error) from error
        if dtype.hasobject:
            raise InputError(f"array {name!r} in {self.path!r} holds Python objects; save it as plain numbers or text")
        if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != info.file_size - start:
            raise InputError(
                f"array {name!r} in {self.path!r} claims shape {shape} of {dtype} "
                f"but has {info.file_size - start} bytes; save the file again"
            )
        return _Header(shape, dtype)

    def read(self, name: str) -> NDArray[Any]:
        """The array, its `header` having been found in order."""
        self.header(name)
        try:
            with self._zip.open(self._members[name]) as member:
                array: NDArray[Any] = npy.read_array(member, allow_pickle=False)
        except Exception as error:  # as above
            raise self._damaged(name, error) from error
        return array

    def _damaged(self, name: str, error: Exception) -> InputError:
        reason = str(error) or type(error).__name__
        if "allow_pickle" in reason:  # numpy's advice, which would run what is in the file
            reason = "it holds Python objects, which are never loaded"
        return InputError(f"array {name!r} in {self.path!r} is damaged ({reason}); save the file again")


def _labelling(arrays: _Arrays) -> _Labelling:
    """Labels as positions in `class_names`, their number checked against the images'."""
    arrays.header("images")  # a missing array of images is reported before any fault of the labels
    train = _labels(arrays, "labels", "images")
    if ("test_images" in arrays) != ("test_labels" in arrays):
        there, missing = ("images", "labels") if "test_images" in arrays else ("labels", "images")
        raise InputError(f"{arrays.path!r} has test_{there} but no test_{missing}; save both or neither")
    test = _labels(arrays, "test_labels", "test_images") if "test_labels" in arrays else None
    if "class_names" in arrays:
        names = _class_names(arrays)
        for labels, name in ((train, "labels"), (test, "test_labels")):
            if labels is not None and labels.max() >= len(names):
                raise InputError(
                    f"{name} in {arrays.path!r} go up to {labels.max()} but class_names has {len(names)} names; "
                    "name every label from 0"
                )
        return _Labelling(names, train, test)
    known = np.unique(train)
    if test is not None and (strange := np.setdiff1d(test, known)).size:
        raise InputError(
            f"test_labels in {arrays.path!r} has label {strange[0]}, which labels has not; test on trained classes only"
        )
    return _Labelling(
        tuple(str(label) for label in known),
        np.searchsorted(known, train).astype(np.int64),
        None if test is None else np.searchsorted(known, test).astype(np.int64),
    )


def _labels(arrays: _Arrays, name: str, of: str) -> Indices:
    header = arrays.header(name)
    if len(header.shape) != 1 or header.dtype.kind not in "iu":
        raise InputError(
            f"array {name!r} in {arrays.path!r} must be one integer per image, "
            f"got shape {header.shape} of {header.dtype}"
        )
    images = arrays.header(of).shape
    if not images or header.shape[0] != images[0]:
        raise InputError(
            f"array {name!r} in {arrays.path!r} has {header.shape[0]} entries for {images[0] if images else 0} {of}; "
            "give one label per image"
        )
    if header.shape[0] == 0:
        raise InputError(f"array {of!r} in {arrays.path!r} is empty; add images or leave it out")
    labels = arrays.read(name)
    if labels.min() < 0:
        raise InputError(
            f"array {name!r} in {arrays.path!r} has the negative label {labels.min()}; count classes from 0"
        )
    if labels.max() > np.iinfo(np.int32).max:
        raise InputError(f"array {name!r} in {arrays.path!r} has the label {labels.max()}; count classes from 0")
    return labels.astype(np.int64)


def _class_names(arrays: _Arrays) -> tuple[str, ...]:
    header = arrays.header("class_names")
    if len(header.shape) != 1 or header.dtype.kind != "U":
        raise InputError(
            f"array 'class_names' in {arrays.path!r} must be a list of names, "
            f"got shape {header.shape} of {header.dtype}"
        )
    names = tuple(str(name) for name in arrays.read("class_names"))
    times = Counter(names)
    for name in names:
        if not name.strip() or times[name] > 1:
            raise InputError(
                f"class_names in {arrays.path!r} has {name!r} empty or twice; give every class its own name"
            )
    return names


def _channel_axis(arrays: _Arrays, name: str) -> int | None:
    """Which axis of an image array holds the channels; None for (N, H, W)."""
    shape = arrays.header(name).shape
    if len(shape) == 3:
        axis = None
    elif len(shape) == 4 and shape[3] in (1, 3):
        axis = 3
    elif len(shape) == 4 and shape[1] in (1, 3):
        axis = 1
    else:
        raise InputError(
            f"array {name!r} in {arrays.path!r} has shape {shape}; make it (N, H, W), or (N, H, W, C) or (N, C, H, W) "
            "with 1 or 3 channels"
        )
    pixels = math.prod(shape[1:]) // (1 if axis is None else shape[axis])
    if not 1 <= pixels <= MAX_PIXELS:
        raise InputError(
            f"array {name!r} in {arrays.path!r} has images of {pixels} pixels; use 1 to {MAX_PIXELS} (512x512)"
        )
    return axis


def _images(arrays: _Arrays, name: str) -> Pixels:
    axis = _channel_axis(arrays, name)
    dtype = arrays.header(name).dtype
    if dtype != np.uint8 and dtype.kind != "f":
        raise InputError(
            f"array {name!r} in {arrays.path!r} is {dtype}; save it as uint8 0..255 or as floats in [0, 1]"
        )
    images = arrays.read(name)
    if dtype.kind == "f":
        images = images.astype(np.float32)
        broken = ~np.isfinite(images).reshape(len(images), -1).all(axis=1)
        if broken.any():
            raise InputError(
                f"array {name!r} in {arrays.path!r} has NaN or infinite pixels in {broken.sum()} of {len(images)} "
                f"images, the first at position {broken.argmax()}; repair or remove them"
            )
        if images.min() < 0 or images.max() > 1:
            raise InputError(
                f"array {name!r} in {arrays.path!r} has pixels from {images.min():g} to {images.max():g}; "
                "save them as floats in [0, 1] or as uint8 0..255"
            )
    return images[:, None] if axis is None else np.moveaxis(images, axis, 1)
