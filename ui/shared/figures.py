"""Figures on a page: in the page's own colours, light or dark, with the figure and its numbers as downloads."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from recon_core.analysis.frames import Tabular, csv_text
from recon_core.plots.files import can_draw_png, figure_html, figure_png
from recon_core.plots.style import BLACK, BLUE, GREY, ORANGE, PURPLE, SKY
from ui.shared.downloads import offer_file
from ui.shared.formatting import plain

TEXT_SIZE = 15  # pixels, of axis titles; ticks and legend are a little smaller
# What the browser replaces by the theme's own colours (chartCategoricalColors in .streamlit/config.toml), so that a
# figure follows a change of theme by itself. The seventh of them is the colour of text.
_THEME_COLOURS = {
    BLUE: "#000001",
    ORANGE: "#000002",
    PURPLE: "#000004",
    SKY: "#000006",
    BLACK: "#000007",
    GREY: "#808080",  # stands out from either background
}
_TEXT = _THEME_COLOURS[BLACK]
_PALETTE = re.compile("|".join(_THEME_COLOURS), re.IGNORECASE)
_TAG = re.compile(r"</?(b|i|sub|sup|span|br)\b[^<>]*>")


def show_figure(
    figure: go.Figure,
    *,
    name: str,
    key: str,
    table: pd.DataFrame | Tabular | None = None,
    caption: str | None = None,
    height: int | None = None,
    on_select: Callable[[], None] | Literal["ignore", "rerun"] = "ignore",
    selection_mode: tuple[Literal["points", "box", "lasso"], ...] = ("points", "box", "lasso"),
    show_title: bool = True,
    version: str | None = None,
) -> Any:
    """Draw a figure of `recon_core.plots` with its title and caption above, and a menu to download it below.

    `name` begins the names of downloaded files; `table` is what the figure shows, as CSV; `caption` (plain text) adds
    a line below; `version` names what the figure shows, so that the page's copy, which takes a twentieth of a second
    to make, is kept. Gives what `st.plotly_chart` gives, which with `on_select` is the selection.
    """
    if show_title:
        title, conditions = figure_texts(figure)
        with st.container(gap="xxsmall"):
            if title:
                st.markdown(f"**{plain(title)}**")
            if conditions:
                st.caption(plain(conditions))
    state = st.plotly_chart(
        on_page(figure, height=height) if version is None else _kept_copy(key, version, height, figure),
        key=key,
        on_select=on_select,
        selection_mode=selection_mode,
        config=chart_config(name),
        width="stretch",
        alt=" – ".join(filter(None, figure_texts(figure))) or name,
    )
    if caption:
        st.caption(plain(caption))
    offer_downloads(figure, name=name, key=key, table=table)
    return state


@st.cache_resource(max_entries=256, show_spinner=False)
def _kept_copy(key: str, version: str, height: int | None, _figure: go.Figure) -> go.Figure:
    return on_page(_figure, height=height)


def figure_texts(figure: go.Figure) -> tuple[str, str]:
    """Title and caption of a figure as plain text; empty where it has none."""
    title = figure.layout.title
    return _untagged(title.text), _untagged(title.subtitle.text)


def on_page(
    figure: go.Figure, *, height: int | None = None, text_size: int = TEXT_SIZE, fixed_height: bool = True
) -> go.Figure:
    """A copy that takes its width and colours from the page, without the title, which the page writes itself.

    Marks and lines grow with `text_size`. Without `fixed_height` it is as high as its place on the page.
    """
    described: dict[str, Any] = _themed(figure.to_plotly_json())
    drawn = go.Figure(described)
    growth = text_size / TEXT_SIZE
    below_title = has_panels(figure)
    drawn.update_layout(
        template="streamlit",
        width=None,
        height=(height or figure.layout.height) if fixed_height else None,
        title=None,
        font={"color": _TEXT, "family": None, "size": text_size - 2},
        paper_bgcolor=None,
        plot_bgcolor=None,
        modebar={"bgcolor": "rgba(0,0,0,0)", "color": _THEME_COLOURS[GREY], "activecolor": _TEXT},
        margin={"t": round(growth * (92 if below_title else 16)), "r": 16, "l": 0, "b": figure.layout.margin.b},
        legend_font={"size": text_size - 1, "color": _TEXT},
        hoverlabel_font_size=text_size,
    )
    for update in (drawn.update_xaxes, drawn.update_yaxes):
        update(
            tickfont={"size": text_size - 2, "color": _TEXT},
            title_font={"size": text_size, "color": _TEXT},
            linecolor=_THEME_COLOURS[GREY],
        )
    drawn.update_annotations(font={"size": text_size - 1, "color": _TEXT})
    if growth != 1:
        _enlarge(drawn, growth)
    return drawn


def has_panels(figure: go.Figure) -> bool:
    """Whether it is made of small figures with titles of their own."""
    return any(note.yref == "paper" and note.y and note.y >= 1 for note in figure.layout.annotations)


def _enlarge(drawn: go.Figure, growth: float) -> None:
    if drawn.layout.legend.y is not None and drawn.layout.legend.y < 0:
        drawn.layout.legend.y *= growth  # below axis titles that have grown as well
    for trace in drawn.data:
        for part in (getattr(trace, "marker", None), getattr(trace, "selected", None) and trace.selected.marker):
            if part is not None and isinstance(part.size, int | float):
                part.size *= growth
        if getattr(trace, "line", None) is not None and trace.line.width:
            trace.line.width *= growth
        if getattr(trace, "textfont", None) is not None and trace.textfont.color:
            trace.textfont.size = drawn.layout.font.size


def chart_config(name: str) -> dict[str, Any]:
    """Plotly's own buttons: what they save is named like our downloads."""
    return {
        "displaylogo": False,
        "toImageButtonOptions": {"filename": name, "scale": 2},
        "modeBarButtonsToRemove": ["autoScale2d"],
    }


def offer_downloads(figure: go.Figure, *, name: str, key: str, table: pd.DataFrame | Tabular | None = None) -> None:
    """A menu with the figure as a page of its own, as a picture where one can be drawn, and its numbers."""
    with st.popover("Download", icon=":material/download:", type="tertiary", key=f"{key}-download"):
        offer_file(
            "Figure as a web page",
            lambda: figure_html(figure),
            f"{name}.html",
            key=f"{key}-html",
            width="stretch",
            help="To zoom and hover in any browser, without a network. About 5 MB.",
        )
        if _png_is_possible():
            offer_file(
                "Figure as a picture",
                lambda: figure_png(figure),
                f"{name}.png",
                key=f"{key}-png",
                width="stretch",
                help="PNG on white, for slides and papers. Takes a few seconds to draw.",
            )
        if table is not None:
            offer_file(
                "Numbers as CSV",
                lambda: table_csv(table),
                f"{name}.csv",
                key=f"{key}-csv",
                width="stretch",
            )


def table_csv(table: pd.DataFrame | Tabular) -> bytes:
    frame = table if isinstance(table, pd.DataFrame) else table.to_frame()
    return csv_text(frame).encode()


@st.cache_data(max_entries=1, show_spinner=False)
def _png_is_possible() -> bool:
    return can_draw_png()


def _untagged(text: str | None) -> str:
    bare = _TAG.sub(lambda tag: " " if tag[1] == "br" else "", text or "")
    return bare.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _themed(part: Any) -> Any:
    """`part` of a figure's description with the palette's colours replaced, wherever they stand."""
    if isinstance(part, str):
        return _PALETTE.sub(lambda colour: _THEME_COLOURS[colour[0].upper()], part)
    if isinstance(part, dict):
        return {name: _themed(value) for name, value in part.items() if name != "template"}
    if isinstance(part, list | tuple):
        return [_themed(value) for value in part]
    return part
