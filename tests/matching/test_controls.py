"""Chance levels, membership and intervals whose values are known beforehand."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from recon_core.errors import InputError
from recon_core.matching.controls import (
    Evidence,
    LeakCount,
    WindowCount,
    chance_level,
    over_seeds,
    score_mean_image,
    score_mean_image_other,
)
from recon_core.matching.protocol import MatchSettings, match
from recon_core.matching.roc import roc
from recon_core.matching.scaling import stretch
from recon_core.matching.ssim import SsimKind

SHAPE = (1, 16, 16)


def pictures(count: int, seed: int) -> torch.Tensor:
    coarse = torch.rand(count, 1, 5, 5, generator=torch.Generator().manual_seed(seed))
    return stretch(torch.nn.functional.interpolate(coarse, size=SHAPE[1:], mode="bicubic"))


MEMBERS, STRANGERS = pictures(10, 0), pictures(10, 1)
MEAN = MEMBERS.mean(dim=0)
SETTINGS = MatchSettings(merge_factor=1.0)
LEAKED = MEMBERS[:6] - MEAN  # six of ten training images, exactly


def evidence() -> Evidence:
    matching = match(MEMBERS - MEAN, MEAN, LEAKED, SETTINGS)
    noise = torch.randn(6, *SHAPE, generator=torch.Generator().manual_seed(2))
    return Evidence(
        matching=matching,
        mean_image=score_mean_image(matching.images, MEAN),
        untrained=match(MEMBERS - MEAN, MEAN, noise, SETTINGS),
        non_members=match(STRANGERS - MEAN, MEAN, LEAKED, SETTINGS),
    )


def test_a_count_comes_with_its_controls() -> None:
    count = evidence().at(0.9)
    assert (count.good, count.unique, count.of) == (6, 6, 10)
    assert (count.control_mean_image, count.control_untrained, count.non_members, count.non_members_of) == (0, 0, 0, 10)
    assert (count.threshold, count.merge_factor, count.ssim_kind) == (0.9, 1.0, SsimKind.WANG)
    assert (count.capped, count.candidates, count.untrained_candidates) == (0, 6, 6)
    assert evidence().at(-1).control_mean_image == 10


@pytest.mark.parametrize("kind", list(SsimKind))
@pytest.mark.parametrize("threshold", [0.2, 0.4, 0.9])
def test_the_other_window_counts_as_if_it_had_been_asked_for(kind: SsimKind, threshold: float) -> None:
    """Digits have many good reconstructions with one window and none with the other, so both are always there."""

    def counted(kind: SsimKind) -> LeakCount:
        settings = MatchSettings(merge_factor=1.0, ssim=kind)
        matching = match(MEMBERS - MEAN, MEAN, STRANGERS[:6] - MEAN, settings)
        others = match(STRANGERS - MEAN, MEAN, STRANGERS[:6] - MEAN, settings)
        own = score_mean_image(matching.images, MEAN, kind)
        beside = score_mean_image_other(matching.images, MEAN, kind)
        return Evidence(matching, own, None, others, beside).at(threshold)

    beside, asked = counted(kind).other, counted(kind.other)
    assert beside == WindowCount(kind.other, asked.good, asked.chance)
    assert str(beside) == f"{asked.good} with the {kind.other.window} (chance level {asked.chance})"


def test_images_too_small_for_a_window_have_no_second_count() -> None:
    images = torch.rand(4, 1, 6, 6, generator=torch.Generator().manual_seed(3))
    mean = images.mean(dim=0)
    matching = match(images - mean, mean, images - mean, MatchSettings(ssim=SsimKind.AUTHORS))
    assert matching.other_ssim is None
    assert score_mean_image_other(matching.images, mean, SsimKind.AUTHORS) is None
    assert Evidence(matching, score_mean_image(matching.images, mean, SsimKind.AUTHORS)).at(0.4).other is None


def test_controls_not_run_are_none() -> None:
    whole = evidence()
    count = Evidence(whole.matching, whole.mean_image).at(0.4)
    assert (count.control_untrained, count.non_members, count.non_members_of, count.untrained_candidates) == (None,) * 4
    with pytest.raises(InputError, match="needs non-members"):
        Evidence(whole.matching, whole.mean_image).membership()


def test_membership_of_exact_copies() -> None:
    curve = evidence().membership()
    assert curve.true_positive_rate_at(0.01) >= 0.6
    assert curve.auc > 0.8


def test_the_mean_image_is_what_a_candidate_of_nothing_gives() -> None:
    """A candidate too faint to show adds the mean image and nothing else."""
    faint = 1e-7 * torch.randn(1, *SHAPE, generator=torch.Generator().manual_seed(3))
    matching = match(MEMBERS - MEAN, MEAN, faint, SETTINGS)
    torch.testing.assert_close(matching.ssim, score_mean_image(MEMBERS, MEAN), atol=1e-4, rtol=0)


def test_the_mean_image_matches_itself() -> None:
    own = stretch(MEAN[None])
    assert score_mean_image(own, MEAN)[0] == pytest.approx(1, abs=1e-5)


def test_controls_must_be_matched_alike() -> None:
    whole = evidence()
    other = match(STRANGERS - MEAN, MEAN, LEAKED, MatchSettings(merge_factor=1.5))
    with pytest.raises(InputError, match=r"the non-member control .* same settings"):
        Evidence(whole.matching, whole.mean_image, non_members=other)
    with pytest.raises(InputError, match="scored on 3 images, the count is of 10"):
        Evidence(whole.matching, whole.mean_image[:3])
    with pytest.raises(InputError, match="untrained control matched 4 training images"):
        Evidence(whole.matching, whole.mean_image, untrained=match(MEMBERS[:4] - MEAN, MEAN, LEAKED, SETTINGS))
    with pytest.raises(InputError, match=r"threshold must lie in \[-1, 1\], got 2"):
        whole.at(2)


def test_roc_known_curve() -> None:
    curve = roc(torch.tensor([0.9, 0.8, 0.3]), torch.tensor([0.7, 0.2]))
    assert curve.thresholds.tolist() == pytest.approx([math.inf, 0.9, 0.8, 0.7, 0.3, 0.2])
    assert curve.true_positive_rates.tolist() == pytest.approx([0, 1 / 3, 2 / 3, 2 / 3, 1, 1])
    assert curve.false_positive_rates.tolist() == pytest.approx([0, 0, 0, 0.5, 0.5, 1])
    assert curve.auc == pytest.approx(5 / 6)
    assert curve.true_positive_rate_at(0.01) == pytest.approx(2 / 3)
    assert curve.true_positive_rate_at(0.5) == pytest.approx(1)


def test_roc_extremes() -> None:
    low, high = torch.linspace(0, 0.4, 30), torch.linspace(0.5, 1, 20)
    assert roc(high, low).auc == 1
    assert roc(high, low).true_positive_rate_at(0.01) == 1
    assert roc(low, high).auc == 0
    assert roc(low, high).true_positive_rate_at(0.01) == 0


def test_roc_ties_count_half_and_fall_together() -> None:
    same = torch.full((8,), 0.5)
    curve = roc(same, same)
    assert curve.auc == 0.5
    assert curve.true_positive_rate_at(0.01) == 0
    assert len(curve.thresholds) == 2
    assert roc(torch.tensor([0.5, 1.0]), torch.tensor([0.5, 0.0])).auc == pytest.approx(7 / 8)


def test_roc_one_percent_of_a_hundred_is_one() -> None:
    strangers = torch.linspace(0, 1, 100)
    members = torch.tensor([1.5, 0.995, 0.985, 0.1])
    assert roc(members, strangers).true_positive_rate_at(0.01) == 0.5
    assert roc(members, strangers[:99]).true_positive_rate_at(0.01) == 0.5  # none of 99 allowed; 1.0 left with it
    assert roc(members, strangers).true_positive_rate_at(0.0) == 0.25


def test_roc_ranks_missing_scores_last() -> None:
    curve = roc(torch.tensor([math.nan, 0.6]), torch.tensor([0.5, math.nan]))
    assert curve.auc == pytest.approx((0 + 0.5 + 1 + 1) / 4)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=12), st.lists(st.integers(0, 6), min_size=1, max_size=12))
def test_auc_is_the_chance_that_a_member_wins(members: list[int], strangers: list[int]) -> None:
    wins = [(m > s) + (m == s) / 2 for m in members for s in strangers]
    curve = roc(torch.tensor(members, dtype=torch.float32), torch.tensor(strangers, dtype=torch.float32))
    assert curve.auc == pytest.approx(sum(wins) / len(wins))
    assert (curve.true_positive_rates.diff() >= 0).all()
    assert (curve.false_positive_rates[-1], curve.true_positive_rates[-1]) == (1, 1)


def test_roc_bad_input_gets_a_sentence() -> None:
    with pytest.raises(InputError, match="at least one member's and one non-member's score"):
        roc(torch.tensor([1.0]), torch.tensor([]))
    with pytest.raises(InputError, match=r"false-positive rate must lie in \[0, 1\], got 2"):
        roc(torch.tensor([1.0]), torch.tensor([0.0])).true_positive_rate_at(2)


def test_interval_over_seeds() -> None:
    """1, 2, 3: mean 2, standard error 1/sqrt(3), t(0.975, 2) = 4.302653."""
    interval = over_seeds([1, 2, 3])
    assert (interval.mean, interval.seeds, interval.confidence) == (2, 3, 0.95)
    assert interval.high - 2 == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)
    assert 2 - interval.low == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)
    alike = over_seeds([18.0, 18.0])
    assert (alike.low, alike.high) == (18, 18)
    with pytest.raises(InputError, match="at least 2 seeds, got 1"):
        over_seeds([18.0])
    with pytest.raises(InputError, match="confidence"):
        over_seeds([1.0, 2.0], confidence=95)


@pytest.mark.parametrize(
    ("controls", "level"),
    [
        ({}, 0),
        ({"mean_image": 2, "untrained": 5}, 5),
        ({"mean_image": 2, "held_out": 3, "held_out_of": 40}, 4),  # 3.75 of 50, rounded up
        ({"held_out": 0, "held_out_of": 40}, 0),
        ({"held_out": 0, "held_out_of": 0, "untrained": 1}, 1),
    ],
)
def test_the_chance_level_is_the_highest_control(controls: dict[str, int], level: int) -> None:
    named = {"mean_image": None, "untrained": None, "held_out": None, "held_out_of": None, **controls}
    assert chance_level(50, **named) == level


def test_a_count_knows_its_chance_level() -> None:
    assert evidence().at(-1).chance == 10  # the mean image matches all of them
