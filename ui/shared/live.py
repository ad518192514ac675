"""Parts of a page that keep themselves up to date."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from ui.shared.faults import errors_shown

BUSY_SECONDS = 1
IDLE_SECONDS = 5  # so that a run started in a shell shows up by itself


def keep_fresh(draw: Callable[[], None], is_busy: Callable[[], bool], busy_seconds: float = BUSY_SECONDS) -> None:
    """Call `draw` now and again and again, more often while `is_busy`. It must draw all it shows."""
    busy = is_busy()

    @st.fragment(run_every=busy_seconds if busy else IDLE_SECONDS)
    def part() -> None:
        with errors_shown():  # on the timer's reruns the page's own handler is not there
            draw()
            if is_busy() != busy:
                st.rerun()  # the timer's period is fixed when the fragment is made

    part()
