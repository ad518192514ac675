"""Which runs a Match page is about: the reconstructions to pool, and the attack on an untrained network below them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import streamlit as st

from recon_core.errors import AfterimageError
from recon_core.runs.match_request import PoolFacts, create_untrained_control, pool_facts
from recon_core.runs.match_source import CANDIDATE_KINDS, MatchConfig
from recon_core.scheduling import queue
from recon_core.store import RunState, RunStore, RunSummary, default_root
from ui.match.settings import PAIR_KEY, address_of
from ui.shared.address import record
from ui.shared.cached import store_read
from ui.shared.formatting import plain, sentence
from ui.shared.live import keep_fresh
from ui.shared.pages import MATCH, is_arrival
from ui.shared.pick import Condition, pick_runs, recall_runs, run_label, runs_of
from ui.shared.runs import is_active, show_progress
from ui.shared.store import baseline_of, forget, recent_runs, run_details

RUNS_KEY, CONTROL_KEY, START_KEY = "m_runs", "m_untrained", "from"
_NOTES = "m-notes"
_NO_CONTROL, _WITHOUT = "", "without"
WHAT = (
    "An attack leaves candidates: images reconstructed from the weights alone. Here they are compared with the images "
    "the network was trained on, and good reconstructions are counted beside the chance level."
)


class Chosen(NamedTuple):
    """Runs of one model, the oldest first, so that the same runs make the same pool whoever picks them."""

    runs: tuple[str, ...]
    untrained: str | None
    facts: PoolFacts


def matchable_runs() -> list[RunSummary]:
    """Finished runs with candidates of a network trained here, the newest first."""
    return runs_of(CANDIDATE_KINDS, _of_a_network_trained_here())


def choose_runs(found: Sequence[RunSummary]) -> Chosen | None:
    """The widgets that choose runs; None while none is chosen."""
    _mend_address(found)
    notes = st.container()
    title, left, right = st.columns((1.2, 3, 2.4), vertical_alignment="bottom")
    title.title("Match", anchor=False)
    with left:
        picked = pick_runs(
            "Reconstructions to match",
            kinds=CANDIDATE_KINDS,
            key=RUNS_KEY,
            where=_of_a_network_trained_here(),
            default=_newest_attack(found),
            help="Several runs on one network are matched as one pool: each training image takes its best matches.",
        )
    with notes:
        _show_notes([run.id for run in picked])
    if not picked:
        return None
    runs = tuple(run.id for run in sorted(picked, key=lambda run: (run.created, run.id)))
    facts = pool_facts(RunStore(default_root()), runs)
    with right:
        untrained = _choose_control(facts.model, runs)
    return Chosen(runs, untrained, facts)


class _Notes(NamedTuple):
    """What cannot be matched of what an address named, and the runs that were picked in its place."""

    texts: list[str]
    picked: list[str] | None = None


@store_read(keep=4096)  # a run's config never changes
def run_config(store: RunStore, run_id: str) -> dict[str, Any]:
    """The config of a run; empty where it cannot be read."""
    return run_details(run_id).config


def _of_a_network_trained_here() -> Condition:
    trained = {run.id for run in recent_runs() if run.kind == "train"}
    return lambda run: not trained.isdisjoint(run.parents)


def _newest_attack(found: Sequence[RunSummary]) -> list[str]:
    """The default choice: the latest run that is not a baseline."""
    return next(([run.id] for run in found if not baseline_of(run.id)), [])


def _choose_control(model: str, runs: Sequence[str]) -> str | None:
    """The newest attack on an untrained network unless another is picked; where there is none, a way to get one."""
    attacks = runs_of(("reconstruct",), lambda run: model in run.parents and _is_control(run), tuple(RunState))
    done = {run.id: run_label(run) for run in attacks if run.status.state is RunState.DONE}
    if done:
        labels = {**done, _NO_CONTROL: "without"}
        if st.query_params.get(CONTROL_KEY) == _WITHOUT:
            st.session_state[CONTROL_KEY] = _NO_CONTROL
        else:
            recall_runs(CONTROL_KEY, done)
        picked = st.selectbox(
            "Chance level: attack on an untrained network",
            list(labels),
            format_func=lambda run_id: labels.get(run_id, run_id),
            key=CONTROL_KEY,
            help="The same attack on a network that has seen no image. What it seems to find is chance.",
            persist_state="session",
        )
        record(CONTROL_KEY, [picked or _WITHOUT])
        return picked or None
    with st.container(gap="xxsmall"):
        st.markdown(":small[Chance level: attack on an untrained network]")
        _show_missing_control(attacks, runs)
    return None


def _show_missing_control(attacks: Sequence[RunSummary], runs: Sequence[str]) -> None:
    """The one at work, or a way to get one."""
    working = next((run for run in attacks if is_active(run.status)), None)
    if working is not None:
        keep_fresh(
            lambda: show_progress(run_details(working.id).status), lambda: is_active(run_details(working.id).status)
        )
    else:
        _offer_control(runs[-1], attacks)


def _is_control(run: RunSummary) -> bool:
    return baseline_of(run.id) == "untrained"


def _offer_control(run_id: str, attacks: Sequence[RunSummary]) -> None:
    if st.button(
        "Attack an untrained network",
        key="m-untrained-start",
        icon=":material/play_arrow:",
        help="Repeats the attack on a network that has seen no image, in the background. What it seems to find is "
        "chance, and the count should be well above it.",
    ):
        run = create_untrained_control(RunStore(default_root()), run_id)
        queue.submit(run)
        forget()
        st.rerun()
    if attacks:
        last = attacks[0]
        st.caption(f"The last one is {last.status.state}: {plain(last.status.message or last.id)}")


def _mend_address(found: Sequence[RunSummary]) -> None:
    """Follow `?from=`, and say what cannot be matched of what the address names."""
    names = {run.id for run in found}
    notes: list[str] = []
    start = st.query_params.get(START_KEY)
    asked = [text for text in st.query_params.get_all(RUNS_KEY) if text]
    if start:
        address = _address_like(start, names, notes)
        if PAIR_KEY in st.query_params:
            address[PAIR_KEY] = st.query_params[PAIR_KEY]
    elif any(text not in names for text in asked):
        ids = [text.rsplit(" · ", 1)[-1] for text in asked]  # older links held names too
        kept: dict[str, str | list[str]] = {key: st.query_params.get_all(key) for key in st.query_params}
        address = {**kept, RUNS_KEY: _known(ids, names, notes)}
    else:
        return
    st.session_state[_NOTES] = _Notes(notes)
    st.switch_page(MATCH.file, query_params=address)


def _show_notes(picked: list[str]) -> None:
    """For as long as the choice stands that the address led to: the page draws itself again while a pool opens."""
    found = st.session_state.get(_NOTES)
    if found is None:
        return
    if is_arrival() or found.picked not in (None, picked):
        del st.session_state[_NOTES]
        return
    st.session_state[_NOTES] = found._replace(picked=picked)
    for note in found.texts:
        st.warning(plain(note), icon=":material/link_off:")


def _address_like(run_id: str, names: Collection[str], notes: list[str]) -> dict[str, str | list[str]]:
    """The address that shows a match run again, or matches a reconstruction."""
    try:
        run = RunStore(default_root()).open(run_id)
        if run.kind != "match":
            return {RUNS_KEY: _known([run_id], names, notes)}
        config = MatchConfig(**run.config)
    except AfterimageError as error:
        notes.append(sentence(str(error)))
        return {}
    control = {CONTROL_KEY: config.untrained} if config.untrained and config.untrained in names else {}
    return {RUNS_KEY: _known(config.runs, names, notes), **control, **address_of(config)}


def _known(ids: Sequence[str], names: Collection[str], notes: list[str]) -> list[str]:
    """The runs that can be matched; shows a note on each other one."""
    for run_id in ids:
        if run_id not in names:
            try:
                pool_facts(RunStore(default_root()), [run_id])
            except AfterimageError as error:
                notes.append(sentence(str(error)))
    return [run_id for run_id in ids if run_id in names]
