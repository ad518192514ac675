"""Train: a new network, those trained so far, somebody else's; `?run=<id>` follows one, `?from=<id>` fills the form."""

from __future__ import annotations

import streamlit as st

from ui.shared.pages import TRAIN, show_page
from ui.shared.run_page import opened_run, show_run_page
from ui.shared.tabs import show_tabs
from ui.train.form import fill_from, show_form
from ui.train.imports import show_import
from ui.train.run import show_network
from ui.train.table import show_table

VIEW = "t_view"
NEW, TRAINED, IMPORT = "New network", "Trained networks", "Import"


def page() -> None:
    if "from" in st.query_params:
        take_settings(st.query_params["from"])
    if "run" in st.query_params:
        one_run()
        return
    st.title("Train", anchor=False)
    show_tabs({NEW: show_form, TRAINED: show_table, IMPORT: show_import}, key=VIEW)


def take_settings(run_id: str) -> None:
    """Fill the form once; later changes to it must not be undone by the address."""
    del st.query_params["from"]
    fill_from(run_id)
    st.session_state[VIEW] = NEW
    st.rerun()


def one_run() -> None:
    if st.button("All trainings", icon=":material/arrow_back:"):
        del st.query_params["run"]
        st.session_state[VIEW] = TRAINED
        st.rerun()
    show_run_page(opened_run(TRAIN), show_network)


show_page(TRAIN, page)
