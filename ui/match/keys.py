"""Keys of the Match page, and those that lecture mode adds: threshold, B, and the next pair."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from ui.match.pairs import choose_pair
from ui.match.settings import CONVOLUTION_KEY, DENSE_KEY, FACTORS, PAIR_KEY, THRESHOLD_KEY
from ui.shared.keys import Key
from ui.shared.lecture import is_lecture

_THRESHOLD_STEP, _FACTOR_STEP = 0.01, 0.05
_FIRST, _NEXT, _PREVIOUS = "m-key-first", "m-next", "m-previous"


def page_keys() -> list[Key]:
    """The keys that `?` lists."""
    opened = PAIR_KEY in st.query_params
    if not is_lecture():
        return [
            Key("Arrow keys", "from pair to pair in the grid"),
            Key("Enter", "open the pair"),
            Key("Escape", "close the pair"),
        ]
    return [
        Key("↑ ↓", "threshold, by 0.01", {"ArrowUp": "m-key-up", "ArrowDown": "m-key-down"}),
        Key("] [", "merge factor B, by 0.05", {"]": "m-key-more", "[": "m-key-less"}),
        Key("→", "next pair", {"ArrowRight": _NEXT if opened else _FIRST}),
        Key("←", "previous pair", {"ArrowLeft": _PREVIOUS}),
        Key("Escape", "close the pair"),
    ]


def lecture_buttons(order: Sequence[int], factor: float | None) -> None:
    """The hidden buttons that the keys press. `factor` is B; None where the protocol has none."""
    with st.container(key="lecture-keys-match"):
        for key, step in (("m-key-up", _THRESHOLD_STEP), ("m-key-down", -_THRESHOLD_STEP)):
            st.button(f"Threshold {step:+g}", key=key, on_click=_move_threshold, args=(step,))
        for key, step in (("m-key-more", _FACTOR_STEP), ("m-key-less", -_FACTOR_STEP)):
            st.button(f"B {step:+g}", key=key, on_click=_move_factor, args=(step,), disabled=factor is None)
        first = order[0] if order else None
        st.button("First pair", key=_FIRST, on_click=choose_pair, args=(first,), disabled=first is None)


def _move_threshold(step: float) -> None:
    _move((THRESHOLD_KEY,), step, 0.0, 1.0)


def _move_factor(step: float) -> None:
    _move((DENSE_KEY, CONVOLUTION_KEY), step, *FACTORS)


def _move(keys: Sequence[str], step: float, low: float, high: float) -> None:
    """The sliders of those keys that are on the page."""
    for key in keys:
        value = st.session_state.get(key)
        if isinstance(value, float):
            st.session_state[key] = round(min(high, max(low, value + step)), 2)
