"""Choosing runs on a page. The choice is part of the page's address, so a link or a reload brings it back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import streamlit as st

from recon_core.store import RunState, RunSummary
from ui.shared.formatting import plain
from ui.shared.pages import Page
from ui.shared.store import recent_runs

Condition = Callable[[RunSummary], bool]


def runs_of(
    kinds: Collection[str], where: Condition | None = None, states: Collection[RunState] = (RunState.DONE,)
) -> list[RunSummary]:
    """Runs of those kinds and states, the newest first."""
    return [
        run
        for run in recent_runs()
        if run.kind in kinds and run.status.state in states and (where is None or where(run))
    ]


def pick_run(
    label: str,
    *,
    kinds: Collection[str],
    key: str,
    where: Condition | None = None,
    states: Collection[RunState] = (RunState.DONE,),
    help: str | None = None,
) -> RunSummary | None:
    """One run, the newest unless chosen; None where there is none to choose."""
    found = {run.id: run for run in runs_of(kinds, where, states)}
    if not found:
        return None
    chosen = st.selectbox(
        label,
        list(found),
        format_func=lambda run_id: run_label(found[run_id]) if run_id in found else run_id,
        key=key,
        help=help,
        bind="query-params",
        persist_state="session",
    )
    return found.get(chosen) if chosen else None


def pick_runs(
    label: str,
    *,
    kinds: Collection[str],
    key: str,
    where: Condition | None = None,
    max_selections: int | None = None,
    default: Sequence[str] = (),
    help: str | None = None,
) -> list[RunSummary]:
    """Several done runs, in the order chosen."""
    found = {run.id: run for run in runs_of(kinds, where)}
    chosen = st.multiselect(
        label,
        list(found),
        default=[run_id for run_id in default if run_id in found],
        format_func=lambda run_id: run_label(found[run_id]) if run_id in found else run_id,
        key=key,
        max_selections=max_selections,
        help=help,
        placeholder="Choose runs" if found else "There are none yet",
        bind="query-params",
        persist_state="session",
    )
    return [found[run_id] for run_id in chosen if run_id in found]


def run_label(run: RunSummary) -> str:
    """A run in a list: the user's name for it where there is one, and always its id."""
    return run.id if run.name == run.id else f"{run.name} · {run.id}"


def show_nothing_yet(what: str, next_step: str, page: Page | None = None, label: str | None = None) -> None:
    """An empty state: what is missing, and the way to it."""
    with st.container(border=True, width=860):
        st.markdown(f"**{plain(what)}** {next_step}")
        if page is not None:
            st.page_link(page.file, label=label or page.title, icon=":material/arrow_forward:")
