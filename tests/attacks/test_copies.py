"""The copies recipe: known cones and agreements, what is held, the prior's place, and that resuming repeats it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import normalize

from recon_core.attacks.copies import CopiesRecipe, Group, alike, cone_edges, confidences, ranked
from recon_core.attacks.session import attack
from recon_core.attacks.settings import AttackSettings, Prior
from recon_core.attacks.target import Target
from recon_core.config import BiasMode, Task, parse_config
from recon_core.errors import InputError
from recon_core.models import Architecture, Network, build_network
from tests.attacks.test_fast import Listener


def network(outputs: int = 1, shape: tuple[int, ...] = (1, 3, 3), hidden: int = 48) -> Network:
    return build_network(Architecture(shape, (hidden, 20), outputs, BiasMode.FIRST), init_scale="kaiming", seed=4)


def settings(**more: Any) -> AttackSettings:
    usual = {"recipe": "copies", "m": 12, "iterations": 80, "rounds": 2, "measure_every": 10}
    return AttackSettings(**{**usual, **more})


def stepped(recipe: CopiesRecipe, steps: int) -> CopiesRecipe:
    with torch.no_grad():
        for _ in range(steps):
            recipe.step()
    return recipe


def test_a_known_cone_gives_its_edges_back() -> None:
    generator = torch.Generator().manual_seed(0)
    truth = normalize(torch.randn(5, 5, generator=generator))
    inside = torch.rand(400, 5, generator=generator) * (torch.rand(400, 5, generator=generator) < 0.5)
    inside = inside[inside.sum(1) > 0]
    signs = torch.where(torch.rand(len(inside), generator=generator) < 0.5, -1.0, 1.0)
    found = cone_edges(inside @ truth * signs[:, None], signs, penalty=10.0, seed=0)
    cosines = normalize(found) @ truth.T
    assert (cosines.max(0).values > 0.99).all()
    assert sorted(cosines.argmax(1).tolist()) == [0, 1, 2, 3, 4]


def test_confidence_is_agreement_with_the_other_starts_within_the_label() -> None:
    z = torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[2.0, 0.0], [0.0, 3.0]]])
    labels = torch.tensor([[0, 0], [0, 1]])
    assert confidences(z, labels).tolist() == [[1.0, 0.0], [1.0, 0.0]]
    # One of the two that agree, then what nobody else found, then the double.
    assert ranked(z, labels, 0.95).tolist() == [0, 1, 3, 2]
    assert alike(z[0], labels[0], z[1], labels[1])[1].tolist() == [0.0, -1.0]


def test_what_two_starts_agree_on_is_held_in_the_next_search() -> None:
    recipe = CopiesRecipe(Target.of(network()), settings(), 0)
    stepped(recipe, 39)
    both = torch.arange(9.0) + 1
    stepped(recipe, 1)
    assert recipe.done == 2
    for index in range(2):
        recipe.pool_labels[index] = torch.arange(12) % 2
        recipe.pool_z[index] = torch.randn(12, recipe.pool_z.shape[2], generator=torch.Generator().manual_seed(index))
        recipe.pool_z[index, 4 + 2 * index] = (both * (index + 1))[: recipe.pool_z.shape[2]]
    recipe.start = recipe._next_start()
    held = recipe.start.held
    assert held.sum() == 1
    assert recipe.start.labels[held].item() == 0
    before = normalize(recipe.start.z[held])
    torch.testing.assert_close(before, normalize(both[None, : before.shape[1]]))
    stepped(recipe, recipe.start.search_steps)
    torch.testing.assert_close(normalize(recipe.start.z[held]), before)
    stepped(recipe, 3)
    assert not torch.equal(normalize(recipe.start.z[held]), before)


def test_one_that_is_kept_takes_the_multipliers_of_its_doubles() -> None:
    recipe = stepped(CopiesRecipe(Target.of(network()), settings(), 0), 40)
    recipe.pool_labels[:2] = 1
    recipe.pool_z[:2] = torch.eye(9)[0, : recipe.pool_z.shape[2]]
    recipe.pool_q[0], recipe.pool_q[1] = 1.0, 3.0
    kept = recipe._agreed()
    assert isinstance(kept, Group)
    assert kept.q.tolist() == [24.0]


@pytest.mark.parametrize("stop_at", [5, 20, 33, 47, 79])
def test_a_restored_attack_repeats_exactly(stop_at: int) -> None:
    target = Target.of(network())
    whole = stepped(CopiesRecipe(target, settings(), 3), 80)
    first = stepped(CopiesRecipe(target, settings(), 3), stop_at)
    stored = {name: tensor.clone() for name, tensor in first.state().items()}
    second = CopiesRecipe(target, settings(), 3)
    second.load_state(stored)
    stepped(second, 80 - stop_at)
    for one, other in zip(whole.pooled(), second.pooled(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(("objective", "outputs"), [(Task.BINARY, 1), (Task.REGRESSION, 1), (Task.MULTICLASS, 3)])
def test_a_session_resumes_and_hands_over_every_start(objective: Task, outputs: int) -> None:
    target = Target.of(network(outputs), objective)
    asked = settings(objective=objective, seeds=2, seed=5)
    whole = attack(target, asked, Listener())
    stopped = Listener(stop_at=47)
    attack(target, asked, stopped)
    assert stopped.saved is not None
    again = attack(target, asked, Listener(), stopped.saved)
    assert torch.equal(whole.candidates, again.candidates)
    assert torch.equal(whole.multipliers, again.multipliers)
    assert whole.candidates.shape == (2 * 4 * 12, 1, 3, 3)
    assert whole.summary["candidates"] == 96
    assert whole.seeds.tolist() == [5] * 48 + [6] * 48
    assert whole.snapshots["candidates"].shape[1] == 12
    assert torch.isfinite(whole.candidates).all()


def test_the_prior_sharpens_edges() -> None:
    target = Target.of(network(shape=(1, 6, 6), hidden=100))
    with_it, without = (stepped(CopiesRecipe(target, settings(prior=p, rounds=1), 0), 80) for p in ("natural", "off"))
    assert with_it.prior is not None
    assert without.prior is None
    one, other = (with_it.prior.ratio(recipe.pool_z.flatten(0, 1)).value.mean() for recipe in (with_it, without))
    assert one < other - 0.02


def test_points_in_the_plane_have_no_prior_and_stay_m() -> None:
    recipe = stepped(CopiesRecipe(Target.of(network(shape=(2,))), settings(), 0), 80)
    assert recipe.prior is None
    assert recipe.measure().prior == 0
    assert recipe.pooled().x.shape == (12, 2)


def test_a_round_needs_no_more_starts_than_there_are_steps() -> None:
    recipe = stepped(CopiesRecipe(Target.of(network()), settings(iterations=3), 0), 3)
    assert recipe.starts == 3
    assert len(recipe.pooled().x) == 36


def test_priors_go_with_their_recipes() -> None:
    assert settings().prior is Prior.NATURAL
    assert AttackSettings().recipe == "fast"
    with pytest.raises(InputError, match="prior must be 'natural' or 'off', got 'linear'"):
        parse_config(AttackSettings, {"recipe": "copies", "prior": "linear"})
    with pytest.raises(InputError, match="prior must be 'squared', 'linear' or 'off', got 'natural'"):
        parse_config(AttackSettings, {"recipe": "paper", "prior": "natural"})
