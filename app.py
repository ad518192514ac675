"""Home: what this is, three ways in, and the runs in the store.

`?view=circle` is the circle, `?chain=<id>` an experiment at work, `?run=<id>` leads to the page of a run.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import streamlit as st

from recon_core.store import default_root
from ui.circle.choice import forget_choice
from ui.circle.view import circle_view
from ui.shared.engine import load_in_background
from ui.shared.formatting import plain
from ui.shared.live import keep_fresh
from ui.shared.pages import HOME, TRAIN, show_page
from ui.shared.queue import hold_scheduler_ready
from ui.shared.run_page import opened_run, show_run_page
from ui.shared.runs import is_active, show_numbers, show_runs
from ui.shared.store import recent_runs

TEXT_WIDTH = 860  # pixels: lines longer than this are hard to follow
FIRST_COMMAND = "python -m recon_core train --preset cifar10-50"
PICTURE = Path(__file__).parent / "assets" / "home.png"
CIRCLE, CHAIN = "circle", "chain"
_TAKEN = "way-taken"
# What the buttons here and the other pages lead to, in the order in which it is likely to be needed.
ENGINE = (
    *("ui.circle.live", "ui.home.experiment", "ui.match.pairs", "ui.match.pool", "ui.analyze.one"),
    *("ui.reconstruct.view", "ui.reconstruct.form", "ui.train.run", "ui.train.form", "ui.studies.view"),
)

# Streamlit's buttons have one size; these three are to be seen from the back of a lecture hall.
BIG_BUTTONS = """<style>
.st-key-ways button { min-height: 4.2rem; }
.st-key-ways button p { font-size: 1.1rem; font-weight: 600; line-height: 1.25; white-space: normal; }
</style>"""


def home() -> None:
    st.title("Afterimage", anchor=False)
    text, picture = st.columns([5, 6], gap="large", vertical_alignment="center")
    text.markdown(
        "A network that has learnt its training images by heart keeps traces of them in its weights, sometimes "
        "enough to draw the images back from the weights alone. Afterimage is a workbench for seeing that happen: "
        "it trains such networks in seconds on an ordinary computer, attacks them with nothing but their weights, and "
        "counts what comes back, next to what chance alone would bring.",
        width=TEXT_WIDTH,
    )
    with picture:
        alt = "Training images above, what came out of the weights below"
        st.image(str(PICTURE), width="stretch", output_format="PNG", alt=alt)
        st.caption("Above: images a network was trained on. Below: what an attack drew out of its weights.")
    ways_in()
    keep_fresh(list_runs, lambda: any(is_active(run.status) for run in recent_runs()))


def ways_in() -> None:
    st.html(BIG_BUTTONS)
    with st.container(key="ways"):
        circle, images, own = st.columns(3, gap="small")
    with circle:
        _button("Watch the circle", "way-circle", ":material/animation:", type="primary")
        if st.session_state.get(_TAKEN) == "way-circle":
            forget_choice()
            st.query_params["view"] = CIRCLE
            st.rerun()
        st.caption("**Start here.** Twenty points, learnt and found again: the whole idea in one picture, at once.")
    with images:
        _button("Reconstruct CIFAR images", "way-images", ":material/photo_library:")
        if st.session_state.get(_TAKEN) == "way-images":
            with engine():
                from ui.home.experiment import open_first_experiment
            st.query_params[CHAIN] = open_first_experiment()
            st.rerun()
        st.caption("Trains on 25 animals and 25 vehicles, then draws them back. A minute or two, nothing to set.")
    with own:
        _button("Bring your own model", "way-own", ":material/upload_file:")
        if st.session_state.get(_TAKEN) == "way-own":
            del st.session_state[_TAKEN]
            st.switch_page(TRAIN.file, query_params={"t_view": "Import"})
        st.caption("A checkpoint of yours, attacked the same way. It stays on this machine.")


def _button(label: str, key: str, icon: str, **look: Any) -> None:
    """A click holds until another view is drawn: while the engine is loaded, a second one draws this page anew."""

    def take() -> None:
        st.session_state[_TAKEN] = key

    st.button(label, key=key, icon=icon, width="stretch", on_click=take, **look)


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
            "**There are no runs yet.** Press one of the buttons above, or start one in a terminal, in the project's "
            "folder with its `.venv` active:"
        )
        st.code(FIRST_COMMAND, language=None)
        st.markdown(
            "It trains a small network to tell 25 animals from 25 vehicles and takes seconds. This page notices by "
            "itself and follows along."
        )
        st.caption(f"Runs are looked for in {plain(str(default_root()))}")


def one_run() -> None:
    """Where old links lead: to the page of the run's kind. What no page knows is shown here."""
    if st.button("All runs", icon=":material/arrow_back:"):
        del st.query_params["run"]
        st.rerun()
    show_run_page(opened_run(HOME), show_numbers)


def engine() -> AbstractContextManager[None]:
    """For imports that bring in the whole engine: seconds, the first time, and the home page is there without it."""
    return st.spinner("Loading the engine, which takes some seconds the first time")


def page() -> None:
    elsewhere = "run" in st.query_params or CHAIN in st.query_params or st.query_params.get("view") == CIRCLE
    if elsewhere:
        st.session_state.pop(_TAKEN, None)
    if "run" in st.query_params:
        one_run()
    elif CHAIN in st.query_params:
        with engine():
            from ui.home.experiment import chain_view
        chain_view(st.query_params[CHAIN])
    elif st.query_params.get("view") == CIRCLE:
        circle_view()
    else:
        home()


# All room to the pictures.
WIDE = CHAIN in st.query_params or st.query_params.get("view") == CIRCLE
show_page(HOME, page, sidebar="collapsed" if WIDE else "auto")
hold_scheduler_ready()
load_in_background(ENGINE)
