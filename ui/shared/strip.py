"""The strip in the sidebar of every page: what runs and how far it is, what waits and why."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

import streamlit as st

from recon_core.errors import AfterimageError
from recon_core.scheduling import queue
from recon_core.scheduling.overview import Waiting, queue_overview
from recon_core.store import Run, RunStore, RunSummary, default_root
from ui.shared.formatting import duration, plain
from ui.shared.pace import pace, seconds_left
from ui.shared.store import forget, recent_runs, run_details

STRIP_SECONDS = 2
MOST_SHOWN = 5
_REFUSED = "strip-refused"
_STYLE = """<style>
.st-key-strip p { font-size: 0.82rem; line-height: 1.3; }
.st-key-strip [data-testid="stCaptionContainer"] p { font-size: 0.75rem; }
.st-key-strip [data-testid="stPageLink-NavLink"] { padding: 0; min-height: 0; }
.st-key-strip [data-testid="stPageLink-NavLink"] p { white-space: normal; font-weight: 600; }
.st-key-strip button { min-height: 1.6rem; padding: 0 0.4rem; }
</style>"""


def show_strip(run_pages: Mapping[str, str]) -> None:
    """Draw it, and keep it fresh beside whatever the page does; `run_pages` are files of pages by kind of run."""
    with st.sidebar:
        _strip(run_pages)


@st.fragment(run_every=STRIP_SECONDS)
def _strip(run_pages: Mapping[str, str]) -> None:
    # What is wrong with the store is said by the page itself.
    with st.container(key="strip", gap="xsmall"), contextlib.suppress(AfterimageError):
        found = queue_overview(RunStore(default_root()), recent_runs())
        if refused := st.session_state.pop(_REFUSED, None):
            st.error(plain(refused))
        if not (found.running or found.waiting):
            st.caption("Nothing is running.")
            return
        st.html(_STYLE)
        for run in found.running[:MOST_SHOWN]:
            _show_running(run, run_pages)
        _show_more(len(found.running), "running")
        if found.waiting:
            st.markdown(f"**{len(found.waiting)} waiting**")
        for waiting in found.waiting[:MOST_SHOWN]:
            _show_waiting(waiting, run_pages)
        _show_more(len(found.waiting), "waiting")


def _show_running(run: RunSummary, run_pages: Mapping[str, str]) -> None:
    with st.container(border=True, gap="xsmall"):
        _show_name(run, run_pages)
        left = seconds_left(run.id)
        facts = [duration(run.status.seconds), "" if left is None else f"about {duration(left)} left"]
        text = " · ".join(filter(None, facts))
        # How many steps a training takes, nobody knows; how far its loss is, it says itself.
        if run.status.total and run.kind != "train":
            st.progress(min(run.status.step / run.status.total, 1.0), text=text)
        else:
            st.caption(f"{text}  \n{pace(run_details(run.id))}")
        st.button(
            "Stop",
            key=f"strip-stop-{run.id}",
            icon=":material/stop_circle:",
            type="tertiary",
            on_click=_stop,
            args=(run.id,),
            help=f"Stop {plain(run.name)}; it can be resumed.",
        )


def _show_waiting(waiting: Waiting, run_pages: Mapping[str, str]) -> None:
    run = waiting.run
    with st.container(border=True, gap="xsmall"):
        _show_name(run, run_pages)
        st.caption(f"{plain(waiting.why)} · for {duration(waiting.seconds)}")
        with st.container(horizontal=True, gap="small"):
            st.button(
                "Move up",
                key=f"strip-up-{run.id}",
                icon=":material/arrow_upward:",
                type="tertiary",
                disabled=waiting.next,
                on_click=_move_up,
                args=(run.id,),
                help="Lets it start before everything else that waits.",
            )
            st.button(
                "Take out",
                key=f"strip-stop-{run.id}",
                icon=":material/close:",
                type="tertiary",
                on_click=_stop,
                args=(run.id,),
                help=f"Take {plain(run.name)} out of the queue; it can be resumed.",
            )


def _show_name(run: RunSummary, run_pages: Mapping[str, str]) -> None:
    if run.kind in run_pages:
        st.page_link(run_pages[run.kind], label=plain(run.name), query_params={"run": run.id})
    else:
        st.markdown(plain(run.name))


def _show_more(count: int, what: str) -> None:
    if count > MOST_SHOWN:
        st.caption(f"and {count - MOST_SHOWN} more {what}")


# Callbacks: a click whose rerun the strip's own timer interrupts is not lost.
def _stop(run_id: str) -> None:
    _do(queue.cancel, run_id)


def _move_up(run_id: str) -> None:
    _do(queue.move_up, run_id)


def _do(action: Callable[[Run], bool], run_id: str) -> None:
    try:
        action(RunStore(default_root()).open(run_id))
    except AfterimageError as error:
        st.session_state[_REFUSED] = str(error)
    forget()
