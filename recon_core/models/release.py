"""From trained weights to released ones: pruned, noisy or rounded. Whoever gets the model sees only these."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from recon_core.config import ReleaseConfig
from recon_core.models.network import Network


def released(network: Network, settings: ReleaseConfig, seed: int) -> Network:
    """A copy with `settings` applied to the weights and biases of every layer, each by itself."""
    changed = copy.deepcopy(network)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in changed.parameters():
            value = prune(parameter.cpu(), settings.pruned) if settings.pruned else parameter.cpu()
            if settings.noise:
                value = add_noise(value, settings.noise, generator)
            if settings.bits is not None:
                value = round_to_bits(value, settings.bits)
            parameter.copy_(value)
    return changed


def prune(weights: Tensor, share: float) -> Tensor:
    """The smallest `share` of the entries by magnitude set to 0; of equal ones the first go."""
    count = round(share * weights.numel())
    flat = weights.flatten().clone()
    flat[flat.abs().argsort(stable=True)[:count]] = 0.0
    return flat.view_as(weights)


def add_noise(weights: Tensor, relative: float, generator: torch.Generator) -> Tensor:
    """Gaussian noise of `relative` times the root mean square of the entries."""
    scale = weights.square().mean().sqrt()
    # Drawn in float32 whatever the type, so that a seed means the same noise.
    return weights + relative * scale * torch.randn(weights.shape, generator=generator).to(weights)


def round_to_bits(weights: Tensor, bits: int) -> Tensor:
    """Symmetric uniform quantisation: integers of `bits` bits times one scale, the largest entry / (2^(bits-1) - 1)."""
    levels = 2 ** (bits - 1) - 1
    largest = weights.abs().amax()
    if largest == 0:
        return weights.clone()
    # In double precision, so that rounding what is rounded already changes nothing.
    step = largest.double() / levels
    rounded: Tensor = (weights.double() / step).round() * step
    return rounded.to(weights.dtype)
