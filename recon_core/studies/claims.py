"""What a paper says of an experiment, held against what was measured here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from recon_core.analysis.studies import CONTROLS, CurvePoint, Measure, StudyCurve
from recon_core.studies.plan import Check, PaperClaim
from recon_core.studies.results import StudyResults

# A test error that moves by less than this hardly changes.
_STEADY = 0.05


@dataclass(frozen=True)
class Verdict:
    """`agrees` is None where too little was measured to say."""

    claim: PaperClaim
    panel: str
    agrees: bool | None
    sentence: str
    """What was found, in numbers."""

    @property
    def text(self) -> str:
        heading = {True: "Agrees", False: "Does not agree", None: "Not decided"}[self.agrees]
        place = f" ({self.panel})" if self.panel else ""
        return f"{heading}{place}: {self.sentence}"


def verdicts(results: StudyResults) -> tuple[Verdict, ...]:
    """Every claim of the study, panel by panel."""
    return tuple(judge(results, claim, panel) for claim in results.plan.claims for panel in results.panels)


def judge(results: StudyResults, claim: PaperClaim, panel: str) -> Verdict:
    good = results.curve(panel, Measure.GOOD)
    found = None if good is None else _CHECKS[claim.check](results, good)
    if found is None:
        return Verdict(claim, panel, None, "too few models are finished")
    return Verdict(claim, panel, *found)


Finding = tuple[bool | None, str]


def _rises_somewhere(results: StudyResults, good: StudyCurve) -> Finding | None:
    first = good.at(results.plan.points[0].label)
    others = [point for point in good.points if point is not first]
    if first is None or not others:
        return None
    best = max(others, key=lambda point: point.spread.mean)
    higher = [point for point in others if point.spread.mean > first.spread.mean]
    sentence = (
        f"{_count(first)} at {first.label}; {len(higher)} of {len(others)} other values have more, "
        f"the most {_count(best)} at {best.label}{_certainty(first, best)}"
    )
    for reference in good.references:
        relation = "above" if best.spread.mean > reference.spread.mean else "not above"
        sentence += f"; that is {relation} {reference.label} with {_count(reference)}"
    return bool(higher), sentence


def _margin_rises_too(results: StudyResults, good: StudyCurve) -> Finding | None:
    margin = results.curve(good.panel, Measure.ON_MARGIN)
    start = results.plan.points[0].label
    first = None if margin is None else margin.at(start)
    best = None if margin is None else margin.at(good.best.label)
    if first is None or best is None or len(good.points) < 2:
        return None
    if first is best:
        return None, f"no value raises the count above that at {start}, so the question does not arise"
    sentence = (
        f"at {best.label}, where most images are reconstructed, {best.spread} of {best.of} samples sit on the margin, "
        f"against {first.spread} at {first.label}"
    )
    return best.spread.mean > first.spread.mean, sentence


def _grows(results: StudyResults, good: StudyCurve) -> Finding | None:
    return _trend(good, rising=True)


def _falls(results: StudyResults, good: StudyCurve) -> Finding | None:
    return _trend(good, rising=False)


def _share_falls(results: StudyResults, good: StudyCurve) -> Finding | None:
    share = results.curve(good.panel, Measure.SHARE)
    return None if share is None else _trend(share, rising=False)


def _trend(curve: StudyCurve, *, rising: bool) -> Finding | None:
    """From the first value to the last, and by the signs of all pairs in between (Kendall's tau)."""
    if len(curve.points) < 2:
        return None
    means = [point.spread.mean for point in curve.points]
    pairs = [(before, after) for index, before in enumerate(means) for after in means[index + 1 :]]
    tau = sum((after > before) - (after < before) for before, after in pairs) / len(pairs)
    first, last = curve.points[0], curve.points[-1]
    show = _percent if curve.measure is Measure.SHARE else _count
    sentence = f"{show(first)} at {first.label}, {show(last)} at {last.label} (Kendall's tau {tau:+.2f})"
    ends = last.spread.mean - first.spread.mean
    return (tau > 0 and ends > 0) if rising else (tau < 0 and ends < 0), sentence


def _some_everywhere(results: StudyResults, good: StudyCurve) -> Finding | None:
    beyond = {point.label: _beyond_chance(results, good.panel, point) for point in good.points}
    none = [label for label, count in beyond.items() if count <= 0]
    shown = ", ".join(f"{point.label}: {_count(point)}" for point in good.points)
    if none:
        return False, f"not above the chance level at {', '.join(none)}; {shown}"
    return True, f"above the chance level everywhere; {shown}"


def _below_reference(results: StudyResults, good: StudyCurve) -> Finding | None:
    if not good.references:
        return None
    reference = good.references[0]
    lower = [point for point in good.points if point.spread.mean < reference.spread.mean]
    shown = ", ".join(f"{point.label}: {_count(point)}" for point in good.points)
    return len(lower) == len(good.points), f"{_count(reference)} at {reference.label}; {shown}"


def _reference_fails(results: StudyResults, good: StudyCurve) -> Finding | None:
    if not good.references:
        return None
    reference = good.references[0]
    count = _beyond_chance(results, good.panel, reference)
    return count <= 0, f"{_count(reference)} at {reference.label}, {max(0.0, count):.3g} above the chance level"


def _test_error_steady(results: StudyResults, good: StudyCurve) -> Finding | None:
    error = results.curve(good.panel, Measure.TEST_ERROR)
    if error is None or len(error.points) < 2:
        return None
    low = min(error.points, key=lambda point: point.spread.mean)
    high = max(error.points, key=lambda point: point.spread.mean)
    sentence = f"test error from {_percent(low)} at {low.label} to {_percent(high)} at {high.label}"
    return high.spread.mean - low.spread.mean < _STEADY, sentence


def _beyond_chance(results: StudyResults, panel: str, point: CurvePoint) -> float:
    """The count less its chance level: the highest of its controls."""
    controls = (results.curve(panel, measure) for measure in CONTROLS)
    known = [
        at.spread.mean for control in controls if control is not None and (at := control.at(point.label)) is not None
    ]
    return point.spread.mean - max(known, default=0.0)


def _count(point: CurvePoint) -> str:
    return f"{point.spread} of {point.of} images"


def _percent(point: CurvePoint) -> str:
    return f"{point.spread.mean:.1%}"


def _certainty(first: CurvePoint, best: CurvePoint) -> str:
    """Whether the intervals say so too. The best of many is picked, so this is the least one should ask."""
    if first.spread.high is None or best.spread.low is None:
        return " (one seed, so no interval)"
    return "" if best.spread.low > first.spread.high else " (their 95% intervals overlap)"


_CHECKS: dict[Check, Callable[[StudyResults, StudyCurve], Finding | None]] = {
    Check.RISES_SOMEWHERE: _rises_somewhere,
    Check.MARGIN_RISES_TOO: _margin_rises_too,
    Check.GROWS: _grows,
    Check.FALLS: _falls,
    Check.SHARE_FALLS: _share_falls,
    Check.SOME_EVERYWHERE: _some_everywhere,
    Check.BELOW_REFERENCE: _below_reference,
    Check.REFERENCE_FAILS: _reference_fails,
    Check.TEST_ERROR_STEADY: _test_error_steady,
}
