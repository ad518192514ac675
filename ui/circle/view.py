"""The circle, for teaching: one small training set seen whole, learnt, and drawn out of the weights again.

It opens with a recording that needs no engine; whatever is run here and now is in `ui.circle.live`.
"""

from __future__ import annotations

import streamlit as st

from ui.circle.choice import BOUND, LIVE, ask_to_run, choose, forget_choice, was_turned
from ui.circle.recording import RECORDED, show_recording
from ui.shared.keys import Key
from ui.shared.lecture import is_lecture, offer_lecture

_ASKED = "1"  # in the place of a run that is yet to be made
# The player itself listens to them: without a lecture once it has the focus.
KEYS = (
    Key("Space", "play, pause"),
    Key("← →", "one step back or on"),
    Key("+ −", "faster, slower"),
    Key("1 to 6", "the stages, from the data to the result"),
    Key("Home, End", "the beginning, the end"),
)


def circle_view() -> None:
    with st.container(horizontal=True, vertical_alignment="center", key=_head()):
        if st.button("Home", icon=":material/arrow_back:"):
            forget_choice()
            st.query_params.clear()
            st.rerun()
        st.header("The circle", anchor=False, width="content")
        st.space("stretch")
        two = st.toggle("Compare with another setting", key="c_two", **BOUND)
        if not is_lecture():
            offer_lecture(KEYS)
    if is_lecture():
        offer_lecture(KEYS)
    with st.container(key=f"{_head()}-settings"):
        first = choose(0, _turned)
    if not two and first == RECORDED and LIVE[0] not in st.query_params:
        show_recording(_run_live)
        return
    with st.container(key=f"{_head()}-second"):
        second = choose(1, _turned) if two else None
    with st.spinner("Loading the engine", show_time=True):
        from ui.circle import live
    if second is None:
        live.show_one(first)
    else:
        live.show_two((first, second))


def _head() -> str:
    """Named so that a lecture does without it."""
    return "lecture-hides" if is_lecture() else "circle-head"


def _turned(slot: int) -> None:
    """Every knob starts it anew, live."""
    if not was_turned(slot):
        return
    st.query_params.setdefault(LIVE[0], _ASKED)
    ask_to_run(slot)


def _run_live() -> None:
    st.query_params[LIVE[0]] = _ASKED
    ask_to_run(0, again=True)
    st.rerun()
