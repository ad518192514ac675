"""Whole attacks on tiny models: what they find, how they stop, that they resume where they were."""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import recon_core.attacks
from recon_core.attacks import AttackOutcome, AttackSettings, StopReason, Target, attack, session
from recon_core.attacks.paper import PaperRecipe
from recon_core.attacks.registry import ATTACKS, find_attack
from recon_core.config import BiasMode, Task, parse_config
from recon_core.errors import InputError
from recon_core.models import Architecture, Network, build_network
from recon_core.observing import Resume


class Recorder:
    """Hears everything; asks for a stop at `stop_at` calls of `stop_requested`, for checkpoints always."""

    def __init__(self, stop_at: int | None = None, checkpoints: bool = False) -> None:
        self.rows: list[dict[str, Any]] = []
        self.snapshots: list[tuple[int, dict[str, Tensor]]] = []
        self.sentences: list[str] = []
        self.fractions: list[float] = []
        self.saved: list[Resume] = []
        self.asked = 0
        self.stop_at, self.checkpoints = stop_at, checkpoints

    def metrics(self, row: Mapping[str, Any]) -> None:
        self.rows.append(dict(row))

    def progress(self, step: int, fraction: float, message: str) -> None:
        self.fractions.append(fraction)
        assert message.startswith("residual ")

    def snapshot(self, step: int, tensors: Mapping[str, Tensor]) -> None:
        self.snapshots.append((step, dict(tensors)))

    def log(self, sentence: str) -> None:
        self.sentences.append(sentence)

    def checkpoint(self, step: int, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        self.saved.append(Resume(step, {name: tensor.clone() for name, tensor in tensors.items()}, dict(meta)))

    def checkpoint_due(self) -> bool:
        return self.checkpoints

    def stop_requested(self) -> bool:
        self.asked += 1
        return self.stop_at is not None and self.asked > self.stop_at


def network(outputs: int = 1, seed: int = 0, conv: bool = False) -> Network:
    shape = (
        Architecture((1, 4, 4), (6,), outputs, conv_kernel=3, conv_channels=2)
        if conv
        else Architecture((1, 2, 3), (8, 6), outputs)
    )
    return build_network(shape, init_scale="kaiming", seed=seed)


def settings(**values: Any) -> AttackSettings:
    quick = {
        "recipe": "paper", "m": 6, "iterations": 30, "lr_x": 0.02, "lr_lam": 1e-3, "measure_every": 7,
        "snapshots": 5, "engine": "closed", "dtype": "float32", "x_init_scale": 0.1, "device": "cpu",
    }  # fmt: skip
    return parse_config(AttackSettings, {**quick, **values})


def same(one: AttackOutcome, other: AttackOutcome) -> None:
    for name in ("candidates", "multipliers", "labels", "seeds"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name
    for name, tensor in one.snapshots.items():
        assert torch.equal(tensor, other.snapshots[name]), name
    drop = {"seconds"}
    assert {k: v for k, v in one.summary.items() if k not in drop} == {
        k: v for k, v in other.summary.items() if k not in drop
    }


def test_attack_leaves_candidates_and_numbers() -> None:
    observer = Recorder()
    outcome = attack(Target.of(network()), settings(), observer)
    assert outcome.reason is StopReason.ITERATIONS
    assert outcome.candidates.shape == (6, 1, 2, 3)
    assert outcome.labels.tolist() == [1, 1, 1, 0, 0, 0]
    assert [row["step"] for row in observer.rows] == [0, 7, 14, 21, 28, 30]
    assert observer.rows[-1]["residual"] < observer.rows[0]["residual"]
    first = observer.rows[0]
    assert first["multiplier_min"] <= first["multiplier_median"] <= first["multiplier_max"] <= 1
    norms = Target.of(network()).squared_norms()
    whole = sum(first[f"residual_layer{i + 1}"] * float(norms[i]) for i in range(3)) / float(norms.sum())
    assert first["residual"] == pytest.approx(whole)
    assert outcome.summary["residual"] == observer.rows[-1]["residual"]
    assert outcome.snapshots["steps"].tolist() == [0, 6, 12, 18, 24, 30]
    # Whoever watches sees every measurement too.
    assert [step for step, _ in observer.snapshots] == [0, 6, 7, 12, 14, 18, 21, 24, 28, 30]
    assert torch.equal(outcome.snapshots["candidates"][-1], outcome.candidates)
    assert observer.snapshots[0][1]["candidates"].shape == (6, 1, 2, 3)
    assert observer.fractions == sorted(observer.fractions)
    assert observer.fractions[-1] == 1


@pytest.mark.parametrize(
    ("task", "outputs", "conv"),
    [(Task.BINARY, 1, False), (Task.MULTICLASS, 3, False), (Task.REGRESSION, 1, False), (Task.BINARY, 1, True)],
)
@pytest.mark.parametrize("stop_at", [11, 14, 38])
def test_resumed_attack_is_bitwise_the_same(task: Task, outputs: int, conv: bool, stop_at: int) -> None:
    target = Target.of(network(outputs, conv=conv), task)
    chosen = settings(engine="autograd" if conv else "closed", seeds=2, alpha_end=60)
    whole = attack(target, chosen, Recorder())
    stopped = Recorder(stop_at=stop_at)
    assert attack(target, chosen, stopped).reason is StopReason.CANCELLED
    (saved,) = stopped.saved
    assert saved.step == stop_at
    same(attack(target, chosen, Recorder(), saved), whole)


def test_any_checkpoint_leads_to_the_same_end() -> None:
    target, chosen = Target.of(network()), settings(seeds=2)
    observer = Recorder(checkpoints=True)
    whole = attack(target, chosen, observer)
    assert len(observer.saved) > 5
    for saved in observer.saved[::3]:
        same(attack(target, chosen, Recorder(), saved), whole)


def test_a_checkpoint_of_version_0_1_goes_on() -> None:
    """It says in other words how its finished seeds ended."""
    target, chosen = Target.of(network()), settings(seeds=2)
    observer = Recorder(checkpoints=True)
    whole = attack(target, chosen, observer)
    saved = next(saved for saved in observer.saved if saved.meta["parts"])
    parts = [{**part, "reason": "did all its iterations"} for part in saved.meta["parts"]]
    same(attack(target, chosen, Recorder(), replace(saved, meta={**saved.meta, "parts": parts})), whole)
    assert StopReason("lost its footing: the loss is no longer a finite number; try") is StopReason.DIVERGED
    with pytest.raises(ValueError, match="nonsense"):
        StopReason("nonsense")


@pytest.mark.parametrize("begun", [2, None])
def test_a_checkpoint_of_another_version_is_not_continued(begun: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of one version and half of another is a result of neither. What says none is of the first."""
    target, chosen = Target.of(network()), settings()
    stopped = Recorder(stop_at=14)
    attack(target, chosen, stopped)
    (saved,) = stopped.saved
    meta = {name: value for name, value in saved.meta.items() if name != "attack_version"}
    if begun is not None:
        meta["attack_version"] = begun
    monkeypatch.setitem(ATTACKS, "paper", replace(find_attack("paper"), version=3))
    observer = Recorder()
    outcome = attack(target, chosen, observer, replace(saved, meta=meta))
    assert observer.rows[0]["step"] == 0
    assert observer.sentences == [f"begun with version {begun or 1} of attack paper; starts anew with 3"]
    assert outcome.summary["attack_version"] == 3
    same(outcome, attack(target, chosen, Recorder()))


def test_seeds_are_pooled() -> None:
    target = Target.of(network())
    pooled = attack(target, settings(seeds=2, seed=4), Recorder())
    alone = [attack(target, settings(seed=seed), Recorder()) for seed in (4, 5)]
    assert torch.equal(pooled.candidates, torch.cat([one.candidates for one in alone]))
    assert pooled.seeds.tolist() == [4] * 6 + [5] * 6
    assert [facts["seed"] for facts in pooled.summary["seeds"]] == [4, 5]
    assert pooled.summary["residual"] == min(one.summary["residual"] for one in alone)


def test_divergence_is_an_outcome() -> None:
    observer = Recorder()
    outcome = attack(Target.of(network()), settings(lr_x=1e8, lr_lam=1e8), observer)
    assert outcome.reason is StopReason.DIVERGED
    assert torch.isfinite(outcome.candidates).all()
    assert observer.rows[-1]["residual"] is None or observer.rows[-1]["residual"] > 1e6
    assert "diverged" in observer.sentences[0]
    assert all(
        value is None or not isinstance(value, float) or math.isfinite(value) for value in observer.rows[-1].values()
    )


def test_time_is_a_stop_shared_by_the_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(monotonic=itertools.count(0.0, 0.001).__next__)  # a millisecond for each look
    monkeypatch.setattr(session, "time", clock)
    outcome = attack(Target.of(network()), settings(iterations=10**7, max_seconds=0.2, seeds=2), Recorder())
    assert outcome.reason is StopReason.TIME
    assert outcome.candidates.shape[0] == 12
    assert 0.2 <= outcome.summary["seconds"] < 0.25


def test_known_init_finds_the_change_exactly_at_rest() -> None:
    """Nothing explained leaves all of theta - theta_0, whatever theta is."""
    target = Target.of(network(), initial=network(seed=3))
    observer = Recorder()
    attack(target, settings(lam_scale=1e-12, iterations=1), observer)
    assert observer.rows[0]["residual"] == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize("task", [Task.BINARY, Task.MULTICLASS, Task.REGRESSION])
def test_engines_walk_together(task: Task) -> None:
    target = Target.of(network(3 if task is Task.MULTICLASS else 1), task)
    closed = attack(target, settings(dtype="float64"), Recorder())
    double = attack(target, settings(dtype="float64", engine="autograd"), Recorder())
    blocks = attack(target, settings(dtype="float64", block_size=4), Recorder())
    torch.testing.assert_close(closed.candidates, double.candidates, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(closed.candidates, blocks.candidates, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(closed.multipliers, double.multipliers, rtol=1e-5, atol=1e-6)


def test_paper_step_is_momentum_sgd_on_the_papers_loss() -> None:
    """Against torch's own optimiser on Eq. 8 written down again, for a network whose gradient needs no tricks."""
    target = Target.of(network())
    chosen = settings(dtype="float64", alpha=9, lam_min=0.4, x_init_scale=2.0)
    recipe = PaperRecipe(target, chosen, seed=0)
    x, lam = recipe.x.clone().requires_grad_(), recipe.lam.clone().requires_grad_()
    optimiser = torch.optim.SGD([{"params": [x], "lr": 0.02}, {"params": [lam], "lr": 1e-3}], momentum=0.9)
    y = torch.tensor([1.0, 1, 1, -1, -1, -1], dtype=torch.float64)
    net = network().double()
    for _ in range(4):
        optimiser.zero_grad()
        phi = net(x, activation=recon_core.attacks.gated_relu(9.0))[:, 0]
        gradients = torch.autograd.grad((lam * y * phi).sum() / 6, list(net.parameters()), create_graph=True)
        loss = sum(((p.detach() - g) ** 2).sum() for p, g in zip(net.parameters(), gradients, strict=True))
        loss = loss + 5 * (0.4 - lam).relu().square().sum() + ((x - 1).relu() ** 2 + (-1 - x).relu() ** 2).sum()
        loss.backward()
        optimiser.step()
        recipe.step()
    torch.testing.assert_close(recipe.x, x.detach())
    torch.testing.assert_close(recipe.lam, lam.detach())


def test_one_point_is_found() -> None:
    """theta - theta_0 is the gradient of two samples; from nearby, the attack comes back to them."""
    start = build_network(
        Architecture((2,), (40, 40), 1, BiasMode.FIRST), init_scale="kaiming", seed=2, dtype=torch.float64
    )
    truth = torch.tensor([[0.8, -0.3], [-0.4, 0.7]], dtype=torch.float64)
    y = torch.tensor([1.0, -1.0], dtype=torch.float64)
    trained = build_network(start.architecture, init_scale="kaiming", seed=2, dtype=torch.float64)
    phi = trained(truth, activation=recon_core.attacks.gated_relu(20.0))[:, 0]
    parts = torch.autograd.grad((y * phi).sum(), list(trained.parameters()))
    with torch.no_grad():  # the change is a gradient at `trained`, so that stationarity holds exactly there
        for own, part in zip(start.parameters(), parts, strict=True):
            own.sub_(part)
    target = Target.of(trained, initial=start)
    chosen = settings(
        m=2, dtype="float64", alpha=20, lam_scale=2.0, lr_x=0.02, lr_lam=0.02, iterations=1500, prior="off",
        lam_min=0.0, x_init_scale=0.5, seed=1,
    )  # fmt: skip
    outcome = attack(target, chosen, Recorder())
    assert outcome.summary["residual"] < 1e-4
    torch.testing.assert_close(outcome.candidates.double(), truth, rtol=0.02, atol=0.02)
    torch.testing.assert_close(outcome.multipliers, torch.full((2,), 2.0), rtol=0.05, atol=0.05)


@pytest.mark.parametrize(
    ("target", "values", "sentence"),
    [
        (lambda: Target.of(network(conv=True)), {"engine": "closed"}, "engine closed needs a dense network"),
        (lambda: Target.of(network()), {"objective": "regression"}, "objective regression, the target is binary"),
        (lambda: Target.of(network(3)), {"m": 2, "labels": "per-class"}, "at least the number of classes 3, got 2"),
        (lambda: Target.of(network(3)), {"labels": "half"}, "goes with labels per-class, got half"),
        (lambda: Target.of(network()), {"layer_weights": "1,1"}, "layer_weights needs 3 values"),
    ],
)
def test_what_does_not_fit_is_said(target: Any, values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        attack(target(), settings(**values), Recorder())


def test_attacker_imports_weights_only() -> None:
    """Neither data nor matching, training nor the store: by name, in every file of the attack."""
    folder = Path(recon_core.attacks.__file__).parent
    allowed = {"attacks", "config", "errors", "devices", "models", "observing"}
    files = sorted(folder.glob("*.py"))
    assert folder / "session.py" in files
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, file.name
                names = [node.module or ""]
                if node.module == "recon_core":
                    names = [f"recon_core.{alias.name}" for alias in node.names]
            for name in names:
                if name.split(".")[0] == "recon_core":
                    assert name.split(".")[1] in allowed, f"{file.name} imports {name}"
