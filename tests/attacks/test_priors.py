"""The edge prior: its gradient is autograd's, scale does not matter, mixtures score higher than what they mix."""

from __future__ import annotations

import math

import pytest
import torch

from recon_core.attacks.priors import EdgePrior, describes_images
from recon_core.errors import InputError

SHAPE = (3, 5, 4)


def basis(columns: int = 60) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.linalg.qr(torch.randn(60, columns, generator=generator, dtype=torch.float64)).Q


def coordinates(count: int, columns: int = 60) -> torch.Tensor:
    return torch.randn(count, columns, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


@pytest.mark.parametrize("columns", [7, 60])
def test_value_and_gradient_are_autograds(columns: int) -> None:
    V, z = basis(columns), coordinates(4, columns).requires_grad_()
    images = (z @ V.T).reshape(-1, *SHAPE)
    across, down = images.diff(dim=3).flatten(1), images.diff(dim=2).flatten(1)
    g = torch.cat([across, down], 1)
    r = g.abs().mean(1) / g.square().mean(1).sqrt()
    (slope,) = torch.autograd.grad(r.sum(), z)
    found = EdgePrior(V, SHAPE).ratio(z.detach())
    torch.testing.assert_close(found.value, r.detach())
    torch.testing.assert_close(found.gradient, slope)


def test_scale_does_not_matter_and_no_step_changes_it() -> None:
    prior, z = EdgePrior(basis(), SHAPE), coordinates(4)
    found = prior.ratio(z)
    torch.testing.assert_close(prior.ratio(-7.5 * z).value, found.value)
    torch.testing.assert_close((found.gradient * z).sum(1), torch.zeros(4, dtype=torch.float64), atol=1e-12, rtol=0.0)


def test_known_ratios() -> None:
    prior = EdgePrior(torch.eye(16), (1, 4, 4))
    step, ramp = torch.zeros(4, 4), torch.arange(4.0).repeat(4, 1)
    step[:, 2:] = 5.0
    # 12 + 12 differences: four of them 5, or twelve of them 1.
    found = prior.ratio(torch.stack([step.flatten(), ramp.flatten()])).value
    torch.testing.assert_close(found, torch.tensor([math.sqrt(4 / 24), math.sqrt(12 / 24)]))


def test_a_flat_image_has_no_slope() -> None:
    found = EdgePrior(torch.eye(16), (1, 4, 4)).ratio(torch.zeros(1, 16))
    assert not found.value.any()
    assert not found.gradient.any()


@pytest.mark.parametrize("shape", [(2,), (60,), (3, 20, 1)])
def test_only_images_have_edges(shape: tuple[int, ...]) -> None:
    assert not describes_images(shape)
    with pytest.raises(InputError, match=r"edges need inputs of shape \(C, H, W\)"):
        EdgePrior(torch.eye(60), shape)
