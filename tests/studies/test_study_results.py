"""Numbers of a study: curves and their spread, claims held against made-up tables, aligned images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from recon_core.analysis.studies import (
    Measure,
    Reconstructed,
    StudyRow,
    StudyTable,
    align,
    curve,
    difference,
    differences,
    spread,
    trend,
)
from recon_core.errors import InputError
from recon_core.plots.studies import Series, StudyAxis, aligned_strips, plot_curves
from recon_core.store import RunState, RunStore
from recon_core.studies.claims import Verdict, judge, verdicts
from recon_core.studies.figures import study_figures
from recon_core.studies.findings import count_finding, error_finding, margin_finding, overview
from recon_core.studies.plan import Check, PaperClaim
from recon_core.studies.results import StudyResults, aligned, scatters, study_results
from recon_core.studies.summary import summary_lines
from tests.studies.tiny_studies import tiny_plan

LABELS = ("none", "0.1", "1")


def row(point: str, seed: int, *, reference: bool = False, panel: str = "", **numbers: Any) -> StudyRow:
    position = None if reference or point == "none" else float(point)
    known = {"of": 50, "control_mean_image": 1, "control_untrained": 2, "non_members": 0, **numbers}
    return StudyRow(f"{panel}/{point}/{seed}", panel, point, position, reference, seed, "done", "", {}, known)


def results_of(*rows: StudyRow) -> StudyResults:
    points = [{"label": label, "position": None if label == "none" else float(label)} for label in LABELS]
    plan = tiny_plan(points=points, references=[{"label": "small start"}], seeds=[0, 1])
    return StudyResults("study-1", plan, RunState.DONE, StudyTable(rows))


def decay_results(counts: dict[str, tuple[int, ...]], margin: dict[str, tuple[int, ...]] | None = None) -> StudyResults:
    rows = [
        row(point, seed, reference=point == "small start", good=good, on_margin=margin[point][seed] if margin else 40)
        for point, goods in counts.items()
        for seed, good in enumerate(goods)
    ]
    return results_of(*rows)


def test_a_spread_is_a_mean_with_students_interval() -> None:
    three = spread([10, 12, 14])
    assert three.mean == 12
    # t = 4.303 for two degrees of freedom, standard error 2 / sqrt(3)
    assert three.low == pytest.approx(12 - 4.3027 * 2 / np.sqrt(3), abs=1e-3)
    assert three.high == pytest.approx(12 + 4.3027 * 2 / np.sqrt(3), abs=1e-3)
    cut = spread([19, 20], most=20)
    assert (cut.mean, cut.high) == (19.5, 20)
    assert cut.low == pytest.approx(spread([19, 20]).low)
    assert spread([0, 1], most=20).low == 0
    one = spread([7])
    assert (one.mean, one.low, one.high) == (7, None, None)
    with pytest.raises(InputError, match="at least 1 number"):
        spread([])


def test_a_curve_follows_the_axis_whatever_finished_first() -> None:
    table = results_of(row("1", 0, good=5), row("none", 1, good=3), row("none", 0, good=1), row("0.1", 0, good=2)).table
    # The table lists cells in the plan's order; a made-up one out of order keeps the order of its rows.
    found = curve(table, "", Measure.GOOD)
    assert found is not None
    assert [point.label for point in found.points] == ["1", "none", "0.1"]
    assert found.at("none").spread.values == (3, 1)  # type: ignore[union-attr]
    assert found.best.label == "1"
    assert curve(table, "another panel", Measure.GOOD) is None
    assert curve(table, "", Measure.TEST_ERROR) is None
    frame = found.to_frame()
    assert frame.loc[frame["value"] == "none", "mean"].item() == 2


def test_an_interval_of_a_count_ends_where_counts_end() -> None:
    rows = [row("none", seed, good=good, on_margin=9) for seed, good in ((0, 49), (1, 46))]
    for measure, most in ((Measure.GOOD, 50), (Measure.SHARE, 1)):
        found = curve(results_of(*rows).table, "", measure)
        assert found is not None
        assert found.points[0].spread.high == most
    counted = curve(results_of(*rows).table, "", Measure.GOOD, shares=True)
    assert counted is not None
    assert counted.points[0].spread.high == 1


def test_share_and_explained_are_worked_out() -> None:
    one = row("1", 0, good=10, kkt_layer1=0.6)
    assert one.value(Measure.SHARE) == 0.2
    assert one.value(Measure.EXPLAINED) == pytest.approx(0.64)
    assert one.value(Measure.RESIDUAL) is None


def claim(check: Check) -> PaperClaim:
    return PaperClaim(text="said so", check=check)


def errors_of(none: tuple[float, ...], one: tuple[float, ...]) -> StudyResults:
    return results_of(
        *(row(at, seed, good=1, test_error=error) for at, errors in (("none", none), ("1", one))
          for seed, error in enumerate(errors))
    )  # fmt: skip


CLAIMS: list[tuple[Check, StudyResults, bool | None, str]] = [
    (
        Check.RISES_SOMEWHERE,
        decay_results({"none": (10, 10, 11), "0.1": (20, 21, 21), "1": (5, 5, 5), "small start": (30, 30, 31)}),
        True,
        r"1 of 2 other values have more, 1 of them significantly, .* 20.7.*at 0.1; diff.* \+10.3 .*below small start",
    ),
    (
        Check.RISES_SOMEWHERE,
        decay_results({"none": (10, 10, 11), "0.1": (7, 7, 7), "1": (5, 5, 5)}),
        False,
        r"0 of 2 other.*difference -3.33 \(",
    ),
    (Check.RISES_SOMEWHERE, decay_results({"none": (10, 12)}), None, "too few"),
    (  # More images came back of the larger training set, and a smaller share of it.
        Check.RISES_SOMEWHERE,
        results_of(
            *(
                row(at, seed, good=good, of=of)
                for at, good, of in (("none", 10, 20), ("1", 20, 100))
                for seed in (0, 1)
            ),
            row("none", 2, good=11, of=20),
        ),
        False,
        r"of 20 images \(52%, chance level 2\) at none; 0 of 1 other.*of 100 images \(20%.*difference -31.7% \(",
    ),
    (Check.RISES_SOMEWHERE, decay_results({"none": (0, 20), "0.1": (12, 14)}), None, r"difference \+3 \(-"),
    (Check.RISES_SOMEWHERE, decay_results({"none": (1,), "0.1": (40,)}), None, "one seed, so no interval"),
    (
        Check.RISES_SOMEWHERE,
        decay_results({"none": (10, 12), "0.1": (20, 22), "small start": (5, 38)}),
        True,
        "not significantly different from small start",
    ),
    (
        Check.FALLS_SOMEWHERE,
        decay_results({"none": (30, 31), "0.1": (29, 31), "1": (5, 6)}),
        True,
        r"2 of 2 other values have fewer, 1 of them significantly, the fewest 5.5 .*at 1; difference -25 \(",
    ),
    (Check.FALLS_SOMEWHERE, decay_results({"none": (5, 6), "0.1": (9, 9)}), False, "0 of 1 other values have fewer"),
    # All seeds alike: the images of one model are the trials.
    (Check.FALLS_SOMEWHERE, decay_results({"none": (9, 9), "0.1": (5, 5)}), None, r"difference -4 \(-11.5 to \+3.56\)"),
    (
        Check.RISES_SOMEWHERE,
        decay_results({"none": (35,) * 3, "0.1": (49,) * 3, "1": (36,) * 3}),
        True,
        r"1 of them significantly, the most 49 .*difference \+14 \(\+5.* to \+2",
    ),
    (Check.FALLS_SOMEWHERE, decay_results({"none": (90, 91), "0.1": (5,)}), None, "fewer than 3 seeds, so not"),
    (Check.FALLS_SOMEWHERE, decay_results({"none": (30,), "0.1": (4,)}), None, "one seed, so no interval"),
    (
        Check.MARGIN_RISES_TOO,
        decay_results({"none": (1, 1, 1), "0.1": (9, 9, 9)}, {"none": (30, 30, 31), "0.1": (45, 45, 45)}),
        True,
        "at 0.1, where the most images are reconstructed, 45.*against 30.3",
    ),
    (
        Check.MARGIN_RISES_TOO,
        decay_results({"none": (1, 1), "0.1": (9, 9)}, {"none": (30, 31), "0.1": (45, 45)}),
        None,
        "fewer than 3 seeds, so not decided",
    ),
    (
        Check.MARGIN_RISES_TOO,
        decay_results({"none": (1, 1, 1), "0.1": (9, 9, 9)}, {"none": (30, 30, 30), "0.1": (45, 45, 45)}),
        True,
        r"difference \+15 \(\+6 to \+23.1\)",
    ),
    (
        Check.MARGIN_RISES_TOO,
        decay_results({"none": (1, 1), "0.1": (9, 9)}, {"none": (45, 45), "0.1": (45, 45)}),
        None,
        "45.*against 45",
    ),
    (
        Check.MARGIN_RISES_TOO,
        decay_results({"none": (1, 1, 1), "0.1": (9, 9, 9)}, {"none": (45, 45, 46), "0.1": (40, 40, 40)}),
        False,
        r"difference -5.33 \(-",
    ),
    (Check.MARGIN_RISES_TOO, decay_results({"none": (9, 9), "0.1": (1, 1)}), None, "the question does not arise"),
    (Check.MARGIN_RISES_TOO, decay_results({"none": (9, 9)}), None, "too few"),
    (Check.GROWS, decay_results({"none": (1, 2), "0.1": (3, 4), "1": (6, 6)}), True, r"to the next \+2.25 \(\+"),
    (Check.GROWS, decay_results({"none": (1, 9), "0.1": (3, 3), "1": (9, 2)}), None, r"to the next \+0.25 \(-"),
    (Check.GROWS, decay_results({"none": (1,), "0.1": (3,), "1": (9,)}), None, "one seed"),
    (Check.GROWS, decay_results({"none": (3, 3), "0.1": (2, 2), "1": (1, 0)}), False, r"to the next -1.25 \("),
    (Check.FALLS, decay_results({"none": (3, 3), "0.1": (2, 2), "1": (1, 0)}), True, r"to the next -1.25 \("),
    (Check.FALLS, decay_results({"none": (3, 3), "0.1": (2, 2), "1": (1, 1)}), None, "all seeds alike, so not decided"),
    (Check.FALLS, decay_results({"none": (30, 31), "0.1": (1,)}), None, "fewer than 3 seeds, so not decided"),
    (Check.SHARE_FALLS, decay_results({"none": (30, 31), "0.1": (10, 10)}), True, "61.0% at none, 20.0% at 0.1"),
    (Check.SOME_EVERYWHERE, decay_results({"none": (8, 8, 9), "0.1": (49, 49, 49)}), True, "above the chance .*where"),
    (
        Check.SOME_EVERYWHERE,
        decay_results({"none": (3, 9, 9), "0.1": (9, 9, 8)}),
        None,
        "not signif.* above .* at none;",
    ),
    (Check.SOME_EVERYWHERE, decay_results({"none": (9, 9), "0.1": (9, 8)}), None, r"none, 0.1 \(fewer than 3 seeds\);"),
    (Check.SOME_EVERYWHERE, decay_results({"none": (9,), "0.1": (9,)}), None, "not signif.* above .*one seed"),
    # 3 of 50 images are few, whatever the seeds say: the exact interval of that share begins at 1.25%.
    (
        Check.SOME_EVERYWHERE,
        decay_results({"none": (3, 3, 3), "0.1": (9, 9, 8)}),
        None,
        "not signif.* above .* at none;",
    ),
    (
        Check.SOME_EVERYWHERE,
        decay_results({"none": (2, 2, 1), "0.1": (9, 9, 8)}),
        None,
        "not signif.* above the chance level at none;",
    ),
    (
        Check.SOME_EVERYWHERE,
        decay_results({"none": (0, 0, 1), "0.1": (9, 9, 8)}),
        False,
        "not above the chance level at none",
    ),
    (Check.BELOW_REFERENCE, decay_results({"none": (2, 2, 3), "small start": (9, 9, 9)}), True, "18.0% of .* small st"),
    (Check.BELOW_REFERENCE, decay_results({"none": (2, 2), "small start": (9, 8)}), None, "fewer than 3 seeds, so not"),
    (Check.BELOW_REFERENCE, decay_results({"none": (9, 9, 9), "small start": (9, 9, 9)}), None, "18.0% .*seeds alike"),
    (Check.BELOW_REFERENCE, decay_results({"none": (9, 9, 8), "small start": (2, 2, 2)}), False, "4.0% of .* small st"),
    (Check.REFERENCE_FAILS, decay_results({"none": (9,), "small start": (0, 1, 0)}), True, r"-1.67 \(.*above the cha"),
    (Check.REFERENCE_FAILS, decay_results({"none": (9,), "small start": (0, 0)}), None, "fewer than 3 seeds, so not"),
    (Check.REFERENCE_FAILS, decay_results({"none": (9,), "small start": (8, 8, 9)}), False, r"\+6.33 \(.*above the"),
    (Check.REFERENCE_FAILS, decay_results({"none": (9,), "small start": (20, 20, 20)}), False, r"\+18 \(\+11.* above"),
    (Check.REFERENCE_FAILS, decay_results({"none": (9, 9), "small start": (2, 8)}), None, "above the chance"),
    (Check.REFERENCE_FAILS, decay_results({"none": (9, 9)}), None, "too few"),
    (
        Check.TEST_ERROR_STEADY,
        errors_of(none=(0.2, 0.21, 0.2), one=(0.3, 0.3, 0.3)),
        False,
        r"from 20.3% at none to 30.0% at 1; difference \+9.7%",
    ),
    (
        Check.TEST_ERROR_STEADY,
        errors_of(none=(0.2, 0.201, 0.2), one=(0.23, 0.23, 0.23)),
        True,
        r"difference \+3.0%",
    ),
    (
        Check.TEST_ERROR_STEADY,
        errors_of(none=(0.2, 0.2, 0.2), one=(0.2, 0.2, 0.2)),
        None,
        "all seeds alike, so not decided",
    ),
    (
        Check.TEST_ERROR_STEADY,
        results_of(row("none", 0, good=1, test_error=0.2), row("1", 0, good=1, test_error=0.2)),
        None,
        "one seed",
    ),
    (Check.TEST_ERROR_STEADY, decay_results({"none": (1, 1), "1": (1, 1)}), None, "too few"),
    (
        Check.TEST_ERROR_FALLS,
        errors_of(none=(0.3, 0.3), one=(0.2, 0.21)),
        True,
        r"30.0% at none, 20.5% at 1; change from one value to the next -9.5%",
    ),
    (
        Check.TEST_ERROR_FALLS,
        errors_of(none=(0.2, 0.21), one=(0.3, 0.3)),
        False,
        r"20.5% at none, 30.0% at 1; change from one value to the next \+9.5%",
    ),
]


@pytest.mark.parametrize(("check", "results", "agrees", "sentence"), CLAIMS)
def test_claims_are_judged(check: Check, results: StudyResults, agrees: bool | None, sentence: str) -> None:
    import re

    verdict = judge(results, claim(check), "")
    assert verdict.agrees is agrees
    assert re.search(sentence, verdict.text), verdict.text
    if verdict.agrees is not None:
        assert verdict.numbers  # a verdict without numbers would be an opinion


@pytest.mark.parametrize("check", list(Check))
def test_with_one_seed_nothing_agrees(check: Check) -> None:
    rows = [
        row(point, 0, reference=point == "small start", good=good, on_margin=good, test_error=0.2, train_error=0.0)
        for point, good in (("none", 5), ("0.1", 20), ("1", 30), ("small start", 40))
    ]
    assert judge(results_of(*rows), claim(check), "").agrees is None


def test_a_difference_has_welchs_interval_and_a_trend_that_of_regression() -> None:
    first, second = [10.0, 12.0, 17.0], [3.0, 3.5, 4.0, 6.0]
    welch = stats.ttest_ind(first, second, equal_var=False).confidence_interval(0.95)
    found = difference(first, second)
    assert found.mean == pytest.approx(13 - 4.125)
    assert (found.low, found.high) == pytest.approx((welch.low, welch.high))
    assert difference([1.0], second).low is None
    slope = trend([[1.0, 3.0], [2.0, 4.0], [8.0]])
    fit = stats.linregress([0, 0, 1, 1, 2], [1, 3, 2, 4, 8])
    reach = stats.t.ppf(0.975, 3) * fit.stderr
    assert (slope.mean, slope.low, slope.high) == pytest.approx((fit.slope, fit.slope - reach, fit.slope + reach))
    assert trend([[1.0], [2.0], [3.0]]).low is None
    with pytest.raises(InputError, match="at least 2 values"):
        trend([[1.0, 2.0]])


def test_many_differences_have_dunnetts_intervals() -> None:
    """The critical value for 2 treatments and 6 degrees of freedom is 2.86 (Dunnett 1964, two-sided 5%)."""
    first, second, control = [20.0, 21.0, 22.0], [5.0, 6.0, 7.0], [10.0, 11.0, 12.0]
    found = differences([first, second], control)
    reach = 2.86 * np.sqrt(2 / 3)  # the pooled variance is 1
    assert [one.mean for one in found] == [10, -5]
    assert [one.low for one in found] == pytest.approx([10 - reach, -5 - reach], abs=0.02)
    assert [one.high for one in found] == pytest.approx([10 + reach, -5 + reach], abs=0.02)
    assert differences([first, second], control) == found  # the same every time
    assert [one.low for one in differences([[3.0], [4.0]], [1.0])] == [None, None]
    assert differences([[3.0, 3.0]], [1.0, 1.0])[0].low == 2


def test_a_count_that_only_one_window_has_is_not_decided() -> None:
    """Digits: many good ones with the 11x11 window, none with the papers' 3x3 one."""

    def verdict(other: int) -> Verdict:
        rows = [row(at, seed, good=30, other_good=other, other_chance=1) for at in ("0.1", "1") for seed in (0, 1, 2)]
        return judge(results_of(*rows), claim(Check.SOME_EVERYWHERE), "")

    assert verdict(20).agrees is True
    assert verdict(0).agrees is None
    assert "with the other SSIM window not above its chance level at 0.1, 1" in verdict(0).sentence


def test_the_chance_level_is_each_models_largest_control_on_average() -> None:
    """Of one model the mean image, 5; of the other held-out images, 4 of 25, so 8 of 50. No control alone says 6.5."""
    models = (
        row("0.1", 0, good=30, control_mean_image=5, control_untrained=0, non_members=1, non_members_of=25),
        row("0.1", 1, good=32, control_mean_image=1, control_untrained=0, non_members=4, non_members_of=25),
    )
    assert [model.chance for model in models] == [5, 8]
    results = results_of(*models)
    found = results.curve("", Measure.GOOD)
    assert found is not None
    assert found.points[0].chance == 6.5
    assert "Chance level there: 6.5 (the mean image alone 3," in count_finding(results, "")
    verdict = judge(results, claim(Check.SOME_EVERYWHERE), "")
    assert "chance level 6.5" in verdict.sentence
    assert verdict.numbers == {"above chance at 0.1": 24.5}
    nothing = StudyRow("c", "", "1", 1.0, False, 0, "done", "", {}, {"of": 50, "good": 3})
    assert nothing.chance is None


def test_every_check_is_tried() -> None:
    assert {check for check, *_ in CLAIMS} == set(Check)


def test_a_count_stands_beside_that_of_the_other_ssim_window() -> None:
    """On digits one window finds most of them and the other none."""
    other = {"other_good": 1, "other_chance": 3, "other_ssim_kind": "authors"}
    results = results_of(*(row("0.1", seed, good=30 + seed, **other) for seed in (0, 1)))
    assert count_finding(results, "").endswith("SSIM with the papers' 3x3 window counts 1 there, chance level 3.")
    assert "window" not in count_finding(decay_results({"0.1": (3, 4)}), "")


def test_findings_say_numbers_and_chance_level() -> None:
    results = decay_results({"none": (10, 12), "0.1": (20, 22), "1": (5, 5), "small start": (30, 30)})
    text = count_finding(results, "")
    assert text.startswith("The most images are reconstructed at 0.1: 21 (95% interval")
    assert "the fewest at 1: 5 (all seeds alike) of 50" in text
    assert "The best value has no more than that." in text
    assert "Chance level there: 2 (the mean image alone 1, an untrained network 2, held-out images 0)." in text
    assert margin_finding(results, "") == "40 of 50 samples sit on the margin everywhere."
    sizes = results_of(row("0.1", 0, good=10, of=20), row("1", 0, good=20, of=100, control_untrained=7))
    assert count_finding(sizes, "").startswith(
        "The largest share of images is reconstructed at 0.1: 50.0% (10 of 20); the smallest at 1: 20.0% (20 of 100)."
    )
    assert "an untrained network 10.0%" in count_finding(sizes, "")  # the best value's own, not the other one's 7
    alike = decay_results({"none": (3,), "0.1": (3,)})
    assert count_finding(alike, "").startswith("3 of 50 images are reconstructed at every value.")


def test_where_n_varies_text_and_figure_show_shares(store: RunStore) -> None:
    """200 images give more to find than 20: the larger count is the smaller share, in the sentence and in the curve."""
    results = results_of(
        row("0.1", 0, good=10, of=20, on_margin=20, control_untrained=1),
        row("1", 0, good=20, of=200, on_margin=100, control_untrained=8),
    )
    figures = {item.name: item for item in study_figures(store, results)}
    good, margin = figures["good"], figures["on-margin"]
    drawn = {trace.name: list(trace.y) for trace in good.figure.data if trace.mode == "markers"}
    assert drawn["reconstructed training images"] == [0.5, 0.1]
    assert good.figure.layout.yaxis.tickformat == ".0%"
    assert good.finding.startswith("The largest share of images is reconstructed at 0.1: 50.0% (10 of 20)")
    assert (
        "Chance level there: 5.0% (the mean image alone 5.0%, an untrained network 5.0%, held-out images 0.0%)."
        in good.finding
    )
    dotted = next(trace for trace in good.figure.data if trace.name == "control: untrained network")
    assert list(dotted.y) == [0.05, 0.04]
    assert margin.finding == "Between 50.0% of the samples (1) and 100.0% (0.1) sit on the margin."
    assert [list(trace.y) for trace in margin.figure.data if trace.mode == "markers"] == [[1.0, 0.5]]


def test_errors_and_an_empty_study_in_sentences() -> None:
    misfit = results_of(
        row("none", 0, good=4, train_error=0.0, test_error=0.25), row("1", 0, good=6, train_error=0.1, test_error=0.5)
    )
    assert error_finding(misfit, "") == (
        "Training errors remain at 1 (up to 10.0%). Images are reconstructed although the data are not fitted at 1. "
        "The test error lies between 25.0% (none) and 50.0% (1)."
    )
    assert count_finding(results_of(), "two classes") == "Two classes: no model is finished yet."


def test_images_are_aligned_by_what_they_are() -> None:
    def model(label: str, ids: list[int], ssim: list[float]) -> Reconstructed:
        n = len(ids)
        images = np.stack([np.full((1, 4, 4), identity / 10, np.float32) for identity in ids])
        return Reconstructed(label, np.array(ids), images, 1 - images, np.array(ssim), f"match-{label}-{n}")

    grid = align([model("few", [3, 5], [0.1, 0.9]), model("many", [5, 7, 3], [0.2, 0.95, np.nan])], 2, 0.4)
    assert grid.ids.tolist() == [7, 5]  # best anywhere, best first
    assert grid.originals[:, 0, 0, 0] == pytest.approx([0.7, 0.5])
    few, many = grid.rows
    assert few.present.tolist() == [False, True]
    assert many.ssim.tolist() == [0.95, 0.2]
    assert grid.good(few).tolist() == [False, True]
    assert (few.images[0] == 1.0).all()  # blank where that model never saw the image
    strips = aligned_strips(grid)
    assert [strip.label for strip in strips] == ["training images", "few", "many"]
    assert len({strip.picture.shape for strip in strips}) == 1


@pytest.mark.parametrize(
    ("scale", "values", "places"),
    [
        ("log", (("none", None), ("0.1", 0.1), ("10", 10.0)), [-1 - 1.3 * 2, -1, 1]),
        ("linear", (("2", 2.0), ("4", 4.0)), [2, 4]),
        ("category", (("a", None), ("b", None)), [0, 1]),
    ],
)
def test_values_without_a_number_stand_left_of_the_axis(scale: Any, values: Any, places: list[float]) -> None:
    assert StudyAxis("x", scale, values).ticks()[0] == pytest.approx(places)


# -- a real one ------------------------------------------------------------------------------------


def test_a_study_run_is_read_back_with_everything_a_page_shows(done_study: tuple[RunStore, str]) -> None:
    store, run_id = done_study
    results = study_results(store, run_id)
    assert results.complete
    assert overview(results) == "6 of 6 models, each trained on 10 images; 2 seeds of each."
    shown = {item.name: item for item in study_figures(store, results)}
    assert list(shown) == ["good", "on-margin", "errors", "scatter", "images", "models"]
    assert all(item.finding for item in shown.values())
    # Every mark of the first figure leads to a cell of the table.
    cells = {row.cell for row in results.table.rows}
    figure = shown["good"].figure
    assert figure is not None
    marked = [mark[0] for trace in figure.data if trace.customdata is not None for mark in trace.customdata]
    assert set(marked) <= cells
    assert {results.row(cell).point for cell in marked} == {"none", "0.001", "small start"}
    assert len(shown["images"].strips) == 1 + 3
    good = results.curve("", Measure.GOOD)
    assert good is not None
    assert [len(point.spread.values) for point in good.points] == [2, 2]
    lines = summary_lines(store, run_id)
    assert sum(line.startswith("claim: ") for line in lines) == 2
    assert len(verdicts(results)) == 2
    with pytest.raises(InputError, match="has no model 'nowhere'"):
        results.row("nowhere")


def test_pictures_of_deleted_runs_are_left_out_and_named(done_study: tuple[RunStore, str], store: RunStore) -> None:
    import shutil

    finished, run_id = done_study
    shutil.copytree(finished.root, store.root)
    results = study_results(store, run_id)
    store.delete(results.row("/none/0").runs["match"])
    found = scatters(store, results, "")
    assert found.missing == ("none",)
    assert len(found.found) == 2
    grid = aligned(store, results, "")
    assert grid is not None
    assert [row.label for row in grid.rows] == ["0.001", "small start"]
    assert results.row("/none/0").numbers["good"] >= 0
    shown = {item.name: item.finding for item in study_figures(store, results)}
    assert "their runs are gone: none" in shown["scatter"]


def test_other_runs_are_no_studies(done_study: tuple[RunStore, str]) -> None:
    store, run_id = done_study
    trained = study_results(store, run_id).table.rows[0].runs["train"]
    with pytest.raises(InputError, match="is a train run; choose a study"):
        study_results(store, trained)


def test_long_labels_are_broken_into_lines_above_the_legend() -> None:
    def drawn(names: list[str]) -> Any:
        axis = StudyAxis("how it was trained", "category", tuple((name, None) for name in names))
        models = tuple(
            StudyRow(name, "", name, None, False, 0, "done", "", {}, {"good": 3, "of": 50}) for name in names
        )
        found = curve(StudyTable(models), "", Measure.GOOD)
        assert found is not None
        return plot_curves("Title", "caption", "good", axis, [Series("images", found)]).layout

    short, long = drawn(["none", "10^4 epochs"]), drawn(["none", "standard start, <50> images"])
    assert list(short.xaxis.ticktext) == ["none", "10^4 epochs"]
    assert list(long.xaxis.ticktext) == ["none", "standard<br>start, &lt;50&gt;<br>images"]
    assert (short.xaxis.tickangle, long.xaxis.tickangle) == (0, 0)
    assert long.legend.y < short.legend.y
    assert long.height - long.margin.b == short.height - short.margin.b  # the plot itself is as large
    many = drawn([f"a defence with a long name {number}" for number in range(8)])
    assert many.xaxis.tickangle == -40
    assert many.legend.y < short.legend.y
