"""What a Match page shows, as downloads, and as a run that Analyze and the command line know."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from recon_core.runs.match_request import create_match
from recon_core.runs.match_source import MatchConfig
from recon_core.scheduling import queue
from recon_core.store import RunState, RunStore, default_root
from recon_core.views.live_match import ImagePool, PairView
from recon_core.views.match_export import grid_png, pairs_csv, pairs_zip
from ui.shared.downloads import offer_file
from ui.shared.formatting import plain
from ui.shared.live import keep_fresh
from ui.shared.runs import is_active, show_state
from ui.shared.store import forget, run_details


def offer_downloads(
    pool: ImagePool, view: PairView, shown: Sequence[int], order: Sequence[int], config: MatchConfig
) -> None:
    """The grid as it stands, the table of all pairs, and both with every pair in a zip."""
    with st.popover("Download", icon=":material/download:"):
        offer_file(
            "This page of the grid, as a picture",
            lambda: grid_png(view, shown, config.threshold),
            "pairs.png",
            key="m-png",
            width="stretch",
        )
        offer_file(
            "All pairs, as a table",
            lambda: pairs_csv(pool, view, order, config.threshold),
            "pairs.csv",
            key="m-csv",
            width="stretch",
            help="CSV: SSIM, PSNR, correlation, distance, candidates merged, model output.",
        )
        offer_file(
            "All pairs, pictures and table",
            lambda: pairs_zip(pool, view, order, config),
            "pairs.zip",
            key="m-zip",
            width="stretch",
            help="A zip with a PNG of every pair, the table and the settings.",
        )


def offer_run(config: MatchConfig, saved: str | None) -> None:
    """Keep the matching as a run, once; `saved` is the run that keeps it already."""
    if st.button(
        "Save",
        key="m-save",
        icon=":material/save:",
        disabled=saved is not None,
        help="Keeps this matching, with these settings, in the store, where Analyze and the command line find it.",
    ):
        queue.submit(create_match(RunStore(default_root()), config))
        forget()
        st.rerun()


def show_saved(run_id: str) -> str:
    """The sentence that says so once a run keeps this matching; until then how that run stands is drawn."""
    run = run_details(run_id)
    if run.status.state is RunState.DONE:
        return f"This matching is saved as {plain(run.name)}."
    keep_fresh(lambda: _show_saving(run_id), lambda: is_active(run_details(run_id).status))
    return ""


def _show_saving(run_id: str) -> None:
    run = run_details(run_id)
    with st.container(horizontal=True, vertical_alignment="center"):
        show_state(run.status.state)
        st.markdown(f"This matching is being saved as {plain(run.name)}", width="content")
