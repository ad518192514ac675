"""Lecture mode: what a page is about fills the screen, in large type; the key L begins and ends it, Escape ends it too.

`?lecture=1` is its address. Pages whose figures are slides present them instead, with the same key; see `presenter`.
"""

from __future__ import annotations

import streamlit as st

KEY = "l"
_LECTURE = "lecture"
# What a hall need not see. The buttons stay where a key reaches them.
_STYLE = """<style>
[data-testid="stSidebar"], [data-testid="stExpandSidebarButton"], [data-testid="stHeader"],
[data-testid="stElementToolbar"], .modebar, [class*="st-key-lecture-hides"] { display: none !important; }
[data-testid="stColumn"]:has(.st-key-lecture-panel) { display: none; }
[data-testid="stMainBlockContainer"] { padding: 0.6rem 1.2rem 0 !important; max-width: none; }
[data-testid="stMainBlockContainer"] > [data-testid="stVerticalBlock"] { gap: 0 !important; }
[data-testid="stMain"] p, [data-testid="stMain"] label p { font-size: 1.25rem; }
.st-key-lecture-keys { position: fixed; right: 0; bottom: 0; opacity: 0; width: 2rem; height: 2rem; overflow: hidden;
  z-index: 1; }
.st-key-lecture-keys:focus-within { opacity: 1; width: auto; height: auto; }
</style>"""


def is_lecture() -> bool:
    return st.query_params.get(_LECTURE) == "1"


def offer_lecture() -> None:
    """The button that begins it, and while it lasts the ones that end it, out of sight."""
    if not is_lecture():
        st.button(
            "Lecture",
            key="lecture-begin",
            icon=":material/fullscreen:",
            shortcut=KEY,
            on_click=_begin,
            help="Fills the screen in large type. Escape comes back here.",
        )
        return
    st.html(_STYLE)
    with st.container(key="lecture-keys"):
        st.button("End the lecture", key="lecture-end", shortcut="Esc", on_click=_end)
        st.button("End it", key="lecture-end-too", shortcut=KEY, on_click=_end)


def _begin() -> None:
    st.query_params[_LECTURE] = "1"


def _end() -> None:
    st.query_params.pop(_LECTURE, None)
