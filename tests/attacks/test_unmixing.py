"""Unmixing: made-up images come back out of the space their mixtures span, and resuming repeats it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from recon_core.attacks.unmixing import EdgeSparsity, Unmixing, apart, basis_differences

SHAPE = (1, 16, 16)


def drawings(count: int, seed: int = 0) -> Tensor:
    """Images of a few rectangles each, (count, 256)."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.zeros(count, 16, 16)
    for image in images:
        for _ in range(3):
            top, left = torch.randint(0, 12, (2,), generator=generator).tolist()
            height, width = torch.randint(2, 9, (2,), generator=generator).tolist()
            image[top : top + height, left : left + width] += torch.randn((), generator=generator)
    return images.flatten(1)


def span_of(images: Tensor) -> Tensor:
    """Orthonormal columns, each a mixture of all images."""
    turn = torch.randn(len(images), len(images), generator=torch.Generator().manual_seed(5))
    return torch.linalg.qr(images.T).Q @ torch.linalg.qr(turn).Q


def unmixed(basis: Tensor, steps: int = 240, **more: int) -> Unmixing:
    settings = {"directions": 60, "rounds": 3, "seed": 0, **more}
    unmixing = Unmixing(basis, SHAPE, steps=steps, **settings)
    while not unmixing.done:
        unmixing.step()
    return unmixing


def recovered(components: Tensor, basis: Tensor, images: Tensor) -> int:
    cosines = (normalize(components @ basis.T) @ normalize(images).T).abs()
    return int((cosines.max(0).values > 0.95).sum())


def test_images_come_back_out_of_their_span() -> None:
    images = drawings(8)
    basis = span_of(images)
    assert recovered(torch.eye(8), basis, images) == 0  # the basis itself shows none
    assert recovered(unmixed(basis).components(), basis, images) >= 7


def test_directions_are_found_together_and_none_twice() -> None:
    basis = span_of(drawings(10, seed=1))
    unmixing = unmixed(basis, steps=80, rounds=1)
    assert unmixing.found.shape == (10, 10)  # sixty were asked for, ten can be kept apart
    cosines = (unmixing.found @ unmixing.found.T).abs().fill_diagonal_(0.0)
    assert cosines.max() < 0.9
    assert len(unmixed(basis, steps=80, rounds=1, directions=3).found) == 3


def test_a_round_takes_the_steps_that_are_left() -> None:
    basis = span_of(drawings(6))
    unmixing = unmixed(basis, steps=101, rounds=3)
    assert len(unmixing.ended) == 3
    assert unmixing.iteration == 101


def test_rounds_agree_on_images_and_not_on_noise() -> None:
    noise = torch.linalg.qr(torch.randn(256, 40, generator=torch.Generator().manual_seed(0))).Q
    real, chance = unmixed(span_of(drawings(8))).stability(), unmixed(noise).stability()
    assert real.min() >= 0.0
    assert real.max() <= 1.0
    assert real.median() > chance.median() + 0.2


def test_images_are_sparser_than_mixtures_and_one_direction_is_not() -> None:
    found = unmixed(span_of(drawings(8)))
    assert found.sparser().median() > 0.2
    alone = unmixed(span_of(drawings(1)), steps=20)
    assert alone.sparser().abs().max() < 1e-6


def test_rows_get_away_from_each_other() -> None:
    y = normalize(torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(2))).requires_grad_()
    rows = normalize(y)
    (gradient,) = torch.autograd.grad(torch.logdet(rows @ rows.T) / 2, y)
    torch.testing.assert_close(apart(y.detach()), gradient, rtol=1e-4, atol=1e-4)


def test_the_slope_is_half_the_gradient_on_the_sphere() -> None:
    basis = span_of(drawings(6)).double()
    sparsity = EdgeSparsity(basis_differences(basis, SHAPE))
    y = normalize(torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(2))).requires_grad_()
    (gradient,) = torch.autograd.grad(sparsity.value(normalize(y)).sum(), y)
    torch.testing.assert_close(sparsity.slope(y.detach()), gradient / 2)


def test_scale_and_sign_do_not_matter() -> None:
    basis = span_of(drawings(6))
    sparsity = EdgeSparsity(basis_differences(basis, SHAPE))
    y = torch.randn(3, 6, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(sparsity.value(y), sparsity.value(-7 * y))


@pytest.mark.parametrize("stop_at", [1, 40, 79, 80, 81, 200])
def test_resuming_repeats_it(stop_at: int) -> None:
    basis = span_of(drawings(8))
    whole = unmixed(basis)
    first = Unmixing(basis, SHAPE, directions=60, rounds=3, steps=240, seed=0)
    for _ in range(stop_at):
        first.step()
    again = Unmixing(basis, SHAPE, directions=60, rounds=3, steps=240, seed=0)
    again.load_state({name: tensor.clone() for name, tensor in first.state().items()})
    while not again.done:
        again.step()
    torch.testing.assert_close(again.found, whole.found, rtol=0, atol=0)
