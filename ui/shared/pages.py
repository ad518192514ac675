"""The pages of the app, each once: where its file is, what it is called; and what all of them begin with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import streamlit as st

from ui.shared.faults import errors_shown
from ui.shared.look import show_look
from ui.shared.queue import keep_queue_running
from ui.shared.sessions import hear_runners_out
from ui.shared.strip import show_strip

APP = "Afterimage"
_ICON = "👁️"


class Page(NamedTuple):
    """`file` is what `st.switch_page` and `st.page_link` take; Streamlit makes the address from it."""

    file: str
    title: str


HOME = Page("app.py", APP)
TRAIN = Page("pages/1_Train.py", "Train")
RECONSTRUCT = Page("pages/2_Reconstruct.py", "Reconstruct")
MATCH = Page("pages/3_Match.py", "Match")
ANALYZE = Page("pages/4_Analyze.py", "Analyze")
STUDIES = Page("pages/5_Studies.py", "Studies")
AUDIT = Page("pages/6_Audit.py", "Audit")
EXPERIMENTS = Page("pages/7_Experiments.py", "Experiments")
RESULTS = Page("pages/8_Results.py", "Results")
HOW_IT_WORKS = Page("pages/9_How_it_works.py", "How it works")
GLOSSARY = Page("pages/10_Glossary.py", "Glossary")
PAGES = (HOME, TRAIN, RECONSTRUCT, MATCH, ANALYZE, STUDIES, AUDIT, EXPERIMENTS, RESULTS, HOW_IT_WORKS, GLOSSARY)

FORM_PAGES = {"train": TRAIN, "reconstruct": RECONSTRUCT, "search": RECONSTRUCT, "match": MATCH, "study": STUDIES}
"""Where a run's settings can be taken up in a form, by its kind; the page reads `?from=<run id>`."""

RUN_PAGES = {
    "train": TRAIN,
    "model": TRAIN,
    "reconstruct": RECONSTRUCT,
    "search": RECONSTRUCT,
    "match": MATCH,
    "study": STUDIES,
    "audit": AUDIT,
}
"""The one page of a run, by its kind; it reads `?run=<run id>`. Runs of other kinds are shown by the home page."""


def page_of(kind: str) -> Page:
    """Where a run of that kind is shown."""
    return RUN_PAGES.get(kind, HOME)


SHOWN_RUN, LAST_RUN = "shown-run", "last-run"
"""In the session's state: the run whose page is being drawn, and the one of the drawing before; see `opened_run`."""
_SHOWN_PAGE, _LAST_PAGE = "shown-page", "last-page"


def is_arrival() -> bool:
    """Whether this is the first drawing of the page after another one, or after none."""
    return st.session_state.get(_LAST_PAGE) != st.session_state.get(_SHOWN_PAGE)


def show_page(page: Page, draw: Callable[[], None], *, sidebar: Literal["auto", "collapsed"] = "auto") -> None:
    """Draw a whole page; what the engine refuses is a sentence on it."""
    hear_runners_out()
    title = APP if page is HOME else f"{page.title} · {APP}"
    st.set_page_config(page_title=title, page_icon=_ICON, layout="wide", initial_sidebar_state=sidebar)
    st.session_state[LAST_RUN] = st.session_state.pop(SHOWN_RUN, None)
    st.session_state[_LAST_PAGE], st.session_state[_SHOWN_PAGE] = st.session_state.get(_SHOWN_PAGE), page.title
    show_look()
    keep_queue_running()
    if "present" not in st.query_params:  # nothing but the slide
        show_strip({kind: found.file for kind, found in RUN_PAGES.items()})
    with errors_shown():
        draw()
