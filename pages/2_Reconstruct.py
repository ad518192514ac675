"""Reconstruct: draw training samples out of a network's weights, and watch it happen; `?run=<id>` opens one run."""

from __future__ import annotations

import streamlit as st

from ui.reconstruct.form import show_form
from ui.reconstruct.view import show_reconstruction
from ui.shared.pages import RECONSTRUCT, show_page


def page() -> None:
    if "run" in st.query_params:
        show_reconstruction()
    else:
        show_form()


show_page(RECONSTRUCT, page)
