"""The stages after an attack in the plane, on points placed by hand."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from recon_core.attacks.circle import (
    PAPER_DISTANCE,
    PAPER_THRESHOLD,
    circle_stages,
    deduplicate,
    filter_multipliers,
    paper_multipliers,
)
from recon_core.errors import InputError


def everyone(points: Tensor) -> Tensor:
    return torch.ones(len(points), dtype=torch.bool)


def test_stages_of_six_points() -> None:
    final = torch.tensor([[1.0, 0.0], [1.0, 0.02], [0.0, 1.0], [0.0, 1.04], [5.0, 5.0], [torch.nan, 0.0]])
    multipliers = torch.tensor([9.0, 6.0, 5.0, 7.0, 4.9, 100.0])
    initial = torch.zeros(6, 2)
    stages = circle_stages(initial, final, multipliers, unit=1.0)
    assert stages.initial is initial
    assert stages.final is final
    assert stages.filtered.tolist() == [True, True, True, True, False, False]
    assert stages.deduplicated[:2].sum() == 1
    assert stages.deduplicated[2:].tolist() == [True, True, False, False]
    assert torch.equal(stages.kept, final[stages.deduplicated])
    assert (PAPER_THRESHOLD, PAPER_DISTANCE) == (5.0, 0.03)


def test_which_of_two_stays_depends_on_the_seed_alone() -> None:
    pair = torch.tensor([[0.0, 0.0], [0.01, 0.0]])
    kept = [deduplicate(pair, everyone(pair), distance=0.03, seed=seed).tolist() for seed in range(20)]
    assert {tuple(mask) for mask in kept} == {(True, False), (False, True)}
    assert kept == [deduplicate(pair, everyone(pair), distance=0.03, seed=seed).tolist() for seed in range(20)]


def test_distance_is_exclusive_and_may_be_zero() -> None:
    points = torch.tensor([[0.0, 0.0], [0.5, 0.0], [0.5, 0.0]])
    assert deduplicate(points, everyone(points), distance=0.5, seed=0).sum() == 2
    assert deduplicate(points, everyone(points), distance=0.0, seed=0).sum() == 3
    assert deduplicate(points, everyone(points), distance=0.6, seed=0).sum() == 1
    nobody = torch.zeros(3, dtype=torch.bool)
    assert not deduplicate(points, nobody, distance=0.5, seed=0).any()


@settings(max_examples=60, deadline=None)
@given(
    points=st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=1, max_size=30),
    distance=st.floats(0.1, 5.0),
    seed=st.integers(0, 99),
)
def test_what_stays_is_apart_and_stands_for_what_goes(
    points: list[tuple[int, int]], distance: float, seed: int
) -> None:
    candidates = torch.tensor(points, dtype=torch.float64)
    among = candidates[:, 0] >= 0
    stays = deduplicate(candidates, among, distance=distance, seed=seed)
    assert not (stays & ~among).any()
    gaps = torch.cdist(candidates[stays], candidates[stays])
    assert (gaps + torch.eye(len(gaps)) * 99 >= distance).all()
    gone = candidates[among & ~stays]
    if len(gone):
        assert (torch.cdist(gone, candidates[stays]).amin(1) < distance).all()


def test_units_are_converted_once() -> None:
    """100 candidates, coefficients c_i = scale * lam_i / m: three ways to say the same multipliers."""
    m, scale = 100, 4.0
    lam = torch.linspace(0, 3, m)
    coefficients = scale * lam / m
    points = torch.stack([torch.arange(m) * 1.0, torch.zeros(m)], 1)
    by_lam = circle_stages(points, points, lam, unit=scale)
    by_coefficient = circle_stages(points, points, coefficients, unit=m)
    assert torch.equal(by_lam.filtered, by_coefficient.filtered)
    assert torch.equal(by_lam.filtered, lam >= 5 / scale)
    torch.testing.assert_close(paper_multipliers(lam, unit=scale), paper_multipliers(coefficients, unit=m))


def test_points_of_any_dimension_and_type() -> None:
    final = torch.tensor([[0, 0, 0], [0, 0, 1]], dtype=torch.float64)
    stages = circle_stages(final, final, torch.tensor([1.0, 2.0]), unit=1.0, threshold=0.0, distance=2.0, seed=3)
    assert stages.deduplicated.sum() == 1


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"unit": 0.0}, "unit must be a positive number, got 0.0"),
        ({"unit": math.inf}, "unit"),
        ({"threshold": math.nan}, "threshold"),
        ({"distance": -0.1}, "distance must be 0 or more, got -0.1"),
        ({"multipliers": torch.ones(3)}, r"got \(4, 2\) and \(3,\)"),
        ({"initial": torch.ones(3, 2)}, "must be alike"),
    ],
)
def test_wrong_settings_are_said(options: dict[str, object], part: str) -> None:
    arguments = {"initial": torch.zeros(4, 2), "final": torch.zeros(4, 2), "multipliers": torch.ones(4), "unit": 1.0}
    with pytest.raises(InputError, match=part):
        circle_stages(**{**arguments, **options})  # type: ignore[arg-type]


def test_filter_keeps_the_threshold_itself() -> None:
    points = torch.zeros(3, 2)
    assert filter_multipliers(points, torch.tensor([4.99, 5.0, 5.01]), threshold=5.0).tolist() == [False, True, True]
    assert filter_multipliers(points, torch.tensor([1.0, torch.nan, 1.0]), threshold=0.0).tolist() == [
        True,
        False,
        True,
    ]
