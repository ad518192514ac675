"""What the first layer looks like: its singular values, and its weights as images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from recon_core.analysis.arrays import Floats, Integers, floats, integers
from recon_core.errors import InputError


@dataclass(frozen=True, eq=False)
class SingularValues:
    """Singular values of the first layer, largest first; few large ones mean that few samples shaped it."""

    values: Floats

    @property
    def effective_rank(self) -> float:
        """exp of the entropy of the values' shares: r for r equal values and zeros otherwise."""
        shares = self.values[self.values > 0] / self.values.sum()
        return float(np.exp(-(shares * np.log(shares)).sum()))

    def to_frame(self) -> pd.DataFrame:
        return pd.DataFrame({"rank": np.arange(1, len(self.values) + 1), "singular_value": self.values})


def singular_values(values: Tensor) -> SingularValues:
    """From singular values (r,) in any order, as a training run keeps them."""
    if values.ndim != 1 or len(values) == 0:
        raise InputError(f"singular values must be a list of at least one, got shape {tuple(values.shape)}")
    return SingularValues(floats(values.sort(descending=True).values))


@dataclass(frozen=True, eq=False)
class WeightImages:
    """Weights of single neurons or kernels, each stretched to [0, 1] about 0.5, so that grey is no weight."""

    images: NDArray[np.float32]
    """(k, C, H, W)."""
    neurons: Integers
    norms: Floats

    def to_frame(self) -> pd.DataFrame:
        return pd.DataFrame({"neuron": self.neurons, "norm": self.norms})


def weight_images(weight: Tensor, input_shape: tuple[int, ...], most: int = 64) -> WeightImages:
    """The `most` neurons of largest norm, from a dense weight (out, d) or a convolution's (out, C, k, k).

    Dense rows are shaped like inputs; kernels keep their own size.
    """
    if weight.ndim == 2:
        if len(input_shape) != 3 or weight[0].numel() != np.prod(input_shape):
            raise InputError(
                f"weights of {weight.shape[1]} values cannot be drawn as images of shape {tuple(input_shape)}"
            )
        weight = weight.reshape(len(weight), *input_shape)
    if weight.ndim != 4 or most < 1:
        raise InputError(f"weights must be (out, d) or (out, C, k, k), at least 1 drawn; got {tuple(weight.shape)}")
    norms = weight.detach().flatten(1).norm(dim=1)
    kept = norms.sort(descending=True, stable=True).indices[:most]
    shown = weight.detach()[kept].cpu().float()
    largest = shown.flatten(1).abs().amax(dim=1).view(-1, 1, 1, 1)
    images = 0.5 + 0.5 * shown / torch.where(largest > 0, largest, 1.0)
    return WeightImages(images.numpy(), integers(kept), floats(norms[kept]))
