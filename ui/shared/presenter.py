"""Presenter mode: one figure at a time in large type, moved by arrow keys; `?present=1&slide=roc` is its address."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from ui.shared.faults import errors_shown
from ui.shared.figures import chart_config, figure_texts, has_panels, on_page
from ui.shared.formatting import plain
from ui.shared.keys import Key, show_keys
from ui.shared.lecture import HIDDEN_KEYS, KEY, beginning, leaving

TEXT_SIZE, PANEL_TEXT_SIZE = 24, 18  # pixels; axes are read from the last row
_PRESENT, _SLIDE = "present", "slide"
_ON, _BACK = "presenter-Right", "presenter-Left"
KEYS = (
    Key("→, Space, Page Down", "next slide", {"ArrowRight": _ON, " ": _ON, "PageDown": _ON}),
    Key("←, Page Up", "previous slide", {"ArrowLeft": _BACK, "PageUp": _BACK}),
    leaving("presenter-leave"),
)
# Nothing but the figure, as high as the screen allows.
_STYLE = """
<style>
[data-testid="stSidebar"], [data-testid="stExpandSidebarButton"], [data-testid="stHeader"],
[data-testid="stElementToolbar"], .modebar { display: none !important; }
[data-testid="stLayoutWrapper"]:has(> .st-key-presenter-place) { position: fixed; right: 1rem; bottom: 0.2rem;
  width: auto; }
[data-testid="stMainBlockContainer"] { padding: 1rem 2.5rem; max-width: none; }
[data-testid="stMainBlockContainer"] > [data-testid="stVerticalBlock"] { height: calc(100vh - 2rem); gap: 0.5rem; }
[data-testid="stLayoutWrapper"]:has(> .st-key-presenter-slide), .st-key-presenter-slide,
[data-testid="stLayoutWrapper"]:has(> .st-key-presenter-figure) { flex: 1 1 0; min-height: 0; }
[data-testid="stLayoutWrapper"]:has(> .st-key-presenter-figure) { overflow: auto; }
.st-key-presenter-slide { gap: 0.5rem; }
.st-key-presenter-figure, .st-key-presenter-figure > [data-testid="stElementContainer"],
.st-key-presenter-figure [data-testid="stPlotlyChart"] { height: 100%; }
.st-key-presenter-words h2 { font-size: 2.3rem; padding: 0; }
.st-key-presenter-words p { font-size: 1.3rem; }
.st-key-presenter-figure table { font-size: 1.4rem; }
</style>
"""


@dataclass(frozen=True, eq=False)
class SlideTable:
    """Numbers that are read rather than seen."""

    title: str
    caption: str
    frame: pd.DataFrame
    """Of words, as they are to be shown."""


@dataclass(frozen=True)
class Slide:
    """One figure or table of a talk. It is made when its turn comes."""

    name: str
    """Stands in the address; no two slides of a talk share it."""
    draw: Callable[[], go.Figure | SlideTable]


def is_presenting() -> bool:
    return st.query_params.get(_PRESENT) == "1"


def offer_presenting(key: str, first: str) -> None:
    """The button that begins it, at the slide called `first`."""
    show_keys([beginning(key)])
    st.button(
        "Present",
        key=key,
        icon=":material/slideshow:",
        shortcut=KEY,
        on_click=_begin,
        args=(first,),
        help="One figure at a time in large type; arrow keys move, Escape comes back here, ? lists the keys.",
    )


def present(slides: Sequence[Slide]) -> None:
    """Show the slide that the address names, and follow the arrow keys."""
    st.html(_STYLE + HIDDEN_KEYS)
    if not slides:
        st.markdown("There is nothing to present yet. Escape goes back.")
        with st.container(key="lecture-keys-slides"):
            _leave_buttons()
        show_keys(KEYS)
        return
    names = [slide.name for slide in slides]
    place = current_slide(names)
    figure = st.container(key="presenter-slide")
    # Before the figure, which may take a while: nobody has to wait for one that is to be skipped.
    with st.container(key="lecture-keys-slides"):
        _move_button("Back", names, place - 1, ":material/arrow_back:", "Left")
        _move_button("On", names, place + 1, ":material/arrow_forward:", "Right")
        _leave_buttons()
    show_keys(KEYS)
    with st.container(key="presenter-place"):
        st.markdown(f"{place + 1} of {len(slides)}")
    with figure, errors_shown():
        _show(slides[place])


def _show(slide: Slide) -> None:
    shown = slide.draw()
    title, caption = (shown.title, shown.caption) if isinstance(shown, SlideTable) else figure_texts(shown)
    with st.container(key="presenter-words", gap="xsmall"):
        st.header(plain(title or slide.name), anchor=False)
        st.markdown(plain(caption))
    with st.container(key="presenter-figure"):
        if isinstance(shown, SlideTable):
            st.table(shown.frame.map(plain), border="horizontal", hide_index=True)
        else:
            st.plotly_chart(
                on_page(shown, text_size=PANEL_TEXT_SIZE if has_panels(shown) else TEXT_SIZE, fixed_height=False),
                key=f"presenter-{slide.name}",
                height="stretch",
                config=chart_config(slide.name),
                alt=" – ".join(filter(None, (title, caption))),
            )


def current_slide(names: Sequence[str]) -> int:
    """The place of the slide that the address names; the first where it names none."""
    asked = st.query_params.get(_SLIDE)
    return names.index(asked) if asked in names else 0


def _move_button(label: str, names: Sequence[str], to: int, icon: str, shortcut: str) -> None:
    there = 0 <= to < len(names)
    st.button(
        label,
        key=f"presenter-{shortcut}",
        icon=icon,
        shortcut=shortcut,
        disabled=not there,
        on_click=_go,
        args=(names[to] if there else "",),
    )


def _leave_buttons() -> None:
    st.button("Leave", key="presenter-leave", icon=":material/close:", on_click=_leave, shortcut="Esc")
    st.button("Leave too", key="presenter-leave-too", on_click=_leave, shortcut=KEY)


def _begin(first: str) -> None:
    st.query_params[_PRESENT] = "1"
    _go(first)


def _go(name: str) -> None:
    st.query_params[_SLIDE] = name


def _leave() -> None:
    for name in (_PRESENT, _SLIDE):
        st.query_params.pop(name, None)
