"""Match: which training images were reconstructed, and what would match although nothing leaked.

`?run=<id>` is the page of one match run, `?from=<id>` takes its settings or an attack's candidates.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from recon_core.runs.match_source import MatchConfig
from recon_core.views.live_match import ImagePool, PointPool
from ui.match.choice import WHAT, choose_runs, matchable_runs
from ui.match.counts import show_conditions
from ui.match.downloads import offer_downloads, offer_run, show_saved
from ui.match.filters import choose_filter
from ui.match.keys import lecture_buttons, page_keys
from ui.match.pairs import choose_order, choose_page, chosen_pair, show_pair, show_pairs
from ui.match.points import show_points
from ui.match.pool import matches_like, pool_for, view_of
from ui.match.run import show_match_run
from ui.match.settings import PAIR_KEY, choose_settings
from ui.shared.definitions import show_definitions
from ui.shared.lecture import is_lecture, offer_lecture
from ui.shared.pages import MATCH, RECONSTRUCT, TRAIN, show_page
from ui.shared.pick import show_nothing_yet
from ui.shared.store import recent_runs


def page() -> None:
    if "run" in st.query_params:
        show_match_run()
        return
    found = matchable_runs()
    if not found:
        st.title("Match", anchor=False)
        st.markdown(WHAT, width=860)
        first_steps()
        return
    if is_lecture():
        offer_lecture(page_keys(), escape=PAIR_KEY not in st.query_params)
    with st.container(key="lecture-hides-runs" if is_lecture() else "match-runs"):
        chosen = choose_runs(found)
    if chosen is None:
        st.info("Choose at least one reconstruction above.", icon=":material/arrow_upward:")
        return
    if chosen.facts.planar:
        pool = pool_for(MatchConfig(runs=chosen.runs, untrained=chosen.untrained), chosen.facts)
        if isinstance(pool, PointPool):
            show_points(pool)
        return
    config, actions = choose_settings(chosen.runs, chosen.untrained, chosen.facts, WHAT)
    pool = pool_for(config, chosen.facts)
    if isinstance(pool, ImagePool):
        show_images(pool, config, actions)


def show_images(pool: ImagePool, config: MatchConfig, actions: DeltaGenerator) -> None:
    view = view_of(pool, config)
    large = st.container()
    key = "lecture-hides-order" if is_lecture() else "match-order"
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key=key):
        asked = choose_filter(view)
        order = choose_order(view, asked)
        shown = choose_page(order)
        if not is_lecture():
            show_definitions()
            offer_lecture(page_keys())
    with actions, out_of_sight("actions"):
        offer_downloads(pool, view, shown, order, config)
        saved = matches_like(config, pool.source.default_factor)
        offer_run(config, saved)
    with out_of_sight("words"):
        show_conditions(view, config.threshold, "" if saved is None else show_saved(saved))
    chosen = chosen_pair(len(view.ssim))
    if is_lecture():
        lecture_buttons(order, config.merge_factor)
    # One thing at a time in a lecture: a pair that is open has the screen.
    with out_of_sight("board") if chosen is not None else nullcontext():
        show_pairs(pool, view, shown, config, chosen)
    if chosen is not None:
        with large:
            show_pair(pool, view, chosen, order, config.threshold)


def out_of_sight(what: str) -> AbstractContextManager[object]:
    """Around what a lecture does without."""
    return st.container(key=f"lecture-hides-{what}") if is_lecture() else nullcontext()


def first_steps() -> None:
    if any(run.kind == "train" for run in recent_runs()):
        show_nothing_yet(
            "There is nothing to match yet.",
            "Attack a network first: the candidates it gives can then be compared with the training images.",
            RECONSTRUCT,
        )
    else:
        show_nothing_yet(
            "There is nothing to match yet.",
            "Train a network, then attack it: its candidates can then be compared with the training images.",
            TRAIN,
        )


show_page(MATCH, page)
