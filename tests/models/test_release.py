"""Released weights: pruned, noisy, rounded; and that a run measures, keeps and attacks nothing else."""

from __future__ import annotations

import pytest
import torch

from recon_core.config import ReleaseConfig, TrainConfig, parse_config
from recon_core.data import load_task
from recon_core.models import Architecture, build_network
from recon_core.models.release import add_noise, prune, released, round_to_bits
from recon_core.training import train
from tests.training.test_session import Listener

NETWORK = build_network(Architecture((1, 6, 6), (30, 20), 1), init_scale="kaiming", seed=0)


def weights(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 0.9])
def test_exactly_the_share_asked_for_is_pruned_and_the_smallest_go(share: float) -> None:
    before = weights(40, 25)
    after = prune(before, share)
    gone = after == 0
    assert int(gone.sum()) == round(share * 1000)
    assert torch.equal(after[~gone], before[~gone])
    if share > 0:
        assert before[gone].abs().max() <= before[~gone].abs().min()


def test_of_equal_weights_no_more_are_pruned_than_asked_for() -> None:
    assert int((prune(torch.ones(10), 0.3) == 0).sum()) == 3


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_rounding_is_idempotent_has_as_many_levels_as_the_bits_and_errs_by_half_a_step(bits: int) -> None:
    before = weights(60, 50)
    after = round_to_bits(before, bits)
    assert torch.equal(round_to_bits(after, bits), after)
    assert len(torch.unique(after)) <= 2**bits - 1
    step = float(before.abs().max()) / (2 ** (bits - 1) - 1)
    assert float((after - before).abs().max()) <= step / 2 * (1 + 1e-5)
    assert torch.equal(round_to_bits(torch.zeros(3), bits), torch.zeros(3))


def test_noise_has_the_size_asked_for_and_follows_from_its_seed() -> None:
    before = 3 * weights(200, 200)
    noise = add_noise(before, 0.1, torch.Generator().manual_seed(1)) - before
    assert float(noise.std()) == pytest.approx(0.1 * float(before.square().mean().sqrt()), rel=0.02)
    again = add_noise(before, 0.1, torch.Generator().manual_seed(1)) - before
    assert torch.equal(noise, again)


def test_nothing_asked_for_changes_nothing_and_the_original_stays() -> None:
    kept = {name: value.clone() for name, value in NETWORK.state_dict().items()}
    same = released(NETWORK, ReleaseConfig(), seed=0)
    assert all(torch.equal(value, kept[name]) for name, value in same.state_dict().items())
    other = released(NETWORK, ReleaseConfig(pruned=0.5, noise=0.1, bits=8), seed=0)
    assert not torch.equal(other.state_dict()["layers.0.weight"], kept["layers.0.weight"])
    assert all(torch.equal(value, kept[name]) for name, value in NETWORK.state_dict().items())


def test_a_run_leaves_and_measures_the_released_network() -> None:
    values = {
        "data": {"source": "mnist", "n": 10, "test_n": 30},
        "model": {"widths": [20], "init_scale": "kaiming"},
        "training": {"recipe": "sgd", "epochs": 20, "learning_rate": 0.1},
    }
    plain, noisy = (
        train(chosen, load_task(chosen.data), Listener())
        for chosen in (parse_config(TrainConfig, {**values, "release": part}) for part in ({}, {"noise": 2.0}))
    )
    data = load_task(parse_config(TrainConfig, values).data)
    expected = released(plain.network, ReleaseConfig(noise=2.0), seed=0)
    assert torch.equal(noisy.network.state_dict()["layers.0.weight"], expected.state_dict()["layers.0.weight"])
    torch.testing.assert_close(noisy.samples["outputs"], expected(data.train_x).detach())
    signs = 2 * data.test_labels - 1
    wrong = float((expected(data.test_x)[:, 0].detach() * signs <= 0).double().mean())
    assert noisy.summary["test_error"] == pytest.approx(wrong)
    assert noisy.samples["held_out_losses"].shape == (30,)
