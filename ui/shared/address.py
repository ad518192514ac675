"""Choices kept in the page's address by id.

Streamlit's own binding writes the words on the screen there, and those change when a run is renamed.
"""

from __future__ import annotations

from collections.abc import Collection

import streamlit as st


def recall(key: str, options: Collection[str], *, several: bool = False) -> list[str]:
    """Before the widget `key` is drawn: what the address asks for, where it is new; what of that is no option.

    An address that only repeats what the widget wrote there is left alone, as are names of older versions' links, but
    for the id behind them.
    """
    asked = [text.rsplit(" · ", 1)[-1] for text in st.query_params.get_all(key) if text]
    if not asked or (key in st.session_state and asked == st.session_state.get(_seen(key))):
        return []
    st.session_state[_seen(key)] = asked
    known = [text for text in asked if text in options]
    if known:
        st.session_state[key] = known if several else known[0]
    return [text for text in asked if text not in options]


def record(key: str, chosen: Collection[str]) -> None:
    """After it: what was chosen; nothing where that is the default."""
    st.session_state[_seen(key)] = list(chosen)
    if st.query_params.get_all(key) == list(chosen):
        return
    if chosen:
        st.query_params[key] = list(chosen)
    else:
        st.query_params.pop(key, None)


def _seen(key: str) -> str:
    return f"{key}-in-address"
