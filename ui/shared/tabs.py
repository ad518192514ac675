"""Parts of a page of which one is open at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import streamlit as st


def show_tabs(views: Mapping[str, Callable[[], None]], *, key: str) -> None:
    """Tabs by name, the open one in the address. Only that one is drawn: the others may be slow."""
    for tab, show in zip(st.tabs(list(views), key=key, bind="query-params"), views.values(), strict=True):
        if tab.open:
            with tab:
                show()
