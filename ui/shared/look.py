"""What the theme's settings cannot say."""

from __future__ import annotations

import streamlit as st

# Streamlit writes white on the primary colour. In the dark theme that colour is light, because it is also the colour
# of links and of what is chosen, and white on it cannot be read.
_STYLE = """<style>
[data-testid="stBaseButton-primary"], [data-testid="stMultiSelect"] [data-tag] * {
  color: light-dark(#ffffff, #11161d);
}
/* Streamlit names the first page after its file. */
[data-testid="stSidebarNavItems"] li:first-child a p { font-size: 0; }
[data-testid="stSidebarNavItems"] li:first-child a p::after { content: "Home"; font-size: 0.875rem; }
</style>"""


def show_look() -> None:
    """Dark words on the primary colour in the dark theme; call it once on each page."""
    st.html(_STYLE)
