"""Choices kept in the page's address by id.

Streamlit's own binding writes the words on the screen there, and those change when a run is renamed.
"""

from __future__ import annotations

from collections.abc import Collection

import streamlit as st


def recall(key: str, options: Collection[str], *, several: bool = False) -> None:
    """Before the widget `key` is drawn for the first time: what the address asks for, where there is such a thing."""
    if key in st.session_state:
        return
    asked = [text for text in st.query_params.get_all(key) if text in options]
    if asked:
        st.session_state[key] = asked if several else asked[0]


def record(key: str, chosen: Collection[str]) -> None:
    """After it: what was chosen; nothing where that is the default."""
    if st.query_params.get_all(key) == list(chosen):
        return
    if chosen:
        st.query_params[key] = list(chosen)
    else:
        st.query_params.pop(key, None)
