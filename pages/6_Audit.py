"""Audit: does a model leak its training images? `?run=<id>` opens one audit."""

from __future__ import annotations

import streamlit as st

from ui.audit.form import show_form
from ui.audit.view import show_audit
from ui.shared.pages import AUDIT, show_page


def page() -> None:
    if "run" in st.query_params:
        show_audit()
    else:
        show_form()


show_page(AUDIT, page)
