"""Analyze: which training images leaked, and what sets them apart; figures, comparisons, tables, presenter mode."""

from __future__ import annotations

import streamlit as st

from ui.analyze.cached import models, runs_to_analyse
from ui.analyze.controls import View, choose, choose_view, show_nothing
from ui.analyze.models import show_decay, show_errors, show_several
from ui.analyze.one import show_one
from ui.analyze.slides import FIRST_SLIDES, slides
from ui.shared.pages import ANALYZE, show_page
from ui.shared.presenter import is_presenting, offer_presenting, present


def page() -> None:
    if not runs_to_analyse() and not models():
        st.title("Analyze", anchor=False)
        show_nothing()
        return
    # A presented page has no heading, and its sidebar is out of sight: what it says is what the slides show.
    view = None if is_presenting() else heading()
    with st.sidebar:
        controls = choose(view)
    settings = controls.settings
    match view:
        case None:
            present(slides(controls))
        case View.SEVERAL:
            show_several(controls.runs, settings)
        case View.DECAY:
            show_decay(controls.family, settings)
        case View.ERRORS:
            show_errors(settings.threshold)
        case View.ONE if controls.run is not None and controls.request is not None:
            show_one(controls.run, controls.request, settings)
        case View.ONE:
            show_nothing()


def heading() -> View:
    """Title, what to show, and the way to present it."""
    with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
        st.title("Analyze", anchor=False, width="content")
        view = choose_view()
        offer_presenting("a_present", FIRST_SLIDES[view])
    st.markdown("Which training images leaked, and whether they are the ones that the network only just gets right.")
    return view


show_page(ANALYZE, page)
