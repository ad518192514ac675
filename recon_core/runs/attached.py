"""A training set attached to a model: from what was asked for to the images, and to a few words about them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from recon_core.config import DataConfig, Selection, Source, Task, parse_config
from recon_core.data import TaskData, load_task
from recon_core.errors import InputError
from recon_core.observing import Listener
from recon_core.presets import DATA_PRESETS
from recon_core.runs.audit import AttachedData


def attached_data(source: str | Path, outputs: int, given: Mapping[str, Any]) -> AttachedData:
    """What `source` names: a preset, a built-in set, a folder of class folders, or an .npz file.

    `given` are settings of `DataConfig` and `AttachedData`; the task follows from the number of outputs.
    """
    own = {name: value for name, value in given.items() if name in AttachedData.model_fields}
    data = {name: value for name, value in given.items() if name not in own}
    text = str(source)
    if text in DATA_PRESETS:
        chosen = dict(DATA_PRESETS[text].data)
        if {"n", "per_class"} & data.keys():  # in place of the preset's own number
            chosen = {key: value for key, value in chosen.items() if key not in ("n", "per_class")}
        data = {**chosen, **data}
        own = {"normalisation": "centred", **own}
    elif text in Source.names() and not Source(text).needs_path:
        data["source"] = text
    else:
        data |= _own(Path(os.path.expanduser(text)))
    two_sides = outputs == 1 or (outputs == 2 and data.get("partition") is not None)
    data.setdefault("task", Task.BINARY if two_sides else Task.MULTICLASS)
    return parse_config(AttachedData, {"data": data, **own})


def _own(path: Path) -> dict[str, Any]:
    if path.is_dir():
        return {"source": Source.FOLDER, "path": str(path.absolute())}
    if path.is_file():
        return {"source": Source.NPZ, "path": str(path.absolute())}
    built_in = [name for name in Source.names() if not Source(name).needs_path and not Source(name).planar]
    raise InputError(
        f"there are no images {str(path)!r}; give a folder of class folders, an .npz file, one of "
        f"{', '.join(built_in)}, or a selection of the authors: {', '.join(DATA_PRESETS)}"
    )


def load_attached(attached: AttachedData, progress: Listener | None = None) -> TaskData:
    """The training images, and held-out ones beside them."""
    data = load_task(attached.data, progress=progress, whole=attached.whole)
    config = held_out_config(attached)
    if config is None:
        return data
    return with_held_out(data, load_task(config, progress=progress, whole=True))


def held_out_config(attached: AttachedData) -> DataConfig | None:
    """Where the held-out images are read from, or a sentence where nothing is there."""
    if attached.held_out is None:
        return None
    asked = {"task": attached.data.task, "partition": attached.data.partition, "classes": attached.data.classes}
    return parse_config(DataConfig, {**_own(Path(os.path.expanduser(attached.held_out))), **asked})


def check_one_size(shape: tuple[int, ...], held_out: tuple[int, ...]) -> None:
    if held_out != shape:
        raise InputError(
            f"held-out images are of shape {held_out} and training images of {shape}; give both in one size"
        )


def with_held_out(data: TaskData, others: TaskData) -> TaskData:
    """The training images of `others`, classes by name or number, in place of the test images of `data`."""
    check_one_size(data.input_shape, others.input_shape)
    names = others.class_names
    numbered = any(all(name.isdecimal() for name in side) for side in (names, data.class_names))
    if numbered and len(names) == len(data.class_names):  # arrays have numbers where folders have names
        names = data.class_names
    unknown = [name for name in names if name not in data.class_names]
    if unknown:
        raise InputError(
            f"held-out images have a class {unknown[0]!r}, the training images {', '.join(data.class_names[:8])}; "
            "name the class folders alike"
        )
    numbers = torch.tensor([data.class_names.index(name) for name in names])
    return replace(
        data,
        test_x=others.train_x + others.mean - data.mean,
        test_labels=numbers[others.train_labels],
        test_ids=others.train_ids,
    )


def describe_attached(attached: AttachedData) -> str:
    """`cifar10: n=50, partition=animals-vehicles`, or the name of the folder."""
    data = attached.data
    shown: Sequence[str] = [
        f"{name}={','.join(value) if isinstance(value, tuple) else value}"
        for name, value in (
            ("n", data.n),
            ("per_class", data.per_class),
            ("partition", data.partition),
            ("classes", data.classes),
            ("seed", data.seed if data.selection is Selection.SEEDED else None),
        )
        if value is not None
    ]
    where = Path(data.path).name if data.path else str(data.source)
    return f"{where}: {', '.join(shown)}" if shown else f"{where}: all images"
