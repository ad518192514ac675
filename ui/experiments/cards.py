"""All experiments as cards, and the chosen ones side by side."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from datetime import UTC, datetime

import pandas as pd
import streamlit as st

from recon_core.errors import AfterimageError
from recon_core.store import RunStore, default_root
from recon_core.views.experiments import Experiment, differences
from ui.experiments.cached import all_experiments, exported_experiment
from ui.experiments.choice import CHOSEN, choose_listed, choose_several, toggle
from ui.shared.downloads import offer_file
from ui.shared.faults import errors_shown
from ui.shared.formatting import plain, shortened, when
from ui.shared.live import keep_fresh
from ui.shared.match_pairs import show_match_pairs
from ui.shared.pages import HOME
from ui.shared.pick import show_nothing_yet
from ui.shared.store import forget

OPENED = "experiment"
PAGE_SIZE, COLUMNS = 12, 3
_FOLLOW = "experiment-opened"
_NOTE_LENGTH = 90
_PAIRS = 6


def show_all() -> None:
    """The list, kept fresh."""
    keep_fresh(_show, lambda: any(one.state == "at work" for one in all_experiments()))


def open_experiment(model_id: str) -> None:
    """A callback, so that a click is not lost when the list's own timer interrupts its rerun."""
    st.query_params[OPENED] = model_id
    st.session_state[_FOLLOW] = True


def _show() -> None:
    if st.session_state.pop(_FOLLOW, False):
        st.rerun()  # a callback inside a fragment redraws that fragment alone
    found = all_experiments()
    if not found:
        show_nothing_yet("There are no experiments yet.", "The home page starts one with one button.", HOME, "Home")
        return
    listed = choose_listed(found)
    chosen = choose_several(found)
    if chosen:
        _show_chosen(chosen)
    shown = "experiment" if len(listed) == 1 else "experiments"
    of = f" of {len(found):,}" if len(listed) < len(found) else ""
    st.caption(f"{len(listed):,}{of} {shown}")
    pages = math.ceil(len(listed) / PAGE_SIZE)
    cards = st.container()
    page = st.pagination(pages, key="e_page") if pages > 1 else 1
    now = datetime.now(UTC)
    with cards:
        part = listed[(page - 1) * PAGE_SIZE : page * PAGE_SIZE]
        for start in range(0, len(part), COLUMNS):
            for column, one in zip(st.columns(COLUMNS), part[start : start + COLUMNS], strict=False):
                with column:
                    show_card(one, now)


def show_card(found: Experiment, now: datetime) -> None:
    """One experiment: its name, best pairs, count, what was varied, when."""
    with st.container(border=True, gap="xsmall", key=f"card-{found.id}"):
        st.button(
            f"**:primary[{plain(found.name)}]**",
            key=f"open-{found.id}",
            type="tertiary",
            on_click=open_experiment,
            args=(found.id,),
        )
        show_pairs(found)
        st.markdown(count_text(found))
        facts = [found.state, when(datetime.fromisoformat(found.model.created), now), runs_text(found)]
        st.caption(" · ".join(facts))
        if found.varied:
            st.caption(f"Varied: {plain(', '.join(found.varied))}")
        if found.notes.tags:
            st.markdown(" ".join(f":gray-badge[{plain(tag)}]" for tag in found.notes.tags))
        if found.notes.text:
            st.caption(plain(shortened(" ".join(found.notes.text.split()), _NOTE_LENGTH)))
        st.checkbox(
            "Select",
            value=found.id in st.session_state.get(CHOSEN, []),
            key=f"take-{found.id}-{found.id in st.session_state.get(CHOSEN, [])}",
            on_change=toggle,
            args=(found.id,),
        )


def show_pairs(found: Experiment, count: int = _PAIRS, key: str = "pairs") -> None:
    """The best pairs, where there is a matching of images; each opens large."""
    if found.count is None:
        return
    name = f"Best pairs of {found.name}: training images above, reconstructions below"
    with contextlib.suppress(AfterimageError):  # deleted or damaged since it was counted
        show_match_pairs(found.count.match, count, key=f"{key}-{found.id}", name=name, labelled=False)


def count_text(found: Experiment) -> str:
    if found.count is None:
        return "not counted yet"
    other = f"; {found.count.other}" if found.count.other else ""
    return f"**{found.count.good} of {found.count.of}** reconstructed · chance level {found.count.chance}{other}"


def runs_text(found: Experiment) -> str:
    parts = ((found.attacks, "attack"), (found.controls, "control"), (found.matchings, "matching"))
    return (
        ", ".join(f"{len(runs)} {name}{'' if len(runs) == 1 else 's'}" for runs, name in parts if runs) or "no attack"
    )


def _show_chosen(chosen: Sequence[Experiment]) -> None:
    """Compared where there are several; exported or deleted together."""
    with st.container(horizontal=True, gap="small"):
        for one in chosen[:8]:
            offer_file(
                f"Export {plain(one.name)}" if len(chosen) > 1 else "Export",
                lambda model_id=one.id: exported_experiment(model_id),  # type: ignore[misc]
                f"{one.id}.zip",
                key=f"zip-{one.id}",
                disabled=one.state == "at work",
            )
        with st.popover(f"Delete {len(chosen)}", icon=":material/delete:"):
            runs = sum(len(one.runs) for one in chosen)
            st.markdown(f"Delete {len(chosen)} experiments, {runs} runs in all, permanently?")
            if st.button("Yes, delete", key="e_delete", type="primary"):
                delete_experiments(chosen)
    if len(chosen) < 2:
        return
    st.subheader("Side by side", anchor=False)
    st.dataframe(compared(chosen), hide_index=True, alt="The selected experiments: counts, and settings that differ")
    for start in range(0, len(chosen), COLUMNS):
        for column, one in zip(st.columns(COLUMNS), chosen[start : start + COLUMNS], strict=False):
            with column:
                st.caption(f"{plain(one.name)}: {count_text(one)}")
                show_pairs(one, key="compared")


def compared(chosen: Sequence[Experiment]) -> pd.DataFrame:
    """A row for each: the count, its chance level, and the settings that differ."""
    counts = [one.count for one in chosen]
    return pd.DataFrame(
        {
            "experiment": [one.name for one in chosen],
            "reconstructed": ["–" if count is None else f"{count.good} of {count.of}" for count in counts],
            "share": ["–" if count is None else f"{count.share:.0%}" for count in counts],
            "chance level": ["–" if count is None else str(count.chance) for count in counts],
            "other SSIM window": ["–" if count is None else count.other or "–" for count in counts],
            **differences(RunStore(default_root()), chosen),
        }
    )


def delete_experiments(chosen: Sequence[Experiment]) -> None:
    """Delete experiments with all runs that depend on them; for one that cannot be deleted, say why and continue."""
    for one in chosen:
        with errors_shown():
            RunStore(default_root()).delete(one.id, with_dependents=True)
    all_experiments.clear()
    forget()
    st.rerun()
