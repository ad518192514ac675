"""How it works: the idea of the two papers, told in text and figures that move."""

from __future__ import annotations

import streamlit as st

from ui.how.story import show_story
from ui.shared.pages import HOW_IT_WORKS, show_page


def page() -> None:
    st.title("How it works", anchor=False)
    show_story()


show_page(HOW_IT_WORKS, page)
