"""The report of an audit as one HTML file that needs nothing beside it and runs nothing."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterable, Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from recon_core.auditing.report import AuditReport, ImageRow, Leak, Level, Membership

PAIRS_SHOWN = 60
Pictures = NDArray[np.uint8]
"""(k, C, H, W), 0..255, in the order of the report's rows."""

_HEADLINES = {
    Level.LEAKS: "This model leaks training images",
    Level.UNCLEAR: "Unclear: what came back may be chance",
    Level.NOTHING_FOUND: "No training image came back",
}
_HOLDS = {"yes": "holds", "no": "does not hold", "unknown": "not known"}
_TESTS = {
    "loss": "Loss threshold",
    "margin": "Margin",
    "reconstruction": "Likeness to a reconstruction",
}
_COLOURS = ("#0072b2", "#d55e00", "#009e73")
_WIDTH, _HEIGHT, _EDGE = 360, 300, 44
_LEAST_RATE = 1e-3
_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; margin: 0 0 .3rem; } h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem; }
.verdict { border-left: .5rem solid #767676; background: #f5f5f5; padding: 1rem 1.2rem; }
.verdict.leaks { border-color: #b3261e; background: #fdecea; }
.verdict.unclear { border-color: #a15c00; background: #fff4e5; }
.figures { display: flex; flex-wrap: wrap; gap: 1.5rem; margin: 1.2rem 0; }
.figures div { min-width: 8rem; } .figures b { display: block; font-size: 1.6rem; }
.pairs { display: grid; grid-template-columns: repeat(auto-fill, minmax(11.5rem, 1fr)); gap: 1rem; }
figure { margin: 0; } figure img { width: 100%; image-rendering: pixelated; border: 3px solid #0072b2; }
figure.not img { border-color: #d55e00; border-style: dashed; } figcaption { font-size: .82rem; color: #444; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th, td { text-align: left; padding: .25rem .7rem .25rem 0; border-bottom: 1px solid #ddd; vertical-align: top; }
.small { color: #555; font-size: .88rem; } summary { cursor: pointer; }
"""


_GUIDE = """<details open><summary>How to read these figures</summary>
<p>The attack had the model file and nothing else. Its pictures were saved before the training images were read.</p>
<ul>
<li><b>Reconstructed</b>: training images that somebody who has the file can draw out of it well enough to be
recognised. Likeness is measured by SSIM: 1 is the same image, 0 has nothing in common.</li>
<li><b>Expected by chance</b> (chance level): how many would count although nothing of them is in the model, since
many images look alike. Only what exceeds this is evidence.</li>
<li><b>Certain</b>: pictures of which an attacker can be sure without knowing the training images.</li>
<li><b>Membership test</b>: whether somebody who has an image already can tell that the model was trained on it.
AUC 0.5 is a guess, 1 is always right; TPR at 1% FPR is the share of training images found when 1 in 100 others is
wrongly accused.</li>
</ul></details>"""


def render(report: AuditReport, images: Pictures, reconstructions: Pictures) -> str:
    """The whole page; whatever a name or a class says is shown as text."""
    verdict, leak = report.verdict, report.leak
    body = [
        f'<div class="verdict {verdict.level}"><h1>{_HEADLINES[verdict.level]}</h1>',
        f"<p>{escape(verdict.sentence)}</p>{_reasons(report)}</div>",
        _figures(report),
        _GUIDE,
        _worst(report, images, reconstructions),
        "<h2>Against chance</h2>",
        _counts(leak),
        f"<p class='small'>{escape(_controls(report))}</p>",
        _certain(report),
        _membership(report.membership),
        "<h2>Do these images belong to this model?</h2>",
        f"<p>{escape(report.fit.sentence[:1].upper() + report.fit.sentence[1:])}.</p>",
        _fit(report),
        "<h2>What the answer rests on</h2>",
        _table(
            ("assumption", "", "here"),
            ((each.name, _HOLDS[each.holds], each.sentence) for each in report.assumptions),
        ),
        "<h2>What was done</h2>",
        _done(report),
        "<details><summary>All images, the most exposed first</summary>",
        _all(report.images),
        "</details>",
    ]
    title = escape(f"Audit of {report.model.name}")
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">"
        f"<style>{_STYLE}</style></head><body>\n<p class='small'>{title}, {escape(report.created)}, "
        f"Afterimage {escape(report.version)}</p>\n" + "\n".join(part for part in body if part) + "\n</body></html>\n"
    )


def _reasons(report: AuditReport) -> str:
    """Why the attack may fail on a model that leaks, where it found little."""
    if report.verdict.level is Level.LEAKS or not report.reasons:
        return ""
    listed = "".join(f"<li>{escape(reason)}</li>" for reason in report.reasons)
    return f"<p>Why this attack may miss what this model leaks, so that a low count says little:</p><ul>{listed}</ul>"


def _figures(report: AuditReport) -> str:
    leak, certain = report.leak, report.certain
    shown = [
        (f"{leak.reconstructed} of {leak.of}", "training images reconstructed"),
        (str(leak.chance), "expected by chance"),
    ]
    if certain is not None:
        shown.append((str(certain.certain), "candidates the attack is certain of"))
        if certain.precision is not None:
            shown.append((f"{certain.precision:.0%}", "of these are real"))
    if report.membership:
        best = max(report.membership, key=lambda test: test.auc)
        shown.append(
            (f"{best.auc:.2f}", f"AUC of the best membership test ({_TESTS.get(best.name, best.name).lower()})")
        )
    return (
        "<div class='figures'>"
        + "".join(f"<div><b>{escape(value)}</b>{escape(text)}</div>" for value, text in shown)
        + "</div>"
    )


def _worst(report: AuditReport, images: Pictures, reconstructions: Pictures) -> str:
    rows = report.images[:PAIRS_SHOWN]
    figures = [
        f"<figure class='{'good' if row.reconstructed else 'not'}'>"
        f'<img alt="training image {row.id} beside its reconstruction" src="{_picture(image, found)}">'
        f"<figcaption>{escape(_caption(row))}</figcaption></figure>"
        for row, image, found in zip(rows, images, reconstructions, strict=False)
    ]
    return (
        "<h2>The most exposed images</h2><p class='small'>Left the training image, right what was drawn out of the "
        "weights; blue frames count as reconstructed, dashed orange ones do not.</p>"
        f"<div class='pairs'>{''.join(figures)}</div>"
    )


def _caption(row: ImageRow) -> str:
    ssim = "none" if row.ssim is None else f"{row.ssim:.2f}"
    sure = "" if row.confidence is None else f", confidence {row.confidence:.2f}{' (certain)' if row.certain else ''}"
    return f"{row.rank}. {row.label}, image {row.id}: SSIM {ssim}{sure}"


def _picture(image: Pictures, found: Pictures) -> str:
    pair = np.concatenate([_colour(image), _colour(found)], axis=1)
    file = io.BytesIO()
    Image.fromarray(pair).save(file, format="PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"


def _colour(image: Pictures) -> Pictures:
    """(C, H, W) -> (H, W, 3); of other than one or three channels the first is shown."""
    shown = image if image.shape[0] == 3 else image[:1].repeat(3, axis=0)
    return np.ascontiguousarray(shown.transpose(1, 2, 0))


def _counts(leak: Leak) -> str:
    """By threshold; the papers' window stands beside ours, since a count depends on it."""
    heads = ["SSIM above", "reconstructed", "chance level"]
    rows = [[f"{at.threshold:g}", f"{at.reconstructed} of {leak.of}", str(at.chance)] for at in leak.by_threshold]
    if leak.other_window is not None:
        heads += ["with the papers' 3x3 window", "chance level"]
        for row, at in zip(rows, leak.by_threshold, strict=True):
            other = at.other_window
            row += ["", ""] if other is None else [f"{other.reconstructed} of {leak.of}", str(other.chance)]
    return _table(heads, rows)


def _controls(report: AuditReport) -> str:
    controls = report.leak.controls
    parts = [f"the mean image alone matches {controls.mean_image}"]
    if controls.untrained is not None:
        parts.append(f"candidates of an untrained network match {controls.untrained}")
    if controls.held_out is not None:
        parts.append(f"of {controls.held_out_of} images that were not trained on, {controls.held_out} match")
    p = report.verdict.p_value
    tested = "" if p is None else f" Fisher's exact test against the held-out images: p = {p:.2g}."
    other = report.leak.other_window
    windows = "" if other is None else f" These counts are with the 11x11 window; reconstructed are {other}."
    return f"Controls at SSIM {report.leak.threshold:g}: {', '.join(parts)}.{tested}{windows}"


def _certain(report: AuditReport) -> str:
    certain = report.certain
    if certain is None:
        return "<h2>How sure can an attacker be?</h2><p>This attack does not say how sure it is of a candidate.</p>"
    if certain.precision is None:
        said = "The attack is certain of no candidate."
    else:
        said = (
            f"Of {certain.certain} candidates that the attack calls certain without having seen any image, "
            f"{certain.real} are real: a precision of {certain.precision:.0%} (95% interval "
            f"{certain.precision_low:.0%} to {certain.precision_high:.0%}). They show {certain.images_shown} of "
            f"{report.leak.of} training images."
        )
    return f"<h2>How sure can an attacker be?</h2><p>{escape(said)}</p>"


def _membership(tests: Sequence[Membership]) -> str:
    if not tests:
        return "<h2>Membership tests</h2><p>Not made: no held-out images were given.</p>"
    rates = [f"TPR at {at.false_positive_rate:.1%} FPR" for at in tests[0].at]
    rows = (
        (
            _TESTS.get(test.name, test.name),
            f"{test.auc:.3f} ({test.auc_low:.3f} to {test.auc_high:.3f})",
            *(
                f"{at.true_positive_rate:.1%} ({at.low:.1%} to {at.high:.1%})" + ("" if at.resolved else " *")
                for at in test.at
            ),
            test.needs,
        )
        for test in tests
    )
    few = any(not at.resolved for test in tests for at in test.at)
    footnote = (
        f"* {tests[0].non_members} held-out images are too few to measure so small a rate of false positives; none was "
        "allowed instead."
        if few
        else ""
    )
    return (
        f"<h2>Membership tests</h2>{_table(('score', 'AUC', *rates, 'an attacker needs'), rows)}"
        f"<p class='small'>95% intervals; {tests[0].members} training images against {tests[0].non_members} held-out "
        f"ones. {escape(footnote)}</p>{_curves(tests)}"
    )


def _curves(tests: Sequence[Membership]) -> str:
    """ROC curves on logarithmic axes, where small rates of false positives are."""

    def place(x: float, y: float) -> str:
        across, up = (1 - math.log10(max(value, _LEAST_RATE)) / math.log10(_LEAST_RATE) for value in (x, y))
        return f"{_EDGE + across * (_WIDTH - 2 * _EDGE):.1f},{_HEIGHT - _EDGE - up * (_HEIGHT - 2 * _EDGE):.1f}"

    lines = []
    for number, test in enumerate(tests):
        steps: list[tuple[float, float]] = []
        for x, y in test.curve:
            if steps and x != steps[-1][0] and y != steps[-1][1]:
                steps.append((x, steps[-1][1]))
            steps.append((x, y))
        points = " ".join(place(x, y) for x, y in steps)
        lines.append(
            f'<polyline fill="none" stroke="{_COLOURS[number % 3]}" stroke-width="2" points="{points}"/>'
            f'<text x="{_WIDTH}" y="{_EDGE + 20 * number}" font-size="13" fill="{_COLOURS[number % 3]}">'
            f"{escape(_TESTS.get(test.name, test.name))}</text>"
        )
    ticks = []
    for rate in (0.001, 0.01, 0.1, 1.0):
        left, top = place(rate, rate).split(",")
        ticks.append(
            f'<text x="{left}" y="{_HEIGHT - _EDGE + 18}" font-size="12" text-anchor="middle">{rate:g}</text>'
            f'<text x="{_EDGE - 6}" y="{top}" font-size="12" text-anchor="end">{rate:g}</text>'
        )
    diagonal = f"{place(_LEAST_RATE, _LEAST_RATE)} {place(1, 1)}"
    return (
        f'<svg role="img" aria-label="ROC curves of the membership tests" width="{_WIDTH + 210}" height="{_HEIGHT}">'
        f'<rect x="{_EDGE}" y="{_EDGE}" width="{_WIDTH - 2 * _EDGE}" height="{_HEIGHT - 2 * _EDGE}" fill="none" '
        f'stroke="#999"/><polyline fill="none" stroke="#999" stroke-dasharray="4" points="{diagonal}"/>'
        f"{''.join(ticks)}{''.join(lines)}"
        f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 6}" font-size="13" text-anchor="middle">false-positive rate</text>'
        f'<text x="{_EDGE}" y="{_EDGE - 12}" font-size="13">true-positive rate</text></svg>'
    )


def _fit(report: AuditReport) -> str:
    fit = report.fit
    rows = [
        ("accuracy on the attached images", f"{fit.accuracy:.1%}"),
        (
            "accuracy on held-out images",
            "not known" if fit.held_out_accuracy is None else f"{fit.held_out_accuracy:.1%}",
        ),
        ("mean loss", f"{fit.mean_loss:.3g}"),
        ("margins", f"smallest {fit.margin_min:.3g}, median {fit.margin_median:.3g}"),
    ]
    if fit.kkt_residual_by_layer is not None:
        layers = ", ".join(f"{name} {residual:.2f}" for name, residual in fit.kkt_residual_by_layer.items())
        rows.append(("KKT residual by layer (0: wholly explained by these images)", layers))
    return _table((), rows)


def _done(report: AuditReport) -> str:
    model, data, attack = report.model, report.data, report.attack
    classes = ", ".join(f"{name} {count}" for name, count in list(data.classes.items())[:12])
    residual = "not measured" if attack.residual is None else f"{attack.residual:.4f}"
    rows = [
        ("model", f"{model.name}: {model.architecture}, {model.parameters:,} parameters"),
        *(("", note) for note in model.notes),
        ("training images", f"{data.images} from {data.source}; {classes}{', ...' if len(data.classes) > 12 else ''}"),
        ("held-out images", str(data.held_out)),
        ("inputs", data.normalisation + (" (assumed: fits best)" if data.normalisation_assumed else "")),
        (
            "attack",
            f"{attack.recipe}, {attack.candidates} candidates, {attack.iterations} iterations, {attack.seeds} starts, "
            f"{attack.seconds:.0f} s; residual {residual}",
        ),
        ("order", "The attack sees weights only; images were read after its candidates had been written."),
    ]
    return _table((), rows)


def _all(rows: Sequence[ImageRow]) -> str:
    cells = (
        (
            str(row.rank),
            str(row.id),
            row.label,
            "none" if row.ssim is None else f"{row.ssim:.3f}",
            "yes" if row.reconstructed else "no",
            "" if row.confidence is None else f"{row.confidence:.2f}",
            f"{row.margin:.3g}",
        )
        for row in rows
    )
    return _table(("", "image", "class", "SSIM", "reconstructed", "confidence", "margin"), cells)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = f"<tr>{''.join(f'<th>{escape(text)}</th>' for text in heads)}</tr>" if heads else ""
    lines = "".join(f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>" for row in rows)
    return f"<table>{head}{lines}</table>"
