"""Studies: those of the papers, or one's own; `?run=<id>` opens one, `?from=<id>` fills the form."""

from __future__ import annotations

import streamlit as st

from recon_core.config import parse_config
from recon_core.errors import InputError
from recon_core.store import RunState
from recon_core.studies.study import StudyConfig
from ui.shared.pages import STUDIES, show_page
from ui.shared.pick import runs_of, show_nothing_yet
from ui.shared.run_page import opened_run
from ui.shared.runs import show_runs
from ui.shared.store import run_details
from ui.shared.tabs import show_tabs
from ui.studies.custom import fill_own, show_own
from ui.studies.form import fill_built_in, show_built_in
from ui.studies.view import show_study

VIEW = "s_view"
BUILT_IN, OWN, SO_FAR = "Built-in studies", "A study of your own", "Studies so far"


def page() -> None:
    if "from" in st.query_params:
        take_settings(st.query_params["from"])
    if "run" in st.query_params:
        show_study(opened_run(STUDIES).id)
        return
    st.title("Studies", anchor=False)
    st.markdown(
        "A study varies one setting: many networks are trained, each is attacked and matched, and the counts are drawn "
        "as one curve. It can be stopped at any time and resumed."
    )
    show_tabs({BUILT_IN: show_built_in, OWN: show_own, SO_FAR: show_studies}, key=VIEW)


def take_settings(run_id: str) -> None:
    """Fill a form once; later changes to it must not be undone by the address."""
    del st.query_params["from"]
    run = run_details(run_id)
    if run.kind != "study":
        raise InputError(f"run {run_id} is of kind {run.kind!r}; only the settings of a study fill this form")
    plan = parse_config(StudyConfig, run.config).plan
    if fill_built_in(plan):
        st.session_state[VIEW] = BUILT_IN
    else:
        fill_own(plan)
        st.session_state[VIEW] = OWN
    st.rerun()


def show_studies() -> None:
    runs = runs_of(("study",), states=tuple(RunState))
    if runs:
        show_runs(runs)
    else:
        show_nothing_yet("No study was started yet.", f"Choose one under “{BUILT_IN}”, and press Start.")


show_page(STUDIES, page)
