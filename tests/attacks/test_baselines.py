"""Baselines on networks small enough to know the answer."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from recon_core.attacks import baselines
from recon_core.attacks.baselines import (
    INVERSION_RANGES,
    InversionRange,
    invert,
    kernel_tiles,
    untrained_network,
    weight_images,
    weight_points,
)
from recon_core.config import BiasMode
from recon_core.errors import InputError
from recon_core.models import Architecture, Network, build_network

STEADY = InversionRange(learning_rate=(0.05, 0.1), sigma=(1.0, 1.0))


def network_of(architecture: Architecture, *tensors: Tensor) -> Network:
    """A network with these parameters, in order."""
    network = Network(architecture)
    with torch.no_grad():
        for parameter, tensor in zip(network.parameters(), tensors, strict=True):
            parameter.copy_(tensor)
    return network


def pyramid(peak: tuple[float, float], height: float = 1.0) -> Network:
    """phi(x) = relu(height - |x - peak|_1): a peak, a plain at 0 everywhere else, nothing below."""
    first = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0], [0.0, 0.0]])
    offset = first @ torch.tensor(peak)
    bias = -offset
    bias[4] = height  # a neuron that is always on
    second = torch.tensor([[-1.0, -1.0, -1.0, -1.0, 1.0]])
    return network_of(Architecture((2,), (5, 1), 1), first, bias, second, torch.ones(1, 1))


def test_the_maximum_of_a_known_network_is_found() -> None:
    network = pyramid((0.4, -0.3), height=4.0)
    found = invert(network, count=40, seed=0, steps=300, ranges=STEADY)
    climbed = found.candidates[found.labels == 1]
    torch.testing.assert_close(climbed, torch.tensor([[0.4, -0.3]]).expand(20, 2), atol=2e-3, rtol=0)
    torch.testing.assert_close(found.outputs[found.labels == 1], torch.full((20,), 4.0), atol=5e-3, rtol=0)
    assert not found.at_bound[found.labels == 1].any()
    # Those that minimise walk down the flank to the plain or to the bound, whichever comes first.
    assert (found.outputs[found.labels == 0] <= 1.0).all()


def test_result_is_ordered_and_belongs_together() -> None:
    network = build_network(Architecture((2,), (30, 30), 1), init_scale="kaiming", seed=3)
    found = invert(network, count=60, seed=1, steps=20)
    assert (found.outputs.diff() >= 0).all()
    torch.testing.assert_close(network(found.candidates)[:, 0], found.outputs)
    assert found.labels.bincount().tolist() == [30, 30]
    low, high = INVERSION_RANGES["inversion"]
    assert (found.learning_rates >= low[0]).all()
    assert (found.learning_rates <= low[1] * 1.001).all()
    assert (found.sigmas >= high[0] * 0.999).all()
    # Drawn over all orders of magnitude, not uniformly.
    assert found.learning_rates.median() < 0.05
    assert found.sigmas.log10().std() > 1


def test_points_that_run_off_stop_at_the_radius() -> None:
    """phi(x) = relu(x_1) - relu(-x_1) = x_1 has no extremum at all."""
    network = network_of(
        Architecture((2,), (2,), 1, BiasMode.NONE),
        torch.tensor([[1.0, 0.0], [-1.0, 0.0]]),
        torch.tensor([[1.0, -1.0]]),
    )
    fast = InversionRange((1e3, 1e3), (0.5, 0.5))
    found = invert(network, count=10, seed=0, steps=50, ranges=fast, bound=2.0)
    assert found.at_bound.all()
    torch.testing.assert_close(found.candidates.norm(dim=1), torch.full((10,), 2.0))
    assert (found.outputs[:5] < -1).all()
    assert (found.outputs[5:] > 1).all()


@pytest.mark.parametrize("rate", [1e-6, 1.0, 1e20])
def test_nothing_becomes_infinite(rate: float) -> None:
    network = build_network(Architecture((1, 4, 4), (8,), 1), init_scale=1e15, seed=0)
    found = invert(network, count=6, seed=0, steps=5, ranges=InversionRange((rate, rate), (1.0, 1.0)))
    assert found.candidates.isfinite().all()
    assert found.candidates.shape == (6, 1, 4, 4)
    assert found.candidates.abs().max() <= 1


def test_images_follow_the_sign_of_a_linear_output_into_the_corner() -> None:
    """phi(x) = w.x on the box [-1, 1]^d is largest at sign(w)."""
    w = torch.randn(1, 12, generator=torch.Generator().manual_seed(0))
    network = network_of(
        Architecture((3, 2, 2), (2,), 1, BiasMode.NONE), torch.cat([w, -w]), torch.tensor([[1.0, -1.0]])
    )
    found = invert(network, count=4, seed=0, steps=200, ranges=InversionRange((1.0, 1.0), (0.1, 0.1)))
    corner = w.sign().reshape(3, 2, 2)
    torch.testing.assert_close(found.candidates, torch.stack([-corner, -corner, corner, corner]))
    torch.testing.assert_close(found.outputs, w.abs().sum() * torch.tensor([-1.0, -1.0, 1.0, 1.0]))


def test_several_classes_each_climb_over_their_best_rival() -> None:
    """phi_c = relu(u_c . x) with three directions 120 degrees apart: class c wins most along u_c."""
    angles = torch.arange(3) * (2 * math.pi / 3)
    directions = torch.stack([angles.cos(), angles.sin()], 1)
    network = network_of(Architecture((2,), (3,), 3, BiasMode.NONE), directions, torch.eye(3))
    found = invert(network, count=32, seed=0, steps=300, ranges=STEADY, bound=1.0)
    assert found.labels.tolist() == sorted(found.labels.tolist())
    assert found.labels.bincount().tolist() == [11, 11, 10]
    for label in range(3):
        of_class = found.labels == label
        assert (found.outputs[of_class].diff() >= 0).all()
        # From the far side every slope towards u_c is 0 but the rival's, which drives it round.
        torch.testing.assert_close(found.candidates[of_class][-1], directions[label], atol=0.05, rtol=0)
        torch.testing.assert_close(found.outputs[of_class][-1], torch.tensor(1.0), atol=0.05, rtol=0)


def test_a_seed_means_one_search_however_it_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    network = build_network(Architecture((2,), (20, 20), 1), init_scale="kaiming", seed=0)
    whole = invert(network, count=30, seed=5, steps=10)
    monkeypatch.setattr(baselines, "_BLOCK", 7)
    told: list[float] = []
    cut = invert(network, count=30, seed=5, steps=10, progress=told.append)
    torch.testing.assert_close(whole.candidates, cut.candidates)
    assert told == sorted(told)
    assert len(told) == 50
    assert told[-1] == 1.0
    assert not torch.equal(invert(network, count=30, seed=6, steps=10).candidates, whole.candidates)


def test_the_network_is_left_as_it_was() -> None:
    network = build_network(
        Architecture((3, 6, 6), (5,), 1, conv_kernel=3, conv_channels=4), init_scale="kaiming", seed=0
    ).double()
    before = [parameter.detach().clone() for parameter in network.parameters()]
    found = invert(network, count=4, seed=0, steps=3)
    assert found.candidates.dtype == torch.float64
    for parameter, was in zip(network.parameters(), before, strict=True):
        assert torch.equal(parameter, was)
        assert parameter.grad is None
        assert parameter.requires_grad


def test_a_hill_and_a_hollow_are_both_found() -> None:
    """phi = relu(1.5 - |x - a|_1) - relu(1.5 - |x + a|_1), a = (1, 0): starts on the plain between stay there."""
    hill, hollow = (list(pyramid(peak, height=1.5).parameters()) for peak in ((1.0, 0.0), (-1.0, 0.0)))
    network = network_of(
        Architecture((2,), (10, 2), 1),
        torch.cat([hill[0], hollow[0]]),
        torch.cat([hill[1], hollow[1]]),
        torch.block_diag(hill[2], hollow[2]),
        torch.tensor([[1.0, -1.0]]),
    )
    found = invert(network, count=60, seed=0, steps=300, ranges=STEADY)
    high, low = found.outputs > 1.4, found.outputs < -1.4
    assert high.sum() > 5
    assert low.sum() > 5
    assert (found.labels[high] == 1).all()
    assert (found.labels[low] == 0).all()
    torch.testing.assert_close(found.candidates[high].mean(0), torch.tensor([1.0, 0.0]), atol=2e-3, rtol=0)
    torch.testing.assert_close(found.candidates[low].mean(0), torch.tensor([-1.0, 0.0]), atol=2e-3, rtol=0)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"count": 7}, "count must be even, half to maximise and half to minimise, got 7"),
        ({"count": 0}, "at least 2, one candidate per class, got 0"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"bound": 0.0}, "bound must be a positive number, got 0.0"),
        ({"bound": math.nan}, "bound must be"),
        ({"ranges": InversionRange((0.0, 1.0), (1.0, 1.0))}, "learning_rate"),
        ({"ranges": InversionRange((1.0, 1.0), (1.0, 0.1))}, "sigma"),
    ],
)
def test_wrong_settings_are_said(options: dict[str, object], part: str) -> None:
    network = build_network(Architecture((2,), (3,), 1), init_scale="kaiming", seed=0)
    with pytest.raises(InputError, match=part):
        invert(network, **{"count": 4, "seed": 0, **options})  # type: ignore[arg-type]


def test_ranges_are_those_of_the_paper() -> None:
    assert INVERSION_RANGES["inversion"] == ((1e-6, 1.0), (1e-7, 1.0))
    assert INVERSION_RANGES["reconstruction"] == ((1e-5, 1.0), (1e-6, 1.0))


def test_weights_as_images_and_points() -> None:
    images = build_network(Architecture((3, 4, 5), (7, 6), 1), init_scale="kaiming", seed=0)
    weight = images.get_parameter("layers.0.weight")
    shown = weight_images(images)
    assert shown.shape == (7, 3, 4, 5)
    assert shown[2, 1, 3, 4] == weight[2, 1 * 20 + 3 * 5 + 4]
    shown.zero_()
    assert weight.any()  # the network keeps its own
    plane = build_network(Architecture((2,), (7,), 1), init_scale="kaiming", seed=0)
    assert torch.equal(weight_points(plane), plane.get_parameter("layers.0.weight"))
    with pytest.raises(InputError, match="weight_points"):
        weight_images(plane)
    with pytest.raises(InputError, match="points only"):
        weight_points(images)


def test_kernels_as_tiles() -> None:
    architecture = Architecture((3, 6, 6), (5,), 1, BiasMode.NONE, conv_kernel=2, conv_channels=2)
    network = build_network(architecture, init_scale="kaiming", seed=0)
    kernels = torch.arange(24.0).reshape(2, 3, 2, 2)
    kernels[1] = 3.0
    with torch.no_grad():
        network.get_parameter("layers.0.weight").copy_(kernels)
    tiles = kernel_tiles(network)
    torch.testing.assert_close(tiles[0].flatten(), torch.arange(12.0) / 11)
    assert (tiles[1] == 0.5).all()
    grey = Architecture((1, 6, 6), (5,), 1, conv_kernel=3, conv_channels=4)
    tiles = kernel_tiles(build_network(grey, init_scale="kaiming", seed=0))
    assert tiles.shape == (4, 3, 3, 3)
    assert torch.equal(tiles[:, 0], tiles[:, 2])
    with pytest.raises(InputError, match="weight_images"):
        kernel_tiles(build_network(Architecture((3, 6, 6), (5,), 1), init_scale="kaiming", seed=0))
    with pytest.raises(InputError, match="kernel_tiles"):
        weight_images(network)


def test_untrained_network_is_the_start_of_a_training_with_that_seed() -> None:
    architecture = Architecture((2,), (50, 40), 1)
    floor = untrained_network(architecture, seed=4, init_scale=1e-4, dtype=torch.float64)
    start = build_network(architecture, init_scale=1e-4, seed=4, dtype=torch.float64)
    assert floor.architecture == architecture
    assert all(torch.equal(a, b) for a, b in zip(floor.parameters(), start.parameters(), strict=True))
    assert floor.get_parameter("layers.0.weight").std().item() == pytest.approx(1e-4, rel=0.3)
    assert untrained_network(architecture, seed=4).get_parameter("layers.0.weight").std() > 0.1
