"""Signs chosen together: the closed form, what the bias and the null space add, and that turning stops at the best."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from recon_core.attacks.signs import JointSigns


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def centred(count: int, rank: int, seed: int = 0) -> Tensor:
    """Images of one length that very nearly add up to zero, (count, rank)."""
    x = normalize(numbers(count, rank, seed=seed))
    for _ in range(200):
        x = normalize(x - x.mean(0))
    return x


def random_signs(count: int, seed: int) -> Tensor:
    return torch.where(numbers(count, seed=seed) > 0, 1.0, -1.0).double()


def signals(x: Tensor, neurons: Tensor, labels: Tensor) -> Tensor:
    """Of a network with one hidden layer whose output weights are 1: y_i times the open gates, (k, h)."""
    return labels[:, None] * (x @ neurons.T > 0).double()


def trained(count: int, rank: int, seed: int) -> tuple[JointSigns, Tensor]:
    """Components of random sign of images that explain a first layer and its bias exactly, and the right signs.

    A network calls an image and its negative the same class, so that W_1 alone says the same of both.
    """
    x, neurons = centred(count, rank, seed), numbers(300, rank, seed=seed + 100)
    labels, signs = torch.ones(count).double(), random_signs(count, seed + 200)
    own = signals(x, neurons, labels)
    z = x * signs[:, None]
    right = signs[:, None] > 0
    opposite = signals(-x, neurons, labels)
    joint = JointSigns(z, own.T @ x, own.sum(0), torch.where(right, own, opposite), torch.where(right, opposite, own))
    return joint, signs


@pytest.mark.parametrize("rank", [4, 9])
def test_cosines_are_those_of_signals_that_explain_weights_and_bias(rank: int) -> None:
    z, weight, bias = normalize(numbers(6, rank)), numbers(20, rank, seed=1), numbers(20, seed=2)
    with_sign, against, signs = numbers(6, 20, seed=3), numbers(6, 20, seed=4), random_signs(6, 5)
    chosen, opposite = JointSigns(z, weight, bias, with_sign, against).agreement(signs[None])
    x = torch.cat([z * signs[:, None], torch.ones(6, 1, dtype=torch.float64)], 1)
    gram = x @ x.T + 0.01 * torch.eye(6, dtype=torch.float64)
    U = torch.linalg.solve(gram, x @ torch.cat([weight, bias[:, None]], 1).T)
    own = torch.where(signs[:, None] > 0, with_sign, against)
    other = torch.where(signs[:, None] > 0, against, with_sign)
    torch.testing.assert_close(chosen[0], torch.cosine_similarity(U, own))
    torch.testing.assert_close(opposite[0], -torch.cosine_similarity(U, other))


def test_without_a_bias_each_is_by_itself() -> None:
    z, weight = normalize(numbers(6, 9)), numbers(20, 9, seed=1)
    joint = JointSigns(z, weight, None, numbers(6, 20, seed=3), numbers(6, 20, seed=4))
    first, second = joint.agreement(random_signs(6, 5)[None]), joint.agreement(random_signs(6, 5)[None] * -1)
    torch.testing.assert_close(first[0], second[1])
    assert torch.equal(joint.best([random_signs(6, 7)]), joint.alone())


@pytest.mark.parametrize("seed", range(4))
def test_the_bias_tells_signs_that_no_component_knows_by_itself(seed: int) -> None:
    joint, signs = trained(30, 29, seed)
    joint.null = None
    assert (joint.alone() == signs).sum() < 24
    torch.testing.assert_close(joint.agreement(signs[None])[0], torch.ones(1, 30).double(), atol=0.02, rtol=0)
    mistaken = signs.clone()
    mistaken[[2, 11, 17]] *= -1
    assert torch.equal(joint.settled(mistaken), signs)


def test_images_that_add_up_to_zero_tell_each_others_signs() -> None:
    """Gates that know nothing: the null space alone gives all signs, but for one they have in common."""
    x, signs = centred(10, 9, seed=3), random_signs(10, 4)
    joint = JointSigns(x * signs[:, None], numbers(50, 9), None, numbers(10, 50, seed=1), numbers(10, 50, seed=2))
    found = joint.best([random_signs(10, seed) for seed in range(6)])
    assert (found * signs).sum().abs() == 10
    wider = JointSigns(x[:, :7], numbers(50, 7), None, numbers(10, 50, seed=1), numbers(10, 50, seed=2))
    assert wider.null is None  # three dimensions of null space say nothing for sure


def test_settling_ends_where_no_turn_gains_and_multipliers_count() -> None:
    joint, _ = trained(12, 11, 1)
    start = random_signs(12, 9)
    ended = joint.settled(start)
    assert joint.margins(ended).min() >= 0
    assert joint.score(ended[None]) > joint.score(start[None])
    turned = ended.clone()
    turned[3] *= -1
    lost = joint.score(ended[None]) - joint.score(turned[None])
    torch.testing.assert_close(joint.margins(ended)[3], lost[0])
    share = torch.zeros(12, dtype=torch.float64)
    share[3] = -100.0 * ended[3]
    assert joint.settled(ended, share)[3] == -ended[3]
