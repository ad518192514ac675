"""Which pairs the grid shows: by class, by SSIM, by whether the attack itself is certain."""

from __future__ import annotations

import streamlit as st

from recon_core.views.live_match import PairFilter, PairView

CLASS_KEY, RANGE_KEY, CERTAIN_KEY = "m_class", "m_ssim_range", "m_certain"
_CERTAIN = {"all": None, "certain": True, "not certain": False}


def choose_filter(view: PairView) -> PairFilter:
    """A menu beside the order."""
    with st.popover("Filter", icon=":material/filter_alt:", width=130, key="m-filter"):
        classes = _choose_classes(view)
        low, high = st.slider(
            "SSIM from … to",
            0.0,
            1.0,
            (0.0, 1.0),
            0.01,
            key=RANGE_KEY,
            help="An image without a candidate counts as 0.",
            bind="query-params",
            persist_state="session",
        )
        certain = _choose_certain() if view.certain is not None else None
    return PairFilter(classes, (low, high), certain)


def _choose_classes(view: PairView) -> tuple[int, ...]:
    names = view.samples.class_names
    present = [int(label) for label in sorted(set(view.samples.labels.tolist()))]
    chosen = st.multiselect(
        "Class",
        present,
        format_func=lambda label: names[label],
        key=CLASS_KEY,
        placeholder="All classes",
        bind="query-params",
        persist_state="session",
    )
    return tuple(chosen)


def _choose_certain() -> bool | None:
    chosen = st.segmented_control(
        "By the attack's own certainty",
        list(_CERTAIN),
        default="all",
        required=True,
        key=CERTAIN_KEY,
        help="Whether the attack calls the nearest candidate certain, without having seen a training image.",
        bind="query-params",
        persist_state="session",
    )
    return _CERTAIN[chosen or "all"]
