"""The common style of all figures. Colours are those of Okabe and Ito, which colour-blind people tell apart."""

from __future__ import annotations

import plotly.graph_objects as go

from recon_core.matching.protocol import MatchSettings, Protocol
from recon_core.matching.ssim import SsimKind

BLUE, ORANGE, SKY, PURPLE, GREY, BLACK = "#0072B2", "#E69F00", "#56B4E9", "#CC79A7", "#777777", "#222222"
GOOD, NOT_GOOD = BLUE, ORANGE

_SSIM_NAMES = {SsimKind.WANG: "SSIM (Wang, 11x11 window)", SsimKind.AUTHORS: "SSIM (authors' 3x3 window)"}


def ssim_name(settings: MatchSettings) -> str:
    """The axis title: which SSIM it is."""
    return _SSIM_NAMES[settings.ssim]


def conditions(settings: MatchSettings, threshold: float | None = None) -> str:
    """What a count depends on, for a caption."""
    parts = [ssim_name(settings)]
    if settings.protocol is Protocol.BUZAGLO:
        parts.append(f"B = {settings.merge_factor:g}")
    else:
        parts.append(f"NCC above {settings.ncc_share:g} of the best")
    parts.append(f"{settings.protocol} protocol")
    if threshold is not None:
        parts.append(f"good above {threshold:g}")
    return ", ".join(parts)


def literal(text: str) -> str:
    """User text in a figure, escaped, because plotly interprets tags."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def figure(title: str, caption: str, x: str, y: str) -> go.Figure:
    """An empty figure with its title, a caption below it, and named axes."""
    empty = go.Figure()
    dress(empty, title, caption)
    empty.update_xaxes(title=x)
    empty.update_yaxes(title=y)
    return empty


def dress(drawn: go.Figure, title: str, caption: str) -> None:
    """Apply the common style to a figure."""
    drawn.update_layout(
        template="plotly_white",
        title={
            "text": f"<b>{title}</b>",
            "subtitle": {"text": caption, "font": {"size": 12, "color": GREY}},
            "x": 0.02,
            "xanchor": "left",
            "y": 0.95,
            "yanchor": "top",
        },
        font={"family": "Helvetica, Arial, sans-serif", "size": 14, "color": BLACK},
        margin={"l": 70, "r": 30, "t": 90, "b": 80},
        legend={"orientation": "h", "yanchor": "top", "y": -0.2, "x": 0},
        width=760,
        height=500,
    )
    drawn.update_xaxes(zeroline=False, showline=True, linecolor=GREY, ticks="outside")
    drawn.update_yaxes(zeroline=False, showline=True, linecolor=GREY, ticks="outside")


def without_title(drawn: go.Figure) -> go.Figure:
    """A copy for a page whose heading is the title."""
    untitled = go.Figure(drawn).update_layout(title=None, margin={"t": 60 if drawn.layout.annotations else 30})
    if drawn.data and drawn.data[0].type == "table":  # no axis below it that needs room
        untitled.update_layout(height=drawn.layout.height - 140, margin={"b": 10})
    return untitled
