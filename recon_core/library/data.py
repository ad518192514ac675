"""`load_data`: samples by the name of a data set, from the user's own files, or from arrays."""

from __future__ import annotations

import difflib
import hashlib
import io
import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from recon_core.config import DataConfig, Source, Task, parse_config
from recon_core.data import TaskData, load_task
from recon_core.errors import InputError
from recon_core.library.pictures import mosaic_html, table_html
from recon_core.library.running import Progress, refuse_unknown, showing
from recon_core.store import RunStore, kept

_ARRAYS = "the arrays given"


class Arrays(NamedTuple):
    """The user's own images (N, H, W), (N, H, W, C) or (N, C, H, W), and labels (N,)."""

    images: NDArray[Any]
    labels: NDArray[Any]


@dataclass(frozen=True, eq=False, repr=False)
class Data:
    """Samples to train on and held-out samples beside them.

    `samples` holds the tensors: train_x float32 (n, C, H, W) with the mean image subtracted, or (n, 2) in the plane;
    train_labels (n,) class indices; test_x and test_labels likewise; mean (C, H, W) in [0, 1].
    """

    samples: TaskData
    config: DataConfig
    arrays: Arrays | None = None

    @property
    def n(self) -> int:
        """Training samples."""
        return self.samples.n

    @property
    def planar(self) -> bool:
        """Points in the plane rather than images."""
        return len(self.samples.input_shape) == 1

    @property
    def images(self) -> Tensor:
        """Training images (n, C, H, W) in [0, 1]; points (n, 2) as they are."""
        shown = self.samples.train_x + self.samples.mean
        return shown if self.planar else shown.clamp(0.0, 1.0)

    @property
    def labels(self) -> Tensor:
        """Class indices (n,) of the training samples; names are in `samples.class_names`."""
        return self.samples.train_labels

    def as_regression(self) -> Data:
        """The same samples with targets -1 and 1, for losses l2, l2.5 and huber."""
        return replace(
            self,
            samples=replace(self.samples, task=Task.REGRESSION),
            config=self.config.model_copy(update={"task": Task.REGRESSION}),
        )

    def config_in(self, store: RunStore) -> DataConfig:
        """The config a run of this store can load the same samples from; arrays are written there first."""
        arrays = self.arrays
        if arrays is None:
            return self.config
        name = str(self.config.path)
        file = kept.keep(store.root, kept.ARRAYS, name, lambda: npz(images=arrays.images, labels=arrays.labels))
        return self.config.model_copy(update={"path": str(file)})

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.samples.input_shape))
        where = _ARRAYS if self.arrays is not None else self.config.path or self.config.source
        classes = ", ".join(self.samples.class_names[:4]) + (", ..." if len(self.samples.class_names) > 4 else "")
        return f"Data({self.n} samples of {shape} from {where}; {self.config.task}: {classes})"

    def _repr_html_(self) -> str:
        if self.planar:
            return table_html({"samples": self.n, "source": self.config.source}, repr(self))
        return mosaic_html(self.images, repr(self))


def load_data(
    source: str | Path | ArrayLike | Tensor | tuple[Any, Any] = "cifar10",
    labels: ArrayLike | Tensor | str | None = None,
    *,
    n: int | None = None,
    progress: Progress = True,
    **settings: Any,
) -> Data:
    """Load samples for `train` and `match`.

    Args:
        source: the name of a data set (circle, cifar10, mnist, faces, cifar10-full, ...), a folder with a subfolder for
            each class, an .npz file, or images (N, H, W), (N, H, W, C) or (N, C, H, W), uint8 or floats in [0, 1].
        labels: class indices (N,) from 0, where `source` is an array of images.
        n: number of training samples, all classes together.
        progress: True for a progress bar, False for none, or a function of the fraction done and a message.
        **settings: those of `recon_core.config.DataConfig`: per_class, task, partition, classes, selection, seed,
            test_n, ...

    >>> import recon_core as rc
    >>> rc.load_data("mnist", n=4)
    Data(4 samples of 1x28x28 from mnist; binary: even, odd)
    """
    given = {"n": n, **settings}
    if isinstance(classes := settings.get("classes"), tuple | list | range):
        given["classes"] = tuple(map(str, classes))  # digits may be given as numbers
    refuse_unknown(settings, (name for name in DataConfig.model_fields if name != "source"), "load_data")
    if isinstance(source, str | Path):
        if labels is not None:
            given["labels"] = labels
        config = parse_config(DataConfig, {**given, **_named(source, settings)})
        with showing(progress, "data") as listener:
            task = load_task(config, progress=listener)
        return Data(task, config)
    if isinstance(source, tuple) and labels is None and len(source) == 2:
        source, labels = source
    if labels is None or isinstance(labels, str):
        raise InputError("images of your own need labels, got none; load_data(images, labels) with one for each image")
    return _from_arrays(Arrays(_array(source), _array(labels)), given)


def _named(source: str | Path, settings: dict[str, Any]) -> dict[str, Any]:
    """The data set of that name, else what lies at that path."""
    names = Source.names()
    text = str(source)
    if isinstance(source, str) and text in names and (not Source(text).needs_path or "path" in settings):
        return {"source": text}
    path = Path(os.path.expanduser(source))
    if path.is_dir():
        return {"source": Source.FOLDER, "path": text}
    if path.is_file():
        return {"source": Source.NPZ, "path": text}
    if isinstance(source, Path) or path.suffix == ".npz" or len(path.parts) > 1:
        raise InputError(f"there is no file or folder {text!r}; give a folder of class folders or an .npz file")
    offered = [name for name in names if not Source(name).needs_path]
    near = difflib.get_close_matches(text, offered, n=1, cutoff=0.5)
    fix = f"did you mean {near[0]}?" if near else f"there are {', '.join(offered)}, or give a folder or an .npz file"
    raise InputError(f"unknown data {text!r}; {fix}")


def npz(**arrays: NDArray[Any]) -> bytes:
    """Arrays as the content of an .npz file."""
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]  # its stubs take a flag to be among them
    return content.getvalue()


def _array(values: Any) -> NDArray[Any]:
    if isinstance(values, Tensor):
        return values.detach().cpu().numpy()
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        array = np.asarray(values, dtype=object)
    if array.dtype.kind not in "buif":
        raise InputError(f"images and labels must be arrays of numbers, got an array of {array.dtype}")
    return array


def _from_arrays(arrays: Arrays, given: dict[str, Any]) -> Data:
    """Written to and read from an .npz file, so that arrays pass the same checks as files."""
    digest = hashlib.sha256()
    for values in arrays:
        digest.update(f"{values.shape}{values.dtype}".encode() + np.ascontiguousarray(values).tobytes())
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "arrays.npz"
        np.savez(file, images=arrays.images, labels=arrays.labels)
        config = parse_config(DataConfig, {**given, "source": Source.NPZ, "path": str(file)})
        try:
            task = load_task(config)
        except InputError as error:
            raise InputError(str(error).replace(repr(str(file)), _ARRAYS)) from None
    return Data(task, config.model_copy(update={"path": f"{digest.hexdigest()[:32]}.npz"}), arrays)
