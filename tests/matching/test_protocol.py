"""Both papers' protocols on pools whose right answer is planted or written out longhand."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recon_core.config import parse_config
from recon_core.errors import InputError
from recon_core.matching import merging
from recon_core.matching.assignment import Assignment
from recon_core.matching.merging import Vote
from recon_core.matching.neighbours import SearchSize
from recon_core.matching.protocol import (
    Matching,
    MatchSettings,
    Protocol,
    match,
    neighbours_for,
    neighbours_kept,
    prepare,
)
from recon_core.matching.scaling import stretch
from recon_core.matching.ssim import SsimKind, ssim


def pictures(count: int, *shape: int, seed: int = 0) -> torch.Tensor:
    """Smooth images that fill [0, 1], as the protocols' stretch expects."""
    coarse = torch.rand(count, shape[0], 5, 5, generator=torch.Generator().manual_seed(seed))
    return stretch(torch.nn.functional.interpolate(coarse, size=shape[1:], mode="bicubic"))


def noise(count: int, *shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(seed))


SHAPE = (3, 16, 16)
IMAGES = pictures(12, *SHAPE)
MEAN = IMAGES.mean(dim=0)
X = IMAGES - MEAN
# For every training image but the last two some copies, the third noisier than the first.
POOL = torch.cat([X[:10] + level * noise(10, *SHAPE, seed=k) for k, level in enumerate((0.05, 0.06, 0.2))])
POOL = torch.cat([POOL, 0.3 * noise(170, *SHAPE, seed=9)])


def longhand(x: torch.Tensor, mean: torch.Tensor, pool: torch.Tensor, merge_factor: float) -> list[torch.Tensor]:
    """Buzaglo et al. 2023, App. A, step by step for each training image: the candidates it merges."""
    merged = []
    for image in x.double().flatten(1):
        flat = pool.double().flatten(1)
        a = (image - image.mean()) / image.std()
        b = (flat - flat.mean(1, keepdim=True)) / flat.std(1, keepdim=True)
        distance, order = (a - b).square().sum(1).sort()
        merged.append(order[distance <= merge_factor * distance[0]])
    return merged


@pytest.mark.parametrize("merge_factor", [1.0, 1.1, 1.5, 3.0])
@pytest.mark.parametrize("kind", list(SsimKind))
def test_buzaglo_longhand(merge_factor: float, kind: SsimKind) -> None:
    matching = match(X, MEAN, POOL, MatchSettings(merge_factor=merge_factor, ssim=kind))
    for i, chosen in enumerate(longhand(X, MEAN, POOL, merge_factor)):
        assert matching.merged(i).tolist() == chosen.tolist()
        assert matching.merged_counts[i] == len(chosen)
        assert matching.nearest[i] == chosen[0]
        expected = stretch((POOL[chosen].mean(0) + MEAN)[None])
        torch.testing.assert_close(matching.reconstructions[i], expected[0], atol=1e-5, rtol=0)
        torch.testing.assert_close(matching.ssim[i], ssim(IMAGES[i : i + 1], expected, kind)[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(matching.images, IMAGES)
    assert not matching.capped.any()


@pytest.mark.parametrize("step", [1, 3, 64])
def test_running_sums_do_not_show(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "SHORTEST_STEP", step)
    monkeypatch.setattr(merging, "MOST_STEPS", 200)
    for protocol in Protocol:
        prepared = prepare(X, MEAN, POOL, MatchSettings(protocol=protocol, ncc_share=0.05))
        assert prepared.stack.step == step
        for merge_factor in (1.0, 1.3, 2.0, 8.0):
            matching = prepared.merge(merge_factor)
            for i in range(len(X)):
                images = POOL[matching.merged(i)] + MEAN
                if protocol is Protocol.BUZAGLO:
                    expected = stretch(images.mean(0, keepdim=True))[0]
                else:
                    expected = stretch(images).mean(0)
                torch.testing.assert_close(matching.reconstructions[i], expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("protocol", list(Protocol))
def test_a_candidate_equal_to_a_training_image(protocol: Protocol) -> None:
    matching = match(X, MEAN, torch.cat([POOL, X]), MatchSettings(protocol=protocol, merge_factor=1, ncc_share=1))
    torch.testing.assert_close(matching.ssim, torch.ones(12), atol=1e-4, rtol=0)
    assert matching.distances.max() < 1e-6
    assert matching.nearest.tolist() == list(range(200, 212))
    assert matching.good(0.99) == matching.unique_good(0.99) == 12


def test_contrast_and_brightness_of_a_candidate() -> None:
    """With a flat mean the stretch undoes what the search does not see."""
    flat = torch.full(SHAPE, 0.5)
    x = IMAGES - flat
    plain = match(x, flat, POOL, MatchSettings(merge_factor=1))
    gain = torch.rand(len(POOL), 1, 1, 1, generator=torch.Generator().manual_seed(3)) + 0.5
    changed = match(x, flat, gain * POOL - 0.2 * gain, MatchSettings(merge_factor=1))
    torch.testing.assert_close(plain.nearest, changed.nearest)
    torch.testing.assert_close(plain.ssim, changed.ssim, atol=1e-4, rtol=0)
    torch.testing.assert_close(plain.distances, changed.distances, atol=1e-2, rtol=1e-4)


def test_merge_factor_one_merges_one_save_for_ties() -> None:
    assert (match(X, MEAN, POOL, MatchSettings(merge_factor=1)).merged_counts == 1).all()
    tied = match(X, MEAN, torch.cat([POOL, POOL.flip(0)]), MatchSettings(merge_factor=1))
    assert (tied.merged_counts == 2).all()
    for i in range(len(X)):
        one, other = sorted(tied.merged(i).tolist())
        assert other == 399 - one  # its mirror image in the flipped half


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    pool_size=st.integers(1, 150),
    factors=st.lists(st.floats(1.0, 4.0), min_size=2, max_size=4).map(sorted),
    cap=st.one_of(st.none(), st.integers(1, 150)),
    assignment=st.sampled_from([Assignment.FREE, Assignment.EXCLUSIVE]),
)
def test_growing_the_merge_factor_never_shrinks(seed, pool_size, factors, cap, assignment) -> None:
    x, mean = X[:4], MEAN
    pool = 0.3 * noise(pool_size, *SHAPE, seed=seed) + X[torch.arange(pool_size) % 12] * (seed % 7) / 7
    prepared = prepare(x, mean, pool, MatchSettings(max_merged=cap, assignment=assignment))
    results = [prepared.merge(factor) for factor in factors]
    for smaller, larger in pairwise(results):
        assert (larger.merged_counts >= smaller.merged_counts).all()
        for i in range(4):
            assert larger.merged(i)[: len(smaller.merged(i))].tolist() == smaller.merged(i).tolist()
    if assignment is Assignment.FREE:
        assert (results[0].merged_counts >= 1).all()
    assert results[-1].merged_counts.max() <= min(cap or pool_size, pool_size)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), merge_factor=st.floats(1.0, 3.0), protocol=st.sampled_from(list(Protocol)))
def test_permuting_candidates_changes_nothing(seed: int, merge_factor: float, protocol: Protocol) -> None:
    order = torch.randperm(len(POOL), generator=torch.Generator().manual_seed(seed))
    chosen = MatchSettings(protocol=protocol, merge_factor=merge_factor)
    plain, shuffled = match(X, MEAN, POOL, chosen), match(X, MEAN, POOL[order], chosen)
    torch.testing.assert_close(plain.ssim, shuffled.ssim, atol=1e-5, rtol=0)
    torch.testing.assert_close(plain.merged_counts, shuffled.merged_counts)
    torch.testing.assert_close(plain.distances, shuffled.distances, atol=0, rtol=0)
    torch.testing.assert_close(order[shuffled.merged_indices], plain.merged_indices)
    torch.testing.assert_close(plain.reconstructions, shuffled.reconstructions, atol=1e-5, rtol=0)


def test_merging_noisy_copies_helps() -> None:
    copies = X[:1] + 0.15 * noise(20, *SHAPE)
    alone = match(X[:1], MEAN, copies, MatchSettings(merge_factor=1))
    merged = match(X[:1], MEAN, copies, MatchSettings(merge_factor=1.5))
    assert merged.merged_counts[0] == 20
    assert merged.ssim[0] > alone.ssim[0] + 0.05


def test_haim_longhand() -> None:
    matching = match(X, MEAN, POOL, MatchSettings(protocol="haim"))
    for i in range(len(X)):
        scores = torch.corrcoef(torch.cat([X[i : i + 1], POOL]).flatten(1).double())[0, 1:]
        chosen = (scores > 0.9 * scores.max()).nonzero().flatten()
        assert set(matching.merged(i).tolist()) == set(chosen.tolist())
        expected = stretch(POOL[chosen] + MEAN).mean(0)
        torch.testing.assert_close(matching.reconstructions[i], expected, atol=1e-5, rtol=0)


def test_haim_takes_the_best_even_if_all_anticorrelate() -> None:
    matching = match(X[:1], MEAN, torch.cat([-X[:1], -X[:1] + 0.3 * noise(1, *SHAPE)]), MatchSettings(protocol="haim"))
    assert matching.merged(0).tolist() == [1]


@pytest.mark.parametrize("protocol", list(Protocol))
def test_votes(protocol: Protocol) -> None:
    """Four copies, one of them with a bad pixel: the mean shows it, the median does not, the best is one of them."""
    copies = X[:1] + 0.02 * noise(4, *SHAPE)
    copies[3, 0, 4, 4] += 0.8
    images = copies + MEAN if protocol is Protocol.BUZAGLO else stretch(copies + MEAN)
    results = {
        vote: match(X[:1], MEAN, copies, MatchSettings(protocol=protocol, merge_factor=50, ncc_share=0.5, vote=vote))
        for vote in Vote
    }
    finish = stretch if protocol is Protocol.BUZAGLO else torch.Tensor.clone
    expected = {
        Vote.MEAN: images.mean(0, keepdim=True),
        Vote.MEDIAN: images.median(0, keepdim=True).values,
        Vote.BEST: images[results[Vote.BEST].nearest],
    }
    for vote, matching in results.items():
        torch.testing.assert_close(matching.reconstructions, finish(expected[vote]), atol=1e-5, rtol=0)
        assert matching.merged_counts.tolist() == [1 if vote is Vote.BEST else 4]


def test_median_of_many_rows_of_unlike_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "MEDIAN_VALUES", 40 * X[0].numel())  # several rows at a time, not all
    matching = match(X, MEAN, POOL, MatchSettings(vote="median", merge_factor=1.4))
    assert len(torch.unique(matching.merged_counts)) > 2
    for i in range(len(X)):
        expected = stretch((POOL[matching.merged(i)] + MEAN).median(0, keepdim=True).values)[0]
        torch.testing.assert_close(matching.reconstructions[i], expected, atol=1e-6, rtol=0)


def test_the_limit_is_kept_and_told() -> None:
    free = match(X, MEAN, POOL, MatchSettings(merge_factor=1.5))
    limited = match(X, MEAN, POOL, MatchSettings(merge_factor=1.5, max_merged=7))
    crowded = free.merged_counts >= 7
    assert crowded.any()
    assert not crowded.all()
    assert limited.capped.tolist() == crowded.tolist()
    assert limited.merged_counts.tolist() == free.merged_counts.clamp(max=7).tolist()
    assert limited.merged(11).tolist() == free.merged(11)[:7].tolist()
    whole = match(X, MEAN, POOL, MatchSettings(merge_factor=100, max_merged=len(POOL)))
    assert not whole.capped.any()
    assert (whole.merged_counts == len(POOL)).all()


def test_how_many_neighbours_are_kept() -> None:
    """Without a limit of one's own: as many as a slider can afford, never fewer than 1,000."""
    assert neighbours_kept(torch.empty(500, 3, 32, 32), MatchSettings()) == 1398
    assert neighbours_kept(torch.empty(5000, 3, 32, 32), MatchSettings()) == 1000
    assert neighbours_kept(X, MatchSettings(max_merged=3)) == 3
    assert neighbours_kept(X, MatchSettings(max_merged=3, assignment="one-to-one")) == 12


def test_neighbours_found_before_give_the_same() -> None:
    chosen = MatchSettings()
    found = neighbours_for(X, POOL, chosen)
    again = prepare(X, MEAN, POOL, chosen, found).merge()
    assert torch.equal(again.ssim, match(X, MEAN, POOL, chosen).ssim)
    with pytest.raises(InputError, match="belong to 12 training images and 200 candidates, got 12 and 199"):
        prepare(X, MEAN, POOL[1:], chosen, found)


@pytest.mark.parametrize("size", list(SearchSize))
def test_search_size_changes_the_search_only(size: SearchSize) -> None:
    matching = match(X, MEAN, POOL, MatchSettings(search_size=size, merge_factor=1))
    assert (matching.nearest[:10] % 10).tolist() == list(range(10))
    assert matching.reconstructions.shape == IMAGES.shape
    assert matching.good(0.4) >= 10


def test_bad_candidates_are_counted_and_never_merged() -> None:
    pool = POOL.clone()
    pool[3] = torch.nan
    pool[4] = 0.1
    matching = match(X, MEAN, pool, MatchSettings(merge_factor=100))
    assert (matching.candidates, matching.non_finite, matching.constant) == (200, 1, 1)
    assert (matching.merged_counts == 198).all()
    assert torch.isfinite(matching.reconstructions).all()


def test_double_precision_pool() -> None:
    single, double = (match(X, MEAN, pool, MatchSettings(merge_factor=1.3)) for pool in (POOL, POOL.double()))
    torch.testing.assert_close(single.ssim, double.ssim, atol=1e-5, rtol=0)


def scored(scores: list[float], nearest: list[int]) -> Matching:
    count = len(scores)
    blank = torch.zeros(count, 1, 11, 11)
    return Matching(
        settings=MatchSettings(),
        images=blank,
        reconstructions=blank,
        ssim=torch.tensor(scores),
        merged_counts=torch.ones(count, dtype=torch.int64),
        merged_indices=torch.tensor(nearest),
        nearest=torch.tensor(nearest),
        distances=torch.ones(count),
        capped=torch.zeros(count, dtype=torch.bool),
        candidates=10,
        non_finite=0,
        constant=0,
    )


def test_counts_are_above_the_threshold() -> None:
    matching = scored([0.4, 0.41, 0.9, math.nan, -0.2], [1, 2, 2, -1, 5])
    assert [matching.good(t) for t in (-1, 0.0, 0.4, 0.41, 1)] == [4, 3, 2, 1, 0]
    assert [matching.unique_good(t) for t in (-1, 0.0, 0.4)] == [3, 2, 1]
    with pytest.raises(InputError, match=r"threshold must lie in \[-1, 1\], got 1.4; the papers use 0.4"):
        matching.good(1.4)
    with pytest.raises(InputError, match="threshold"):
        matching.unique_good(math.nan)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"merge_factor": 0.9}, r"merge_factor \(B\) must be at least 1, got 0.9"),
        ({"merge_factor": math.nan}, "merge_factor .* got nan"),
        ({"merge_factor": math.inf}, "merge_factor .* got inf"),
        ({"ncc_share": 0.0}, "ncc_share must be above 0 and at most 1, got 0.0"),
        ({"max_merged": 0}, "max_merged must be at least 1, got 0"),
        ({"protocol": "ours"}, "protocol must be 'buzaglo' or 'haim', got 'ours'"),
        ({"vote": "mode"}, "vote must be 'mean', 'median' or 'best', got 'mode'"),
        ({"assignment": "greedy"}, "assignment must be 'free', 'exclusive' or 'one-to-one', got 'greedy'"),
    ],
)
def test_bad_settings_get_a_sentence(values: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        parse_config(MatchSettings, values)


@pytest.mark.parametrize(
    ("x", "mean", "pool", "sentence"),
    [
        (X, MEAN[:, :8], POOL, r"mean image must have the images' shape \(3, 16, 16\), got \(3, 8, 16\)"),
        (X + MEAN, MEAN, POOL, r"must lie in \[0, 1\], got .* pass centred images"),
        (X, MEAN, POOL[:, :1], "choose runs on the same data"),
        (X, MEAN, POOL[:0], "0 candidates"),
        (X, MEAN, (POOL > 0).long(), "candidates must be floats, got torch.int64"),
    ],
)
def test_bad_input_gets_a_sentence(x, mean, pool, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        match(x, mean, pool, MatchSettings())


def test_a_merge_asked_for_less_than_the_nearest() -> None:
    with pytest.raises(InputError, match="merge_factor"):
        prepare(X, MEAN, POOL, MatchSettings()).merge(0.5)
