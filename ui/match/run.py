"""The page of one match run: its state, its result, and a link to its sliders."""

from __future__ import annotations

import streamlit as st

from recon_core.store import RunState
from ui.shared.match_pairs import show_match_pairs
from ui.shared.pages import MATCH
from ui.shared.run_page import opened_run, show_run_page
from ui.shared.store import RunDetails

PAIRS = 12


def show_match_run() -> None:
    """Show the run that the address names."""
    if st.button("Match", icon=":material/arrow_back:"):
        del st.query_params["run"]
        st.rerun()
    show_run_page(opened_run(MATCH), _show)


def _show(run: RunDetails) -> None:
    if run.status.state is not RunState.DONE:
        return
    if st.button(
        "Open in Match",
        key=f"match-open-{run.id}",
        icon=":material/compare:",
        type="primary",
        help="All pairs, with sliders for the threshold and B, set to the values of this run.",
    ):
        st.switch_page(MATCH.file, query_params={"from": run.id})
    show_match_pairs(run.id, PAIRS, key="match-run-pairs", name="Best pairs, training images above reconstructions")
