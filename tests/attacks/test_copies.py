"""The copies recipe: what it holds, which sign it takes, what it hands over, and that resuming repeats it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import normalize

from recon_core.attacks.copies import CopiesRecipe, Evidence, Group, nonnegative_fit
from recon_core.attacks.fast import FastRecipe
from recon_core.attacks.session import attack
from recon_core.attacks.settings import AttackSettings
from recon_core.attacks.target import Target
from recon_core.config import BiasMode, Task
from recon_core.errors import InputError
from recon_core.models import Architecture, Network, build_network
from tests.attacks.test_fast import Listener


def network(outputs: int = 1, shape: tuple[int, ...] = (1, 6, 6)) -> Network:
    return build_network(Architecture(shape, (24, 20), outputs, BiasMode.FIRST), init_scale="kaiming", seed=4)


def settings(**more: Any) -> Any:
    usual = {"recipe": "copies", "m": 12, "iterations": 80, "unmix_starts": 10, "rank": 5, "measure_every": 10}
    return AttackSettings(**{**usual, **more})


def stepped(recipe: CopiesRecipe, steps: int) -> CopiesRecipe:
    with torch.no_grad():
        for _ in range(steps):
            recipe.step()
    return recipe


def test_components_are_held_in_the_search_and_moved_by_the_refining() -> None:
    recipe = stepped(CopiesRecipe(Target.of(network()), settings(), 0), 36)
    assert recipe.unmixing is not None
    assert recipe.unmixing.done
    held = recipe.start.held.clone()
    assert 0 < held.sum() <= 12
    before = recipe.start.z.clone()
    stepped(recipe, recipe.start.search_steps)
    # All change their size when the unit of the multipliers does; held ones keep their direction.
    torch.testing.assert_close(normalize(recipe.start.z[held]), normalize(before[held]))
    assert (normalize(recipe.start.z[~held]) * normalize(before[~held])).sum(1).max() < 0.99
    stepped(recipe, 20)
    assert (normalize(recipe.start.z[held]) * normalize(before[held])).sum(1).min() < 0.99


def test_a_place_is_taken_by_label_and_never_twice() -> None:
    recipe = CopiesRecipe(Target.of(network()), settings(), 0)
    start = recipe.start
    many = Group(torch.ones(20, recipe.start.z.shape[1]), torch.full((20,), 0.5), torch.tensor([1] * 15 + [0] * 5))
    start.hold(many)
    assert (start.labels[start.held] == 1).sum() == 6  # half of m, the rest finds no place
    assert (start.labels[start.held] == 0).sum() == 5


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("stop_at", [5, 18, 35, 36, 50, 68, 75])
def test_a_restored_attack_repeats_exactly(stop_at: int, outputs: int) -> None:
    target = Target.of(network(outputs))
    whole = stepped(CopiesRecipe(target, settings(), 3), 80)
    first = stepped(CopiesRecipe(target, settings(), 3), stop_at)
    again = CopiesRecipe(target, settings(), 3)
    again.load_state({name: tensor.clone() for name, tensor in first.state().items()})
    stepped(again, 80 - stop_at)
    with torch.no_grad():
        expected, found = whole.found(), again.found()
    assert expected.confidence is not None
    assert found.confidence is not None
    assert torch.equal(found.candidates.x, expected.candidates.x)
    assert torch.equal(found.confidence, expected.confidence)


@pytest.mark.parametrize("objective", [Task.BINARY, Task.REGRESSION])
def test_it_hands_over_components_refined_ones_and_negatives(objective: Task) -> None:
    target = Target.of(network(), objective)
    outcome = attack(target, settings(objective=objective), Listener())
    recipe = stepped(CopiesRecipe(target, settings(objective=objective), 0), 80)
    k = len(recipe.components.z)
    assert k > 0
    count = 12 + 2 * k + min(k, 5)  # no more are confirmed than there are dimensions
    assert outcome.candidates.shape == (count, 1, 6, 6)
    assert outcome.confidence is not None
    assert outcome.confidence.shape == (count,)
    assert outcome.summary["candidates"] == count
    assert torch.equal(outcome.candidates[:k], -outcome.candidates[-k:])
    assert outcome.confidence.min() >= 0
    assert outcome.confidence.max() <= 1
    assert set(outcome.labels.tolist()) <= {0, 1}
    assert outcome.snapshots["candidates"].shape[1] == 12


@pytest.mark.parametrize("prior", ["off", "box"])
def test_without_knowledge_of_images_it_is_fast(prior: str) -> None:
    """The box is the papers': it changes nothing where no pixel leaves it."""
    target = Target.of(network())
    ours = stepped(CopiesRecipe(target, settings(prior=prior, box_low=-1e6, box_high=1e6), 1), 80)
    fast = FastRecipe(target, AttackSettings(recipe="fast", m=12, iterations=80, rank=5), 1)  # type: ignore[arg-type]
    with torch.no_grad():
        for _ in range(80):
            fast.step()
    assert torch.equal(ours.found().candidates.x, fast.candidates().x)
    assert ours.found().confidence is None


def test_a_tight_box_pulls_pixels_in() -> None:
    target = Target.of(network())
    wide = stepped(CopiesRecipe(target, settings(prior="box"), 1), 80).candidates().x.abs().amax(1)
    tight = settings(prior="box", box_low=-0.01, box_high=0.01, weight_prior=1e4)
    pulled = stepped(CopiesRecipe(target, tight, 1), 80).candidates().x.abs().amax(1)
    assert pulled.mean() < 0.8 * wide.mean()


def test_points_in_the_plane_have_no_edges() -> None:
    plane = build_network(Architecture((2,), (30, 20), 1, BiasMode.FIRST), init_scale="kaiming", seed=0)
    recipe = CopiesRecipe(Target.of(plane), settings(rank=None), 0)
    assert recipe.unmixing is None
    assert recipe.start.edges is None


def test_a_convolution_is_refused_with_the_way_out() -> None:
    from recon_core.attacks.registry import find_attack

    conv = Architecture((3, 8, 8), (20,), 1, BiasMode.FIRST, conv_kernel=3, conv_channels=4)
    target = Target.of(build_network(conv, init_scale="kaiming", seed=0))
    with pytest.raises(InputError, match="use recipe fast"):
        find_attack("copies").check(target, settings())


def test_a_nonnegative_fit_is_the_best_there_is() -> None:
    generator = torch.Generator().manual_seed(0)
    atoms = torch.randn(30, 6, generator=generator, dtype=torch.float64)
    truth = torch.tensor([1.0, 0.0, 2.0, 0.0, 0.5, 0.0], dtype=torch.float64)
    found = nonnegative_fit(atoms.T @ atoms, atoms.T @ (atoms @ truth))
    torch.testing.assert_close(found, truth, atol=1e-6, rtol=0)
    against = nonnegative_fit(atoms.T @ atoms, -(atoms.T @ (atoms @ truth)))
    assert (against >= 0).all()


def test_refined_candidates_inherit_the_confidence_of_what_they_resemble() -> None:
    components = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    sure = torch.tensor([0.9, 0.2])
    z = torch.tensor([[2.0, 0.0], [0.0, 3.0], [-1.0, -0.1], [1.0, 1.0]])
    found = CopiesRecipe._inherited(z, components, sure)
    torch.testing.assert_close(found[:2], sure)
    assert found[2] == 0.0
    assert found[3] == pytest.approx(0.9 * normalize(z[3:])[0, 0].item(), abs=1e-5)


def test_fewer_components_than_classes_are_not_confirmed() -> None:
    recipe = stepped(CopiesRecipe(Target.of(network(outputs=7)), settings(m=14, rank=1), 0), 80)
    assert len(recipe.components.z) == 1
    assert recipe.confirming is None
    assert recipe.found().confidence is not None


def test_evidence_counts_as_far_as_gates_and_multipliers_agree() -> None:
    share = torch.tensor([0.6, 0.5, 0.4, 0.3])

    def likely(gates: list[float], share: torch.Tensor = share, margin: float = 1.0) -> torch.Tensor:
        evidence = Evidence(torch.ones(4), torch.full((4,), margin), torch.tensor(gates), share, torch.zeros(4))
        return CopiesRecipe._likely_signs(evidence)

    agreeing = likely([0.5, 0.5, 0.5, 0.5])
    assert (agreeing.diff() < 0).all()  # the more multiplier, the surer
    assert agreeing.min() > 0.5
    assert (likely([0.5, 0.5, 0.5, -0.5]) < agreeing).all()
    assert (likely([-0.5, -0.5, -0.5, 0.5]) == 0.5).all()
    assert (likely([0.5] * 4, margin=2.0) > agreeing).all()
    assert torch.equal(likely([0.5] * 4, margin=9.0), likely([0.5] * 4, margin=2.0))


def test_signs_are_chosen_again_when_multipliers_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = stepped(CopiesRecipe(Target.of(network()), settings(), 0), 80)
    assert recipe.confirming is not None
    asked = int(recipe.confirmed[0])

    def confirmed(mine: float, other: float) -> Evidence:
        assert recipe.confirming is not None
        recipe.confirming.q[0], recipe.confirming.q[len(recipe.confirmed)] = mine, other
        with torch.no_grad():
            return recipe._evidence()

    monkeypatch.setattr("recon_core.attacks.signs._SHARE_WEIGHT", 100.0)
    as_it_was, turned = confirmed(1.0, 0.0), confirmed(0.0, 1.0)
    assert as_it_was.signs[asked] == 1.0
    assert turned.signs[asked] == -1.0
    assert turned.share[asked] == pytest.approx(1.0)  # speaks for the sign that was chosen


def test_a_start_that_blew_up_at_its_end_leaves_its_last_good_state() -> None:
    recipe = stepped(CopiesRecipe(Target.of(network()), settings(), 0), 80)
    assert recipe.confirming is not None
    for start in (recipe.start, recipe.confirming):
        start.z.fill_(torch.nan)
        start.q.fill_(torch.nan)
        start._known = None
    with torch.no_grad():
        found = recipe.found()
    assert torch.isfinite(found.candidates.x).all()
    assert found.confidence is not None
    assert torch.isfinite(found.confidence).all()


def test_what_is_no_sparser_than_a_mixture_is_never_certain() -> None:
    """A row space of one dimension has nothing to choose from, so its direction is no evidence of an image."""
    one = attack(Target.of(network()), settings(rank=1, unmix_starts=None, m=4), Listener())
    assert one.confidence is not None
    assert one.confidence.max() == 0.0
    assert one.summary["certain"] == 0
    recipe = stepped(CopiesRecipe(Target.of(network()), settings(), 0), 80)
    assert recipe.unmixing is not None
    likely = recipe._likely_images()
    assert (likely[recipe.unmixing.sparser().double() <= 0] == 0).all()
    assert likely.max() <= 1.0


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_row_space_of_few_directions_is_attacked_all_the_same(rank: int) -> None:
    outcome = attack(Target.of(network()), settings(rank=rank, unmix_starts=None, m=2 * rank + 2), Listener())
    assert torch.isfinite(outcome.candidates).all()
    assert outcome.confidence is not None
    assert ((outcome.confidence >= 0) & (outcome.confidence <= 1)).all()
