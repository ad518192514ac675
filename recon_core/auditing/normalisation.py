"""From pixels to what a network was trained on: x = (pixel - mean) / std. A checkpoint does not tell which."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from recon_core.data import TaskData
from recon_core.errors import InputError

# Constants that training scripts copy from one another, by number of channels.
_CUSTOMARY: dict[int, dict[str, tuple[tuple[float, ...], tuple[float, ...]]]] = {
    1: {
        "mnist": ((0.1307,), (0.3081,)),
        "fashion-mnist": ((0.2860,), (0.3530,)),
    },
    3: {
        "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
        "cifar10-short": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
        "cifar100": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
        "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    },
}

AUTO, GIVEN = "auto", "given"
NAMES = (AUTO, "centred", "unit", "symmetric", "channels", *(name for group in _CUSTOMARY.values() for name in group))
"""What can be asked for by name; `centred` subtracts the mean training image, `unit` leaves pixels in [0, 1]."""


@dataclass(frozen=True, eq=False)
class Normalisation:
    """mean (C, H, W) in [0, 1] and std (C, 1, 1), both in pixels."""

    name: str
    mean: Tensor
    std: Tensor

    def describe(self) -> str:
        if self.name == "centred":
            return "the mean training image subtracted"
        if self.name == "unit":
            return "pixels in [0, 1], nothing subtracted"
        mean, std = (_listed(values.flatten(1)[:, 0]) for values in (self.mean, self.std))
        return f"(pixel - {mean}) / {std}" + ("" if self.name == GIVEN else f" ({self.name})")

    def attach(self, data: TaskData) -> TaskData:
        """The same images with this mean subtracted; divided by `std` they are the network's inputs."""
        shift = data.mean - self.mean
        return replace(data, train_x=data.train_x + shift, test_x=data.test_x + shift, mean=self.mean)

    def inputs(self, x: Tensor) -> Tensor:
        """Images (k, C, H, W) with the mean subtracted, as the network takes them."""
        return x / self.std

    def pixels(self, candidates: Tensor) -> Tensor:
        """Candidates (k, C, H, W) in the network's inputs -> in pixels, the mean still subtracted."""
        return candidates.float() * self.std


def normalisations(
    data: TaskData, name: str = AUTO, mean: Sequence[float] | None = None, std: Sequence[float] | None = None
) -> list[Normalisation]:
    """The one asked for; with `auto`, every customary one, for the network to choose from."""
    channels = data.input_shape[0]
    if mean is not None or std is not None:
        return [_of_channels(GIVEN, _checked("mean", mean, channels, 0.0), _checked("std", std, channels, 1.0), data)]
    known = _all(data)
    if name == AUTO:
        return list(known.values())
    if name not in known:
        raise InputError(
            f"normalisation must be {', '.join([AUTO, *known])} for images of {channels} channels, got {name!r}; "
            "or give mean and std"
        )
    return [known[name]]


def _all(data: TaskData) -> dict[str, Normalisation]:
    channels = data.input_shape[0]
    images = data.train_x + data.mean
    by_channel = images.transpose(0, 1).flatten(1)
    found = [
        Normalisation("centred", data.mean, torch.ones(channels, 1, 1)),
        _of_channels("unit", [0.0] * channels, [1.0] * channels, data),
        _of_channels("symmetric", [0.5] * channels, [0.5] * channels, data),
        _of_channels("channels", by_channel.mean(1).tolist(), by_channel.std(1).clamp_min(1e-6).tolist(), data),
    ]
    found += [_of_channels(name, *constants, data) for name, constants in _CUSTOMARY.get(channels, {}).items()]
    return {each.name: each for each in found}


def _of_channels(name: str, mean: Sequence[float], std: Sequence[float], data: TaskData) -> Normalisation:
    columns = (torch.tensor(list(values), dtype=torch.float32).view(-1, 1, 1) for values in (mean, std))
    middle, spread = columns
    return Normalisation(name, middle.expand(data.input_shape).contiguous(), spread)


def _checked(name: str, values: Sequence[float] | None, channels: int, usual: float) -> Sequence[float]:
    if values is None:
        return [usual] * channels
    if len(values) == 1:
        values = [*values] * channels
    if len(values) != channels:
        raise InputError(f"{name} needs one number or one for each of {channels} channels, got {len(values)}")
    if not all(math.isfinite(value) for value in values):
        raise InputError(f"{name} must be finite, got {', '.join(map(str, values))}; e.g. 0.5")
    if name == "std" and min(values) <= 0:
        raise InputError(f"std must be above 0, got {min(values):g}; give it in pixels of [0, 1], e.g. 0.25")
    if max(abs(value) for value in values) > 1:
        raise InputError(f"{name} must be given in pixels of [0, 1], got {max(values, key=abs):g}; divide it by 255")
    return values


def _listed(values: Tensor) -> str:
    numbers = [f"{float(value):.4g}" for value in values]
    return numbers[0] if len(set(numbers)) == 1 else f"({', '.join(numbers)})"
