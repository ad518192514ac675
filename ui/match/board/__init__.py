"""Counts, a histogram of SSIM and the grid of pairs in one view, all of which follow the threshold."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import streamlit as st

from recon_core.plots.sheet import Sheet, sheet
from recon_core.views.live_match import Merged, ScoreLists
from ui.shared.lecture import is_lecture
from ui.shared.mosaic import MOSAIC_CSS, MOSAIC_JS
from ui.shared.pair_view import described_sheet

if TYPE_CHECKING:
    from streamlit.components.v2.types import ComponentRenderer

_FOLDER = Path(__file__).parent
NAME = "Training images above their reconstructions"


class Text(NamedTuple):
    """The label and help text of a count, and the count itself where it does not depend on the threshold."""

    label: str
    help: str
    value: str = ""


@dataclass(frozen=True)
class Pair:
    """One training image above its reconstruction."""

    id: int
    title: str
    score: float
    """SSIM; NaN without a candidate."""


class Merging(NamedTuple):
    """The slider that says which candidates are merged: its key, and its value when the board was drawn."""

    slider: str
    value: float


@dataclass(frozen=True)
class Board:
    """What is shown, at any threshold. `sheet` holds the pictures in the order of `pairs`."""

    scores: ScoreLists
    texts: dict[str, Text]
    """By count: good, mean_image, untrained, held_out, auc."""
    sheet: Sheet
    pairs: Sequence[Pair]
    chosen: int | None
    nothing: str
    """Said where no pair is left to be shown."""
    merging: Merging


def show_board(
    board: Board,
    threshold: float,
    *,
    key: str,
    slider: str,
    on_threshold: Callable[[float], None],
    on_pick: Callable[[int], None],
) -> None:
    """Draw it. `slider` is the key of the slider of the threshold, which the board follows while it is dragged.

    Both functions are called before the page is drawn again: when the line in the histogram was moved, and when a
    pair was picked.
    """

    def moved() -> None:
        value = st.session_state[key].get("threshold")
        if isinstance(value, int | float) and 0 <= value <= 1:
            on_threshold(float(value))

    def picked() -> None:
        value = st.session_state[key].get("picked")
        if value is not None:
            on_pick(int(value))

    _component()(
        key=key,
        data={**as_sent(board), "threshold": threshold, "slider": slider, "lecture": is_lecture()},
        on_threshold_change=moved,
        on_picked_change=picked,
    )


def as_sent(board: Board) -> dict[str, Any]:
    """The board as the browser gets it; null for what has no score."""
    scores = board.scores
    return {
        "merging": board.merging._asdict(),
        "scores": {
            "ssim": _numbers(scores.ssim),
            "nearest": scores.nearest.tolist(),
            "mean_image": _numbers(scores.mean_image),
            "untrained": None if scores.untrained is None else _numbers(scores.untrained),
            "held_out": None if scores.held_out is None else _numbers(scores.held_out),
        },
        "texts": {name: text._asdict() for name, text in board.texts.items()},
        "sheet": described_sheet(board.sheet),
        "tiles": [{"id": pair.id, "title": pair.title, "score": _number(pair.score)} for pair in board.pairs],
        "chosen": board.chosen,
        "nothing": board.nothing,
        "name": NAME,
    }


def follow_merging(merged: Callable[[float], Merged], shown: Sequence[int], *, key: str, slider: str) -> None:
    """Answer the board while its slider of merging is dragged: `merged` at that value, pictures of those `shown`.

    Nothing else of the page is drawn, and the training images are not sent again. `slider` is the slider's key.
    """
    drawn_at = st.session_state.get(slider)

    @st.fragment
    def answer() -> None:
        asked = st.session_state.pop(f"{key}-asked", None)
        # A question that leaves the browser together with the slider's new value takes that along, and Streamlit then
        # draws this fragment only.
        if st.session_state.get(slider) != drawn_at:
            st.rerun()
        _follower()(key=key, data=None if asked is None else _answer(merged(asked), shown, asked), on_asked_change=ask)

    def ask() -> None:
        value = st.session_state[key].get("asked")
        if isinstance(value, int | float):
            st.session_state[f"{key}-asked"] = float(value)

    answer()


def _answer(found: Merged, shown: Sequence[int], value: float) -> dict[str, Any]:
    pictures = sheet(found.reconstructions[np.asarray(shown, dtype=np.int64)])
    return {
        "value": value,
        "ssim": _numbers(found.ssim),
        "nearest": found.nearest.tolist(),
        "shown": list(shown),
        "below": described_sheet(pictures),
    }


def _numbers(scores: Iterable[float]) -> list[float | None]:
    return [_number(float(score)) for score in scores]


def _number(score: float) -> float | None:
    return None if math.isnan(score) else score


# Registered when first drawn, once for a process.
@cache
def _component() -> ComponentRenderer:
    html, css, js = ((_FOLDER / f"board.{kind}").read_text(encoding="utf-8") for kind in ("html", "css", "js"))
    return st.components.v2.component("afterimage_match_board", html=html, css=MOSAIC_CSS + css, js=MOSAIC_JS + js)


@cache
def _follower() -> ComponentRenderer:
    js = (_FOLDER / "follower.js").read_text(encoding="utf-8")
    return st.components.v2.component("afterimage_match_follower", html="<div hidden></div>", js=js)
