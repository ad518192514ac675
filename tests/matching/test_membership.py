"""Membership tests: rates with intervals that are what they say they are."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

from recon_core.errors import InputError
from recon_core.matching.membership import auc_interval, exact_interval, membership_test, more_than_chance


def test_exact_interval_is_that_of_clopper_and_pearson() -> None:
    for hits, of in ((0, 10), (3, 10), (10, 10), (7, 250)):
        expected = stats.binomtest(hits, of).proportion_ci(0.95, method="exact")
        assert exact_interval(hits, of) == pytest.approx((expected.low, expected.high))
    with pytest.raises(InputError, match=r"got 3 of 2"):
        exact_interval(3, 2)


def test_perfect_score_is_still_uncertain() -> None:
    test = membership_test(torch.ones(20) + 1, torch.zeros(200))
    assert test.auc == 1
    assert test.auc_interval.high == pytest.approx(1)
    assert 0.8 < test.auc_interval.low < 0.999
    first, second = test.at
    assert (first.rate, first.interval.high, first.resolved) == (1, 1, True)
    assert first.interval.low == pytest.approx(0.025 ** (1 / 20))
    assert not second.resolved  # 200 others cannot show one in a thousand
    assert second.false_positives_high == pytest.approx(1 - 0.025 ** (1 / 200))


def test_useless_score_has_an_interval_around_one_half() -> None:
    generator = torch.Generator().manual_seed(0)
    test = membership_test(torch.rand(100, generator=generator), torch.rand(1000, generator=generator))
    assert test.auc_interval.low < 0.5 < test.auc_interval.high
    assert test.auc_interval.high - test.auc_interval.low < 0.15
    assert test.at[0].rate < 0.1


def test_interval_of_the_auc_covers_the_truth_as_often_as_it_says() -> None:
    """Two normal distributions one standard deviation apart: AUC = Phi(1 / sqrt 2)."""
    generator = torch.Generator().manual_seed(1)
    truth = float(stats.norm.cdf(1 / math.sqrt(2)))
    inside = 0
    for _ in range(300):
        test = membership_test(torch.randn(40, generator=generator) + 1, torch.randn(60, generator=generator))
        inside += test.auc_interval.low <= truth <= test.auc_interval.high
    assert 0.92 <= inside / 300 <= 0.99


def test_rate_is_taken_at_a_threshold_that_lets_few_others_through() -> None:
    others = torch.arange(1000.0)
    members = torch.tensor([500.0, 989.5, 998.5, 2000.0])
    test = membership_test(members, others)
    assert [at.rate for at in test.at] == [0.75, 0.5]  # ten others may pass, then one


def test_interval_shrinks_with_numbers() -> None:
    few, many = auc_interval(0.8, 10, 10), auc_interval(0.8, 1000, 1000)
    assert few.low < many.low < 0.8 < many.high < few.high


def test_chance_explains_equal_shares_only() -> None:
    assert more_than_chance(20, 50, 0, 100) < 1e-6
    assert more_than_chance(1, 50, 2, 100) > 0.5
