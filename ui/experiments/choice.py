"""Which experiments are listed, in which order, and which are chosen; kept in the address."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from recon_core.views.experiments import Experiment
from ui.shared.address import recall, record

SEARCH, SORT, CHOSEN = "e_search", "e_sort", "e_cmp"
NEWEST, BY_COUNT, BY_SHARE = "newest first", "by count", "by share of its images"
_ORDERS: dict[str, Callable[[Experiment], Any]] = {
    BY_COUNT: lambda found: found.count.good if found.count else -1,
    BY_SHARE: lambda found: found.count.share if found.count else -1.0,
}
FILTERS: dict[str, tuple[str, Callable[[Experiment], Sequence[str]]]] = {
    "e_data": ("Data", lambda found: [found.data]),
    "e_loss": ("Loss", lambda found: [found.loss]),
    "e_decay": ("Decay", lambda found: [found.decay_label]),
    "e_state": ("State", lambda found: [found.state]),
    "e_tag": ("Tags", lambda found: found.notes.tags),
}


def choose_listed(found: Sequence[Experiment]) -> list[Experiment]:
    """Search, filters and order; the ones that fit."""
    left, right = st.columns([3, 1])
    with left:
        _recall_text(SEARCH)
        text = st.text_input("Search", key=SEARCH, placeholder="Name, tag or note", persist_state="session") or ""
        record(SEARCH, [text] if text else [])
    with right:
        orders = [NEWEST, *_ORDERS]
        recall(SORT, orders)
        order = st.selectbox("Sort", orders, key=SORT, persist_state="session")
        record(SORT, [order] if order != NEWEST else [])
    kept = [one for one in found if _holds(one, text)]
    columns = st.columns(len(FILTERS))
    for column, (key, (label, values_of)) in zip(columns, FILTERS.items(), strict=True):
        options = sorted({value for one in found for value in values_of(one)})
        with column:
            recall(key, options, several=True)
            st.session_state[key] = [value for value in st.session_state.get(key, []) if value in options]
            wanted = st.multiselect(label, options, key=key, placeholder="all", persist_state="session")
            record(key, wanted)
        if wanted:
            kept = [one for one in kept if set(wanted) & set(values_of(one))]
    return sorted(kept, key=_ORDERS[order], reverse=True) if order in _ORDERS else kept


def choose_several(found: Sequence[Experiment]) -> list[Experiment]:
    """Those to compare, export or delete: ticked on their cards, or taken here."""
    names = {one.id: one.name for one in found}
    recall(CHOSEN, names, several=True)
    st.session_state[CHOSEN] = [one for one in st.session_state.get(CHOSEN, []) if one in names]
    chosen = st.multiselect(
        "Selected",
        list(names),
        format_func=lambda model_id: names.get(model_id, model_id),
        key=CHOSEN,
        placeholder="Select experiments on their cards, or here",
        persist_state="session",
    )
    record(CHOSEN, chosen)
    return [one for model_id in chosen for one in found if one.id == model_id]


def toggle(model_id: str) -> None:
    """A callback of the box on a card."""
    chosen = st.session_state.get(CHOSEN, [])
    st.session_state[CHOSEN] = [one for one in chosen if one != model_id] if model_id in chosen else [*chosen, model_id]


def _holds(found: Experiment, text: str) -> bool:
    """Whether every word of the search occurs in the text of an experiment."""
    whole = " ".join((found.name, *found.varied, *found.notes.tags, found.notes.text, found.data)).lower()
    return all(word in whole for word in text.lower().split())


def _recall_text(key: str) -> None:
    if key not in st.session_state and (asked := st.query_params.get(key)):
        st.session_state[key] = asked[:200]
