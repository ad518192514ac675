"""A search over hyper-parameters: its trials, the best so far, and which numbers mattered."""

from __future__ import annotations

import streamlit as st

from recon_core.analysis.search import LEAST_TRIALS, TrialTable
from recon_core.plots.search import PARAMETER_LABELS
from ui.reconstruct.cached import Chart, search_charts
from ui.shared.figures import show_figure
from ui.shared.formatting import number, plain
from ui.shared.store import RunDetails

_CHART = 340  # pixels
_STATES = {"complete": "✓ complete", "pruned": "✂ ended early", "diverged": "⚠ diverged", "failed": "✕ failed"}


def show_search(run: RunDetails) -> None:
    """The results of a search besides its candidates."""
    charts = search_charts(run.id)
    table = charts.table
    _show_best(run, table)
    if not table.records:
        st.caption("The first trial has not ended yet.")
        return
    left, right = st.columns(2, gap="large")
    with left:
        _show_chart(run, charts.trials, "trials")
    with right:
        if charts.importance is None:
            st.markdown("**Hyper-parameter importance**")
            st.caption(f"Shown after {LEAST_TRIALS} trials with different results.")
        _show_chart(run, charts.importance, "importance")
    _show_chart(run, charts.parallel, "parallel")
    _show_table(table)


def _show_chart(run: RunDetails, chart: Chart | None, name: str) -> None:
    if chart is not None:
        show_figure(
            chart.figure,
            name=f"{run.id}-{name}",
            key=f"r-{name}",
            table=chart.table,
            height=_CHART,
            version=chart.version,
        )


def _show_best(run: RunDetails, table: TrialTable) -> None:
    asked = run.config.get("settings", {}).get("trials")
    ended, best = len(table.records), table.best
    columns = st.columns((1, 1, 3))
    columns[0].metric("Trials ended", f"{ended:,} of {asked:,}" if isinstance(asked, int) else f"{ended:,}")
    columns[1].metric("Best residual so far", "–" if best is None or best.value is None else number(best.value))
    if best is not None:
        facts = [f"{PARAMETER_LABELS.get(name, name)} {value:.3g}" for name, value in best.params.items()]
        columns[2].markdown(plain(f"The best is trial {best.number + 1}: {'; '.join(facts)}."))


def _show_table(table: TrialTable) -> None:
    frame = table.to_frame()
    frame["trial"] += 1
    frame["state"] = [_STATES.get(state, state) for state in frame["state"]]
    st.markdown("**All trials**")
    st.caption("A click on a column's name sorts by it.")
    figures = {name: st.column_config.NumberColumn(format="%.3g") for name in ("residual", *table.ranges)}
    st.dataframe(
        frame,
        key="r-table",
        hide_index=True,
        height=min(420, 38 + 35 * len(frame)),
        column_config={**figures, "seconds": st.column_config.NumberColumn(format="%.1f")},
    )
