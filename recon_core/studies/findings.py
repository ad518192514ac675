"""What a study found, figure by figure, in sentences with numbers."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from scipy import stats

from recon_core.analysis.arrays import above
from recon_core.analysis.leakage import LeakPanel
from recon_core.analysis.studies import AlignedGrid, CurvePoint, Measure, StudyCurve
from recon_core.matching.ssim import SsimKind
from recon_core.studies.results import StudyResults

_NOTHING = "no model is finished yet."


def overview(results: StudyResults) -> str:
    """How much of the study is done."""
    rows, plan = results.table.rows, results.plan
    done = len(results.table.finished)
    sizes = sorted({int(row.numbers["of"]) for row in results.table.finished if "of" in row.numbers})
    trained = f", each trained on {_range(sizes)} images" if sizes else ""
    seeds = f"{len(plan.seeds)} seed" + ("s" if len(plan.seeds) > 1 else "")
    sentence = f"{done} of {len(rows)} models{trained}; {seeds} of each."
    failed = [row for row in rows if row.state in ("failed", "lost")]
    if failed:
        sentence += f" {len(failed)} failed: " + "; ".join(
            f"{_place(row.panel, row.point)}, seed {row.seed} ({row.message})" for row in failed[:3]
        )
        sentence += " and others." if len(failed) > 3 else "."
    return sentence


def count_finding(results: StudyResults, panel: str) -> str:
    """The count along the axis, against its chance level and its references."""
    return _sentences(panel, _count_sentences(results, panel))


def margin_finding(results: StudyResults, panel: str) -> str:
    """How many samples sit on the margin, and whether more of them means that more comes back."""
    return _sentences(panel, _margin_sentences(results, panel))


def error_finding(results: StudyResults, panel: str) -> str:
    """How well the models fit and generalise."""
    return _sentences(panel, _error_sentences(results, panel))


def _count_sentences(results: StudyResults, panel: str) -> list[str]:
    good = results.curve(panel, Measure.GOOD)
    if good is None or not good.points:
        return [_NOTHING]
    share = results.curve(panel, Measure.SHARE)
    if share is not None and results.sizes_vary(panel):
        return _share_sentences(results, panel, share)
    best, worst = good.best, min(good.points, key=lambda point: point.spread.mean)
    if best.spread.mean == worst.spread.mean:
        where = best.label if len(good.points) == 1 else "every value"
        sentences = [f"{_count(best)} images are reconstructed at {where}."]
    else:
        sentences = [
            f"the most images are reconstructed at {best.label}: {_count(best)}; the fewest at {worst.label}: "
            f"{_count(worst)}."
        ]
    if good.references:
        shown = "; ".join(f"{point.label}: {_count(point)}" for point in good.references)
        beaten = [point.label for point in good.references if best.spread.mean > point.spread.mean]
        relation = f"more than {_list(beaten)}" if beaten else "no more than that"
        sentences.append(f"For comparison: {shown}. The best value has {relation}.")
    return [*sentences, _chance_sentence(results, panel, best)]


def _share_sentences(results: StudyResults, panel: str, share: StudyCurve) -> list[str]:
    """Of models trained on different numbers of images: what share of them, since more images give more to find."""

    def said(point: CurvePoint) -> str:
        found = statistics.fmean(row.value(Measure.GOOD) or 0.0 for row in point.rows)
        return f"{point.spread.mean:.1%} ({found:.3g} of {point.of})"

    best, worst = share.best, min(share.points, key=lambda point: point.spread.mean)
    if best.spread.mean == worst.spread.mean:
        sentences = [f"{best.spread.mean:.1%} of the images are reconstructed at every value."]
    else:
        sentences = [
            f"the largest share of images is reconstructed at {best.label}: {said(best)}; the smallest at "
            f"{worst.label}: {said(worst)}."
        ]
    if share.references:
        sentences.append(
            "For comparison: " + "; ".join(f"{point.label}: {said(point)}" for point in share.references) + "."
        )
    return [*sentences, _chance_sentence(results, panel, best)]


def _margin_sentences(results: StudyResults, panel: str) -> list[str]:
    shares = results.sizes_vary(panel)
    margin = results.curve(panel, Measure.ON_MARGIN, shares=shares)
    good = results.curve(panel, Measure.GOOD, shares=shares)
    if margin is None or not margin.points:
        return [_NOTHING]
    most, least = margin.best, min(margin.points, key=lambda point: point.spread.mean)
    noun = "of the samples" if shares else "samples"
    if most.spread.mean == least.spread.mean:
        return [f"{_amount(most, shares)} {noun} sit on the margin everywhere."]
    ends = f"{_amount(least, shares)} {noun} ({least.label}) and {_amount(most, shares)} ({most.label})"
    sentences = [f"between {ends} sit on the margin."]
    subjects = ("samples on the margin", "reconstructed images")
    if shares:
        subjects = ("the share of samples on the margin", "the share of images reconstructed")
    if good is not None and len(good.points) > 2:
        pairs = [(at.spread.mean, point.spread.mean) for point in good.points if (at := margin.at(point.label))]
        sentences.append(_correlation(pairs, *subjects))
    return sentences


def _amount(point: CurvePoint, shares: bool) -> str:
    """`30.5 of 50`, or `61.0%` where models have different numbers of samples."""
    return f"{point.spread.mean:.1%}" if shares else f"{point.spread.mean:.3g} of {point.of}"


def _error_sentences(results: StudyResults, panel: str) -> list[str]:
    train, test = results.curve(panel, Measure.TRAIN_ERROR), results.curve(panel, Measure.TEST_ERROR)
    if train is None or not train.points:
        return [_NOTHING]
    misfit = [point for point in train.points if point.spread.mean > 0]
    sentences = ["every model fits its training images."]
    if misfit:
        largest = max(point.spread.mean for point in misfit)
        sentences = [f"training errors remain at {_list([point.label for point in misfit])} (up to {largest:.1%})."]
    good = results.curve(panel, Measure.GOOD)
    leaking = [point.label for point in misfit if good and (at := good.at(point.label)) and at.spread.mean >= 1]
    if leaking:
        sentences.append(f"Images are reconstructed although the data are not fitted at {_list(leaking)}.")
    if test is not None and test.points:
        low, high = (pick(test.points, key=lambda point: point.spread.mean) for pick in (min, max))
        sentences.append(
            f"The test error is {low.spread.mean:.1%} everywhere."
            if low.spread.mean == high.spread.mean
            else f"The test error lies between {low.spread.mean:.1%} ({low.label}) and "
            f"{high.spread.mean:.1%} ({high.label})."
        )
    return sentences


def scatter_finding(panels: Sequence[LeakPanel], threshold: float, missing: Sequence[str] = ()) -> str:
    """Which samples leak: those on the margin, or others too?"""
    good = [int(panel.scatter.good(threshold)) for panel in panels]
    on_margin = [int((panel.scatter.on_margin & above(panel.scatter.ssim, threshold)).sum()) for panel in panels]
    ranks = [rank for panel in panels if (rank := panel.scatter.rank_correlation) == rank]
    sentences = [
        f"Of {sum(good)} images reconstructed in these {len(panels)} models, {sum(on_margin)} sit on the margin of "
        "their model."
    ]
    if ranks:
        sentences.append(
            "The rank correlation of SSIM with the distance to the margin is "
            f"{statistics.median(ranks):+.2f} in the median over the models ({min(ranks):+.2f} to {max(ranks):+.2f}); "
            "below zero means that samples near the margin are reconstructed best."
        )
    return " ".join([*sentences, *_missing(missing)])


def aligned_finding(grid: AlignedGrid) -> str:
    counts = {row.label: int(grid.good(row).sum()) for row in grid.rows}
    best, worst = (pick(counts, key=lambda label: counts[label]) for pick in (max, min))
    many = f"{counts[best]} of these are good at {best}, {counts[worst]} at {worst}"
    if counts[best] == counts[worst]:
        many = f"{counts[best]} of these are good at every value"
    return (
        f"The {len(grid.ids)} training images with the best reconstruction anywhere, and that of each model. {many} "
        f"(SSIM above {grid.threshold:g}; framed in blue, others dashed; blank where the image was not "
        "trained on)."
    )


def kernel_finding(count: int, missing: Sequence[str] = ()) -> str:
    sentence = (
        f"First-layer kernels of {count} models, each stretched about grey. A kernel smaller than the image cannot "
        "hold a training image, so what is reconstructed from such a network was not simply stored there."
    )
    return " ".join([sentence, *_missing(missing)])


def _chance_sentence(results: StudyResults, panel: str, best: CurvePoint) -> str:
    names = {
        Measure.MEAN_IMAGE: "the mean image alone",
        Measure.UNTRAINED: "an untrained network",
        Measure.NON_MEMBERS: "held-out images",
    }
    shares = results.sizes_vary(panel)

    def said(values: list[float]) -> str:
        mean = statistics.fmean(values)
        return f"{mean:.1%}" if shares else f"{mean:.3g}"

    known: list[str] = []
    for control in results.controls(panel):
        at = control.at(best.label)
        if at is not None:
            read = (row.share(control.measure) if shares else row.value(control.measure) for row in at.rows)
            known.append(f"{names[control.measure]} {said([value for value in read if value is not None])}")
    levels = [row.chance / (row.numbers["of"] if shares else 1) for row in best.rows if row.chance is not None]
    sentence = (
        f"Chance level there: {said(levels)} ({', '.join(known)})." if levels else "No chance level was measured."
    )
    other = _other_window(best)
    return f"{sentence} {other}" if other else sentence


def _other_window(point: CurvePoint) -> str:
    """The same count with the other SSIM window: on digits and faces it can be another one altogether."""
    counted = [row.numbers for row in point.rows if "other_good" in row.numbers]
    if not counted:
        return ""
    good, chance = (statistics.fmean(row[name] for row in counted) for name in ("other_good", "other_chance"))
    window = SsimKind(counted[0]["other_ssim_kind"]).window
    return f"SSIM with the {window} counts {good:.3g} there, chance level {chance:.3g}."


def _correlation(pairs: Sequence[tuple[float, float]], first: str, second: str) -> str:
    if len(pairs) < 3 or len({a for a, _ in pairs}) < 2 or len({b for _, b in pairs}) < 2:
        return f"{first.capitalize()} and {second} do not vary enough to be compared."
    value = float(stats.spearmanr([a for a, _ in pairs], [b for _, b in pairs]).statistic)
    return f"Along the axis the rank correlation of {first} with {second} is {value:+.2f}."


def _missing(points: Sequence[str]) -> list[str]:
    return [f"Left out, because their runs are gone: {_list(list(points))}."] if points else []


def _count(point: CurvePoint) -> str:
    return f"{point.spread} of {point.of}"


def _sentences(panel: str, sentences: Sequence[str]) -> str:
    text = " ".join([*([f"{panel}:"] if panel else []), *sentences])
    return text[:1].upper() + text[1:]


def _place(panel: str, point: str) -> str:
    return ", ".join(filter(None, (panel, point)))


def _list(labels: Sequence[str]) -> str:
    return labels[0] if len(labels) == 1 else f"{', '.join(labels[:-1])} and {labels[-1]}" if labels else "none"


def _range(sizes: Sequence[int]) -> str:
    return str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
