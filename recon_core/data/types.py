"""The types of the data layer: a source described, a source read, a task ready to train on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recon_core.config import Task

Pixels = NDArray[Any]
"""(N, C, H, W), uint8 in 0..255 or float32 in [0, 1]."""

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class SourceInfo:
    """A source as a form shows it. `shape` is one sample's: (C, H, W) or (2,).

    `test_n` is 0 where the source has no test images of its own and those left over from the
    training selection serve instead.
    """

    name: str
    class_names: tuple[str, ...]
    train_n: int
    test_n: int
    shape: tuple[int, ...]
    note: str


class Split(NamedTuple):
    """Images, their class numbers, and their positions in the source."""

    images: Pixels
    labels: Indices
    ids: Indices


@dataclass(frozen=True, eq=False)
class ImageSet:
    """All a source has, before a task is cut out of it. Without `test`, what training leaves over is the test set."""

    train: Split
    test: Split | None
    class_names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class TaskData:
    """What a network is trained and tested on.

    Images are float32 (n, C, H, W) with the training mean subtracted from train and test alike;
    `mean` (C, H, W) is in [0, 1], so `train_x + mean` is the picture again. Planar sets are (n, 2),
    not centred, with a mean of zeros. Labels count the task's classes from 0; with two sides 0 is
    the negative and 1 the positive one. Ids are positions in the source, to name a sample by.
    """

    train_x: Tensor
    train_labels: Tensor
    test_x: Tensor
    test_labels: Tensor
    mean: Tensor
    class_names: tuple[str, ...]
    train_ids: Tensor
    test_ids: Tensor
    task: Task

    @property
    def n(self) -> int:
        """Training samples."""
        return int(self.train_x.shape[0])

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one sample: (C, H, W) or (2,)."""
        return tuple(self.train_x.shape[1:])

    @property
    def outputs(self) -> int:
        """Output units the task calls for."""
        return len(self.class_names) if self.task is Task.MULTICLASS else 1

    @property
    def signs(self) -> Tensor:
        """Training targets +-1, float32 (n,)."""
        if self.task is Task.MULTICLASS:
            raise ValueError("a multiclass task has class labels, not signs")
        return signs_of(self.train_labels)

    @cached_property
    def fingerprint(self) -> str:
        """sha256 over the bytes of the training images and labels: equal exactly when these are."""
        digest = hashlib.sha256()
        for values in (self.train_x, self.train_labels):
            digest.update(np.ascontiguousarray(values.numpy()).tobytes())
        return digest.hexdigest()


def signs_of(labels: Tensor) -> Tensor:
    """Labels 0 and 1 as float32 signs -1 and +1."""
    return labels.to(torch.float32) * 2 - 1
