"""Choosing runs on a page. The choice is part of the page's address, so a link or a reload brings it back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import streamlit as st

from recon_core.store import RunState, RunSummary
from ui.shared.address import recall, record
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
    recall_runs(key, found)
    chosen = st.selectbox(
        label,
        list(found),
        format_func=lambda run_id: run_label(found[run_id]) if run_id in found else run_id,
        key=key,
        help=help,
        persist_state="session",
    )
    record(key, [chosen] if chosen else [])
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
    recall_runs(key, found, several=True)
    usual = [run_id for run_id in default if run_id in found]
    if key not in st.session_state:
        st.session_state[key] = usual
    chosen = st.multiselect(
        label,
        list(found),
        format_func=lambda run_id: run_label(found[run_id]) if run_id in found else run_id,
        key=key,
        max_selections=max_selections,
        help=help,
        placeholder="Choose runs" if found else "There are none yet",
        persist_state="session",
    )
    record(key, chosen)
    return [found[run_id] for run_id in chosen if run_id in found]


def run_label(run: RunSummary) -> str:
    """A run in a list, by its name; no two runs of a store have the same."""
    return run.name


def recall_runs(key: str, found: Collection[str], *, several: bool = False) -> None:
    """Choose what the address names; a link to a run that is gone says so."""
    missing = recall(key, found, several=several)
    there = {run.id for run in recent_runs()} if missing else set()
    for run_id in missing:
        why = "cannot be chosen here" if run_id in there else "is not in this store any more; it may have been deleted"
        st.warning(f"The link names run {plain(run_id)}, which {why}.", icon=":material/link_off:")


def show_nothing_yet(what: str, next_step: str, page: Page | None = None, label: str | None = None) -> None:
    """An empty state: what is missing, and the way to it."""
    with st.container(border=True, width=860):
        st.markdown(f"**{plain(what)}** {next_step}")
        if page is not None:
            st.page_link(page.file, label=label or page.title, icon=":material/arrow_forward:")
