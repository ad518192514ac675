"""Check a paper's claims against what was measured here.

One function for each kind of claim gives the sentence, the numbers in it and the verdict. A claim agrees where the 95%
interval of the number it is about says so, does not where the interval says the contrary, and else is not decided.
Intervals are Student's t over seeds: Welch's of a difference, Dunnett's of many, that of regression of a slope. Fewer
than three seeds decide nothing; slopes and Dunnett's intervals pool those of all values. Neither does an interval
without width, of seeds that all gave the same number; where a count is held against its chance level, the exact
binomial interval of one model's images then stands in for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from recon_core.analysis.studies import (
    ALIKE,
    ONE_SEED,
    CurvePoint,
    Measure,
    Spread,
    StudyCurve,
    difference,
    differences,
    spread,
    trend,
)
from recon_core.matching.membership import CONFIDENCE, exact_interval
from recon_core.studies.plan import Check, PaperClaim
from recon_core.studies.results import StudyResults

# A test error that moves by less than this hardly changes.
_STEADY = 0.05
# Fewer images than this above the chance level are none.
_NOTHING = 1.0


@dataclass(frozen=True)
class Finding:
    """`agrees` is None where the interval leaves it open; `numbers` are those in the sentence, by name."""

    agrees: bool | None
    sentence: str
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """One claim in one panel. `agrees` is None where too little was measured to say."""

    claim: PaperClaim
    panel: str
    agrees: bool | None
    sentence: str
    """What was found, in numbers."""
    numbers: Mapping[str, float] = field(default_factory=dict)

    @property
    def text(self) -> str:
        heading = {True: "Agrees", False: "Does not agree", None: "Not decided"}[self.agrees]
        place = f" ({self.panel})" if self.panel else ""
        return f"{heading}{place}: {self.sentence}"


def verdicts(results: StudyResults, further: Sequence[PaperClaim] = ()) -> tuple[Verdict, ...]:
    """Every claim of the study, panel by panel; then those of `further` that it does not check already."""
    asked = {claim.check for claim in results.plan.claims}
    claims = (*results.plan.claims, *(claim for claim in further if claim.check not in asked))
    return tuple(judge(results, claim, panel) for claim in claims for panel in results.panels)


def judge(results: StudyResults, claim: PaperClaim, panel: str) -> Verdict:
    good = results.curve(panel, Measure.GOOD)
    found = None if good is None else _CHECKS[claim.check](results, good)
    if found is None:
        return Verdict(claim, panel, None, "too few models are finished")
    return Verdict(claim, panel, found.agrees, found.sentence, found.numbers)


def _rises_somewhere(results: StudyResults, good: StudyCurve) -> Finding | None:
    return _moves_somewhere(results, good, rising=True)


def _falls_somewhere(results: StudyResults, good: StudyCurve) -> Finding | None:
    return _moves_somewhere(results, good, rising=False)


def _moves_somewhere(results: StudyResults, good: StudyCurve, *, rising: bool) -> Finding | None:
    """Any of the values will do, so all are compared with the first at once (Dunnett's intervals)."""
    good = _comparable(results, good)
    percent = good.measure is Measure.SHARE
    first = good.at(results.plan.points[0].label)
    others = [point for point in good.points if point is not first]
    if first is None or not others:
        return None
    gains = _gains(others, first, percent=percent)
    sense, (more, most) = (1, ("more", "most")) if rising else (-1, ("fewer", "fewest"))
    best, gain = max(zip(others, gains, strict=True), key=lambda pair: sense * pair[0].spread.mean)
    higher = sum(sense * (point.spread.mean - first.spread.mean) > 0 for point in others)
    surely = sum(one.sign is rising for one in gains)
    sentence = (
        f"{_count(first)} at {first.label}; {higher} of {len(others)} other values have {more}, {surely} of them "
        f"significantly, the {most} {_count(best)} at {best.label}; difference {_interval(gain, percent=percent)}, "
        "corrected for comparing them all"
    )
    numbers = {"first": first.spread.mean, "best": best.spread.mean, "higher": higher, "surely": surely}
    for reference in good.references:
        over = _gains(others, reference, percent=percent)[others.index(best)]
        relation = {True: "above", False: "below", None: "not significantly different from"}[over.sign]
        sentence += f"; that is {relation} {reference.label} with {_count(reference)}"
        numbers[f"over {reference.label}"] = over.mean
    contrary = all(one.sign is (not rising) for one in gains)
    return Finding(True if surely else False if contrary else None, sentence, {**numbers, "gain": gain.mean})


def _margin_rises_too(results: StudyResults, good: StudyCurve) -> Finding | None:
    good = _comparable(results, good)
    margin = results.curve(good.panel, Measure.ON_MARGIN)
    start = results.plan.points[0].label
    first = None if margin is None else margin.at(start)
    best = None if margin is None else margin.at(good.best.label)
    if first is None or best is None or len(good.points) < 2:
        return None
    if first is best:
        return Finding(None, f"no value raises the count above that at {start}, so the question does not arise")
    gain = _gain(best, first)
    if gain.undecided == ALIKE:
        gain = _by_images(gain, best, first)
    sentence = (
        f"at {best.label}, where the most images are reconstructed, {best.spread} of {best.of} samples sit on the "
        f"margin, against {first.spread} at {first.label}; difference {_interval(gain)}"
    )
    return Finding(gain.sign, sentence, {"first": first.spread.mean, "best": best.spread.mean, "gain": gain.mean})


def _grows(results: StudyResults, good: StudyCurve) -> Finding | None:
    return _trend(good, rising=True)


def _falls(results: StudyResults, good: StudyCurve) -> Finding | None:
    return _trend(good, rising=False)


def _share_falls(results: StudyResults, good: StudyCurve) -> Finding | None:
    share = results.curve(good.panel, Measure.SHARE)
    return None if share is None else _trend(share, rising=False)


def _trend(curve: StudyCurve, *, rising: bool) -> Finding | None:
    """The slope of a line over all models, each value of the axis one step from the next."""
    if len(curve.points) < 2:
        return None
    slope = trend([point.spread.values for point in curve.points])
    first, last = curve.points[0], curve.points[-1]
    rate = curve.measure in (Measure.SHARE, Measure.TEST_ERROR)
    show: Callable[[CurvePoint], str] = _percent if rate else _count
    sentence = (
        f"{show(first)} at {first.label}, {show(last)} at {last.label}; change from one value to the next "
        + _interval(slope, percent=rate)
    )
    upward = slope.sign
    agrees = None if upward is None else upward is rising
    return Finding(agrees, sentence, {"first": first.spread.mean, "last": last.spread.mean, "slope": slope.mean})


def _some_everywhere(results: StudyResults, good: StudyCurve) -> Finding | None:
    beyond = {point.label: _beyond_chance(point) for point in good.points}
    signs = {label: above.sign for label, above in beyond.items()}
    shown = ", ".join(f"{point.label}: {_count(point)}" for point in good.points)
    numbers = {f"above chance at {label}": above.mean for label, above in beyond.items()}
    none = [label for label, above in beyond.items() if signs[label] is False or above.surely_below(_NOTHING)]
    unsure = [label for label in beyond if signs[label] is None and label not in none]
    if none:
        return Finding(False, f"not above the chance level at {', '.join(none)}; {shown}", numbers)
    if unsure:
        reasons = ", ".join(dict.fromkeys(why for label in unsure if (why := beyond[label].undecided)))
        why = f" ({reasons})" if reasons else ""
        return Finding(None, f"not significantly above the chance level at {', '.join(unsure)}{why}; {shown}", numbers)
    if lost := [point.label for point in good.points if not _holds_with_the_other_window(point)]:
        where = f"with the other SSIM window not above its chance level at {', '.join(lost)}"
        return Finding(None, f"above the chance level everywhere, but {where}; {shown}", numbers)
    return Finding(True, f"above the chance level everywhere; {shown}", numbers)


def _below_reference(results: StudyResults, good: StudyCurve) -> Finding | None:
    """By shares: models of a study may have been trained on different numbers of images."""
    share = results.curve(good.panel, Measure.SHARE)
    if share is None or not share.references:
        return None
    reference = share.references[0]
    lacks = {point.label: _gain(reference, point) for point in share.points}
    signs = [lack.sign for lack in lacks.values()]
    shown = ", ".join(f"{point.label}: {_percent(point)}" for point in share.points)
    agrees = True if all(signs) else False if False in signs else None
    sentence = f"{_percent(reference)} of the images at {reference.label}; {shown}; differences to them " + ", ".join(
        _interval(lack, percent=True) for lack in lacks.values()
    )
    return Finding(agrees, sentence, {label: lack.mean for label, lack in lacks.items()})


def _reference_fails(results: StudyResults, good: StudyCurve) -> Finding | None:
    if not good.references:
        return None
    reference = good.references[0]
    above = _beyond_chance(reference)
    agrees = False if above.sign else True if above.surely_below(_NOTHING) else None
    sentence = f"{_count(reference)} at {reference.label}, {_interval(above)} above the chance level"
    return Finding(agrees, sentence, {"above chance": above.mean})


def _test_error_falls(results: StudyResults, good: StudyCurve) -> Finding | None:
    error = results.curve(good.panel, Measure.TEST_ERROR)
    return None if error is None else _trend(error, rising=False)


def _test_error_steady(results: StudyResults, good: StudyCurve) -> Finding | None:
    error = results.curve(good.panel, Measure.TEST_ERROR)
    if error is None or len(error.points) < 2:
        return None
    low = min(error.points, key=lambda point: point.spread.mean)
    high = max(error.points, key=lambda point: point.spread.mean)
    span = _gain(high, low)
    agrees = True if span.surely_below(_STEADY) else None
    if not span.undecided and span.low is not None and span.low >= _STEADY:
        agrees = False
    sentence = (
        f"test error from {_percent(low)} at {low.label} to {_percent(high)} at {high.label}; difference "
        f"{_interval(span, percent=True)}, steady if below {_STEADY:.0%}"
    )
    return Finding(agrees, sentence, {"low": low.spread.mean, "high": high.spread.mean, "span": span.mean})


def _beyond_chance(point: CurvePoint) -> Spread:
    """The count less its chance level, model by model."""
    goods = point.spread.values
    above = spread([good - (row.chance or 0.0) for row, good in zip(point.rows, goods, strict=True)])
    if above.undecided != ALIKE or len(set(goods)) > 1 or not point.of:
        return above
    # Of one model: others may have been trained on the same images, so more models are not more trials.
    images = exact_interval(int(goods[0]), point.of)
    chance = goods[0] - above.mean
    return replace(above, low=images.low * point.of - chance, high=images.high * point.of - chance, undecided="")


def _holds_with_the_other_window(point: CurvePoint) -> bool:
    """Whether the count is above its chance level there too, on average; so it is where nobody counted."""
    counted = [row.numbers for row in point.rows if "other_good" in row.numbers]
    return not counted or sum(row["other_good"] - row["other_chance"] for row in counted) > 0


def _gains(points: Sequence[CurvePoint], over: CurvePoint, *, percent: bool) -> list[Spread]:
    """Of each point over one, all at once."""
    found = differences([point.spread.values for point in points], over.spread.values)
    return [
        _by_images(gain, point, over, percent=percent, compared=len(points)) if gain.undecided == ALIKE else gain
        for point, gain in zip(points, found, strict=True)
    ]


def _by_images(
    gain: Spread, point: CurvePoint, over: CurvePoint, *, percent: bool = False, compared: int = 1
) -> Spread:
    """Where all seeds came to one count, the images of one model are the trials: Newcombe's interval of a difference
    of two shares (1998, method 10) upon exact ones, with Bonferroni's correction for several comparisons."""
    if not point.of or not over.of:
        return gain
    confidence = 1 - (1 - CONFIDENCE) / compared
    edges = []
    for one in (point, over):
        share = one.spread.mean if percent else one.spread.mean / one.of
        images = exact_interval(round(share * one.of), one.of, confidence)
        edges.append((share - images.low, images.high - share))
    (fall, rise), (over_fall, over_rise) = edges
    unit = 1.0 if percent else float(point.of)
    low, high = gain.mean - unit * math.hypot(fall, over_rise), gain.mean + unit * math.hypot(rise, over_fall)
    return replace(gain, low=low, high=high, undecided="")


def _gain(point: CurvePoint, over: CurvePoint) -> Spread:
    return difference(point.spread.values, over.spread.values)


def _comparable(results: StudyResults, good: StudyCurve) -> StudyCurve:
    """The counts, or the shares where models were trained on different numbers of images."""
    sizes = {row.numbers.get("of") for point in (*good.points, *good.references) for row in point.rows}
    share = results.curve(good.panel, Measure.SHARE) if len(sizes) > 1 else None
    return good if share is None else share


def _count(point: CurvePoint) -> str:
    """With the chance level of these very models, and as a share, which compares where others saw more images."""
    found = [value for row in point.rows if (value := row.value(Measure.GOOD)) is not None]
    shares = [value for row in point.rows if (value := row.value(Measure.SHARE)) is not None]
    notes = [f"{fmean(shares):.0%}"] if shares else []
    if point.chance is not None:
        notes.append(f"chance level {point.chance:.3g}")
    said = f" ({', '.join(notes)})" if notes else ""
    planar = all("of" in row.numbers and "control_mean_image" not in row.numbers for row in point.rows)
    return f"{spread(found, point.of)} of {point.of} {'points' if planar else 'images'}{said}"


def _percent(point: CurvePoint) -> str:
    return f"{point.spread.mean:.1%}"


def _interval(found: Spread, *, percent: bool = False) -> str:
    """A difference, which may be negative, with its interval."""

    def show(value: float) -> str:
        return f"{value:+.1%}" if percent else f"{value:+.3g}"

    if found.low is None or found.high is None:
        return f"{show(found.mean)} ({ONE_SEED})"
    why = f"; {found.undecided}, so not decided" if found.undecided else ""
    return f"{show(found.mean)} ({show(found.low)} to {show(found.high)}{why})"


_CHECKS: dict[Check, Callable[[StudyResults, StudyCurve], Finding | None]] = {
    Check.RISES_SOMEWHERE: _rises_somewhere,
    Check.FALLS_SOMEWHERE: _falls_somewhere,
    Check.MARGIN_RISES_TOO: _margin_rises_too,
    Check.GROWS: _grows,
    Check.FALLS: _falls,
    Check.SHARE_FALLS: _share_falls,
    Check.SOME_EVERYWHERE: _some_everywhere,
    Check.BELOW_REFERENCE: _below_reference,
    Check.REFERENCE_FAILS: _reference_fails,
    Check.TEST_ERROR_STEADY: _test_error_steady,
    Check.TEST_ERROR_FALLS: _test_error_falls,
}
