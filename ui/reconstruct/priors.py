"""What the prior on images does: one network, the same attack with each prior, side by side."""

from __future__ import annotations

import streamlit as st

from recon_core.attacks.settings import Prior
from recon_core.config import parse_config
from recon_core.errors import InputError
from recon_core.runs.prior_runs import attacks_by_prior, prior_of, with_prior
from recon_core.runs.reconstruction import ReconstructConfig
from recon_core.scheduling import queue
from recon_core.store import RunState, RunStore, RunSummary, default_root
from recon_core.studies.requests import create_requested
from recon_core.views.live_reconstruction import TileOrder, Truth
from ui.reconstruct.cached import attack_model, truth
from ui.reconstruct.cards import card_columns, offer_to_open, show_conditions, show_run
from ui.shared.faults import errors_shown
from ui.shared.live import keep_fresh
from ui.shared.runs import is_active
from ui.shared.store import forget, recent_runs, run_details

_CARDS = {
    Prior.OFF: (
        "No prior",
        "The equation alone. Many sets of inputs solve it nearly as well.",
    ),
    Prior.BOX: ("Box", "Pixels must stay in their range: L_prior of Haim et al."),
    Prior.NATURAL: ("Natural images", "Edges of images are few and strong; nothing of it is learnt from data."),
}


def show_priors(model_id: str, run_id: str) -> None:
    """Below an attack that can be given any prior; nothing below others, which are no images or have no choice."""
    try:
        config = parse_config(ReconstructConfig, run_details(run_id).config)
        planar = attack_model(model_id).planar
    except InputError:  # the page above says it
        return
    if prior_of(config) is None or planar:
        return

    def found() -> dict[Prior, RunSummary]:
        return attacks_by_prior(RunStore(default_root()), recent_runs(), config)

    def show() -> None:
        st.subheader("What the prior does", anchor=False)
        st.caption(
            "The same attack on the same weights with each prior, candidates that agree most with another one first. "
            "Without a prior the equation has many solutions; a prior says which of them are images."
        )
        known = found()
        _offer_missing(model_id, config, [prior for prior in _CARDS if prior not in known])
        for column, (prior, (title, sentence)) in zip(
            card_columns(len(_CARDS), key="r-priors"), _CARDS.items(), strict=True
        ):
            with column, st.container(border=True):
                st.markdown(f"**{title}**" + (" · this run" if prior is prior_of(config) else ""))
                st.caption(sentence)
                run = known.get(prior)
                if run is None:
                    st.caption("Not run yet.")
                    continue
                show_run(run, model_id, TileOrder.AGREEMENT, key=f"r-prior-{prior}")
                if run.id != run_id:
                    offer_to_open(run.id, key=f"r-open-prior-{prior}")
        if truth(model_id) is Truth.AT_HAND:
            show_conditions(model_id, [run.id for run in known.values() if run.status.state is RunState.DONE])

    keep_fresh(show, lambda: any(is_active(run.status) for run in found().values()))


def _offer_missing(model_id: str, config: ReconstructConfig, missing: list[Prior]) -> None:
    if not missing or not st.button("Run the others", key="r-priors-run", icon=":material/play_arrow:"):
        return
    with errors_shown():
        for prior in missing:
            run = create_requested(RunStore(default_root()), attack_model(model_id), with_prior(config, prior))
            queue.submit(run)
        forget()
        st.rerun()
