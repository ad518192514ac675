"""The search agrees with Eq. 16 written out, whatever its blocks, and is exact where it matters."""

from __future__ import annotations

import pytest
import torch

from recon_core.errors import InputError
from recon_core.matching import neighbours as module
from recon_core.matching.neighbours import Neighbours, SearchSize, find_neighbours


def noise(count: int, *shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(seed))


def eq16(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Buzaglo et al. 2023, Eq. 16, in double precision for every pair: (N, M)."""

    def normalised(batch: torch.Tensor) -> torch.Tensor:
        flat = batch.double().flatten(1)
        return (flat - flat.mean(1, keepdim=True)) / flat.std(1, keepdim=True, correction=1)

    return (normalised(x)[:, None] - normalised(y)[None]).square().sum(-1)


@pytest.mark.parametrize("shape", [(3, 8, 8), (1, 5, 7)])
@pytest.mark.parametrize("block", [1, 900, 12 << 20])
@pytest.mark.parametrize("table", [1, 4000, 512 << 20])
def test_equals_brute_force(shape, block: int, table: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CPU_BLOCK", block)
    monkeypatch.setattr(module, "TABLE_BYTES", table)
    x, y = noise(9, *shape), 3 * noise(57, *shape, seed=1) + 0.5
    y[:20] += 4 * x[torch.arange(20) % 9]
    expected, order = eq16(x, y).sort(dim=1)
    found = find_neighbours(x, y, keep=57)
    torch.testing.assert_close(found.distances.double(), expected, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(found.indices, order)
    assert (found.dimension, found.candidates, found.usable) == (shape[0] * shape[1] * shape[2], 57, 57)
    fewer = find_neighbours(x, y, keep=5)
    torch.testing.assert_close(fewer.indices, order[:, :5])


def test_correlation_and_distance_say_the_same() -> None:
    x, y = noise(4, 1, 6, 6), noise(30, 1, 6, 6, seed=1)
    found = find_neighbours(x, y)
    for i in range(4):
        for j, index in enumerate(found.indices[i].tolist()):
            expected = torch.corrcoef(torch.stack([x[i].flatten(), y[index].flatten()]))[0, 1]
            torch.testing.assert_close(found.correlations[i, j], expected, atol=1e-5, rtol=0)


def test_equal_images_are_at_distance_zero() -> None:
    x = noise(20, 3, 32, 32)
    pool = torch.cat([noise(500, 3, 32, 32, seed=1), x])
    found = find_neighbours(x, pool)
    torch.testing.assert_close(found.indices[:, 0], torch.arange(500, 520))
    assert found.distances[:, 0].max() < 1e-8


def test_contrast_and_brightness_do_not_count() -> None:
    x, y = noise(6, 3, 16, 16), noise(40, 3, 16, 16, seed=1)
    gain = torch.rand(40, 1, 1, 1, generator=torch.Generator().manual_seed(2)) * 10 + 0.01
    plain, changed = find_neighbours(x, y), find_neighbours(x, gain * y + 2 * gain - 3)
    torch.testing.assert_close(plain.indices, changed.indices)
    torch.testing.assert_close(plain.distances, changed.distances, rtol=1e-4, atol=1e-3)
    bright = find_neighbours(x, 0.3 * x + 5)
    assert bright.distances[:, 0].max() < 1e-3


def test_near_copies_are_ranked_by_their_true_distance() -> None:
    """Float32 correlations of these are all 1.0000; their distances differ by factors of four."""
    x = noise(3, 3, 32, 32)
    error = noise(1, 3, 32, 32, seed=1)[0]
    pool = torch.cat([x + 1e-4 * 2.0**k * error for k in (3, 1, 2, 0)])
    found = find_neighbours(x, pool, keep=4)
    expected, order = eq16(x, pool).sort(dim=1)
    torch.testing.assert_close(found.indices, order[:, :4])
    torch.testing.assert_close(found.distances.double(), expected[:, :4], rtol=1e-2, atol=0)


def test_permuting_candidates_changes_only_their_names() -> None:
    x, y = noise(7, 3, 12, 12), noise(2500, 3, 12, 12, seed=1)
    order = torch.randperm(2500, generator=torch.Generator().manual_seed(2))
    plain, shuffled = find_neighbours(x, y, 100), find_neighbours(x, y[order], 100)
    torch.testing.assert_close(plain.distances, shuffled.distances, rtol=0, atol=0)
    torch.testing.assert_close(order[shuffled.indices], plain.indices)


def test_duplicates_tie_exactly() -> None:
    x, y = noise(5, 3, 16, 16), noise(2000, 3, 16, 16, seed=1)
    pool = torch.cat([y, y.flip(0), y])
    found = find_neighbours(x, pool, keep=3)
    assert (found.distances == found.distances[:, :1]).all()


@pytest.mark.parametrize(("size", "side"), [(SearchSize.HALF, 12), (SearchSize.QUARTER, 6)])
def test_smaller_search_finds_the_same_image(size: SearchSize, side: int) -> None:
    x = torch.nn.functional.interpolate(noise(10, 1, 6, 6), size=25, mode="bilinear")
    pool = torch.cat([0.5 * noise(100, 1, 25, 25, seed=1), x + 0.05 * noise(10, 1, 25, 25, seed=2)])
    found = find_neighbours(x, pool, search_size=size)
    assert found.dimension == side * side
    torch.testing.assert_close(found.indices[:, 0], torch.arange(100, 110))


def test_useless_candidates_are_left_out_and_counted() -> None:
    x, y = noise(3, 1, 6, 6), noise(20, 1, 6, 6, seed=1)
    y[4, 0, 2, 2] = torch.nan
    y[5, 0, 0, 0] = torch.inf
    y[6] = 0.3
    y[7] = 0.0
    found = find_neighbours(x, y)
    assert (found.candidates, found.non_finite, found.constant, found.usable) == (20, 2, 2, 16)
    assert found.indices.shape == (3, 16)
    assert not torch.isin(found.indices, torch.tensor([4, 5, 6, 7])).any()
    assert torch.isfinite(found.distances).all()


def test_double_precision_pools() -> None:
    x, y = noise(3, 1, 6, 6), noise(20, 1, 6, 6, seed=1)
    plain = find_neighbours(x, y)
    assert torch.equal(find_neighbours(x.double(), y.double()).indices, plain.indices)


FLAT = noise(4, 1, 6, 6)
FLAT[2] = 0.25


@pytest.mark.parametrize(
    ("x", "y", "keep", "sentence"),
    [
        (noise(3, 1, 6, 6), noise(0, 1, 6, 6), 5, "0 candidates to match; run a reconstruction first"),
        (noise(0, 1, 6, 6), noise(3, 1, 6, 6), 5, "0 training images"),
        (FLAT, noise(3, 1, 6, 6), 5, r"1 training image\(s\) are constant \(zero variance\) .* index 2; remove"),
        (noise(3, 1, 6, 6), noise(3, 3, 6, 6), 5, r"one image shape, got \(3, 1, 6, 6\) and \(3, 3, 6, 6\)"),
        (noise(3, 36), noise(3, 36), 5, "must be batches"),
        (noise(3, 1, 6, 6), torch.zeros(3, 1, 6, 6), 5, "none of the 3 candidates .* 0 hold NaN .* 3 are constant"),
        (noise(3, 1, 6, 6) / 0, noise(3, 1, 6, 6), 5, "training images hold NaN"),
        (noise(3, 1, 6, 6), noise(3, 1, 6, 6), 0, "at least 1 neighbour .* got 0"),
    ],
)
def test_bad_input_gets_a_sentence(x: torch.Tensor, y: torch.Tensor, keep: int, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        find_neighbours(x, y, keep)


def test_search_too_small_for_the_image() -> None:
    with pytest.raises(InputError, match="search_size quarter leaves too little of images of 6x6"):
        find_neighbours(noise(3, 1, 6, 6), noise(3, 1, 6, 6), search_size=SearchSize.QUARTER)


def test_result_is_a_value() -> None:
    found = find_neighbours(noise(3, 1, 6, 6), noise(4, 1, 6, 6))
    assert isinstance(found, Neighbours)
    with pytest.raises(AttributeError):
        found.candidates = 3  # type: ignore[misc]
