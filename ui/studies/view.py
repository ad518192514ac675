"""One study, under way or over: its progress, its curves with the models behind them, its pictures and findings."""

from __future__ import annotations

import base64
import html
from typing import Any

import plotly.graph_objects as go
import streamlit as st

from recon_core.analysis.studies import AlignedGrid
from recon_core.plots.sheet import png
from recon_core.plots.style import ORANGE
from recon_core.store import RunStore, default_root
from recon_core.studies.claims import verdicts
from recon_core.studies.figures import StudyFigure
from recon_core.studies.findings import overview
from recon_core.studies.model_table import readable
from recon_core.studies.report import report_html
from recon_core.studies.results import StudyResults
from recon_core.units import LOG10_LOSS
from ui.shared.address import recall, record
from ui.shared.downloads import offer_file
from ui.shared.figures import figure_texts, show_figure, table_csv
from ui.shared.formatting import plain
from ui.shared.presenter import is_presenting, offer_presenting, present
from ui.shared.run_panel import show_live_run
from ui.shared.runs import is_active, show_record
from ui.shared.store import RunDetails, run_details
from ui.studies.cached import figures_of, results_of
from ui.studies.model import model_label, show_model
from ui.studies.slides import AGREEMENT, study_slides
from ui.studies.strips import show_aligned

SHOW, MODEL = "s_show", "s_model"
FINDINGS, TABLE = "findings", "table"
_HEIGHT = 520  # pixels
_STRIPS_STYLE = """<style>
.study-strips { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 2px 12px; align-items: center; }
.study-strips span { text-align: right; max-width: 11rem; }
.study-strips img { display: block; max-width: 100%; height: auto; image-rendering: pixelated; }
</style>"""


def show_study(run_id: str) -> None:
    """The page of one study; `run_id` may come from an address."""
    results = results_of(run_id)
    if is_presenting():
        present(study_slides(results, figures_of(results)))
        return
    shown = figures_of(results)
    choice = _choose_figure(shown) if shown else None
    _show_heading(results, shown, choice)
    seen = run_details(run_id).last_metrics
    show_live_run(run_id, lambda run: _look_for_news(run, seen), named=False)
    if choice is None:
        _show_emptiness(results)
    elif choice == FINDINGS:
        _show_findings(results, shown)
    elif choice == TABLE:
        _show_table(results)
    else:
        _show_study_figure(results, next(item for item in shown if item.name == choice))
    show_record(run_details(run_id))


def _show_heading(results: StudyResults, shown: tuple[StudyFigure, ...], choice: str | None) -> None:
    plan, run = results.plan, run_details(results.run_id)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.header(plain(run.name), anchor=False, width="stretch")
        if st.button("All studies", key="s_back", icon=":material/arrow_back:"):
            for name in ("run", SHOW, MODEL):
                st.query_params.pop(name, None)
                st.session_state.pop(name, None)
            st.rerun()
        if shown:
            names = [item.name for item in shown]
            offer_presenting("s_present", choice if choice in names else names[0])
            offer_file(
                "Report",
                lambda: report_html(RunStore(default_root()), results.run_id).encode(),
                f"{plan.name}-{results.run_id}.html",
                key="s_report",
                icon=":material/download:",
                help="One page with all figures, images and findings, which opens in any browser without a network.",
            )
    where = {"ours": "Our own study", "own study": "Own study"}.get(plan.where, plan.where)
    size = "" if plan.size == "own" else f", {plan.size} size"
    st.markdown(plain(" ".join(filter(None, (f"{where}{size}.", plan.about)))))


def _look_for_news(run: RunDetails, seen: dict[str, Any]) -> None:
    """Each finished model leaves a row; then all that is shown below is drawn anew."""
    if run.last_metrics != seen:
        st.rerun()


def _show_emptiness(results: StudyResults) -> None:
    if is_active(run_details(results.run_id).status):
        st.caption("Curves appear here with the first finished model, and grow with every other.")
    else:
        st.info("No model of this study finished, so there is nothing to draw.", icon=":material/info:")
        _show_table(results)


def _choose_figure(shown: tuple[StudyFigure, ...]) -> str:
    labels = {item.name: item.heading for item in shown} | {
        FINDINGS: "All findings as text",
        TABLE: "Every model, in numbers",
    }
    recall(SHOW, labels)
    if st.session_state.get(SHOW) not in labels:  # another study's
        st.session_state.pop(SHOW, None)
    with st.sidebar:
        chosen = st.radio("Show", list(labels), format_func=lambda name: plain(labels[name]), key=SHOW)
    first = next(iter(labels))
    record(SHOW, [chosen] if chosen and chosen != first else [])
    return chosen or first


def _show_study_figure(results: StudyResults, item: StudyFigure) -> None:
    st.subheader(plain(item.heading), anchor=False)
    st.markdown(plain(item.finding))
    if item.shown is not None:
        _show_item_table(item)
    elif isinstance(item.table, AlignedGrid):
        show_aligned(item.table, key=f"s_strip_{item.name}")
    elif item.figure is None:
        st.html(strips_html(item))
    elif cells_of(item.figure, results):
        plot, behind = st.columns([1.25, 1], gap="medium")
        with behind:
            cell = _choose_model(results)
            if cell is None:
                st.caption("Click a mark of the curve, or choose a model here, to see its reconstructions.")
            else:
                show_model(results, cell)
        with plot:
            _show_curve(item, cell)
    else:
        caption = figure_texts(item.figure)[1]
        show_figure(
            item.figure,
            name=item.name,
            key=f"s_fig_{item.name}",
            table=item.table,
            caption=caption,
            show_title=False,
        )


def _show_item_table(item: StudyFigure) -> None:
    assert item.shown is not None
    st.dataframe(item.shown, hide_index=True, key=f"s_shown_{item.name}")
    st.markdown("\n".join(f"- {plain(point)}" for point in item.points))
    if item.notes:
        st.markdown("**What was not tried, and what this cannot tell**")
        st.markdown("\n".join(f"- {plain(note)}" for note in item.notes))


def cells_of(figure: go.Figure, results: StudyResults) -> set[str]:
    """Models of the study that marks of a figure stand for."""
    cells = {row.cell for row in results.table.finished}
    carried = (mark[0] for trace in figure.data for mark in _customdata(trace))
    return {cell for cell in carried if cell in cells}


def _show_curve(item: StudyFigure, cell: str | None) -> None:
    figure, key = go.Figure(item.figure), f"s_curve_{item.name}"
    figure.update_layout(dragmode="pan", clickmode="event+select")
    if cell is not None:
        _ring(figure, cell)

    def picked() -> None:
        found = selected_cell(st.session_state[key])
        if found is not None:
            st.session_state[MODEL] = None if found == cell else found

    show_figure(
        figure,
        name=item.name,
        key=key,
        table=item.table,
        caption=f"{figure_texts(figure)[1]}. Click a mark to open the model behind it; that of a mean opens its first.",
        height=_HEIGHT,
        on_select=picked,
        selection_mode=("points",),
        show_title=False,
    )


def selected_cell(state: Any) -> str | None:
    """The model of the last mark in a chart's selection."""
    for point in reversed(state["selection"]["points"]):
        carried = point.get("customdata")
        if carried:
            return str(carried["0"] if isinstance(carried, dict) else carried[0])
    return None


def _ring(figure: go.Figure, cell: str) -> None:
    """Around the model's own mark, or the mean's where it has none."""
    places = [
        (trace.x[index], trace.y[index])
        for trace in figure.data
        if trace.mode == "markers"
        for index, mark in enumerate(_customdata(trace))
        if mark[0] == cell
    ]
    if places:
        x, y = places[-1]
        figure.add_scatter(
            x=[x],
            y=[y],
            mode="markers",
            marker={"symbol": "circle-open", "size": 22, "color": ORANGE, "line": {"width": 3, "color": ORANGE}},
            name="shown beside",
            hoverinfo="skip",
            showlegend=False,
        )


def _customdata(trace: Any) -> list[Any]:
    found = getattr(trace, "customdata", None)
    return [] if found is None else [mark for mark in found if len(mark)]


def _choose_model(results: StudyResults) -> str | None:
    """By keyboard as well; clicks on the curve come here too."""
    labels = {row.cell: model_label(row) for row in results.table.finished}
    recall(MODEL, labels)
    if st.session_state.get(MODEL) not in labels:
        st.session_state.pop(MODEL, None)
    cell = st.selectbox(
        "Model",
        list(labels),
        index=None,
        format_func=lambda cell: labels.get(cell, cell),
        placeholder="Choose a model",
        key=MODEL,
    )
    record(MODEL, [cell] if cell else [])
    return cell


def strips_html(item: StudyFigure) -> str:
    """Rows of pictures below each other, each with its name beside it."""
    rows = "".join(
        f"<span>{html.escape(strip.label)}</span>"
        f'<img alt="{html.escape(strip.label, quote=True)}" '
        f'src="data:image/png;base64,{base64.b64encode(png(strip.picture)).decode("ascii")}">'
        for strip in item.strips
    )
    return f'{_STRIPS_STYLE}<div class="study-strips">{rows}</div>'


def _show_findings(results: StudyResults, shown: tuple[StudyFigure, ...]) -> None:
    st.markdown(plain(overview(results)))
    found = verdicts(results)
    if found:
        st.subheader("What was claimed, and what was found", anchor=False)
        for verdict in found:
            place = f" ({plain(verdict.panel)})" if verdict.panel else ""
            st.markdown(
                f"**{plain(verdict.claim.text)}**{place}  \n{AGREEMENT[verdict.agrees]}: {plain(verdict.sentence)}."
            )
    for item in shown:
        st.subheader(plain(item.heading), anchor=False)
        st.markdown(plain(item.finding))


def _show_table(results: StudyResults) -> None:
    frame = results.table.to_frame()
    st.dataframe(
        readable(frame),
        hide_index=True,
        key="s_table",
        placeholder="–",
        column_config={
            "train error": st.column_config.NumberColumn(format="percent"),
            "test error": st.column_config.NumberColumn(format="percent"),
            LOG10_LOSS: st.column_config.NumberColumn(format="%.1f"),
            "KKT residual of layer 1": st.column_config.NumberColumn(format="%.3f"),
            "residual of the attack": st.column_config.NumberColumn(format="%.3f"),
        },
    )
    offer_file(
        "Download as CSV",
        lambda: table_csv(frame),
        f"{results.plan.name}-models.csv",
        key="s_table_csv",
        icon=":material/download:",
    )
