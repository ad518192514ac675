"""Reconstructions of one model side by side, each in a card."""

from __future__ import annotations

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from recon_core.plots.attack import plot_candidate_points
from recon_core.store import RunState, RunSummary
from recon_core.views.live_reconstruction import TileOrder, Truth
from ui.reconstruct.cached import counted, picture, picture_key, truth
from ui.reconstruct.counts import conditions_in_short, count_in_short
from ui.reconstruct.tiles import show_tiles
from ui.shared.figures import on_page
from ui.shared.formatting import plain
from ui.shared.runs import show_progress, show_state

_TILES, _COLUMNS = 30, 6
_POINTS_HEIGHT = 260


def card_columns(count: int, key: str) -> list[DeltaGenerator]:
    """Fewer in a row where their words would break."""
    st.html(f"<style>.st-key-{key} [data-testid=stColumn] {{ min-width: 10.5rem; }}</style>")
    with st.container(key=key):
        return list(st.columns(count))


def show_run(run: RunSummary, model_id: str, order: TileOrder, key: str) -> None:
    """What a finished run found, else how far it is."""
    if run.status.state is RunState.DONE:
        show_result(run.id, model_id, final=True, order=order, key=key)
    else:
        show_state(run.status.state)
        show_progress(run.status)


def offer_to_open(run_id: str, key: str) -> None:
    if st.button("Open", key=key, type="tertiary", icon=":material/open_in_full:"):
        st.query_params["run"] = run_id
        st.rerun()


def show_conditions(model_id: str, run_ids: list[str]) -> None:
    """Once for all cards, what the counts in them rest on."""
    for run_id in run_ids:
        key = picture_key(run_id)
        scored = None if key is None else counted(model_id, key, final=True)
        text = "" if scored is None else conditions_in_short(scored.count)
        if text:
            st.caption(plain(f"Counts use the training data, which the attack never sees. {text}"))
            return


def show_result(run_id: str, model_id: str, *, final: bool, order: TileOrder, key: str) -> None:
    """Candidates and their count; `key` names the card, since a run may stand in several."""
    newest = picture_key(run_id)
    found = None if newest is None else picture(newest)
    if newest is None or found is None:
        st.caption("Nothing to see yet.")
        return
    if found.planar:
        drawn = plot_candidate_points(found.candidates, found.labels, found.multipliers, None)
        for update in (drawn.update_xaxes, drawn.update_yaxes):
            update(title=None, showticklabels=False, ticks="")
        drawn.update_layout(showlegend=False, margin={"l": 8, "b": 8})
        st.plotly_chart(on_page(drawn, height=_POINTS_HEIGHT), key=f"{key}-points", width="stretch")
    else:
        show_tiles(newest, order, _TILES, _COLUMNS, model_id=model_id, opens=final, key=f"{key}-tiles")
    if truth(model_id) is Truth.AT_HAND and (scored := counted(model_id, newest, final=final)) is not None:
        st.caption(f":material/visibility_off: {plain(count_in_short(scored.count, found.total))}")
