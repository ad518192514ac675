"""One audit, under way or over: the verdict, what it rests on, and the report to take away."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from recon_core.auditing.report import AuditReport, Level, TrueRate
from recon_core.errors import InputError
from recon_core.store import Run, RunState
from recon_core.views.audits import Audit, pairs_png, read_audit
from ui.audit.form import back_to_form
from ui.shared.cached import run_read
from ui.shared.downloads import offer_file
from ui.shared.formatting import plain
from ui.shared.run_panel import show_live_run
from ui.shared.store import RunDetails, run_details

_PAIRS = 40
_HOLDS = {"yes": "holds", "no": "does not hold", "unknown": "not known"}


@run_read(keep=8, shared=True, spinner="Reading the report …")
def audit_of(run: Run) -> Audit:
    return read_audit(run)


def show_audit(run_id: str) -> None:
    """The page of one audit; `run_id` may come from an address."""
    back_to_form()
    run = run_details(run_id)
    if run.kind != "audit":
        raise InputError(f"run {run.id} is of kind {run.kind} and no audit; choose one from the list of audits")
    st.header("Audit", anchor=False)
    show_live_run(run_id, _show)


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
    alt = "The best pairs: training images above, reconstructions below"
    st.image(pairs_png(audit, _PAIRS), width="content", alt=alt)
    st.caption("Training image above, what was drawn out of the weights below; best first, blue frames count.")
    _show_tables(report)


def _show_verdict(report: AuditReport) -> None:
    draw = {Level.LEAKS: st.error, Level.UNCLEAR: st.warning, Level.NOTHING_FOUND: st.info}[report.verdict.level]
    draw(plain(report.verdict.sentence), icon=":material/policy:")
    if report.fit.likeness != "fits":
        st.warning(plain(report.fit.sentence), icon=":material/warning:")


def _show_figures(report: AuditReport) -> None:
    leak, certain = report.leak, report.certain
    boxes = st.columns(4)
    boxes[0].metric("Reconstructed", f"{leak.reconstructed} of {leak.of}")
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
