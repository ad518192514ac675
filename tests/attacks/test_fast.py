"""The fast recipe: its rules for scale, rank and pace, its fall-back, and that resuming repeats it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from recon_core.attacks.fast import FastRecipe, adam_direction, scaled_start
from recon_core.attacks.rowspace import knee, row_space
from recon_core.attacks.session import StopReason, attack
from recon_core.attacks.settings import AttackSettings
from recon_core.attacks.stationarity import DenseStationarity
from recon_core.attacks.target import Target
from recon_core.config import BiasMode, Task
from recon_core.models import Architecture, Network, build_network
from recon_core.observing import Resume


class Listener:
    def __init__(self, stop_at: int | None = None) -> None:
        self.rows: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self.saved: Resume | None = None
        self.stop_at, self.calls = stop_at, 0

    def metrics(self, row: Mapping[str, Any]) -> None:
        self.rows.append(dict(row))

    def progress(self, step: int, fraction: float, message: str) -> None: ...

    def snapshot(self, step: int, tensors: Mapping[str, torch.Tensor]) -> None: ...

    def log(self, sentence: str) -> None:
        self.notes.append(sentence)

    def checkpoint(self, step: int, tensors: Mapping[str, torch.Tensor], meta: Mapping[str, Any]) -> None:
        self.saved = Resume(step, {name: tensor.clone() for name, tensor in tensors.items()}, dict(meta))

    def checkpoint_due(self) -> bool:
        return False

    def stop_requested(self) -> bool:
        self.calls += 1
        return self.stop_at is not None and self.calls > self.stop_at


def network(outputs: int = 1, bias: BiasMode = BiasMode.FIRST) -> Network:
    return build_network(Architecture((1, 6, 6), (24, 20), outputs, bias), init_scale="kaiming", seed=4)


def settings(**more: Any) -> AttackSettings:
    return AttackSettings(**{"m": 12, "iterations": 60, "measure_every": 10, **more})


@pytest.mark.parametrize("outputs", [1, 4])
@pytest.mark.parametrize("bias", list(BiasMode))
def test_the_residual_falls_and_candidates_stay_finite(outputs: int, bias: BiasMode) -> None:
    listener = Listener()
    outcome = attack(Target.of(network(outputs, bias)), settings(iterations=150), listener)
    assert outcome.reason is StopReason.ITERATIONS
    assert min(row["residual"] for row in listener.rows) < listener.rows[0]["residual"]
    assert torch.isfinite(outcome.candidates).all()
    assert outcome.candidates.shape == (12, 1, 6, 6)


@pytest.mark.parametrize("objective", [Task.BINARY, Task.REGRESSION])
def test_a_resumed_attack_is_the_same_bitwise(objective: Task) -> None:
    target = Target.of(network(), objective)
    whole = attack(target, settings(objective=objective), Listener())
    # In the search, at the change of stage, in the refinement.
    for stop_at in (7, 20, 45):
        first = Listener(stop_at)
        assert attack(target, settings(objective=objective), first).reason is StopReason.CANCELLED
        resumed = attack(target, settings(objective=objective), Listener(), first.saved)
        assert torch.equal(resumed.candidates, whole.candidates)
        assert torch.equal(resumed.multipliers, whole.multipliers)


def test_a_jump_goes_back_to_the_last_good_state_and_says_so() -> None:
    recipe = FastRecipe(Target.of(network()), settings(iterations=150), seed=0)
    for _ in range(11):
        recipe.step()
    while recipe.iteration % 10:
        recipe.step()
    recipe.z.fill_(math.nan)
    recipe._known = None
    before = recipe.pace
    recipe.step()
    assert torch.isfinite(recipe.z).all()
    assert recipe.pace == pytest.approx(before / 2)
    assert "non-finite" in recipe.take_notes()[0]
    assert recipe.good is not None
    recipe.z.fill_(math.inf)
    recipe._fall_back(math.inf)
    assert torch.equal(recipe.z, recipe.good.tensors["z"])


def test_far_too_large_a_pace_still_ends_finite() -> None:
    outcome = attack(Target.of(network()), settings(pace=0.99, iterations=90), Listener())
    assert torch.isfinite(outcome.candidates).all()


@pytest.mark.parametrize("measure_every", [10, 7])
@pytest.mark.parametrize(("recipe", "scale"), [("fast", 4.0), ("copies", 1.0)])
def test_weights_that_are_noise_end_with_candidates_and_not_with_a_failure(
    recipe: str, scale: float, measure_every: int
) -> None:
    """As DP-SGD leaves them at a small epsilon: ten steps are enough for the loss to rise a million times.

    Between two reviews, and after a change of scale, the last good state is what is measured and shown.
    """
    noise, generator = network(), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in noise.parameters():
            parameter.copy_(scale * torch.randn(parameter.shape, generator=generator))
    listener = Listener()
    asked = settings(recipe=recipe, m=20, iterations=200, rank=1, measure_every=measure_every)
    outcome = attack(Target.of(noise), asked, listener)
    assert outcome.reason is StopReason.ITERATIONS
    assert torch.isfinite(outcome.candidates).all()
    assert torch.isfinite(outcome.snapshots["candidates"]).all()
    assert max(row["residual"] for row in listener.rows) < 10


def test_what_the_next_review_takes_back_is_not_shown() -> None:
    recipe = FastRecipe(Target.of(network()), settings(iterations=150), seed=0)
    for _ in range(14):
        recipe.step()
    assert recipe.good is not None
    good = recipe.good.tensors["z"] @ recipe.basis.T
    recipe.z.mul_(1e6)
    recipe._known = None
    torch.testing.assert_close(recipe.candidates().x, good)
    assert recipe.measure().stationarity.total <= recipe.good.loss * 1.01


def test_metric_gradients_are_slopes_of_the_loss() -> None:
    """tr(R B R^T) of layer 1 plus a weight times the layers above, with gates so sharp that they are ReLU's own."""
    target = Target.of(build_network(network().architecture, init_scale="kaiming", seed=4, dtype=torch.float64))
    basis = row_space(target.explained()[0].weight).basis
    engine = DenseStationarity(
        target, dtype=torch.float64, device=torch.device("cpu"), basis=basis, layer_weights=(1, 0.3, 0.3)
    )
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(basis.shape[1] + 1, basis.shape[1] + 1, generator=generator, dtype=torch.float64)
    engine.metric = root @ root.T
    z = torch.randn(12, basis.shape[1], generator=generator, dtype=torch.float64)
    c = torch.randn(12, generator=generator, dtype=torch.float64)
    labels = torch.arange(12) % 2
    found = engine.evaluate(z, c, labels, 1e9)
    x_slope, c_slope = found.gradients.x.clone(), found.gradients.coefficients.clone()

    def total(z: torch.Tensor, c: torch.Tensor) -> float:
        return float(engine.evaluate(z, c, labels, 1e9).loss.total)

    for _ in range(5):
        dz = torch.randn(z.shape, generator=generator, dtype=torch.float64)
        dc = torch.randn(c.shape, generator=generator, dtype=torch.float64)
        step = 1e-6
        slope = (total(z + step * dz, c + step * dc) - total(z - step * dz, c - step * dc)) / (2 * step)
        expected = float((x_slope * dz).sum() + c_slope @ dc)
        assert slope == pytest.approx(expected, rel=1e-5)


def test_gradient_gram_is_the_curvature_in_the_coefficients() -> None:
    target = Target.of(build_network(network().architecture, init_scale="kaiming", seed=4, dtype=torch.float64))
    engine = DenseStationarity(target, dtype=torch.float64, device=torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, 36, generator=generator, dtype=torch.float64)
    labels = torch.arange(6) % 2
    gram = engine.gradient_gram(x, labels, 5.0).clone()
    slopes = [
        engine.evaluate(x, c, labels, 5.0).gradients.coefficients.clone() for c in torch.eye(6, dtype=torch.float64)
    ]
    rest = engine.evaluate(x, torch.zeros(6, dtype=torch.float64), labels, 5.0).gradients.coefficients
    torch.testing.assert_close(torch.stack(slopes) - rest, 2 * gram)


def test_the_row_space_is_read_off_the_singular_values() -> None:
    generator = torch.Generator().manual_seed(1)
    data = torch.randn(10, 200, generator=generator)
    weight = torch.randn(80, 10, generator=generator) @ data + 1e-3 * torch.randn(80, 200, generator=generator)
    found = row_space(weight)
    assert found.basis.shape == (200, 10)
    torch.testing.assert_close(found.basis.T @ found.basis, torch.eye(10, dtype=torch.float64), rtol=0, atol=1e-9)
    inside = data.double() @ found.basis
    assert float(inside.square().sum() / data.square().sum()) > 0.999
    # Pure noise has no knee beyond a stray value or two; a layer on the plane is kept whole.
    noise = torch.linalg.svdvals(torch.randn(80, 200, generator=generator))
    assert knee(noise, 80, 200) <= 3
    assert row_space(torch.randn(50, 2, generator=generator)).basis.shape == (2, 2)


def test_scales_come_from_the_weights() -> None:
    small, large = network(), network()
    with torch.no_grad():
        large.layers[-1].weight.mul_(10)
    one, ten = (scaled_start(Target.of(net), settings(), 0) for net in (small, large))
    assert one.scale == pytest.approx(10 * ten.scale, rel=1e-5)
    assert one.input_norm == pytest.approx(0.24 * 6)
    assert float(one.lam.min()) == pytest.approx(0.45)


def test_a_metric_of_one_is_no_metric() -> None:
    target = Target.of(network())
    engines = [DenseStationarity(target, dtype=torch.float32, device=torch.device("cpu")) for _ in range(2)]
    engines[1].metric = torch.eye(37)
    generator = torch.Generator().manual_seed(0)
    x, c = torch.randn(12, 36, generator=generator), torch.randn(12, generator=generator)
    plain, seen = (engine.evaluate(x, c, torch.arange(12) % 2, 7.0) for engine in engines)
    torch.testing.assert_close(seen.gradients.x, plain.gradients.x, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(seen.gradients.coefficients, plain.gradients.coefficients, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(seen.loss.total, plain.loss.total)


def test_rescaling_gives_candidates_the_norm_of_an_input_and_keeps_what_they_explain() -> None:
    recipe = FastRecipe(Target.of(network()), settings(), seed=0)
    recipe.z.mul_(1.7 * recipe.input_norm / recipe.z.square().sum(1).mean().sqrt())
    before = recipe.z * recipe.q[:, None]
    recipe._rescale()
    assert float(recipe.candidates().x.square().sum(1).mean().sqrt()) == pytest.approx(recipe.input_norm, rel=1e-4)
    torch.testing.assert_close(recipe.z * recipe.q[:, None], before)


def test_adam_direction_is_adams() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([x], lr=1.0, betas=(0.9, 0.99), eps=1e-12)
    ours, mean, square = (
        torch.zeros(5, dtype=torch.float64),
        torch.zeros(5, dtype=torch.float64),
        torch.zeros(5, dtype=torch.float64),
    )
    for step in range(1, 6):
        slope = torch.randn(5, generator=generator, dtype=torch.float64)
        x.grad = slope.clone()
        optimiser.step()
        ours -= adam_direction(mean, square, slope, step)
    torch.testing.assert_close(ours, x.detach())


def test_rounding_below_the_initialisation_is_not_data() -> None:
    """Strong weight decay leaves nothing of the start but float32 noise, which has no edge to stand above."""
    generator = torch.Generator().manual_seed(0)
    data = torch.randn(60, 5, generator=generator) @ torch.randn(5, 200, generator=generator)
    rounding = torch.randn(60, 200, generator=generator) * torch.logspace(-7, -9, 60)[:, None]
    assert row_space(data + rounding).basis.shape == (200, 5)


def test_learnt_signs_turn_with_their_multipliers() -> None:
    """Regression, and binary with labels=learnt: past zero, a multiplier takes its candidate to the other side."""
    target = Target.of(network(), Task.REGRESSION)
    recipe = FastRecipe(target, settings(objective=Task.REGRESSION), 0)  # type: ignore[arg-type]
    before = recipe.labels.clone(), recipe.signs.clone()
    passed = torch.arange(12) % 3 == 0
    recipe.q[passed] = -0.5
    recipe._turn()
    assert (recipe.q >= 0).all()
    assert torch.equal(recipe.labels[passed], 1 - before[0][passed])
    assert torch.equal(recipe.signs[passed], -before[1][passed])
    assert torch.equal(recipe.labels[~passed], before[0][~passed])
    assert torch.equal(recipe.signs, (recipe.labels * 2 - 1).float())

    learnt = FastRecipe(Target.of(network()), settings(labels="learnt"), 0)  # type: ignore[arg-type]
    half = FastRecipe(Target.of(network()), settings(), 0)  # type: ignore[arg-type]
    with torch.no_grad():
        for _ in range(15):
            learnt.step()
            half.step()
    floor = 0.45 * float(half.unit)
    assert half.q.min() >= floor * (1 - 1e-6)
    assert learnt.q.min() < floor
