"""Settings, labels and targets: what follows from what, and a sentence for everything that cannot be."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from recon_core.attacks import (
    AUTHORS_PRESETS,
    SEARCH_RANGES,
    AttackSettings,
    Engine,
    LabelPolicy,
    Target,
    regression_warning,
)
from recon_core.attacks.labels import assign_labels, learnt_labels, multiplier_signs, output_directions
from recon_core.attacks.stepper import draw_start
from recon_core.config import Task, parse_config
from recon_core.errors import InputError
from recon_core.models import Architecture, Network, build_network


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"alpha": -3}, "alpha must be greater than 0, got -3"),
        ({"alpha": 0}, "alpha must be greater than 0, got 0"),
        ({"alpha_end": 0}, "alpha_end must be greater than 0, got 0"),
        ({"m": 0}, "m must be greater than or equal to 1, got 0"),
        ({"m": 7}, "m must be even, half the candidates for each class, got 7; try 8 or labels=learnt"),
        ({"lr_x": -1.0}, "lr_x must be greater than 0, got -1.0"),
        ({"iterations": 0}, "iterations must be greater than or equal to 1, got 0"),
        ({"recipe": "paper", "box_low": 1, "box_high": 0}, "box_low must be below box_high, got 1.0 and 0.0"),
        ({"layer_weights": "1,-2"}, "layer_weights must all be at least 0, got -2.0"),
        (
            {"objective": "multiclass", "labels": "half"},
            "objective multiclass goes with labels per-class, got half",
        ),
        ({"recipe": "slow"}, "recipe must be 'fast', 'copies' or 'paper', got 'slow'"),
    ],
)
def test_bad_settings_become_a_sentence(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_config(AttackSettings, values)
    assert str(caught.value) == sentence


def test_unknown_key_lists_the_known() -> None:
    with pytest.raises(InputError, match=r"unknown key 'speed'; known here: recipe, objective, m, "):
        parse_config(AttackSettings, {"speed": 3})


def test_paper_recipe_is_as_its_authors_run_it() -> None:
    settings = parse_config(AttackSettings, {"recipe": "paper"})
    assert (settings.dtype, settings.engine, settings.momentum) == ("float64", Engine.AUTOGRAD, 0.9)
    assert (settings.weight_stationarity, settings.weight_floor, settings.weight_prior) == (1, 5, 1)
    assert settings.alpha_at(0) == settings.alpha_at(10**5) == settings.alpha
    closed = parse_config(AttackSettings, {"recipe": "paper", "engine": "closed", "dtype": "float32", "lr_x": 0.1})
    assert (closed.engine, closed.dtype, closed.lr_x, closed.lr_lam) == (Engine.CLOSED, "float32", 0.1, 1e-4)


def test_presets_are_settings_within_the_papers_ranges() -> None:
    assert set(AUTHORS_PRESETS) == {
        "mnist-a", "mnist-b", "cifar10-a", "cifar10-b", "multiclass", "regression-a", "regression-b",
    }  # fmt: skip
    for preset in AUTHORS_PRESETS.values():
        settings = parse_config(AttackSettings, preset)
        for name, bounds in SEARCH_RANGES["buzaglo2023"].items():
            assert bounds.low <= getattr(settings, name) <= bounds.high
    assert SEARCH_RANGES["haim2022"]["lam_min"].log
    assert not SEARCH_RANGES["buzaglo2023"]["lam_min"].log


def test_alpha_grows_geometrically() -> None:
    settings = AttackSettings(alpha=10, alpha_end=1000, iterations=101)
    assert [settings.alpha_at(i) for i in (0, 50, 100, 200)] == pytest.approx([10, 100, 1000, 1000])


def test_settings_survive_a_round_trip() -> None:
    settings = parse_config(AttackSettings, {**AUTHORS_PRESETS["mnist-a"], "layer_weights": "1,0.5,1"})
    assert parse_config(AttackSettings, settings.model_dump(mode="json")) == settings


def test_labels_by_policy() -> None:
    assert assign_labels(LabelPolicy.HALF, 4, 1).tolist() == [1, 1, 0, 0]
    assert assign_labels(LabelPolicy.PER_CLASS, 7, 3).tolist() == [0, 0, 0, 1, 1, 2, 2]
    halves = assign_labels(LabelPolicy.HALF, 4, 1)
    assert multiplier_signs(halves, LabelPolicy.HALF, torch.float64).tolist() == [1, 1, -1, -1]
    assert multiplier_signs(halves, LabelPolicy.LEARNT, torch.float64).tolist() == [1, 1, 1, 1]
    assert learnt_labels(torch.tensor([0.2, -0.1])).tolist() == [1, 0]
    with pytest.raises(InputError, match="m must be at least the number of classes 10, got 4"):
        assign_labels(LabelPolicy.PER_CLASS, 4, 10)
    with pytest.raises(InputError, match="m must be even"):
        assign_labels(LabelPolicy.HALF, 5, 1)


def test_direction_points_from_the_best_rival_to_the_label() -> None:
    phi = torch.tensor([[3.0, 1.0, 2.0], [3.0, 1.0, 2.0]])
    directions = output_directions(phi, torch.tensor([0, 1]), Task.MULTICLASS)
    assert directions.tolist() == [[1, 0, -1], [-1, 1, 0]]
    assert output_directions(phi[:, :1], torch.tensor([0, 1]), Task.BINARY).tolist() == [[1], [1]]


def network(outputs: int = 1, widths: tuple[int, ...] = (4, 3)) -> Network:
    return build_network(Architecture((2,), widths, outputs), init_scale=0.1, seed=0)


def test_broken_weights_are_named() -> None:
    broken = network()
    with torch.no_grad():
        broken.layers[1].get_parameter("weight")[0, :2] = torch.nan
    with pytest.raises(InputError, match=r"layers\.1\.weight of the model has 2 of 12 values that are not finite"):
        Target(broken, Task.BINARY)
    with pytest.raises(InputError, match=r"layers\.1\.weight of the initial model has 2"):
        Target(network(), Task.BINARY, broken)


def test_outputs_decide_the_objective() -> None:
    assert Target.of(network()).objective is Task.BINARY
    assert Target.of(network(3)).objective is Task.MULTICLASS
    with pytest.raises(InputError, match="objective multiclass needs a model with 2 or more outputs, got 1"):
        Target.of(network(), Task.MULTICLASS)
    with pytest.raises(InputError, match="objective regression needs a model with one output, got 3"):
        Target.of(network(3), Task.REGRESSION)


def test_initial_weights_must_fit() -> None:
    with pytest.raises(InputError, match="the initial weights are of 2-5-3-1, the model is 2-4-3-1"):
        Target(network(), Task.BINARY, network(widths=(5, 3)))
    with pytest.raises(InputError, match="all weights to explain are zero"):
        Target(network(), Task.BINARY, network())


def test_known_init_is_a_difference() -> None:
    start = build_network(Architecture((2,), (4, 3), 1), init_scale=0.1, seed=9)
    explained = Target(network(), Task.BINARY, start).explained()
    for own, other, found in zip(network().dense_layers(), start.dense_layers(), explained, strict=True):
        assert torch.equal(found.weight, own.weight - other.weight)


def test_regression_without_decay_is_warned_about() -> None:
    assert "trained on a regression loss without weight decay" in (regression_warning(Task.REGRESSION, 0.0) or "")
    assert regression_warning(Task.REGRESSION, 1e-3) is None
    assert regression_warning(Task.REGRESSION, None) is None
    assert regression_warning(Task.BINARY, 0.0) is None


def test_multipliers_start_as_their_authors_draw_them() -> None:
    """U[0, 1] of a known sign, N(0, 1) where signs are learnt; a seed means one start."""
    positive, signed = (draw_start(4000, 1, 1.0, 7, signed=signed).lam for signed in (False, True))
    assert 0 <= float(positive.min()) < float(positive.max()) <= 1
    assert float(positive.mean()) == pytest.approx(0.5, abs=0.02)
    assert float(signed.mean()) == pytest.approx(0.0, abs=0.05)
    assert float(signed.std()) == pytest.approx(1.0, abs=0.05)
    assert torch.equal(signed, draw_start(4000, 1, 1.0, 7, signed=True).lam)


def test_the_second_paper_has_a_rate_for_multipliers_of_its_own() -> None:
    multiclass = parse_config(AttackSettings, AUTHORS_PRESETS["multiclass"])
    assert (multiclass.lr_x, multiclass.lr_lam, multiclass.x_init_scale) == (0.00136, 0.479, 6.2e-5)
    assert (multiclass.lam_min, multiclass.alpha) == (0.203, 39.5)
    assert AUTHORS_PRESETS["cifar10-a"]["lr_lam"] == 1e-4
