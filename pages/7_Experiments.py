"""Experiments: each network with all that was done to it; `?experiment=<id>` opens one."""

from __future__ import annotations

import streamlit as st

from ui.experiments.cards import OPENED, show_all
from ui.experiments.one import show_one
from ui.shared.pages import EXPERIMENTS, show_page


def page() -> None:
    if OPENED in st.query_params:
        show_one(st.query_params[OPENED])
        return
    st.title("Experiments", anchor=False)
    st.markdown("Every network with its attacks, controls and matchings. Select several to compare them.")
    show_all()


show_page(EXPERIMENTS, page)
