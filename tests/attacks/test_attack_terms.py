"""Multiplier floor and box prior against numbers worked out by hand and against autograd."""

from __future__ import annotations

import pytest
import torch

from recon_core.attacks.settings import Hinge
from recon_core.attacks.terms import box_prior, multiplier_floor


def test_floor_by_hand() -> None:
    lam = torch.tensor([0.1, 0.5, -0.5, 0.4], dtype=torch.float64)
    squared = multiplier_floor(lam, 0.4, Hinge.SQUARED)
    assert float(squared.value) == pytest.approx(0.3**2 + 0.9**2)
    assert squared.gradient.tolist() == pytest.approx([-0.6, 0.0, -1.8, 0.0])
    linear = multiplier_floor(lam, 0.4, Hinge.LINEAR)
    assert float(linear.value) == pytest.approx(0.3 + 0.9)
    assert linear.gradient.tolist() == pytest.approx([-1.0, 0.0, -1.0, 0.0])
    assert lam.tolist() == [0.1, 0.5, -0.5, 0.4]


def test_box_by_hand() -> None:
    x = torch.tensor([[1.5, 0.0], [-3.0, 1.0]], dtype=torch.float64)
    squared = box_prior(x, -1.0, 1.0, Hinge.SQUARED)
    assert float(squared.value) == pytest.approx(0.25 + 4.0)
    assert squared.gradient.tolist() == [[1.0, 0.0], [-4.0, 0.0]]
    linear = box_prior(x, -1.0, 1.0, Hinge.LINEAR)  # averaged over the two pixels
    assert float(linear.value) == pytest.approx((0.5 + 2.0) / 2)
    assert linear.gradient.tolist() == [[0.5, 0.0], [-0.5, 0.0]]


@pytest.mark.parametrize("hinge", [Hinge.SQUARED, Hinge.LINEAR])
def test_gradients_are_autograds(hinge: Hinge) -> None:
    generator = torch.Generator().manual_seed(0)
    x = (3 * torch.randn(4, 5, generator=generator, dtype=torch.float64)).requires_grad_()
    beyond = (x - 1).relu() + (-1 - x).relu()
    loss = beyond.square().sum() if hinge is Hinge.SQUARED else beyond.mean(1).sum()
    (expected,) = torch.autograd.grad(loss, x)
    found = box_prior(x.detach(), -1.0, 1.0, hinge)
    torch.testing.assert_close(found.gradient, expected)
    torch.testing.assert_close(found.value, loss.detach())


def test_off_is_nothing() -> None:
    term = box_prior(torch.full((2, 3), 9.0), -1.0, 1.0, Hinge.OFF)
    assert float(term.value) == 0
    assert not term.gradient.any()
