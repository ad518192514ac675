"""The margins of the training samples while the network trains, drawn in the browser."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamlit as st

if TYPE_CHECKING:
    from streamlit.components.v2.types import ComponentRenderer

_FOLDER = Path(__file__).parent
_MOST_POINTS = 200


def show_margins(rows: Sequence[Mapping[str, Any]], title: str, *, key: str) -> None:
    """From the measurements of a training run, however many there are yet."""
    _component()(key=key, data=described(rows, title))


def described(rows: Sequence[Mapping[str, Any]], title: str) -> dict[str, Any]:
    """The figure as the browser gets it: deciles by step, no more of them than the figure is wide."""
    whole = [row for row in rows if _is_whole(row.get("margin_levels"))]
    every = max(1, math.ceil(len(whole) / _MOST_POINTS))
    shown = [row for place, row in enumerate(whole) if place % every == 0 or place == len(whole) - 1]
    levels = [[float(f"{level:.5g}") for level in row["margin_levels"]] for row in shown]
    newest = f"the smallest is {levels[-1][0]:.3g}, the largest {levels[-1][-1]:.3g}" if levels else "none measured yet"
    return {
        "title": title,
        "steps": [int(row["step"]) for row in shown],
        "levels": levels,
        "alt": f"{title}: {newest}.",
    }


def _is_whole(levels: Any) -> bool:
    return isinstance(levels, list) and all(isinstance(level, float) and math.isfinite(level) for level in levels)


# Registered when first drawn, once for a process.
@cache
def _component() -> ComponentRenderer:
    html, css, js = ((_FOLDER / f"margins.{kind}").read_text(encoding="utf-8") for kind in ("html", "css", "js"))
    return st.components.v2.component("afterimage_margins", html=html, css=css, js=js)
