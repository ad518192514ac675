"""How pixels were normalised before a model saw them: x = (pixel - mean) / std, which no checkpoint tells."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from recon_core.errors import InputError


@dataclass(frozen=True)
class Normalisation:
    """One mean and one standard deviation for each channel of pixels in [0, 1]."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of(
        cls, mean: Sequence[float] | None, std: Sequence[float] | None, input_shape: tuple[int, ...]
    ) -> Normalisation | None:
        """What was given, for inputs of this shape: one number for all channels or one for each; None for nothing."""
        if mean is None and std is None:
            return None
        if len(input_shape) != 3:
            raise InputError(f"mean and std go with images, got inputs of shape {input_shape}; leave them out")
        channels = input_shape[0]
        values = {"mean": tuple(mean or (0.0,)), "std": tuple(std or (1.0,))}
        for name, numbers in values.items():
            if len(numbers) not in (1, channels):
                wanted = "1 number" if channels == 1 else f"1 or {channels} numbers, one per channel"
                raise InputError(f"{name} needs {wanted}, got {len(numbers)}")
            for number in numbers:
                usual = f"{name} must be a number such as {_USUAL[name]}, for pixels in [0, 1], got {number:g}"
                if not math.isfinite(number) or (name == "std" and number < _SMALLEST):
                    raise InputError(usual)
                if abs(number) > 1:
                    raise InputError(f"{usual}; divide it by 255 if it is of pixels up to 255")
        full = {name: numbers * channels if len(numbers) == 1 else numbers for name, numbers in values.items()}
        return cls(full["mean"], full["std"])

    def inputs(self, images: Tensor) -> Tensor:
        """What the model is fed for images (n, C, H, W) in [0, 1]."""
        return (images - self._wide(self.mean, images)) / self._wide(self.std, images)

    def centred(self, inputs: Tensor) -> Tensor:
        """Inputs (..., C, H, W) of the model as pixels minus their mean, as everything here shows and compares them."""
        return inputs * self._wide(self.std, inputs)

    def undo_centred(self, centred: Tensor) -> Tensor:
        """Centred pixels (..., C, H, W) as the model is fed them."""
        return centred / self._wide(self.std, centred)

    def pixels(self, centred: Tensor) -> Tensor:
        """Centred pixels (..., C, H, W) as an image in [0, 1]."""
        return (centred + self._wide(self.mean, centred)).clamp(0.0, 1.0)

    def describe(self) -> str:
        """`(pixel - 0.5) / (0.2, 0.3, 0.2)`; one number where all channels have the same."""
        return f"(pixel - {_listed(self.mean)}) / {_listed(self.std)}"

    def to_json(self) -> dict[str, Any]:
        return {"mean": list(self.mean), "std": list(self.std)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any], input_shape: tuple[int, ...]) -> Normalisation | None:
        return cls.of(values["mean"], values["std"], input_shape)

    @staticmethod
    def _wide(numbers: tuple[float, ...], like: Tensor) -> Tensor:
        return torch.tensor(numbers, dtype=like.dtype, device=like.device)[:, None, None]


def _listed(numbers: tuple[float, ...]) -> str:
    shown = [f"{number:.4g}" for number in numbers]
    return shown[0] if len(set(shown)) == 1 else f"({', '.join(shown)})"


_USUAL = {"mean": "0.5", "std": "0.25"}
_SMALLEST = 1e-4  # inputs divided by less would leave float32
