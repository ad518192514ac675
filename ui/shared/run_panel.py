"""One run at work: how it stands, kept fresh, and everything that can be done with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import streamlit as st

from recon_core.errors import AfterimageError
from recon_core.scheduling import NOWHERE, move, queue
from recon_core.store import Run, RunState, RunStore, Status, default_root, dependents_among
from ui.shared.faults import errors_shown
from ui.shared.formatting import duration, plain
from ui.shared.live import keep_fresh
from ui.shared.memory import may_start
from ui.shared.pace import seconds_left, unmixes
from ui.shared.pages import FORM_PAGES
from ui.shared.runs import KIND_NAMES, is_active, show_standing, show_state
from ui.shared.store import RunDetails, forget, recent_runs, run_details

_RESUMABLE = (RunState.CANCELLED, RunState.FAILED, RunState.INTERRUPTED)
_LOG_LINES_OF_A_DEAD_RUN = 8


def show_live_run(run_id: str, body: Callable[[RunDetails], None] | None = None, *, named: bool = True) -> None:
    """State, progress and actions of a run; `body` draws what the page adds, again whenever there is news.

    Without `named` the page has its name as a title.
    """
    show_actions(run_details(run_id))
    keep_fresh(lambda: _show(run_id, body, named), lambda: is_active(run_details(run_id).status))


def _show(run_id: str, body: Callable[[RunDetails], None] | None, named: bool) -> None:
    run = run_details(run_id)
    show_state_and_log(run, named=named)
    if body is not None:
        body(run)


def show_state_and_log(run: RunDetails, *, named: bool = True) -> None:
    """The state in a line, and where a run ended badly why, with the last lines of its log."""
    status = run.status
    with st.container(horizontal=True, vertical_alignment="center"):
        show_state(status.state)
        name = f"**{plain(run.name)}**" if named else ""
        where = f"on the cluster {plain(_cluster_of(run))}" if _cluster_of(run) else ""
        st.markdown(" · ".join(filter(None, [name, KIND_NAMES.get(run.kind, run.kind), where, _pace(status)])))
    show_standing(run.id, replace(status, message="unmixing") if unmixes(run) else status, seconds_left(run.id))
    for fault in run.faults:
        st.warning(f"A file of this run does not read as it should: {plain(fault)}.", icon=":material/broken_image:")
    if status.state in (RunState.FAILED, RunState.INTERRUPTED) and run.log:
        st.code("\n".join(run.log[-_LOG_LINES_OF_A_DEAD_RUN:]), language=None, wrap_lines=True)


def _pace(status: Status) -> str:
    """Steps a second so far, or the time it took."""
    if not status.seconds:
        return ""
    if status.state is RunState.RUNNING and status.step:
        return f"{status.step / status.seconds:,.3g} steps/s · {duration(status.seconds)} so far"
    return f"duration {duration(status.seconds)}"


def show_actions(run: RunDetails) -> None:
    """Cancel or resume, settings into a form, another name, deletion."""
    if run.lacks_path:
        _show_attaching(run)
    resumable = run.status.state in _RESUMABLE
    ready = resumable and may_start(run.kind, run.config, f"resume-{run.id}")
    ready_here = resumable and bool(_cluster_of(run)) and may_start(run.kind, _here(run.config), f"here-{run.id}")
    with st.container(horizontal=True, gap="small"):
        if is_active(run.status) and st.button("Cancel", key=f"cancel-{run.id}", icon=":material/stop_circle:"):
            _do(lambda: queue.cancel(_open(run.id)), "It had already ended.")
        if resumable and st.button(
            "Resume",
            key=f"resume-{run.id}",
            icon=":material/play_circle:",
            type="primary",
            disabled=not ready,
        ):
            _do(lambda: queue.resume(_open(run.id)))
        if (
            resumable
            and _cluster_of(run)
            and st.button(
                "Resume on this machine",
                key=f"here-{run.id}",
                icon=":material/computer:",
                disabled=not ready_here,
                help="What is left of it is done here, without the cluster.",
            )
        ):
            _do(lambda: _resume_here(_open(run.id)))
        if run.kind in FORM_PAGES and st.button(
            "Use these settings",
            key=f"clone-{run.id}",
            icon=":material/content_copy:",
            help="Fills the form with them.",
        ):
            st.switch_page(FORM_PAGES[run.kind].file, query_params={"from": run.id})
        with st.popover("Rename", icon=":material/edit:"):
            name = st.text_input("Name", value=run.own_name, placeholder=run.name, max_chars=120, key=f"name-{run.id}")
            if st.button("Save the name", key=f"rename-{run.id}", disabled=not name or name == run.own_name):
                _do(lambda: RunStore(default_root()).rename(run.id, name or ""))
        with st.popover("Delete", icon=":material/delete:", disabled=run.status.state is RunState.RUNNING):
            _show_deletion(run)


def _show_attaching(run: RunDetails) -> None:
    """Asks for what an imported run reads: no zip says which folder of this machine that is."""
    st.info("What this run reads was left out when it was imported; attach your own to go on.", icon=":material/link:")
    with st.form(f"attach-{run.id}", border=False, enter_to_submit=True):
        path = st.text_input("Folder, .npz file or checkpoint on this machine", key=f"path-{run.id}")
        if st.form_submit_button("Attach") and path:
            _do(lambda: RunStore(default_root()).attach(run.id, Path(path).expanduser()))


def _show_deletion(run: RunDetails) -> None:
    dependents = dependents_among(recent_runs(), run.id)  # drawn with the page, open or not: no walk over the store
    st.markdown(f"Delete **{plain(run.name)}** permanently?")
    if dependents:
        names = ", ".join(plain(found.name) for found in dependents[:5])
        more = f" and {len(dependents) - 5} more" if len(dependents) > 5 else ""
        st.markdown(f"This also deletes the {len(dependents)} runs made from it: {names}{more}.")
    if st.button("Yes, delete", key=f"delete-{run.id}", type="primary"):
        with errors_shown():
            RunStore(default_root()).delete(run.id, with_dependents=True)
            forget()
            st.query_params.pop("run", None)
            st.rerun()


def _cluster_of(run: RunDetails) -> str:
    """Where the parts of a search or a study are done, if not here."""
    return str(run.config.get("cluster") or "")


def _here(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a search or a study whose parts are done on this machine."""
    return {**config, "cluster": None}


def _resume_here(run: Run) -> None:
    move(run, {"cluster": NOWHERE})
    queue.resume(run)


def _open(run_id: str) -> Run:
    return RunStore(default_root()).open(run_id)


def _do(action: Callable[[], object], nothing: str | None = None) -> None:
    """Do it, then draw the page anew; a refusal stays on the page."""
    try:
        result = action()
    except AfterimageError as error:
        st.toast(plain(str(error)), icon=":material/error:")
        return
    if result is False and nothing:
        st.toast(nothing)
    forget()
    st.rerun()
