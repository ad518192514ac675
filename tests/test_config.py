"""Settings written as `key=value`: what is taken back, what is a value, and that a config can be written out."""

from __future__ import annotations

from typing import Any

import pytest

from recon_core.attacks.settings import AttackSettings
from recon_core.config import BiasMode, TrainConfig, assign, assignments, parse_config
from recon_core.errors import InputError
from recon_core.presets import PRESETS, Size


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("model.bias=none", {"model": {"bias": "none"}}),
        ("bias= none ", {"model": {"bias": "none"}}),
        ("model.bias=null", {"model": {"bias": None}}),
        ("training.target_log_loss=none", {"training": {"target_log_loss": None}}),
        ("epochs=None", {"training": {"epochs": None}}),
        ("data.path=none", {"data": {"path": None}}),
        ("model.init_scale=none", {"model": {"init_scale": None}}),
        ("model.unheard=none", {"model": {"unheard": None}}),
    ],
)
def test_none_is_a_value_where_the_field_has_it_and_else_takes_back(assignment: str, expected: dict[str, Any]) -> None:
    values: dict[str, Any] = {}
    assign(TrainConfig, values, assignment)
    assert values == expected


def test_labels_of_an_attack_are_taken_back_by_none() -> None:
    values: dict[str, Any] = {"labels": "learnt", "max_seconds": 3.0}
    for assignment in ("labels=none", "max_seconds=none"):
        assign(AttackSettings, values, assignment)
    assert values == {"labels": None, "max_seconds": None}


def test_a_network_without_biases_is_repeated_from_what_is_written_out() -> None:
    config = parse_config(TrainConfig, {"model": {"bias": "none"}, "training": {"epochs": 3}})
    written = assignments(config)
    assert "model.bias=none" in written
    values: dict[str, Any] = {}
    for assignment in written:
        assign(TrainConfig, values, assignment)
    again = parse_config(TrainConfig, values)
    assert again == config
    assert again.model.bias is BiasMode.NONE


@pytest.mark.parametrize("name", list(PRESETS))
def test_the_papers_size_is_in_their_precision(name: str) -> None:
    """Their code trains in float64; quick sizes do not, and a setting of one's own wins."""
    assert PRESETS[name].config(Size.PAPER).model.dtype == "float64"
    assert PRESETS[name].config(Size.QUICK).model.dtype == "float32"
    assert PRESETS[name].config(Size.PAPER).training.recipe in ("paper", "sgd")


def test_the_released_regression_model_is_a_preset() -> None:
    config = PRESETS["cifar10-l2-released"].config(Size.PAPER)
    assert (config.data.n, config.training.weight_decay, config.model.init_scale) == (500, 7.5e-4, 1e-4)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ({"conv_kernel": 3, "conv_channels": 4, "dense_init_scale": 0.0}, "must be > 0 or 'kaiming', got 0.0"),
        ({"dense_init_scale": 1e-5}, "needs a convolution in front"),
    ],
)
def test_a_small_start_behind_the_convolution_needs_one(model: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        parse_config(TrainConfig, {"model": model})
