"""Who gets which candidate, against scipy's dense solver and worked examples."""

from __future__ import annotations

import pytest
import torch
from scipy.optimize import linear_sum_assignment

from recon_core.errors import InputError
from recon_core.matching.assignment import Assignment, assign
from recon_core.matching.neighbours import Neighbours, find_neighbours
from recon_core.matching.protocol import MatchSettings, match


def from_matrix(matrix: list[list[float]]) -> Neighbours:
    distances, indices = torch.tensor(matrix).sort(dim=1)
    return Neighbours(distances, indices, dimension=10, candidates=distances.shape[1], non_finite=0, constant=0)


def noise(count: int, seed: int) -> torch.Tensor:
    return torch.randn(count, 1, 11, 11, generator=torch.Generator().manual_seed(seed))


def test_free_is_free() -> None:
    neighbours = from_matrix([[1.0, 2.0], [1.0, 3.0]])
    assert assign(neighbours, Assignment.FREE) is neighbours


def test_exclusive_gives_a_candidate_to_the_nearest() -> None:
    own = assign(from_matrix([[1.0, 5.0, 9.0], [2.0, 4.0, 9.0], [3.0, 6.0, 7.0]]), Assignment.EXCLUSIVE)
    assert own.indices[:, 0].tolist() == [0, 1, 2]
    assert own.distances[:, 0].tolist() == [1.0, 4.0, 7.0]
    assert torch.isinf(own.distances[:, 1:]).all()


def test_exclusive_leaves_losers_without() -> None:
    own = assign(from_matrix([[1.0, 2.0], [3.0, 4.0]]), Assignment.EXCLUSIVE)
    assert own.distances[0].tolist() == [1.0, 2.0]
    assert torch.isinf(own.distances[1]).all()


def test_exclusive_breaks_ties_by_order() -> None:
    own = assign(from_matrix([[1.0, 5.0], [1.0, 4.0]]), Assignment.EXCLUSIVE)
    assert own.distances.tolist() == [[1.0, torch.inf], [4.0, torch.inf]]


@pytest.mark.parametrize(("images", "candidates"), [(8, 8), (8, 30), (30, 8), (1, 5), (5, 1), (20, 400)])
def test_one_to_one_is_the_dense_optimum(images: int, candidates: int) -> None:
    x, y = noise(images, 0), noise(candidates, 1)
    y[: images // 2] = x[: min(images // 2, candidates)][: len(y[: images // 2])]  # some distances are exactly 0
    full = find_neighbours(x, y, keep=candidates)
    matrix = torch.empty_like(full.distances).scatter_(1, full.indices, full.distances)
    rows, columns = linear_sum_assignment(matrix.double().numpy())
    best = float(matrix[rows, columns].double().sum())
    short = find_neighbours(x, y, keep=images)  # no one needs to look further
    result = assign(short, Assignment.ONE_TO_ONE)
    served = torch.isfinite(result.distances[:, 0])
    assert int(served.sum()) == min(images, candidates)
    assert len(torch.unique(result.indices[served])) == int(served.sum())
    assert float(result.distances[served].double().sum()) == pytest.approx(best, rel=1e-6)


def test_one_to_one_needs_long_enough_lists() -> None:
    short = find_neighbours(noise(8, 0), noise(30, 1), keep=3)
    with pytest.raises(InputError, match="assignment of 8 training images needs 8 neighbours each, got 3; keep more"):
        assign(short, Assignment.ONE_TO_ONE)


SAME = torch.rand(1, 1, 16, 16, generator=torch.Generator().manual_seed(5))
IMAGES = torch.cat([SAME, 0.97 * SAME, torch.rand(1, 1, 16, 16, generator=torch.Generator().manual_seed(6))])
MEAN = torch.full((1, 16, 16), 0.5)


@pytest.mark.parametrize(
    ("assignment", "good", "unique"),
    [(Assignment.FREE, 3, 2), (Assignment.EXCLUSIVE, 2, 2), (Assignment.ONE_TO_ONE, 2, 2)],
)
def test_two_training_images_that_share_a_candidate(assignment: Assignment, good: int, unique: int) -> None:
    """Candidate 0 shows both of the first two images, candidate 1 the third, candidate 2 nothing."""
    pool = torch.cat([IMAGES[[0, 2]] - 0.5, torch.randn(1, 1, 16, 16, generator=torch.Generator().manual_seed(7))])
    matching = match(IMAGES - 0.5, MEAN, pool, MatchSettings(assignment=assignment, merge_factor=1))
    assert (matching.good(0.9), matching.unique_good(0.9)) == (good, unique)
    assert not matching.capped.any()


def test_without_a_candidate_there_is_no_score() -> None:
    pool = IMAGES[[0]] - 0.5
    matching = match(IMAGES - 0.5, MEAN, pool, MatchSettings(assignment=Assignment.EXCLUSIVE))
    assert matching.nearest.tolist() == [0, -1, -1]
    assert matching.merged_counts.tolist() == [1, 0, 0]
    assert matching.ssim.isnan().tolist() == [False, True, True]
    assert (matching.reconstructions[1:] == 0).all()
    assert matching.merged(1).tolist() == []
    assert matching.good(-1) == 1
