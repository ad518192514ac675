"""The baselines of a model side by side, each started with one click."""

from __future__ import annotations

import streamlit as st

from recon_core.attacks import AttackSettings
from recon_core.config import parse_config
from recon_core.runs.attack_request import baseline_request, baselines_of
from recon_core.runs.reconstruction import Baseline
from recon_core.scheduling import queue
from recon_core.store import RunState, RunStore, RunSummary, default_root
from recon_core.studies.requests import create_requested
from recon_core.views.live_reconstruction import TileOrder, Truth
from ui.reconstruct.cached import attack_model, truth
from ui.reconstruct.cards import card_columns, offer_to_open, show_conditions, show_result, show_run
from ui.shared.cached import open_run
from ui.shared.faults import errors_shown
from ui.shared.live import keep_fresh
from ui.shared.runs import is_active
from ui.shared.store import RunDetails, baseline_of, forget, recent_runs, run_details

WORDS = {
    Baseline.INVERSION: ("Model inversion", "Inputs that make the output extreme: the classic attack."),
    Baseline.WEIGHTS: ("First-layer weights", "Each neuron's weights shown as an image, as they are."),
    Baseline.KERNELS: ("Kernels", "The convolution's kernels shown as images, as they are."),
    Baseline.UNTRAINED: (
        "Untrained network",
        "The same attack on the network before training: what chance gives.",
    ),
}


def show_baselines(model_id: str, run_id: str | None = None) -> None:
    """The baselines of a model, beside run `run_id` where one is looked at."""

    def found() -> dict[Baseline, RunSummary]:
        return newest_baselines(model_id)

    def show() -> None:
        st.subheader("For comparison", anchor=False)
        run = None if run_id is None else run_details(run_id)
        itself = run is not None and run.config.get("baseline") is None
        kinds = baselines_of(attack_model(model_id))
        columns = card_columns(len(kinds) + itself, key="r-cards")
        known = found()
        if run is not None and itself:
            with columns[0], st.container(border=True):
                st.markdown("**This reconstruction**")
                st.caption("The same candidates, those that agree most with another one first.")
                final = not is_active(run.status)
                show_result(run.id, model_id, final=final, order=TileOrder.AGREEMENT, key="r-card-itself")
        for column, kind in zip(columns[itself:], kinds, strict=True):
            with column, st.container(border=True):
                _show_baseline(model_id, kind, known.get(kind), None if run is None or not itself else run)
        if truth(model_id) is Truth.AT_HAND:
            done = [known[kind].id for kind in kinds if kind in known and known[kind].status.state is RunState.DONE]
            show_conditions(model_id, done)

    keep_fresh(show, lambda: any(is_active(run.status) for run in found().values()))


def newest_baselines(model_id: str) -> dict[Baseline, RunSummary]:
    """The newest run of each baseline on a model."""
    newest: dict[Baseline, RunSummary] = {}
    for run in recent_runs():
        if run.kind == "reconstruct" and model_id in run.parents:
            kind = baseline_of(run.id)
            if kind in set(Baseline):
                newest.setdefault(Baseline(kind), run)
    return newest


def _show_baseline(model_id: str, kind: Baseline, known: RunSummary | None, beside: RunDetails | None) -> None:
    title, sentence = WORDS[kind]
    st.markdown(f"**{title}**")
    st.caption(sentence)
    if known is None:
        if st.button("Compute", key=f"r-baseline-{kind}", icon=":material/play_arrow:"):
            _start(model_id, kind, beside)
        return
    show_run(known, model_id, TileOrder.MULTIPLIER, key=f"r-card-{kind}")
    offer_to_open(known.id, key=f"r-open-{kind}")


def _start(model_id: str, kind: Baseline, beside: RunDetails | None) -> None:
    with errors_shown():
        model = attack_model(model_id)
        like = None
        if beside is not None and beside.kind == "reconstruct":
            like = parse_config(AttackSettings, beside.config["settings"])
        request = baseline_request(open_run(model_id), model, kind, like)
        queue.submit(create_requested(RunStore(default_root()), model, request))
        forget()
        st.rerun()
