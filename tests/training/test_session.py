"""The loop: its stops, what it records, and that a resumed run is the run that never stopped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from recon_core.config import TrainConfig, parse_config
from recon_core.data import load_task
from recon_core.observing import Resume
from recon_core.training import StopReason, TrainOutcome, train
from recon_core.training.session import FIELD_SIDE, field_grid


class Listener:
    """Keeps what it hears; asks for a stop at a given step and for a checkpoint at every measurement."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.rows: list[dict[str, Any]] = []
        self.saved: list[Resume] = []
        self.fractions: list[float] = []
        self.pictures: list[tuple[int, dict[str, torch.Tensor]]] = []
        self.stop_at = stop_at
        self.calls = 0

    def metrics(self, row: Mapping[str, Any]) -> None:
        self.rows.append(dict(row))

    def progress(self, step: int, fraction: float, message: str) -> None:
        self.fractions.append(fraction)

    def snapshot(self, step: int, tensors: Mapping[str, torch.Tensor]) -> None:
        self.pictures.append((step, dict(tensors)))

    def checkpoint(self, step: int, tensors: Mapping[str, torch.Tensor], meta: Mapping[str, Any]) -> None:
        self.saved.append(Resume(step, {name: t.clone() for name, t in tensors.items()}, dict(meta)))

    def checkpoint_due(self) -> bool:
        return True

    def stop_requested(self) -> bool:
        self.calls += 1
        return self.stop_at is not None and self.calls > self.stop_at


def config(**training: Any) -> TrainConfig:
    values = {"data": {"source": "circle", "n": 8}, "model": {"widths": "30,20", "init_scale": 0.05}}
    return parse_config(TrainConfig, {**values, "training": training})


def run(chosen: TrainConfig, listener: Listener | None = None, resume: Resume | None = None) -> TrainOutcome:
    return train(chosen, load_task(chosen.data), listener or Listener(), resume)


RECIPES = {
    "flow": {"recipe": "flow", "epochs": 47},
    "paper": {"recipe": "paper", "epochs": 47, "measure_every": 10, "record_every": 10},
    "sgd": {"recipe": "sgd", "epochs": 47, "batch_size": 3, "measure_every": 10, "record_every": 10},
    # Long enough to pass from the ReLU into the smoothed stages.
    "stationary": {"recipe": "stationary", "weight_decay": 0.01, "epochs": 200},
}


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_resumed_run_equals_an_uninterrupted_one_bitwise(recipe: str) -> None:
    chosen = config(**RECIPES[recipe])
    listener = Listener()
    whole = run(chosen, listener)
    for stop_at in (3, 33, 140):
        first = Listener(stop_at)
        if run(chosen, first).reason is not StopReason.CANCELLED:
            continue
        second = Listener()
        resumed = run(chosen, second, first.saved[-1])
        for name, tensor in whole.network.state_dict().items():
            assert torch.equal(tensor, resumed.network.state_dict()[name])
        for name, tensor in whole.samples.items():
            assert torch.equal(tensor, resumed.samples[name])
        assert torch.equal(whole.recording["fields"], resumed.recording["fields"])
        assert torch.equal(whole.recording["steps"], resumed.recording["steps"])
        joined = {row["step"]: row for row in first.rows + second.rows}
        expected = {row["step"]: row for row in listener.rows}
        assert joined.keys() == expected.keys()
        for step, row in expected.items():
            assert {**joined[step], "seconds": 0} == {**row, "seconds": 0}


def test_the_circle_is_learnt_and_recorded() -> None:
    listener = Listener()
    outcome = run(config(target_log_loss=-5.0), listener)
    assert outcome.reason is StopReason.TARGET_LOSS
    assert outcome.summary["train_error"] == 0
    assert outcome.summary["margin_min"] > 3
    assert outcome.recording["fields"].shape == (len(outcome.recording["steps"]), FIELD_SIDE, FIELD_SIDE)
    steps = outcome.recording["steps"].tolist()
    assert steps[-1] == outcome.summary["steps"]
    assert sorted(set(steps)) == steps
    assert list(dict(listener.pictures)) == steps
    assert torch.equal(listener.pictures[-1][1]["fields"], outcome.recording["fields"][-1])
    last = outcome.network(field_grid())[:, 0].reshape(FIELD_SIDE, FIELD_SIDE)
    assert torch.allclose(outcome.recording["fields"][-1], last, atol=1e-4)
    assert outcome.samples["margins"].shape == (8,)
    assert listener.fractions[-1] == pytest.approx(1.0, abs=0.02)
    assert {"test_error", "kkt", "kkt_layer1", "log10_epochs"} <= outcome.summary.keys()
    # The field at the training points' side agrees with the labels: the picture is not upside down.
    chosen = load_task(config(target_log_loss=-5.0).data)
    field = outcome.recording["fields"][-1]
    for (x, y), label in zip(chosen.train_x.tolist(), chosen.train_labels.tolist(), strict=True):
        column = round((x + 1.6) / 3.2 * (FIELD_SIDE - 1))
        row = round((1.6 - y) / 3.2 * (FIELD_SIDE - 1))
        assert (float(field[row, column]) > 0) == (label == 1)


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        ({"epochs": 5}, StopReason.STEPS),
        ({"max_seconds": 1e-6}, StopReason.TIME),
        ({"target_loss": 0.4}, StopReason.TARGET_LOSS),
        ({"target_residual": 0.99, "epochs": 3000}, StopReason.TARGET_RESIDUAL),
    ],
)
def test_each_stop_is_named(stop: dict[str, Any], reason: StopReason) -> None:
    assert run(config(**stop)).reason is reason


def test_divergence_is_an_outcome() -> None:
    chosen = config(recipe="paper", learning_rate=1e9, epochs=50, measure_every=1)
    assert run(chosen).reason is StopReason.DIVERGED


@pytest.mark.parametrize("stop", [{"epochs": 9}, {"epochs": 10_000, "max_seconds": 0.05}], ids=["steps", "time"])
def test_divergence_after_the_last_measurement_is_told_too(stop: dict[str, Any]) -> None:
    listener = Listener()
    outcome = run(config(recipe="paper", learning_rate=1e9, measure_every=20_000, **stop), listener)
    assert outcome.reason is StopReason.DIVERGED
    assert "diverged" in outcome.summary["reason"]
    assert [row["step"] for row in listener.rows] == [0, outcome.summary["steps"]]
