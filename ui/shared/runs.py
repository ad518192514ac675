"""Runs on the screen: a list of them, and one in detail."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, NoReturn

import streamlit as st

from recon_core.store import RunState, RunSummary, Status
from recon_core.units import LOG10_LOSS, log10_loss
from ui.shared.downloads import offer_file
from ui.shared.formatting import duration, number, plain, shortened, signed, when
from ui.shared.labels import section_labels
from ui.shared.pace import seconds_left, why_queued
from ui.shared.pages import HOME, page_of
from ui.shared.store import RunDetails, exported_zip, run_details

PAGE_SIZE = 15
FIGURES_SHOWN = 8
_MOST_SECTIONS = 12
_LIST_COLUMNS = (3.3, 2.2, 4.2, 1.6, 1.7)
_ROW_MESSAGE = 110  # characters; the run's own page has all of it


KIND_NAMES = {
    "train": "training",
    "model": "imported model",
    "reconstruct": "attack",
    "match": "matching",
}
"""What a kind of run is called on the screen, where that is not its name in the store."""

# What a viewer asks first, in that order, under names that need no glossary.
FIGURE_NAMES = {
    "train_error": "training error",
    "test_error": "test error",
    "test_loss": "test loss",
    "log_loss": LOG10_LOSS,
    "margin_min": "smallest margin",
    "on_margin": "samples on the margin",
    "kkt_layer1": "KKT residual of layer 1",
    "kkt": "KKT residual of all layers",
    "gradient_norm": "gradient norm / decay term",
}
_PERCENTAGES = {"train_error", "test_error"}
_LEFT_OUT = {"step", "seconds", "loss"}  # a loss of 10^-400 would read as 0; its logarithm does not


class Look(NamedTuple):
    """How a state is shown. Icon and word say it too, so colour is never the only sign."""

    icon: str
    colour: Literal["red", "orange", "blue", "green", "gray"]


LOOKS = {
    RunState.QUEUED: Look(":material/schedule:", "gray"),
    RunState.RUNNING: Look(":material/autorenew:", "blue"),
    RunState.DONE: Look(":material/check_circle:", "green"),
    RunState.CANCELLED: Look(":material/cancel:", "gray"),
    RunState.FAILED: Look(":material/error:", "red"),
    RunState.INTERRUPTED: Look(":material/power_off:", "orange"),
}


_OPENED, _BACK = "opened-run", "run-back-to"


def is_active(status: Status) -> bool:
    """Whether its next change comes by itself."""
    return status.state in (RunState.QUEUED, RunState.RUNNING)


def show_state(state: RunState) -> None:
    look = LOOKS[state]
    st.badge(state, icon=look.icon, color=look.colour)


def show_runs(runs: Sequence[RunSummary]) -> None:
    """A page of the list, the newest first, each run with a link to its page."""
    pages = math.ceil(len(runs) / PAGE_SIZE)
    listing = st.container(gap="xxsmall")
    page = st.pagination(pages, key="page", bind="query-params") if pages > 1 else 1
    now = datetime.now(UTC)
    with listing:
        headings = ("Run", "State", "Progress", "Duration", "Created")
        for column, heading in zip(st.columns(_LIST_COLUMNS), headings, strict=True):
            column.caption(heading)
        for run in runs[(page - 1) * PAGE_SIZE : page * PAGE_SIZE]:
            _show_row(run, now)


def show_run_link(run: RunSummary) -> None:
    """The name of a run, which leads to its page."""
    st.page_link(page_of(run.kind).file, label=f":primary[{plain(run.name)}]", query_params={"run": run.id})


def open_run(run_id: str) -> None:
    """A callback: a click whose rerun the list's own timer interrupts is not lost; see `follow_opened_run`."""
    st.session_state[_OPENED] = run_id


def follow_opened_run(back: str | None = None) -> None:
    """Go where `open_run` said, as `go_to_run` does: a callback cannot."""
    run_id = st.session_state.pop(_OPENED, None)
    if run_id is not None:
        go_to_run(run_id, back)


def go_to_run(run_id: str, back: str | None = None) -> NoReturn:
    """To the page of a run, which offers `back` as a way to this view of the home page."""
    if back is not None:
        st.session_state[_BACK] = (run_id, back, st.query_params.to_dict())
    st.switch_page(page_of(run_details(run_id).kind).file, query_params={"run": run_id})


def offer_way_back(run_id: str) -> None:
    """Where `go_to_run` came from, if it led to this run."""
    run, label, query = st.session_state.get(_BACK, (None, "", {}))
    if run == run_id and st.button(label, key="run-back", icon=":material/arrow_back:"):
        st.switch_page(HOME.file, query_params=query)


def _show_row(run: RunSummary, now: datetime) -> None:
    name, state, progress, worked, created = st.columns(_LIST_COLUMNS, vertical_alignment="center")
    with name:
        show_run_link(run)
    with state:
        show_state(run.status.state)
    with progress:
        said = replace(run.status, message=shortened(run.status.message, _ROW_MESSAGE))
        show_progress(_explained(run.id, said), seconds_left(run.id))
    worked.markdown(duration(run.status.seconds) if run.status.seconds else "–")
    created.markdown(when(datetime.fromisoformat(run.created), now))


def _explained(run_id: str, status: Status) -> Status:
    """One that is queued with why, beside the badge that says so already."""
    if status.state is not RunState.QUEUED or status.message:
        return status
    return replace(status, message=why_queued(run_id))


def show_progress(status: Status, left: float | None = None) -> None:
    """A bar while it runs and its steps are counted, else what there is to say in a line; `left` where it is known."""
    steps = f"step {status.step:,}" + (f" of {status.total:,}" if status.total else "")
    message = plain(status.message)
    if status.state is RunState.RUNNING:
        facts = [steps, f"about {duration(left)} left" if left else "", message]
        text = " · ".join(filter(None, facts))
        if status.total:
            st.progress(min(status.step / status.total, 1.0), text=text)
        else:
            st.markdown(text)
    elif status.state is RunState.DONE:
        st.markdown(message or f"{status.step:,} steps")
    elif status.state is RunState.QUEUED:
        st.markdown(message or "queued")
    else:
        st.markdown(message or steps)


def show_numbers(run: RunDetails) -> None:
    """What came out as single numbers, for kinds of runs that no page knows better."""
    figures = top_figures(run.result or run.last_metrics)
    if figures:
        st.subheader("Results" if run.result else "Latest measurement", anchor=False)
        _show_figures(figures)


def show_record(run: RunDetails) -> None:
    """What every run can be asked for: settings, command and log, and all of it as a zip."""
    with st.expander("Settings, command and log", key=f"more-{run.id}"):
        if run.config:
            show_settings(run.config)
        if run.command:
            st.markdown("This command repeats the run:")
            st.code(shlex.join(run.command), language=None, wrap_lines=True)
        if run.log:
            st.code("\n".join(run.log), language=None, wrap_lines=True)
        else:
            st.caption("Nothing has been written to the log yet.")
        running = run.status.state is RunState.RUNNING
        offer_file(
            "Run as zip",
            lambda: exported_zip(run.id),
            f"{run.id}.zip",
            key=f"zip-{run.id}",
            icon=":material/download:",
            disabled=running,
            help="Available once the run has ended." if running else "The run and the runs it was made from.",
        )


def show_standing(run_id: str, status: Status, left: float | None = None) -> None:
    """How far it is, or why it goes no further."""
    status = _explained(run_id, status)
    if status.state is RunState.FAILED:
        st.error(plain(status.message) or "It failed without saying why; the log may tell.", icon=":material/error:")
    elif status.state is RunState.INTERRUPTED:
        st.warning(plain(status.message), icon=":material/power_off:")
    elif status.state is not RunState.QUEUED or status.message:
        show_progress(status, left)


def top_figures(values: Mapping[str, Any]) -> dict[str, str]:
    """Single numbers among `values` by name, as many as can be large: those of FIGURE_NAMES first, then any others."""
    found = {}
    for key in dict.fromkeys([*FIGURE_NAMES, *values]):
        value = values.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and key not in _LEFT_OUT:
            name = FIGURE_NAMES.get(key, key.replace("_", " "))
            found[name] = _figure(key, value)
    return dict(list(found.items())[:FIGURES_SHOWN])


def _figure(key: str, value: float) -> str:
    if key == "log_loss":
        return signed(log10_loss(float(value)))
    return f"{value:.1%}" if key in _PERCENTAGES else number(value)


def _show_figures(figures: Mapping[str, str]) -> None:
    width = 4
    items = list(figures.items())
    for start in range(0, len(items), width):
        for column, (name, value) in zip(st.columns(width), items[start : start + width], strict=False):
            column.metric(plain(name), value, border=True)


# Settings never change, and their tables were most of what drawing a live page cost: the cache keeps them as sent.
@st.cache_data(max_entries=64, show_spinner=False)
def show_settings(config: Mapping[str, Any]) -> None:
    """A table for each section; what was left unset is left out."""
    sections = {key: value for key, value in config.items() if isinstance(value, Mapping)}
    rest = {key: value for key, value in config.items() if key not in sections}
    if rest:
        sections["run"] = rest
    sections = dict(list(sections.items())[:_MOST_SECTIONS])
    if not sections:
        return
    for column, (section, values) in zip(st.columns(len(sections)), sections.items(), strict=True):
        title, labels = section_labels(section, values)
        with column:
            st.markdown(f"**{plain(title)}**")
            st.table(
                {plain(labels[key]): plain(_setting(value)) for key, value in values.items() if value is not None},
                border="horizontal",
                hide_header=True,
            )


def _setting(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)
