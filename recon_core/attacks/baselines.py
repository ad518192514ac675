"""What the papers compare reconstruction with: model inversion, the first layer's weights, an untrained network."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import functional_call

from recon_core.errors import InputError
from recon_core.models import Architecture, Network, build_network


class InversionRange(NamedTuple):
    """Bounds between which a learning rate and a start scale sigma are drawn log-uniformly, per candidate."""

    learning_rate: tuple[float, float]
    sigma: tuple[float, float]


INVERSION_RANGES = {
    "inversion": InversionRange(learning_rate=(1e-6, 1.0), sigma=(1e-7, 1.0)),
    "reconstruction": InversionRange(learning_rate=(1e-5, 1.0), sigma=(1e-6, 1.0)),
}
"""Haim et al. 2022, App. B.2: what model inversion was searched over, and what their own attack was."""

_BLOCK = 1000


@dataclass(frozen=True)
class Inversion:
    """Inputs that make an output extreme, ordered by class (several outputs), then by `outputs`, smallest first."""

    candidates: Tensor
    """(m, *input_shape), always finite."""
    outputs: Tensor
    """(m,): phi or, with several outputs, phi of the candidate's class minus its best rival."""
    labels: Tensor
    """(m,) class indices. With one output 1 was maximised and 0 minimised."""
    learning_rates: Tensor
    sigmas: Tensor
    at_bound: Tensor
    """(m,) bool: held back by the bound, so no extremum within it (points) or a pixel at its limit (images)."""


def invert(
    network: Network,
    *,
    count: int,
    seed: int,
    steps: int = 500,
    ranges: InversionRange = INVERSION_RANGES["inversion"],
    bound: float | None = None,
    progress: Callable[[float], None] | None = None,
) -> Inversion:
    """Model inversion (Haim et al. 2022, Section 5.4 and App. B.2): climb the output from `count` random starts.

    x ~ N(0, sigma^2 I); half the candidates maximise phi, half minimise it. With several outputs equal
    shares maximise phi_c - max of the others for every class c. Each candidate has its own learning rate
    and sigma, drawn from `ranges`, so one call is a whole search; the result does not depend on how many
    candidates are computed at a time.

    Departures, both in the baseline's favour: the rate falls linearly to nothing, since a piecewise linear
    output lets a constant step hop around its extremum forever; and because such an output has no largest
    value, candidates are held within |x_j| <= `bound` (images; 1 by default, what centred pixels keep to)
    or within distance `bound` of the origin (points; 3 by default).

    `progress` is told the fraction done after every step; what it raises ends the call.
    """
    outputs = network.architecture.outputs
    if outputs == 1 and count % 2:
        raise InputError(f"count must be even, half to maximise and half to minimise, got {count}")
    if count < max(2, outputs):
        raise InputError(f"count must be at least {max(2, outputs)}, one candidate per class, got {count}")
    if steps < 1:
        raise InputError(f"steps must be at least 1, got {steps}")
    shape = network.architecture.input_shape
    planar = len(shape) == 1
    limit = (3.0 if planar else 1.0) if bound is None else bound
    if not 0 < limit < math.inf:
        raise InputError(f"bound must be a positive number, got {bound}")
    # Drawn in float32 on the CPU whatever the network's type and device, so that a seed means one search.
    generator = torch.Generator().manual_seed(seed)
    rates = _log_uniform(ranges.learning_rate, count, generator, "learning_rate")
    sigmas = _log_uniform(ranges.sigma, count, generator, "sigma")
    x = torch.randn(count, math.prod(shape), generator=generator) * sigmas[:, None]
    labels = torch.arange(count) % max(2, outputs)

    parameters = {name: parameter.detach() for name, parameter in network.named_parameters()}
    place = next(iter(parameters.values()))

    def heights(points: Tensor, classes: Tensor) -> Tensor:
        return _height(functional_call(network, parameters, (points,)), classes)

    x, rates, sigmas, labels = x.to(place), rates.to(place), sigmas.to(place), labels.to(place.device)
    x = _within(x, limit, planar)
    reached = torch.empty_like(rates)
    blocks = range(0, count, _BLOCK)
    for number, start in enumerate(blocks):
        rows = slice(start, start + _BLOCK)
        for step in range(steps):
            points = x[rows].requires_grad_()
            (slope,) = torch.autograd.grad(heights(points, labels[rows]).sum(), points)
            rate = rates[rows, None] * (1 - step / steps)
            # A step longer than the whole region is as good as one that crosses it, and cannot overflow.
            move = (rate * slope.nan_to_num()).clamp(-2 * limit, 2 * limit)
            x[rows] = _within(points.detach() + move, limit, planar)
            if progress is not None:
                progress((number + (step + 1) / steps) / len(blocks))
        with torch.no_grad():
            reached[rows] = heights(x[rows], labels[rows])
    if outputs == 1:
        reached = torch.where(labels == 1, reached, -reached)
        order = reached.argsort(stable=True)
    else:
        order = reached.argsort(stable=True)
        order = order[labels[order].argsort(stable=True)]
    return Inversion(
        candidates=x[order].reshape(count, *shape),
        outputs=reached[order],
        labels=labels[order],
        learning_rates=rates[order],
        sigmas=sigmas[order],
        at_bound=_at_bound(x[order], limit, planar),
    )


def _log_uniform(bounds: tuple[float, float], count: int, generator: torch.Generator, name: str) -> Tensor:
    low, high = bounds
    if not 0 < low <= high < math.inf:
        raise InputError(f"the range of {name} must be two positive numbers, the smaller first, got {bounds}")
    logs = torch.empty(count).uniform_(math.log(low), math.log(high), generator=generator)
    return torch.exp(logs)


def _height(phi: Tensor, labels: Tensor) -> Tensor:
    """What is climbed (n,): +-phi of phi (n, 1), the margin over the best rival of phi (n, C)."""
    if phi.shape[1] == 1:
        return torch.where(labels == 1, phi[:, 0], -phi[:, 0])
    own = phi.gather(1, labels[:, None])[:, 0]
    return own - phi.scatter(1, labels[:, None], -torch.inf).amax(1)


def _within(x: Tensor, limit: float, planar: bool) -> Tensor:
    """The nearest points inside the ball (points) or the box (images)."""
    if not planar:
        return x.clamp(-limit, limit)
    return x * torch.clamp(limit / torch.linalg.vector_norm(x, dim=1, keepdim=True), max=1.0)


def _at_bound(x: Tensor, limit: float, planar: bool) -> Tensor:
    size = torch.linalg.vector_norm(x, dim=1) if planar else x.abs().amax(1)
    return size >= limit * (1 - 1e-4)


def weight_images(network: Network) -> Tensor:
    """Each first-layer neuron's weights as an image (h, C, H, W), as they are (Haim et al. 2022, Fig. 5b)."""
    architecture = network.architecture
    if not architecture.dense_first or len(architecture.input_shape) != 3:
        raise InputError(
            f"the first layer's weights are images only where a dense layer sees images, got {architecture}; "
            "use weight_points in the plane and kernel_tiles for a convolution"
        )
    return _first_weight(network).reshape(-1, *architecture.input_shape)


def weight_points(network: Network) -> Tensor:
    """Each first-layer neuron's weights as a point (h, d), as they are: the direction means something, the length not.

    The purple dots of Haim et al. 2022, Fig. 5b.
    """
    architecture = network.architecture
    if len(architecture.input_shape) != 1:
        raise InputError(f"the first layer's weights are points only where inputs are, got {architecture}")
    return _first_weight(network)


def kernel_tiles(network: Network) -> Tensor:
    """Each convolution kernel as a picture (C_out, 3, k, k) in [0, 1] (Buzaglo et al. 2023, Fig. 16).

    A kernel is stretched to [0, 1] over all its channels together, so that its colours keep their relation;
    one that is constant comes out grey, as does every kernel on one channel.
    """
    architecture = network.architecture
    channels = architecture.input_shape[0]
    if architecture.dense_first or channels not in (1, 3):
        raise InputError(
            f"kernel tiles need a convolution on one or three channels, got {architecture}; "
            "use weight_images for a dense first layer"
        )
    kernels = _first_weight(network)
    low, high = kernels.amin((1, 2, 3), keepdim=True), kernels.amax((1, 2, 3), keepdim=True)
    tiles = torch.where(high > low, (kernels - low) / (high - low), 0.5)
    return tiles.expand(-1, 3, -1, -1).contiguous()


def _first_weight(network: Network) -> Tensor:
    """A copy, so that callers may change it without changing the network."""
    return network.get_parameter("layers.0.weight").detach().clone()


def untrained_network(
    architecture: Architecture,
    *,
    seed: int,
    init_scale: float | str = "kaiming",
    dense_init_scale: float | str = "kaiming",
    dtype: torch.dtype = torch.float32,
) -> Network:
    """The same architecture before any training, to be attacked the same way: what matches it does so by chance.

    The scales should be those of the trained network (1e-4 in Haim et al. 2022); a checkpoint of somebody else
    does not tell, and torch's own start is the likeliest.
    """
    return build_network(architecture, init_scale=init_scale, dense_init_scale=dense_init_scale, seed=seed, dtype=dtype)
