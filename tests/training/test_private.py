"""DP-SGD: the accountant's figures are Opacus's own, and a step is clipping, a sum, noise and nothing else."""

from __future__ import annotations

import sys
import warnings

import pytest
import torch

from recon_core.config import BiasMode, TrainConfig, parse_config
from recon_core.data import load_task
from recon_core.errors import InputError
from recon_core.models import Architecture, build_network
from recon_core.training import train
from recon_core.training.losses import Loss
from recon_core.training.private import PrivateRecipe, least_epsilon, noise_for, spent_epsilon
from recon_core.training.trainable import Trainable
from tests.training.test_session import Listener

SHAPE = Architecture((1, 4, 4), (12, 8), 1, BiasMode.HIDDEN)
N, CLIP, RATE = 8, 0.05, 0.5


def recipe(noise: float, *, batch_size: int = N, seed: int = 0) -> PrivateRecipe:
    x = torch.randn(N, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    network = build_network(SHAPE, init_scale="kaiming", seed=1)
    return PrivateRecipe(
        Trainable(network, x, span=False),
        x,
        Loss("logistic", torch.arange(N) % 2),
        rate=RATE,
        decay=0.0,
        batch_size=batch_size,
        seed=seed,
        clip_norm=CLIP,
        noise_multiplier=noise,
        delta=1e-3,
    )


def moved(made: PrivateRecipe) -> torch.Tensor:
    """By one epoch."""
    before = torch.cat([value.detach().flatten().clone() for value in made.network.parameters()])
    made.step()
    return torch.cat([value.detach().flatten() for value in made.network.parameters()]) - before


@pytest.mark.parametrize(("epsilon", "rate", "steps"), [(1.0, 0.2, 50), (8.0, 0.1, 300)])
def test_noise_and_epsilon_are_those_of_opacus(epsilon: float, rate: float, steps: int) -> None:
    from opacus.accountants import RDPAccountant
    from opacus.accountants.utils import get_noise_multiplier

    asked = {"target_epsilon": epsilon, "target_delta": 1e-3, "sample_rate": rate, "steps": steps}
    noise = noise_for(epsilon, 1e-3, rate, steps)
    accountant = RDPAccountant()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        assert noise == get_noise_multiplier(**asked, accountant="rdp")
        for _ in range(steps):
            accountant.step(noise_multiplier=noise, sample_rate=rate)
        assert spent_epsilon(noise, rate, steps, 1e-3) == pytest.approx(accountant.get_epsilon(1e-3), rel=1e-9)
    assert spent_epsilon(noise, rate, steps, 1e-3) <= epsilon
    assert spent_epsilon(noise, rate, 0, 1e-3) == 0


def test_a_step_without_noise_is_the_mean_of_clipped_gradients() -> None:
    made = recipe(0.0)
    assert made.rate == 1
    network = made.trainable.to_network()
    total = torch.zeros(sum(value.numel() for value in network.parameters()))
    clipped = 0
    for index in range(N):
        network.zero_grad()
        one = made.loss.subset(torch.tensor([index]))
        one.sample_losses(one.rows(network(made.images[index : index + 1])).values).sum().backward()
        gradient = torch.cat([value.grad.flatten() for value in network.parameters() if value.grad is not None])
        clipped += int(gradient.norm() > CLIP)
        total += gradient * min(1.0, CLIP / float(gradient.norm()))
    assert clipped == N
    torch.testing.assert_close(moved(made), -RATE * total / N, rtol=1e-3, atol=1e-6)
    assert torch.equal(made.trainable.dense[0].weight, next(made.network.parameters()))


def test_the_noise_has_its_size() -> None:
    sigma = 40.0  # so large that the gradients do not matter
    change = moved(recipe(sigma))
    assert float(change.std()) == pytest.approx(RATE * sigma * CLIP / N, rel=0.1)
    assert not torch.equal(change, moved(recipe(sigma, seed=1)))


def test_an_empty_batch_is_noise_alone() -> None:
    made = recipe(1.0)
    made.rate = 0.0
    assert float(moved(made).abs().max()) > 0


def private(epochs: int = 4, **more: object) -> TrainConfig:
    training = {"recipe": "dpsgd", "epochs": epochs, "epsilon": 5, "batch_size": 2, "measure_every": 1, **more}
    values = {"data": {"source": "mnist", "n": 10, "test_n": 20}, "model": {"widths": [20]}, "training": training}
    return parse_config(TrainConfig, values)


def test_a_run_says_what_it_spent_and_resumes_with_the_same_noise() -> None:
    chosen = private()
    data = load_task(chosen.data)
    rows = Listener()
    whole = train(chosen, data, rows)
    assert 4 < whole.summary["epsilon"] <= 5
    assert whole.summary["noise_multiplier"] > 0
    first = Listener(stop_at=2)
    train(chosen, data, first)
    again = train(chosen, data, Listener(), first.saved[-1])
    assert torch.equal(again.network.state_dict()["layers.0.weight"], whole.network.state_dict()["layers.0.weight"])
    spent = [row["epsilon"] for row in rows.rows]
    assert spent[0] == 0
    assert spent == sorted(spent)


def test_without_opacus_it_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opacus", None)
    chosen = private()
    with pytest.raises(InputError, match=r"needs Opacus, which is not installed; .*afterimage\[privacy\]"):
        train(chosen, load_task(chosen.data), Listener())


def test_a_budget_that_no_noise_meets_is_a_sentence_at_once() -> None:
    least = least_epsilon(1e-5)
    # Nearly all the noise there is spends nearly that.
    assert spent_epsilon(1e4, 0.1, 1, 1e-5) == pytest.approx(least / 1.1, rel=0.01)
    with pytest.raises(InputError, match=r"epsilon must be at least 0\.1\d at delta 1e-05.*got 0\.05"):
        noise_for(0.05, 1e-5, 0.5, 100)
