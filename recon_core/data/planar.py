"""Points in the plane with two labels: the smallest tasks whose training set can be seen whole.

circle      n points at equal angles on the unit circle, starting at (1, 0)
spiral      two arms of one turn each, radius 0.2 to 1, point by point in turn
chessboard  4 x 4 squares on [-1, 1]^2, colours in turn; first the squares' centres, then points spread in them

`radius_noise` moves every point along its ray from the origin. Labels: `alternating` is each shape's
own (neighbours on the circle, arms, colours), `random` a balanced draw, `arcs` (circle only) makes
the upper half positive.

The test set has two points for every training point: the same shape a quarter of a step to either
side (a quarter of the way to the nearest other point on the chessboard), with the label of the point
they were moved from and radius noise of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from recon_core.config import DataConfig, PlanarLabels, Source
from recon_core.data.tasks import balanced_test, samples_per_side
from recon_core.data.types import Indices, SourceInfo, TaskData
from recon_core.errors import InputError

CLASS_NAMES = ("negative", "positive")
MAX_POINTS = 10_000
FIELD_REACH = 1.6
"""Half the side of the square around the origin on which planar networks are drawn."""

Points = NDArray[np.float64]


class Layout(NamedTuple):
    """`train` (n, 2) in the order of alternating labels 0, 1, 0, 1, ...; `test` (2n, 2), point i at 2i and 2i+1."""

    train: Points
    test: Points


def planar_task(config: DataConfig) -> TaskData:
    """Points and labels as `config` asks; the same config gives the same points."""
    for key in ("partition", "classes"):
        if (value := getattr(config, key)) is not None:
            raise InputError(f"{key}={value!r} goes with images; leave it out with source {config.source}")
    n = 2 * samples_per_side(config, 2).per_side
    if n > MAX_POINTS:
        raise InputError(f"n={n} is more than the {MAX_POINTS} points source {config.source} offers; use a smaller n")
    layout = _LAYOUTS[config.source](n)
    labels = _labels(config, n)
    test_labels = labels.repeat(2)
    tested = balanced_test(test_labels, 2, config.test_n)
    train_x = _noisy(layout.train, config.radius_noise, np.random.default_rng([config.seed, 1]))
    test_x = _noisy(layout.test, config.radius_noise, np.random.default_rng([config.seed, 2]))
    return TaskData(
        train_x=torch.from_numpy(train_x.astype(np.float32)),
        train_labels=torch.from_numpy(labels),
        test_x=torch.from_numpy(test_x[tested].astype(np.float32)),
        test_labels=torch.from_numpy(test_labels[tested]),
        mean=torch.zeros(2),
        class_names=CLASS_NAMES,
        train_ids=torch.arange(n),
        test_ids=torch.from_numpy(tested),
        task=config.task,
    )


def _labels(config: DataConfig, n: int) -> Indices:
    alternating = np.arange(n) % 2
    match config.labels:
        case PlanarLabels.ALTERNATING:
            return alternating
        case PlanarLabels.RANDOM:
            return np.random.default_rng([config.seed, 0]).permutation(alternating)
        case PlanarLabels.ARCS:
            if config.source != Source.CIRCLE:
                raise InputError(f"labels=arcs goes with source circle; use alternating or random with {config.source}")
            return (np.arange(n) < n // 2).astype(np.int64)


def _noisy(points: Points, noise: float, rng: np.random.Generator) -> Points:
    rays: Points = points / np.linalg.norm(points, axis=1, keepdims=True)
    return points + noise * rng.standard_normal((len(points), 1)) * rays


def _circle(n: int) -> Layout:
    def at(step: NDArray[np.float64]) -> Points:
        angle = 2 * np.pi * step / n
        return np.stack([np.cos(angle), np.sin(angle)], axis=1)

    steps = np.arange(n, dtype=np.float64)
    return Layout(at(steps), at(_quarters(steps)))


def _spiral(n: int) -> Layout:
    per_arm = n // 2

    def at(step: NDArray[np.float64], arm: Indices) -> Points:
        along = (step + 0.5) / per_arm
        radius, angle = 0.2 + 0.8 * along, 2 * np.pi * along + np.pi * arm
        return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)

    steps = np.repeat(np.arange(per_arm, dtype=np.float64), 2)
    arms = np.arange(n) % 2
    return Layout(at(steps, arms), at(_quarters(steps), arms.repeat(2)))


def _quarters(steps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Every step twice, a quarter before and a quarter after."""
    moved: NDArray[np.float64] = steps[:, None] + np.array([-0.25, 0.25])
    return moved.ravel()


def _chessboard(n: int) -> Layout:
    from scipy.spatial import KDTree  # here, because it takes longer to import than all other data code together

    columns, rows = (axis.ravel() for axis in np.meshgrid(np.arange(4), np.arange(4)))
    colour = (columns + rows) % 2
    centres = np.stack([columns, rows], axis=1) * 0.5 - 0.75
    squares = np.stack([centres[colour == 0], centres[colour == 1]], axis=1).reshape(-1, 2)
    # The additive recurrence of the plastic number fills a square evenly however many points it gets.
    rounds = np.arange(n)[:, None] // len(squares)
    within = (0.5 + rounds * np.array([0.7548776662466927, 0.5698402909980532])) % 1 - 0.5
    train = squares[np.arange(n) % len(squares)] + 0.35 * within
    to_nearest = np.asarray(KDTree(train).query(train, k=2)[0])[:, 1]
    aside = to_nearest[:, None, None] / 4 * np.array([[-1.0, 0.0], [1.0, 0.0]])
    return Layout(train, (train[:, None] + aside).reshape(-1, 2))


PLANAR: dict[str, SourceInfo] = {
    name: SourceInfo(name.capitalize(), CLASS_NAMES, MAX_POINTS, 2 * MAX_POINTS, (2,), note)
    for name, note in (
        (Source.CIRCLE, "points at equal angles on the unit circle"),
        (Source.SPIRAL, "two arms of one turn each"),
        (Source.CHESSBOARD, "4 x 4 squares"),
    )
}
_LAYOUTS: dict[str, Callable[[int], Layout]] = {
    Source.CIRCLE: _circle,
    Source.SPIRAL: _spiral,
    Source.CHESSBOARD: _chessboard,
}
