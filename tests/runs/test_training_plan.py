"""What a training will be, before it is put in line; and what its measurements hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from recon_core.analysis.training import LEVELS
from recon_core.config import BiasMode, TrainConfig, parse_config
from recon_core.errors import InputError
from recon_core.kinds import perform
from recon_core.models import Architecture, Network
from recon_core.runs.requests import create_training
from recon_core.runs.signals import StopFlag
from recon_core.runs.training_plan import layers_of, plan_training
from recon_core.store import RunStore


def config(**groups: dict[str, Any]) -> TrainConfig:
    return parse_config(TrainConfig, {"training": {"target_log_loss": -10.0}, **groups})


@pytest.mark.parametrize("bias", list(BiasMode))
@pytest.mark.parametrize(
    "sizes",
    [
        {"input_shape": (2,), "widths": (7,), "outputs": 1},
        {"input_shape": (3, 8, 8), "widths": (6, 5, 4), "outputs": 10},
        {"input_shape": (3, 9, 7), "widths": (6,), "outputs": 1, "conv_kernel": 3, "conv_channels": 4},
    ],
)
def test_layers_are_those_of_the_network(sizes: dict[str, Any], bias: BiasMode) -> None:
    architecture = Architecture(**sizes, bias=bias)
    with torch.device("meta"):
        network = Network(architecture)
    layers = layers_of(architecture)
    assert [layer.shape for layer in layers] == [tuple(layer.weight.shape) for layer in network.layers]
    assert [layer.bias for layer in layers] == [layer.bias is not None for layer in network.layers]
    assert sum(layer.parameters for layer in layers) == sum(parameter.numel() for parameter in network.parameters())


def test_a_plan_says_what_there_is() -> None:
    plan = plan_training(config(data={"n": 20}, model={"widths": [30]}))
    assert (plan.n, plan.class_names, plan.architecture) == (20, ("vehicles", "animals"), "3x32x32-30-1")
    assert plan.test_n
    assert plan.parameters == 3072 * 30 + 30 + 30


def test_full_sets_are_planned_without_being_read() -> None:
    plan = plan_training(config(data={"source": "cifar10-full", "task": "multiclass", "per_class": 50}))
    assert (plan.n, len(plan.class_names), plan.test_n) == (500, 10, None)


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ({"data": {"n": 4000}}, "n=4000"),
        ({"data": {"source": "cifar10-full", "n": 60_000}}, "60000 training samples were asked for"),
        ({"data": {"partition": "cats|dogs"}}, "cats"),
        ({"model": {"widths": [10**6, 10**6]}}, "GB; use smaller model.widths"),
        ({"model": {"conv_kernel": 40, "conv_channels": 2}}, "conv_kernel must be at most the image side 32"),
        ({"data": {"source": "folder", "path": "/nowhere"}}, "/nowhere"),
    ],
)
def test_what_cannot_be_done_is_refused(groups: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said.replace("|", r"\|")):
        plan_training(config(**groups))


def test_measurements_hold_how_the_margins_are_spread(tmp_path: Path) -> None:
    values = {"data": {"source": "circle", "n": 6}, "model": {"widths": [20], "init_scale": 0.3}}
    run = create_training(RunStore(tmp_path), config(**values, training={"recipe": "flow", "target_loss": 0.1}))
    perform(run, StopFlag())
    for row in run.metrics():
        levels = row["margin_levels"]
        assert len(levels) == len(LEVELS)
        assert levels == sorted(levels)
        assert (levels[0], levels[-1]) == (row["margin_min"], row["margin_max"])
    margins = run.tensors("samples")["margins"].numpy()
    assert run.metrics()[-1]["margin_levels"] == pytest.approx(np.quantile(margins, LEVELS), rel=1e-4)
    assert "margin_levels" not in (run.result() or {})
