"""One experiment: its network, attacks, controls, matchings and results, and the user's tags and note."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import streamlit as st

from recon_core.store import Notes, RunStore, RunSummary, default_root
from recon_core.views.experiments import Experiment
from ui.experiments.cached import all_experiments, exported_experiment, one_experiment
from ui.experiments.cards import OPENED, count_text, delete_experiments, show_pairs
from ui.shared.downloads import offer_file
from ui.shared.faults import errors_shown
from ui.shared.formatting import duration, plain, when
from ui.shared.live import keep_fresh
from ui.shared.pages import ANALYZE, MATCH, RECONSTRUCT
from ui.shared.runs import is_active, show_run_link, show_state
from ui.shared.store import forget

_PAIRS = 12


def show_one(model_id: str) -> None:
    if st.button("All experiments", icon=":material/arrow_back:"):
        del st.query_params[OPENED]
        st.rerun()
    found = one_experiment(model_id)
    _show_actions(found)
    keep_fresh(lambda: _show(model_id), lambda: any(is_active(run.status) for run in one_experiment(model_id).runs))
    _show_notes(found)


def _show_actions(found: Experiment) -> None:
    with st.container(horizontal=True, gap="small"):
        if st.button("Attack it", icon=":material/play_arrow:", key="e_attack"):
            st.switch_page(RECONSTRUCT.file, query_params={"model": found.id})
        if found.count is not None:
            if st.button("Open in Match", icon=":material/compare:", key="e_match", type="primary"):
                st.switch_page(MATCH.file, query_params={"from": found.count.match})
            if st.button("Analyze", icon=":material/query_stats:", key="e_analyze"):
                st.switch_page(ANALYZE.file)
        with st.popover("Rename", icon=":material/edit:"):
            name = st.text_input("Name", placeholder=found.name, max_chars=120, key="e_name")
            if st.button("Save the name", key="e_rename", disabled=not name):
                with errors_shown():
                    RunStore(default_root()).rename(found.id, name or "")
                    _reload()
        offer_file(
            "Export",
            lambda: exported_experiment(found.id),
            f"{found.id}.zip",
            key="e_zip",
            disabled=found.state == "at work",
            help="The network and all that was made from it.",
        )
        with st.popover("Delete", icon=":material/delete:"):
            st.markdown(f"Delete **{plain(found.name)}** and its {len(found.runs)} runs permanently?")
            if st.button("Yes, delete", key="e_delete", type="primary"):
                st.query_params.pop(OPENED, None)
                delete_experiments([found])


def _show(model_id: str) -> None:
    found = one_experiment(model_id)
    st.title(plain(found.name), anchor=False)  # kept fresh too: a run may be renamed elsewhere
    st.markdown(f"{count_text(found)} · {found.state}")
    show_pairs(found, _PAIRS)
    if found.varied:
        st.caption(f"Varied: {plain(', '.join(found.varied))}")
    for title, runs in (
        ("Network", (found.model,)),
        ("Attacks", found.attacks),
        ("Controls", found.controls),
        ("Matchings", found.matchings),
    ):
        if runs:
            st.subheader(title, anchor=False)
            _show_runs(runs)


def _show_runs(runs: Sequence[RunSummary]) -> None:
    now = datetime.now(UTC)
    for run in runs:
        name, state, message, worked = st.columns((4, 1.7, 4.4, 2.6), vertical_alignment="center")
        with name:
            show_run_link(run)
        with state:
            show_state(run.status.state)
        message.markdown(plain(run.status.message) or "–")
        spent = duration(run.status.seconds) if run.status.seconds else "–"
        worked.markdown(f"{spent}, {when(datetime.fromisoformat(run.created), now)}")


def _show_notes(found: Experiment) -> None:
    st.subheader("Tags and notes", anchor=False)
    known = sorted({tag for one in all_experiments() for tag in one.notes.tags})
    tags = st.multiselect(
        "Tags",
        [*dict.fromkeys([*found.notes.tags, *known])],
        default=list(found.notes.tags),
        accept_new_options=True,
        key=f"e_tags_{found.id}",
        placeholder="Choose a tag or type a new one",
    )
    text = st.text_area("Note", value=found.notes.text, key=f"e_note_{found.id}", height=100)
    if st.button(
        "Save", key="e_save", disabled=(tuple(tags), (text or "").strip()) == (found.notes.tags, found.notes.text)
    ):
        with errors_shown():
            RunStore(default_root()).annotate(found.id, Notes(tuple(tags), text or ""))
            _reload()


def _reload() -> None:
    all_experiments.clear()
    forget()
    st.rerun()
