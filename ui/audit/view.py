"""One audit, running or finished: the verdict, its assumptions, and the report to download."""

from __future__ import annotations

import math

import pandas as pd
import streamlit as st

from recon_core.auditing.report import AuditReport, Level, TrueRate
from recon_core.plots.sheet import sheet
from recon_core.store import Run, RunState
from recon_core.views.audits import Audit, most_exposed, read_audit
from ui.audit.form import back_to_form
from ui.shared.cached import run_read
from ui.shared.downloads import offer_file
from ui.shared.formatting import number, plain
from ui.shared.mosaic import Tile, show_mosaic
from ui.shared.pages import AUDIT
from ui.shared.pair_view import Pair, PairSet, score_facts
from ui.shared.run_page import opened_run, show_run_page
from ui.shared.store import RunDetails

_PAIRS, _PIXELS = 40, 64
_HOLDS = {"yes": "holds", "no": "does not hold", "unknown": "not known"}


@run_read(keep=8, shared=True, spinner="Reading the report …")
def audit_of(run: Run) -> Audit:
    return read_audit(run)


def show_audit() -> None:
    """The page of the audit that the address names."""
    back_to_form()
    show_run_page(opened_run(AUDIT), _show)


def _show(run: RunDetails) -> None:
    if run.status.state is not RunState.DONE:
        return
    audit = audit_of(run.id)
    report = audit.report
    _show_verdict(report)
    with st.container(horizontal=True):
        offer_file("Report as HTML", audit.to_html, f"{run.id}.html", key=f"a-html-{run.id}")
        offer_file("Report as JSON", audit.to_json, f"{run.id}.json", key=f"a-json-{run.id}")
    _show_figures(report)
    st.subheader("The most exposed images", anchor=False)
    _show_pairs(audit)
    st.caption("Training image above, what was drawn out of the weights below; best first, ticked ones count.")
    _show_tables(report)


def _show_pairs(audit: Audit) -> None:
    rows, threshold = audit.report.images[:_PAIRS], audit.report.leak.threshold
    found = most_exposed(audit, _PAIRS)
    scores = [math.nan if row.ssim is None else row.ssim for row in rows]
    show_mosaic(
        sheet(found.images, found.reconstructions),
        [
            Tile(
                place,
                "–" if row.ssim is None else f"{row.ssim:.2f}",
                f"image {row.id}, {row.label}" + ("" if row.ssim is None else f", SSIM {row.ssim:.3f}"),
                row.reconstructed,
            )
            for place, row in enumerate(rows)
        ],
        key="audit-pairs",
        name="The most exposed images above their reconstructions",
        tile_pixels=_PIXELS,
        pairs=PairSet(
            [
                Pair(
                    place,
                    f"Image {row.id}: {row.label}",
                    place,
                    place,
                    (
                        *score_facts(score, threshold),
                        ("the attack is", "certain of it" if row.certain else "not certain of it"),
                        ("margin", number(row.margin)),
                        ("loss", number(row.loss)),
                    ),
                )
                for place, (row, score) in enumerate(zip(rows, scores, strict=True))
            ]
        ),
    )


def _show_verdict(report: AuditReport) -> None:
    draw = {Level.LEAKS: st.error, Level.UNCLEAR: st.warning, Level.NOTHING_FOUND: st.info}[report.verdict.level]
    draw(plain(report.verdict.sentence), icon=":material/policy:")
    if report.verdict.level is not Level.LEAKS and report.reasons:
        reasons = "\n".join(f"- {plain(reason)}" for reason in report.reasons)
        st.markdown(f"Why this attack may miss what this model leaks, so that a low count says little:\n\n{reasons}")
    if report.fit.likeness != "fits":
        st.warning(plain(report.fit.sentence), icon=":material/warning:")


def _show_figures(report: AuditReport) -> None:
    leak, certain = report.leak, report.certain
    boxes = st.columns(4)
    windows = None if leak.other_window is None else plain(f"With the 11x11 window of SSIM; {leak.other_window}.")
    boxes[0].metric("Reconstructed", f"{leak.reconstructed} of {leak.of}", help=windows)
    boxes[1].metric("By chance", leak.chance, help="The largest of the controls.")
    precise = None if certain is None else certain.precision
    boxes[2].metric(
        "Precision of the certain ones",
        "none certain" if precise is None or certain is None else f"{precise:.0%} of {certain.certain}",
    )
    best = max(report.membership, key=lambda test: test.auc, default=None)
    boxes[3].metric("Best membership test, AUC", "not tested" if best is None else f"{best.auc:.3f}")


def _rate(at: TrueRate) -> str:
    if not at.resolved:
        return "too few held-out images"
    return f"{at.true_positive_rate:.1%} ({at.low:.1%} to {at.high:.1%})"


def _show_tables(report: AuditReport) -> None:
    if report.membership:
        st.subheader("Membership tests", anchor=False)
        rows = [
            {
                "score": test.name,
                "AUC": f"{test.auc:.3f} ({test.auc_low:.3f} to {test.auc_high:.3f})",
                **{f"TPR at {at.false_positive_rate:.1%} FPR": _rate(at) for at in test.at},
                "an attacker needs": test.needs,
            }
            for test in report.membership
        ]
        st.dataframe(pd.DataFrame(rows), hide_index=True)
    st.subheader("What the answer rests on", anchor=False)
    assumptions = [
        {"assumption": each.name, "": _HOLDS[each.holds], "here": each.sentence} for each in report.assumptions
    ]
    st.table(pd.DataFrame(assumptions).set_index("assumption"))
    st.subheader("Do these images belong to this model?", anchor=False)
    fit = report.fit
    layers = fit.kkt_residual_by_layer or {}
    st.markdown(
        plain(
            f"{fit.sentence[:1].upper()}{fit.sentence[1:]}; smallest margin {fit.margin_min:.3g}, mean loss "
            f"{fit.mean_loss:.3g}; inputs taken as {report.data.normalisation}."
            + (
                f" KKT residual: {', '.join(f'{name} {value:.2f}' for name, value in layers.items())}."
                if layers
                else ""
            )
        )
    )
