"""How the classes of a source become a task: which side a class is on, how many of each are taken.

Selection is balanced: equally many samples of each side (binary, regression) or class (multiclass).
`first` takes the first of each in dataset order, as Haim et al. do; `seeded` draws them at random.
Either way the chosen samples are then listed in dataset order, and a larger n keeps the samples of
a smaller one. The test set is balanced as well and always taken in dataset order (Haim et al. test
on 8,000 of CIFAR-10's 10,000: 4,000 vehicles, 4,000 of the 6,000 animals).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from recon_core.config import DataConfig, Selection, Task
from recon_core.data.types import ImageSet, Indices, Pixels, Split, TaskData
from recon_core.errors import InputError
from recon_core.sources import SOURCES

DEFAULT_N = 50
DEFAULT_PLANAR_N = 20
DEFAULT_PER_CLASS = 5


class Side(NamedTuple):
    """A class of the task: one class of the source, or several under one name."""

    name: str
    classes: tuple[int, ...]


class NamedClasses(NamedTuple):
    """A side whose classes are known by name."""

    name: str
    classes: tuple[str, ...]


@dataclass(frozen=True)
class Partition:
    """A named way to split classes in two. `split` takes the source's class names."""

    text: str
    split: Callable[[tuple[str, ...]], tuple[Side, Side]]


class Request(NamedTuple):
    """How many samples of each side, and the setting that says so, as the user would write it."""

    per_side: int
    setting: str


@dataclass(frozen=True)
class TaskPlan:
    """The task before any pixel is read."""

    task: Task
    sides: tuple[Side, ...]
    request: Request


def plan_task(config: DataConfig, class_names: tuple[str, ...]) -> TaskPlan:
    """Settle sides and counts, or say in a sentence why they cannot be."""
    _refuse_planar_settings(config)
    if len(class_names) < 2:
        raise InputError(
            f"source {_origin(config)} has one class only ({_listing(class_names)}); a task needs at least two"
        )
    sides = _chosen_classes(config, class_names) if config.task is Task.MULTICLASS else _two_sides(config, class_names)
    if config.test_n is not None and config.test_n < len(sides):
        raise InputError(
            f"test_n={config.test_n} is fewer than the {len(sides)} classes of a balanced test set; "
            f"use test_n={len(sides)} or more"
        )
    return TaskPlan(config.task, sides, samples_per_side(config, len(sides)))


def task_classes(config: DataConfig, class_names: tuple[str, ...]) -> tuple[str, ...]:
    """Names of the task's classes, from those of its source."""
    return tuple(side.name for side in plan_task(config, class_names).sides)


def samples_per_side(config: DataConfig, sides: int) -> Request:
    """How many samples of each of `sides` classes `n`, `per_class` or the default ask for."""
    if config.per_class is not None:
        return Request(config.per_class, f"per_class={config.per_class}")
    if config.n is None and config.task is Task.MULTICLASS:
        return Request(DEFAULT_PER_CLASS, f"per_class={DEFAULT_PER_CLASS} (the default)")
    default = DEFAULT_PLANAR_N if config.source.planar else DEFAULT_N
    n = default if config.n is None else config.n
    if n % sides:
        below = n - n % sides
        fits = f"n={below} or n={below + sides}" if below else f"n={sides}"
        raise InputError(f"n={n} cannot be split evenly over {sides} classes; use {fits}")
    return Request(n // sides, f"n={n}" if config.n is not None else f"n={n} (the default)")


def cut_task(config: DataConfig, plan: TaskPlan, images: ImageSet, *, whole: bool = False) -> TaskData:
    """Select, centre, and hand over as tensors; `whole` selects all, however unevenly the classes are filled."""
    side_of = np.full(len(images.class_names), -1, dtype=np.int64)
    for number, side in enumerate(plan.sides):
        side_of[list(side.classes)] = number
    train_sides = side_of[images.train.labels]
    rng = np.random.default_rng(config.seed) if config.selection is Selection.SEEDED else None
    if whole:
        chosen = np.flatnonzero(train_sides >= 0)
    else:
        _refuse_shortage(config, plan, train_sides)
        chosen = balanced(train_sides, len(plan.sides), plan.request.per_side, rng)

    if images.test is None:
        rest = np.setdiff1d(np.arange(len(train_sides)), chosen)
        test = Split(images.train.images[rest], images.train.labels[rest], images.train.ids[rest])
    else:
        test = images.test
    test_sides = side_of[test.labels]
    if images.test is not None:
        _refuse_untestable(config, plan, test_sides)
    tested = balanced_test(test_sides, len(plan.sides), config.test_n)

    mean = _mean(images.train.images[chosen])
    return TaskData(
        train_x=torch.from_numpy(_unit(images.train.images[chosen]) - mean),
        train_labels=torch.from_numpy(train_sides[chosen]),
        test_x=torch.from_numpy(_unit(test.images[tested]) - mean),
        test_labels=torch.from_numpy(test_sides[tested]),
        mean=torch.from_numpy(mean),
        class_names=tuple(side.name for side in plan.sides),
        train_ids=torch.from_numpy(images.train.ids[chosen]),
        test_ids=torch.from_numpy(test.ids[tested]),
        task=plan.task,
    )


def balanced(sides: Indices, count: int, per_side: int, rng: np.random.Generator | None = None) -> Indices:
    """Positions of `per_side` samples of each side 0..count-1, ascending; the first ones, or drawn by `rng`.

    The draw permutes each side whole, so that asking for more keeps what fewer would have given.
    """
    picks = []
    by_side = np.argsort(sides, kind="stable")  # sorted once: there may be as many sides as samples
    ends = np.searchsorted(sides[by_side], np.arange(count + 1))
    for begin, end in itertools.pairwise(ends):
        places = by_side[begin:end]
        if rng is not None:
            places = rng.permutation(places)
        picks.append(places[:per_side])
    return np.sort(np.concatenate(picks))


def balanced_test(sides: Indices, count: int, at_most: int | None) -> Indices:
    """Positions of the largest balanced test set of `at_most` samples; none when a side has none."""
    per_side = int(np.bincount(sides[sides >= 0], minlength=count).min())
    if at_most is not None:
        per_side = min(per_side, at_most // count)
    return balanced(sides, count, per_side)


# -- classes ---------------------------------------------------------------------------------------


def find_class(text: str, class_names: tuple[str, ...]) -> int:
    """A class by its name, or by its number where no class is named by a number."""
    if text in class_names:
        return class_names.index(text)
    if text.isdecimal() and not any(name.isdecimal() for name in class_names) and int(text) < len(class_names):
        return int(text)
    raise InputError(f"unknown class {text!r}; the classes are {_listing(class_names)}")


def _chosen_classes(config: DataConfig, class_names: tuple[str, ...]) -> tuple[Side, ...]:
    if config.partition is not None:
        raise InputError(
            f"partition {config.partition!r} goes with task binary or regression; "
            "for task multiclass name the classes, e.g. data.classes=" + ",".join(class_names[:3])
        )
    if config.classes is None:
        return tuple(Side(name, (number,)) for number, name in enumerate(class_names))
    numbers = [find_class(text.strip(), class_names) for text in config.classes]
    for number, times in Counter(numbers).items():
        if times > 1:
            raise InputError(f"classes names {class_names[number]!r} twice; name each class once")
    if len(numbers) < 2:
        raise InputError(f"classes={','.join(config.classes)!r} is one class only; a task needs at least two")
    return tuple(Side(class_names[number], (number,)) for number in numbers)


def _two_sides(config: DataConfig, class_names: tuple[str, ...]) -> tuple[Side, Side]:
    if config.classes is not None:
        raise InputError(
            f"classes={','.join(config.classes)!r} goes with task multiclass; "
            f"for task {config.task} give a partition, e.g. data.partition='{class_names[0]}|{class_names[1]}'"
        )
    chosen = config.partition or config.source.kind.partition
    if chosen in PARTITIONS:
        return PARTITIONS[chosen].split(class_names)
    if chosen is not None:
        return _custom_partition(chosen, class_names)
    if len(class_names) == 2:
        return Side(class_names[0], (0,)), Side(class_names[1], (1,))
    raise InputError(
        f"source {_origin(config)} has {len(class_names)} classes and no partition of its own; "
        f"set data.partition to odd-even or to 'a,b|c,d' with some of {_listing(class_names)}"
    )


def _custom_partition(text: str, class_names: tuple[str, ...]) -> tuple[Side, Side]:
    """'a,b|c,d': classes of the negative side, then of the positive one."""
    halves = text.split("|")
    if len(halves) != 2:
        raise InputError(
            f"unknown partition {text!r}; use {', '.join(PARTITIONS)} or 'a,b|c,d': "
            "classes of the negative side | of the positive side"
        )
    members = [[word.strip() for word in half.split(",") if word.strip()] for half in halves]
    for words, which in zip(members, ("negative", "positive"), strict=True):
        if not words:
            raise InputError(f"partition {text!r} names no class on its {which} side; write 'a,b|c,d'")
    numbers = [[find_class(word, class_names) for word in words] for words in members]
    both = numbers[0] + numbers[1]
    for number in both:
        if both.count(number) > 1:
            raise InputError(f"partition {text!r} names class {class_names[number]!r} twice; name each class once")
    negative, positive = (Side(", ".join(class_names[i] for i in side), tuple(side)) for side in numbers)
    return negative, positive


def _odd_even(class_names: tuple[str, ...]) -> tuple[Side, Side]:
    """Parity of the class's number: its name where all names are numbers (digits), else its position."""
    digits = all(name.isdecimal() for name in class_names)
    numbers = [int(name) for name in class_names] if digits else list(range(len(class_names)))
    even = tuple(i for i, number in enumerate(numbers) if number % 2 == 0)
    odd = tuple(i for i, number in enumerate(numbers) if number % 2 == 1)
    if not even or not odd:
        raise InputError(f"partition odd-even needs odd and even classes; the classes are {_listing(class_names)}")
    return Side("even", even), Side("odd", odd)


def _by_name(
    partition: str, negative: NamedClasses, positive: NamedClasses, class_names: tuple[str, ...]
) -> tuple[Side, Side]:
    for name in negative.classes + positive.classes:
        if name not in class_names:
            raise InputError(
                f"partition {partition} needs class {name!r}, the classes are {_listing(class_names)}; "
                "use odd-even or 'a,b|c,d' with these"
            )
    return (
        Side(negative.name, tuple(class_names.index(name) for name in negative.classes)),
        Side(positive.name, tuple(class_names.index(name) for name in positive.classes)),
    )


_VEHICLES = NamedClasses("vehicles", ("airplane", "automobile", "ship", "truck"))
_ANIMALS = NamedClasses("animals", ("bird", "cat", "deer", "dog", "frog", "horse"))
_NON_FACES = NamedClasses("non-face", ("non-face",))
_FACES = NamedClasses("face", ("face",))

PARTITIONS: dict[str, Partition] = {
    "odd-even": Partition("classes with even numbers | with odd numbers", _odd_even),
    "animals-vehicles": Partition("vehicles | animals", partial(_by_name, "animals-vehicles", _VEHICLES, _ANIMALS)),
    "faces": Partition("non-faces | faces", partial(_by_name, "faces", _NON_FACES, _FACES)),
}
"""Splits by name, negative side | positive side; any other is written out as 'a,b|c,d'."""

# -- refusals --------------------------------------------------------------------------------------


def _and(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _refuse_planar_settings(config: DataConfig) -> None:
    for key in ("labels", "radius_noise"):
        value = getattr(config, key)
        if value != DataConfig.model_fields[key].default:
            raise InputError(
                f"{key}={value} goes with the planar sources {_and(n for n, k in SOURCES.items() if k.planar)}; "
                f"leave it out with source {config.source}"
            )


def _refuse_shortage(config: DataConfig, plan: TaskPlan, sides: Indices) -> None:
    counts = np.bincount(sides[sides >= 0], minlength=len(plan.sides))
    least = int(counts.argmin())
    available = int(counts[least])
    if available >= plan.request.per_side:
        return
    name = plan.sides[least].name
    if available == 0:
        raise InputError(f"source {_origin(config)} has no images of class {name!r}; leave that class out")
    by_class = plan.request.setting.startswith("per_class")
    fits = f"per_class={available}" if by_class else f"n={available * len(plan.sides)}"
    larger = config.source.kind.larger
    raise InputError(
        f"{plan.request.setting} needs {plan.request.per_side} images of {name!r} but source {_origin(config)} "
        f"has {available}; use {fits} or less" + (f", or data.source={larger}" if larger else "")
    )


def _refuse_untestable(config: DataConfig, plan: TaskPlan, sides: Indices) -> None:
    counts = np.bincount(sides[sides >= 0], minlength=len(plan.sides))
    if counts.min() == 0:
        name = plan.sides[int(counts.argmin())].name
        raise InputError(
            f"the test set of {_origin(config)} has no images of {name!r}; add some, or give no test set "
            "so that the held-out images are used"
        )


def _origin(config: DataConfig) -> str:
    return f"{config.source} {config.path!r}" if config.path else str(config.source)


def _listing(class_names: tuple[str, ...]) -> str:
    shown = ", ".join(class_names[:10])
    return shown if len(class_names) <= 10 else f"{shown}, ... ({len(class_names)} in all)"


# -- pixels ----------------------------------------------------------------------------------------


def _unit(images: Pixels) -> NDArray[np.float32]:
    """Pixels as float32 in [0, 1], laid out (N, C, H, W) in memory too, so that a flat view of an image is one."""
    values = np.ascontiguousarray(images, dtype=np.float32)
    return values / np.float32(255) if images.dtype == np.uint8 else values


def _mean(images: Pixels) -> NDArray[np.float32]:
    """Mean image in [0, 1]; summed in float64, exact for 8-bit pixels, so that it is the same on every machine."""
    total = np.ascontiguousarray(images.sum(axis=0, dtype=np.float64))
    return (total / (len(images) * (255 if images.dtype == np.uint8 else 1))).astype(np.float32)
