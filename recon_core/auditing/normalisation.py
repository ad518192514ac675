"""How attached images become what a network was trained on. A checkpoint does not tell, so there are names to try."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from recon_core.data import TaskData
from recon_core.errors import InputError
from recon_core.models.normalisation import Normalisation

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

_LEAST_SPREAD = 1e-3  # of a channel that is one colour everywhere

AUTO, CENTRED, GIVEN = "auto", "centred", "given"
_ANYWHERE = (CENTRED, "unit", "symmetric", "channels")
NAMES = (AUTO, *_ANYWHERE, *(name for group in _CUSTOMARY.values() for name in group))
"""What can be asked for by name; `centred` subtracts the mean training image, `unit` leaves pixels in [0, 1]."""


@dataclass(frozen=True)
class Preprocessing:
    """From pixels in [0, 1] to inputs, under the name it goes by."""

    name: str
    constants: Normalisation | None
    """None where the mean training image is subtracted, as `TaskData` holds its images."""

    def describe(self) -> str:
        if self.constants is None:
            return "the mean training image subtracted"
        if self.name == "unit":
            return "pixels in [0, 1], nothing subtracted"
        return self.constants.describe() + ("" if self.name == GIVEN else f" ({self.name})")

    def attach(self, data: TaskData) -> TaskData:
        """The same images with this mean subtracted; `inputs` makes of them what the network takes."""
        if self.constants is None:
            return data
        mean = torch.tensor(self.constants.mean).view(-1, 1, 1).expand(data.input_shape).contiguous()
        shift = data.mean - mean
        return replace(data, train_x=data.train_x + shift, test_x=data.test_x + shift, mean=mean)

    def inputs(self, x: Tensor) -> Tensor:
        """Images (k, C, H, W) with the mean subtracted, as the network takes them."""
        return x if self.constants is None else self.constants.undo_centred(x)

    def pixels(self, candidates: Tensor) -> Tensor:
        """Candidates (k, C, H, W) in the network's inputs -> in pixels, the mean still subtracted."""
        centred = candidates.float()
        return centred if self.constants is None else self.constants.centred(centred)


def normalisations(
    data: TaskData, name: str = AUTO, mean: Sequence[float] | None = None, std: Sequence[float] | None = None
) -> list[Preprocessing]:
    """The one asked for; with `auto`, every customary one, for the network to choose from."""
    check_normalisation(data.input_shape, name, mean, std)
    given = Normalisation.of(mean, std, data.input_shape)
    if given is not None:
        return [Preprocessing(GIVEN, given)]
    known = _all(data)
    return list(known.values()) if name == AUTO else [known[name]]


def check_normalisation(
    input_shape: tuple[int, ...], name: str, mean: Sequence[float] | None, std: Sequence[float] | None
) -> None:
    """Raise what is wrong with it for images (C, H, W), before any is read."""
    if Normalisation.of(mean, std, input_shape) is not None:
        return
    channels = input_shape[0]
    known = (AUTO, *_ANYWHERE, *_CUSTOMARY.get(channels, {}))
    if name not in known:
        raise InputError(
            f"normalisation must be {', '.join(known)} for images of {channels} channels, got {name!r}; "
            "or give mean and std"
        )


def _all(data: TaskData) -> dict[str, Preprocessing]:
    channels = data.input_shape[0]
    by_channel = (data.train_x + data.mean).transpose(0, 1).flatten(1)
    means = by_channel.mean(1).clamp(0.0, 1.0).tolist()
    spreads = by_channel.std(1).clamp_min(_LEAST_SPREAD).tolist()
    constants = {
        "unit": ([0.0], [1.0]),
        "symmetric": ([0.5], [0.5]),
        "channels": (means, spreads),
        **_CUSTOMARY.get(channels, {}),
    }
    found = {name: Preprocessing(name, Normalisation.of(*each, data.input_shape)) for name, each in constants.items()}
    return {CENTRED: Preprocessing(CENTRED, None), **found}
