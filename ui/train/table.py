"""All networks in one table, and the chosen ones side by side."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from recon_core.analysis.training_table import TrainingTable, training_table
from recon_core.plots.training import compare_errors, compare_losses, compare_margins, compare_residuals
from recon_core.runs.models import MODEL_KINDS
from recon_core.units import LOG10_LOSS
from ui.shared.address import recall, record
from ui.shared.downloads import offer_file
from ui.shared.figures import show_figure, table_csv
from ui.shared.formatting import plain
from ui.shared.live import keep_fresh
from ui.shared.pick import show_nothing_yet
from ui.shared.runs import is_active
from ui.shared.store import recent_runs
from ui.train.cached import measured, table_row
from ui.train.run import choose_time_axis, drawn_once

MOST_COMPARED = 6  # as many looks as lines have
MOST_LISTED = 500
_CHOSEN = "t_cmp"
_HEIGHT = 360
# What fits beside the sidebar on a screen of 1280 pixels.
_FITTING = (
    *("name", "state", "train_error", "test_accuracy", "log10_loss", "explained_layer1", "on_margin", "created"),
)


def show_table() -> None:
    """The table, kept fresh while something runs."""
    keep_fresh(_show, lambda: any(is_active(run.status) for run in recent_runs() if run.kind in MODEL_KINDS))


def _show() -> None:
    runs = [run for run in recent_runs() if run.kind in MODEL_KINDS]
    if not runs:
        show_nothing_yet(
            "No network has been trained yet.", "Start one under *New network*: the one it offers takes seconds."
        )
        return
    table = training_table([table_row(run) for run in runs[:MOST_LISTED]])
    newest = f"The newest {MOST_LISTED} of {len(runs):,}. " if len(runs) > MOST_LISTED else ""
    st.caption(f"{newest}A click on a heading sorts, ticked rows are compared below.")
    chosen = _choose(table)
    if len(chosen.runs) > 1:
        _compare(chosen)
    elif chosen.runs:
        st.caption("Choose another one to compare it with.")


def _choose(table: TrainingTable) -> TrainingTable:
    """The table itself, and a field that says the same: for the keyboard, and for the address."""
    ids = [run.id for run in table.runs]
    names = _labels(table)
    # Rows are chosen by their number, so a table with other rows is another table.
    key = f"t_table_{hashlib.blake2b(','.join(ids).encode(), digest_size=8).hexdigest()}"
    frame = table.to_frame()
    recall(_CHOSEN, ids, several=True)
    rows: Any = _rows(ids)
    whole = st.toggle(
        "All columns",
        key="t_whole",
        help="Durations and the settings that differ too; names say the most important of those.",
        bind="query-params",
        persist_state="session",
    )
    st.dataframe(
        frame.assign(created=pd.to_datetime(frame["created"])),
        key=key,
        hide_index=True,
        placeholder="",
        column_config=_columns(),
        column_order=None if whole else _FITTING,
        on_select=lambda: _take_from_table(key, ids),
        selection_mode="multi-row",
        selection_default=rows,
        alt="All trainings, with the settings that differ and what came out",
    )
    chosen = st.multiselect(
        "Compare",
        ids,
        format_func=lambda run_id: names.get(run_id, run_id),
        key=_CHOSEN,
        max_selections=MOST_COMPARED,
        placeholder="Tick rows in the table, or choose here",
        on_change=lambda: st.session_state.update({key: _rows(ids)}),
        persist_state="session",
    )
    record(_CHOSEN, chosen)
    with st.container(horizontal=True):
        for run_id in chosen:
            if st.button(
                f"Open {plain(names.get(run_id, run_id))}", key=f"open-{run_id}", icon=":material/open_in_full:"
            ):
                st.query_params["run"] = run_id
                st.rerun()
        offer_file(
            "Table as CSV",
            lambda: table_csv(frame),
            "trainings.csv",
            key="t_csv",
        )
    return training_table([run for run_id in chosen for run in table.runs if run.id == run_id])


def _take_from_table(key: str, ids: list[str]) -> None:
    rows = st.session_state[key]["selection"]["rows"]
    st.session_state[_CHOSEN] = [ids[row] for row in rows if row < len(ids)][:MOST_COMPARED]


def _rows(ids: list[str]) -> dict[str, Any]:
    """The choice as rows of the table."""
    return {"selection": {"rows": [ids.index(run_id) for run_id in st.session_state.get(_CHOSEN, []) if run_id in ids]}}


def _labels(table: TrainingTable) -> dict[str, str]:
    return {run.id: run.name for run in table.runs}


def _columns() -> dict[str, Any]:
    number = st.column_config.NumberColumn
    return {
        "name": st.column_config.TextColumn("name", pinned=True, width=265),
        "state": st.column_config.TextColumn("state", width=64),
        "created": st.column_config.DatetimeColumn("created", format="distance", width=112),
        "train_error": number("train error", format="percent", width=80),
        "test_accuracy": number("test accuracy", format="percent", width=98),
        "log10_loss": number(
            LOG10_LOSS,
            format="%.1f",
            width=76,
            help="Mean over the training samples; -6 is a loss of one in a million.",
        ),
        "explained_layer1": number(
            "layer 1",
            format="percent",
            width=68,
            help="How much of layer 1 the training samples explain: of its squared weights, 1 less the KKT residual "
            "squared",
        ),
        "on_margin": number("on margin", format="%d", width=76, help="Samples on the margin"),
        "seconds": number("seconds", format="%.1f", width=70, help="Duration"),
    }


def _compare(table: TrainingTable) -> None:
    labels = _labels(table)
    st.subheader("Side by side", anchor=False)
    found = {run.id: measured(run.id) for run in table.runs}
    runs = {labels[run_id]: part.curves for run_id, part in found.items()}
    axis = choose_time_axis(list(runs.values()), "t_cmp_axis")
    version = " ".join([*labels.values(), *(part.version for part in found.values()), axis])
    charts = {
        "loss": compare_losses,
        "test-error": compare_errors,
        "margin": compare_margins,
        "kkt": compare_residuals,
    }
    numbers = pd.concat([curves.to_frame().assign(run=name) for name, curves in runs.items()])
    columns = st.columns(2, gap="large")
    for place, (name, plot) in enumerate(charts.items()):
        with columns[place % 2]:
            show_figure(
                drawn_once(f"{name} {version}", partial(plot, runs, axis)),
                name=f"compared-{name}",
                key=f"compared-{name}",
                table=numbers,
                height=_HEIGHT,
                version=version,
            )
    st.markdown("**What differs**")
    differences = table.differences().rename(columns=labels)
    st.dataframe(differences, alt="Settings that differ, and results, of the compared runs")
