"""Lecture mode: what a page is about fills the screen, in large type; the key L begins and ends it, Escape ends it too.

`?lecture=1` is its address. Pages whose figures are slides present them instead, with the same key; see `presenter`.
"""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from ui.shared.keys import Key, show_keys

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
</style>"""
# Buttons that keys press: out of sight, but for those who reach them with the tab key.
HIDDEN_KEYS = """<style>
[data-testid="stLayoutWrapper"]:has(> [class*="st-key-lecture-keys"]) { position: fixed; right: 0; bottom: 0;
  opacity: 0; width: 2rem; height: 2rem; overflow: hidden; z-index: 1; }
[data-testid="stLayoutWrapper"]:has(> [class*="st-key-lecture-keys"]):focus-within { opacity: 1; width: auto;
  height: auto; }
</style>"""


def beginning(button: str) -> Key:
    """L presses the button of this key."""
    return Key("L", "lecture: fill the screen, in large type", _letter(button))


def leaving(button: str, *, escape: bool = True) -> Key:
    # Not left to the buttons' own shortcuts: those stay silent for good once the release of another key was missed,
    # as it may be when that key has just changed the page.
    presses = _letter(button)
    return Key("L, Escape", "end the lecture", {**presses, "Escape": button} if escape else presses)


def _letter(button: str) -> dict[str, str]:
    return {KEY: button, KEY.upper(): button}


def is_lecture() -> bool:
    return st.query_params.get(_LECTURE) == "1"


def offer_lecture(keys: Sequence[Key] = (), *, escape: bool = True) -> None:
    """The button that begins it, and while it lasts the ones that end it, out of sight; `?` lists them and `keys`.

    Without `escape` that key has something else to close first.
    """
    show_keys([*keys, leaving("lecture-end", escape=escape) if is_lecture() else beginning("lecture-begin")])
    if not is_lecture():
        st.button(
            "Lecture",
            key="lecture-begin",
            icon=":material/fullscreen:",
            shortcut=KEY,
            on_click=_begin,
            help="Fills the screen in large type. Escape comes back here; ? lists the keys.",
        )
        return
    st.html(_STYLE + HIDDEN_KEYS)
    with st.container(key="lecture-keys"):
        st.button("End the lecture", key="lecture-end", shortcut="Esc" if escape else None, on_click=_end)
        st.button("End it", key="lecture-end-too", shortcut=KEY, on_click=_end)


def _begin() -> None:
    st.query_params[_LECTURE] = "1"


def _end() -> None:
    st.query_params.pop(_LECTURE, None)
