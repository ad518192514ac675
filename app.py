"""Home: what this is, and the runs in the store; `?run=<id>` shows one of them."""

from __future__ import annotations

import streamlit as st

from recon_core.store import default_root
from ui.faults import told
from ui.live import keep_fresh
from ui.runs import is_active, show_run, show_runs
from ui.store import recent_runs, run_details
from ui.words import plain

TEXT_WIDTH = 860  # pixels: lines longer than this are hard to follow
FIRST_COMMAND = "python -m recon_core train --preset cifar10-50"


def home() -> None:
    st.title("Afterimage", anchor=False)
    st.markdown(
        "A network that has learnt its training images by heart keeps traces of them in its weights, sometimes "
        "enough to draw the images back from the weights alone. Afterimage is a workbench for seeing that happen: "
        "it trains such networks in seconds on an ordinary computer, records how close they came to knowing every "
        "image by heart, and keeps each run so that it can be looked at, repeated and passed on.",
        width=TEXT_WIDTH,
    )
    keep_fresh(list_runs, lambda: any(is_active(run.status) for run in recent_runs()))


def list_runs() -> None:
    st.subheader("Runs", anchor=False)
    runs = recent_runs()
    if runs:
        show_runs(runs)
    else:
        first_steps()


def first_steps() -> None:
    with st.container(border=True, width=TEXT_WIDTH):
        st.markdown(
            "**There are no runs yet.** Start the first one in a terminal, in the project's folder with its `.venv` "
            "active:"
        )
        st.code(FIRST_COMMAND, language=None)
        st.markdown(
            "It trains a small network to tell 25 animals from 25 vehicles and takes seconds. This page notices by "
            "itself and follows along."
        )
        st.caption(f"Runs are looked for in {plain(str(default_root()))}")


def one_run(run_id: str) -> None:
    if st.button("All runs", icon=":material/arrow_back:"):
        del st.query_params["run"]
        st.rerun()
    st.title(plain(run_details(run_id).name), anchor=False)
    keep_fresh(lambda: show_run(run_details(run_id)), lambda: is_active(run_details(run_id).status))


st.set_page_config(page_title="Afterimage", page_icon="👁️", layout="wide")
with told():
    if "run" in st.query_params:
        one_run(st.query_params["run"])
    else:
        home()
