"""Reconstruct: draw training samples out of a network's weights, and watch it happen; `?run=<id>` opens one attempt."""

from __future__ import annotations

import streamlit as st

from ui.reconstruct.form import show_form
from ui.reconstruct.view import show_attempt
from ui.shared.faults import told
from ui.shared.look import show_look
from ui.shared.queue import keep_line_moving

st.set_page_config(page_title="Reconstruct · Afterimage", page_icon="👁️", layout="wide")
show_look()
keep_line_moving()
with told():
    if "run" in st.query_params:
        show_attempt(st.query_params["run"])
    else:
        show_form()
