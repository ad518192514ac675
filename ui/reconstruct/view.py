"""One reconstruction, running or finished: residual, candidates, and the count against the training data."""

from __future__ import annotations

from typing import Literal

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from recon_core.plots.attack import plot_candidate_points
from recon_core.runs.match_source import CANDIDATE_KINDS
from recon_core.store import RunState, RunSummary
from recon_core.views.live_reconstruction import TileOrder, Truth
from ui.reconstruct.baselines import show_baselines
from ui.reconstruct.cached import (
    Chart,
    PictureKey,
    attacked_model,
    counted,
    evaluator,
    multiplier_chart,
    picture,
    picture_key,
    picture_moments,
    residual_chart,
    steady_key,
    truth,
)
from ui.reconstruct.counts import SCORED, show_count
from ui.reconstruct.priors import show_priors
from ui.reconstruct.search import show_search
from ui.reconstruct.tiles import show_tiles
from ui.shared.figures import show_figure
from ui.shared.formatting import number, plain, sentence
from ui.shared.labels import prior_label
from ui.shared.live import keep_fresh
from ui.shared.pace import unmixes
from ui.shared.pages import MATCH, RECONSTRUCT
from ui.shared.run_page import opened_run, show_run_page
from ui.shared.runs import is_active, show_runs
from ui.shared.store import RunDetails, recent_runs

ORDER, SHOWN, TRUTH = "r_order", "r_shown", "r_truth"
ORDERS = {
    TileOrder.CONFIDENCE: "Confidence",
    TileOrder.PLACE: "Place",
    TileOrder.MULTIPLIER: "Multiplier",
    TileOrder.AGREEMENT: "Agreement",
}
COUNTS = (50, 100, 200, 400)
COLUMNS = 20
_CHART = 340  # pixels
_SLIDER, _SELECTION = 240, 120


def show_reconstruction() -> None:
    """The page of the run that the address names."""
    head = st.container(horizontal=True, vertical_alignment="center")
    with head:
        if st.button("New reconstruction", key="r-back", icon=":material/arrow_back:"):
            del st.query_params["run"]
            st.rerun()
    run = opened_run(RECONSTRUCT)
    model_id = attacked_model(run)
    with head:
        _offer_match(run, model_id)
    show_run_page(run, lambda now: _show(now, model_id))
    if model_id is not None:
        show_priors(model_id, run.id)
        show_baselines(model_id, run.id)


def show_model_runs(model_id: str) -> None:
    """The attacks on one model, newest first."""

    def found() -> list[RunSummary]:
        return [run for run in recent_runs() if run.kind in CANDIDATE_KINDS and model_id in run.parents]

    def show() -> None:
        st.subheader("Reconstructions of this model", anchor=False)
        runs = found()
        if runs:
            show_runs(runs)
        else:
            st.caption("None yet. Press Start.")

    keep_fresh(show, lambda: any(is_active(run.status) for run in found()))


def _offer_match(run: RunDetails, model_id: str | None) -> None:
    if run.status.state is not RunState.DONE or model_id is None or truth(model_id) is Truth.UNKNOWN:
        return
    if st.button(
        "Match with the training images",
        key=f"match-{run.id}",
        icon=":material/compare:",
        help="Which of them were reconstructed, and how well; with all chance levels.",
    ):
        st.switch_page(MATCH.file, query_params={"from": run.id})


def _show(run: RunDetails, model_id: str | None) -> None:
    """The part of the page that changes while the run is at work."""
    if run.kind == "search":
        show_search(run)
        st.subheader("Candidates", anchor=False)
        st.caption(
            "Of the running trial." if is_active(run.status) else "Of all complete trials, those of the best first."
        )
    key = picture_key(run.id)
    if key is None:
        if is_active(run.status):
            st.caption("The first picture comes within seconds of the start.")
        return
    found = picture(key)
    if found is None:
        return
    active = is_active(run.status)
    boxes = st.columns(2)
    explained = _show_explained(run, boxes[0])
    with boxes[int(explained)]:
        _show_score(run, model_id, key)
    if found.planar:
        left, right = st.columns((3, 2), gap="large")
        with left:
            _show_points(model_id, _choose_moment(steady_key(run.id, active=active) or key))
    else:
        known = model_id is not None and truth(model_id) is Truth.AT_HAND
        _show_candidates(key, model_id, opens=known and not active)
        left, right = st.columns(2, gap="large")
    residuals = residual_chart(run.id, active=active)
    with right if found.planar else left:
        _show_chart(residuals, f"{run.id}-residuals", "r-residuals")
    with left if residuals is None and not found.planar else right:
        _show_chart(multiplier_chart(run.id, active=active), f"{run.id}-multipliers", "r-multipliers")


def _show_explained(run: RunDetails, place: DeltaGenerator) -> bool:
    """Show how much of the weights the candidates explain. Returns whether there was anything to show."""
    if "residual_layer1" not in run.last_metrics:
        return False
    residual = run.last_metrics.get("residual")
    with place, st.container(border=True, height="stretch"):
        st.markdown(":material/visibility: **What the attack itself can measure**")
        if unmixes(run):
            st.metric("Weights explained", "–")
            st.caption("Unmixing: it looks for images among the directions that the weights span, and fits them next.")
            return True
        text = "–" if residual is None else f"{max(0.0, 1 - residual):.1%}"
        certain = run.result.get("certain")
        with st.container(horizontal=True, gap="medium"):
            st.metric("Weights explained", text, width="content")
            if certain is not None:
                st.metric(
                    "Certain candidates",
                    f"{certain:,} of {run.result['candidates']:,}",
                    width="content",
                    help="Candidates the attack is sure of, without having seen a training image: unmixing finds the "
                    "same image from different starts, and the image explains more of the weights than its negative.",
                )
        shown = "not a finite number" if residual is None else number(float(residual))
        st.caption(f"Relative KKT residual {shown}: the share of the squared weights left unexplained.")
        if certain is not None:
            st.caption(f"Prior: {prior_label(run.result['prior'])}.")
    return True


def _show_chart(chart: Chart | None, name: str, key: str) -> None:
    if chart is not None:
        show_figure(chart.figure, name=name, key=key, table=chart.table, height=_CHART, version=chart.version)


def _show_candidates(newest: PictureKey, model_id: str | None, *, opens: bool) -> None:
    with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="bottom"):
        key = _choose_moment(newest, _SLIDER)
        order = st.segmented_control(
            "Order by",
            list(ORDERS),
            default=TileOrder.CONFIDENCE,
            required=True,
            format_func=lambda order: ORDERS[order],
            key=ORDER,
            bind="query-params",
            persist_state="session",
            help="Confidence is how sure the attack is, once it has ended, where it says so. A candidate keeps its "
            "place while it sharpens. A large multiplier means that it explains much. "
            "Agreement is its similarity to the nearest other candidate; what is found twice is more likely real.",
        )
        most = st.selectbox(
            "Show at most", COUNTS, index=1, key=SHOWN, bind="query-params", persist_state="session", width=_SELECTION
        )
    most = int(most)
    chosen = TileOrder(order or TileOrder.CONFIDENCE)
    across = COLUMNS if most > 50 else COLUMNS // 2
    laid_out = show_tiles(key, chosen, most, across, model_id=model_id, opens=opens, key="r-tiles")
    if laid_out is None:
        return
    when = "as the run left them" if laid_out.step is None else f"at step {laid_out.step:,}"
    known = " Click one to see it beside the training image it resembles most." if opens else ""
    st.caption(
        f"{len(laid_out.rows):,} of {laid_out.total:,} candidates {when}, each stretched from its own darkest to its "
        f"own brightest value. The mean of the training images is not added: the attack does not know it.{known}"
    )


def _choose_moment(newest: PictureKey, width: int | Literal["stretch"] = "stretch") -> PictureKey:
    """Once it is over, any of the pictures taken on the way; until then the newest."""
    steps = picture_moments(newest)
    if len(steps) < 2:
        return newest
    final = len(steps)
    place = st.select_slider(
        "Step",
        range(final + 1),
        value=final,
        format_func=lambda index: "the end" if index == final else f"step {steps[index]:,}",
        key=f"r-moment-{newest.run.run_id}",
        help="Arrow keys move through the pictures the attack kept on its way.",
        width=width,
    )
    if place is None or place == final:
        return newest
    return PictureKey(newest.run, int(place))


def _show_points(model_id: str | None, key: PictureKey) -> None:
    found = picture(key)
    assert found is not None
    known = model_id is not None and truth(model_id) is Truth.AT_HAND
    shown = known and st.toggle(
        "Show the training points (the attack never sees them)",
        value=True,
        key=TRUTH,
        bind="query-params",
        persist_state="session",
    )
    points = evaluator(model_id).points() if shown and model_id is not None else None
    drawn = plot_candidate_points(found.candidates, found.labels, found.multipliers, points)
    show_figure(drawn, name=f"{key.run.run_id}-points", key="r-points", height=620)


def _show_score(run: RunDetails, model_id: str | None, key: PictureKey) -> None:
    """The count against the training data, in a frame of its own, since the attack does not know it."""
    if model_id is None:
        return
    known = truth(model_id)
    with st.container(border=True, height="stretch"):
        st.markdown(f":material/visibility_off: **{SCORED}**")
        if known is not Truth.AT_HAND:
            st.caption(plain(sentence(known)))
            return
        found = counted(model_id, key, final=not is_active(run.status))
        if found is None:
            st.caption("Counting …")
        else:
            show_count(found)
