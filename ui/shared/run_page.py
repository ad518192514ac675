"""The page of one run. Every run has one, on the page of its kind; whatever else names a run leads there."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from recon_core.store import RunSummary
from ui.shared.faults import errors_shown
from ui.shared.formatting import plain
from ui.shared.pages import EXPERIMENTS, LAST_RUN, SHOWN_RUN, TRAIN, Page, is_arrival, page_of
from ui.shared.run_panel import show_live_run
from ui.shared.runs import go_to_run, offer_way_back, show_record, show_run_link
from ui.shared.store import RunDetails, recent_runs, run_details

ADDRESS = "run"
_MOST_LINKS = 6


def opened_run(page: Page) -> RunDetails:
    """The run that the address names. One that `page` does not show is opened where it belongs."""
    run_id = st.query_params[ADDRESS]
    run = run_details(run_id)
    if page_of(run.kind) is not page:
        go_to_run(run_id)
    if st.session_state.get(LAST_RUN) != run_id and not is_arrival():
        # A link from this page to itself leaves the browser's address as it was; the next click would lose the run.
        # From another page the browser takes the address by itself, but not at once: told of it in between, it would
        # put the run into the address of the page before, to which Back then leads.
        st.query_params[ADDRESS] = run_id
    st.session_state[SHOWN_RUN] = run_id
    return run


def show_run_page(run: RunDetails, body: Callable[[RunDetails], None]) -> None:
    """Its name, what it belongs to, how it stands, what can be done with it, `body`, and its record."""
    offer_way_back(run.id)
    st.title(plain(run.name), anchor=False)
    show_relations(run)

    def draw(now: RunDetails) -> None:
        with errors_shown():  # a damaged file does not hide the rest
            body(now)
        show_record(now)

    show_live_run(run.id, draw, named=False)


def show_relations(run: RunDetails) -> None:
    """The experiment it is part of, what it was made from and what was made from it, as links."""
    known = {other.id: other for other in recent_runs()}
    parents = [known[parent] for parent in run.parents if parent in known]
    children = [other for other in known.values() if run.id in other.parents]
    network = _network(run, known)
    if not (parents or children or network):
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="xsmall", key="run-relations"):
        if network is not None:
            st.page_link(
                EXPERIMENTS.file,
                label=":primary[Its experiment]",
                icon=":material/science:",
                query_params={"experiment": network},
            )
        for words, others in (("made from", parents), ("used by", children)):
            if others:
                st.caption(words, width="content")
            for other in others[:_MOST_LINKS]:
                show_run_link(other)
            if len(others) > _MOST_LINKS:
                st.caption(f"and {len(others) - _MOST_LINKS} more", width="content")


def _network(run: RunDetails, known: dict[str, RunSummary]) -> str | None:
    """The network at the root of what it was made from: experiments go by its id."""
    if page_of(run.kind) is TRAIN:
        return run.id
    waiting, seen = list(run.parents), set[str]()
    while waiting:
        parent = known.get(waiting.pop(0))
        if parent is None or parent.id in seen:
            continue
        if page_of(parent.kind) is TRAIN:
            return parent.id
        seen.add(parent.id)
        waiting += parent.parents
    return None
