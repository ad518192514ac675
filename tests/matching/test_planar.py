"""Points on the circle, where distances can be read off."""

from __future__ import annotations

import math

import pytest
import torch

from recon_core.errors import InputError
from recon_core.matching.planar import match_points

POINTS = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
SIGNS = torch.tensor([1, -1, 1, -1])


def test_nearest_of_the_same_class() -> None:
    candidates = torch.tensor([[1.0, 0.02], [0.0, 1.0], [-1.0, 0.3], [0.0, 0.0]])
    matching = match_points(POINTS, SIGNS, candidates, torch.tensor([1, 1, 1, -1]))
    torch.testing.assert_close(matching.distances, torch.tensor([0.02, 1.0, 0.3, 1.0]))
    assert matching.nearest.tolist() == [0, 3, 2, 3]
    # The second sits on a point, but of the other class.
    torch.testing.assert_close(matching.candidate_distances, torch.tensor([0.02, math.sqrt(2), 0.3, 1.0]))
    assert [matching.recovered(r) for r in (0.01, 0.03, 0.5, 1.0)] == [0, 1, 2, 4]
    assert [matching.settled(r) for r in (0.03, 0.5, 1.0, 2.0)] == [1, 2, 3, 4]


def test_a_candidate_on_the_point_is_at_zero() -> None:
    angle = torch.linspace(0, 6, 40)
    points = torch.stack([angle.cos(), angle.sin()], dim=1)
    labels = torch.arange(40) % 2
    matching = match_points(points, labels, points, labels)
    assert (matching.distances == 0).all()
    assert matching.recovered(1e-9) == 40


def test_a_class_nobody_reconstructed() -> None:
    matching = match_points(POINTS, SIGNS, POINTS, torch.ones(4, dtype=torch.int64))
    assert matching.distances.tolist() == [0.0, math.inf, 0.0, math.inf]
    assert matching.nearest.tolist() == [0, -1, 2, -1]
    assert matching.recovered(10.0) == 2


def test_non_finite_candidates_are_left_out_and_counted() -> None:
    candidates = POINTS.clone()
    candidates[0, 1] = torch.nan
    matching = match_points(POINTS, SIGNS, candidates, SIGNS)
    assert matching.non_finite == 1
    assert matching.distances.tolist() == [2.0, 0.0, 0.0, 0.0]
    assert matching.candidate_distances[0] == math.inf


@pytest.mark.parametrize(
    ("points", "classes", "candidates", "sentence"),
    [
        (POINTS, SIGNS, torch.rand(4, 3), r"of one dimension, got \(4, 2\) and \(4, 3\)"),
        (POINTS, SIGNS[:3], POINTS, "each point needs a class, got 3 for 4 points"),
        (POINTS, SIGNS, POINTS / 0 * 0, "all 4 candidates hold NaN"),
    ],
)
def test_bad_input_gets_a_sentence(points, classes, candidates, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        match_points(points, classes, candidates, SIGNS)


def test_nothing_to_match() -> None:
    with pytest.raises(InputError, match="4 training points and 0 candidates"):
        match_points(POINTS, SIGNS, POINTS[:0], SIGNS[:0])
    with pytest.raises(InputError, match="radius must be above 0, got 0"):
        match_points(POINTS, SIGNS, POINTS, SIGNS).recovered(0)
