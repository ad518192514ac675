"""The page that follows an experiment, started with one button, from training to the count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import streamlit as st

from recon_core.config import Recipe, TrainConfig, parse_config
from recon_core.errors import InputError
from recon_core.matching.controls import chance_level
from recon_core.presets import find_preset
from recon_core.runs.chain_search import find_attack_chain
from recon_core.runs.chains import create_attack_chain
from recon_core.runs.stored_names import with_current_names
from recon_core.scheduling import queue
from recon_core.store import RunState, RunStore, default_root
from ui.home.cached import PAIRS, Drawn, Originals, drawn, margins, originals
from ui.home.gallery import Gallery, Pair, show_gallery
from ui.home.margins import show_margins
from ui.shared.formatting import duration, plain, when
from ui.shared.labels import prior_label
from ui.shared.live import keep_fresh
from ui.shared.pace import fits_later, pace, unmixes
from ui.shared.pages import MATCH
from ui.shared.pair_view import Pair as LargePair
from ui.shared.pair_view import PairSet, match_link, score_facts
from ui.shared.runs import follow_opened_run, is_active, open_run
from ui.shared.store import RunDetails, baseline_of, forget, run_details

FIRST_PRESET = "cifar10-50"
LIVE_SECONDS = 0.5

_OFFERED = "experiment-offered"
_STOPPED = (RunState.FAILED, RunState.INTERRUPTED, RunState.CANCELLED)


@dataclass(frozen=True)
class Chain:
    """The runs of one experiment, which is identified by its match run."""

    train: RunDetails
    attack: RunDetails
    controls: tuple[RunDetails, ...]
    match: RunDetails

    @property
    def runs(self) -> tuple[RunDetails, ...]:
        return (self.train, self.attack, *self.controls, self.match)

    @property
    def active(self) -> bool:
        """Whether some of its runs are still queued or running."""
        return any(is_active(run.status) for run in self.runs) and self.stopped is None

    @property
    def stopped(self) -> RunDetails | None:
        """The run that ended before there was a result."""
        return next((run for run in (self.train, self.attack) if run.status.state in _STOPPED), None)

    @property
    def done(self) -> bool:
        """Whether it has a result; its controls may still be at work."""
        return self.attack.status.state is RunState.DONE


def open_first_experiment() -> str:
    """The experiment of the first button: one that was done before, else a new one. The id of its match run."""
    found = find_attack_chain(RunStore(default_root()), find_preset(FIRST_PRESET).config())
    if found is None:
        return start_first_chain()
    if found.done:
        st.session_state[_OFFERED] = found.match.id
    return found.match.id


def start_first_chain() -> str:
    """Queue everything with its defaults. Nobody waits for the controls, nor for the match run that needs them."""
    preset = find_preset(FIRST_PRESET)
    chain = create_attack_chain(RunStore(default_root()), preset.config())
    for run in chain.runs:
        queue.submit(run, queue.Priority.CONTROL if run is chain.match else None)
    forget()
    return chain.runs[-1].id


def chain_view(match_id: str) -> None:
    """The chain that ends with this match run."""
    chain = _chain(match_id)
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.button("Home", icon=":material/arrow_back:"):
            st.query_params.clear()
            st.rerun()
        st.header("Images out of the weights", anchor=False, width="content")
        st.space("stretch")
        if chain.done:
            _offer_more(chain)
    if st.session_state.get(_OFFERED) == match_id:
        ago = when(datetime.fromisoformat(chain.match.created), datetime.now(UTC))
        st.info(f"This experiment was run {ago}; here is its result. *Run it again* computes it anew.")
    keep_fresh(lambda: _show(match_id), lambda: _chain(match_id).active, LIVE_SECONDS)


def _offer_more(chain: Chain) -> None:
    if st.button("Run it again", key="chain-again", icon=":material/replay:"):
        st.session_state.pop(_OFFERED, None)
        st.query_params["chain"] = start_first_chain()
        st.rerun()
    if st.button("Open in Match", key="chain-match", icon=":material/compare:", type="primary"):
        matched = chain.match if chain.match.status.state is RunState.DONE else chain.attack
        st.switch_page(MATCH.file, query_params={"from": matched.id})


def _chain(match_id: str) -> Chain:
    match = run_details(match_id)
    if match.kind != "match":
        raise InputError(f"run {match_id} is of kind {match.kind!r}; a chain is named by the match run it ends with")
    parents = [run_details(parent) for parent in match.parents]
    attacks = [run for run in parents if baseline_of(run.id) is None]
    if not attacks or not attacks[0].parents:
        raise InputError(f"run {match_id} matches no attack of this store; open it on the Match page")
    controls = tuple(run for run in parents if run not in attacks)
    return Chain(run_details(attacks[0].parents[0]), attacks[0], controls, match)


def _show(match_id: str) -> None:
    follow_opened_run("Back to the experiment")
    chain = _chain(match_id)
    was_done = st.session_state.get("chain-done") == match_id
    if chain.done and not was_done:
        st.session_state["chain-done"] = match_id
        st.rerun()  # what can be done with a result stands above this part of the page
    left, right = st.columns([2, 1], gap="medium")
    images = not parse_config(TrainConfig, chain.train.config).data.source.planar
    found = _drawn(chain) if images else None
    with left:
        if images:
            show_gallery(_gallery(chain, originals(chain.train.config), found), key="chain-gallery")
        else:
            st.subheader(plain(_sentence(chain.match)), anchor=False)
    with right:
        if found is not None:
            _show_count(chain, found)
        show_margins(margins(chain.train.id), "Margins of the training images", key="chain-margins")
        _show_work(chain)


def _drawn(chain: Chain) -> Drawn | None:
    return drawn(chain.train.id, chain.attack.id) if chain.train.status.state is RunState.DONE else None


def _gallery(chain: Chain, known: Originals, found: Drawn | None) -> Gallery:
    if found is None:
        classes = known.classes[:PAIRS]
        waiting = [Pair(sample, "", f"{name}: nothing reconstructed yet", False) for sample, name in enumerate(classes)]
        title = f"The first {len(waiting)} of {len(known.classes)} training images"
        return Gallery("", known.sheet, waiting, f"{title}; reconstructions will appear below them")
    best = found.found.pairs
    pairs = [
        Pair(
            int(sample),
            f"{'✓ ' if good else ''}{ssim:.2f}",
            f"training image {sample}, {known.classes[sample]}: SSIM {ssim:.2f}",
            bool(good),
        )
        for sample, ssim, good in zip(best.samples.tolist(), best.ssim.tolist(), best.good.tolist(), strict=True)
    ]
    step = "" if found.found.step is None else f" at step {found.found.step:,}"
    shown = (
        f"{found.candidates.count} of {found.total} candidates"
        if found.candidates.count < found.total
        else f"All {found.total} candidates"
    )
    return Gallery(
        found.version,
        known.sheet,
        pairs,
        f"Best pairs{step}: training image, reconstruction, SSIM",
        found.reconstructions,
        found.candidates,
        f"{shown}{step}, {'those it is surest of first' if found.by_confidence else 'as the attack sees them'}",
        _opened(chain, known, found),
        _alone(chain, found),
    )


def _opened(chain: Chain, known: Originals, found: Drawn) -> PairSet:
    best = found.found.pairs
    return PairSet(
        [
            LargePair(
                sample,
                f"Training image {sample}: {known.classes[sample]}",
                sample,
                place,
                score_facts(ssim, best.threshold),
                _match_link(chain, sample),
            )
            for place, (sample, ssim) in enumerate(zip(best.samples.tolist(), best.ssim.tolist(), strict=True))
        ]
    )


def _alone(chain: Chain, found: Drawn) -> PairSet | None:
    if found.alone is None:
        return None
    alone = found.alone
    return PairSet(
        [
            LargePair(
                place,
                f"Candidate {place + 1}, beside training image {sample}: {name}",
                sample,
                place,
                score_facts(ssim, found.found.pairs.threshold, "SSIM of this candidate alone"),
                _match_link(chain, sample),
            )
            for place, (sample, ssim, name) in enumerate(
                zip(alone.samples.tolist(), alone.ssim.tolist(), alone.classes, strict=True)
            )
        ],
        reconstructions=found.alone_sheet,
    )


def _match_link(chain: Chain, sample: int) -> dict[str, str]:
    """The link to Match, once there is something to match."""
    return match_link(chain.attack.id, sample) if chain.done else {}


def _show_count(chain: Chain, found: Drawn) -> None:
    """The count beside its chance level, which rises as controls come in."""
    count = found.found.count
    stored = chain.match.result.get("count")
    controls: Mapping[str, Any] = with_current_names(stored) if isinstance(stored, dict) else {}
    held_out, held_out_of = controls.get("non_members"), controls.get("non_members_of")
    untrained = controls.get("control_untrained")
    chance = chance_level(
        count.of,
        mean_image=count.control_mean_image,
        untrained=untrained,
        held_out=held_out,
        held_out_of=held_out_of,
    )
    with st.container(horizontal=True):
        st.metric(
            "Good reconstructions",
            f"{count.good} of {count.of}",
            border=True,
            width="content",
            help=f"Training images whose SSIM is above {count.threshold:g}, after merging candidates with "
            f"B = {count.merge_factor:g}. Scored with the training data, which the attack never sees.",
        )
        st.metric(
            "Chance level",
            f"{chance} of {count.of}",
            border=True,
            width="content",
            help="What would count as good although nothing leaked: the largest of the controls below.",
        )
    st.caption(
        f"Controls: mean image alone {count.control_mean_image}; untrained network "
        f"{'…' if untrained is None else untrained}; held-out images "
        f"{'…' if held_out is None else f'{held_out} of {held_out_of}'}"
    )
    if fits_later(chain.attack) and not unmixes(chain.attack):
        st.caption("Counted among the candidates being fitted now; those found by unmixing are added at the end.")
    certain, sure = chain.attack.result.get("certain"), found.found.certainty
    if certain is not None and sure is not None:
        real = f", {sure.real} of them real" if sure.certain == certain else ""
        st.caption(
            f"The attack itself is certain of {certain:,} of its {found.total:,} candidates{real}. "
            f"Prior: {prior_label(chain.attack.result['prior'])}."
        )


def _show_work(chain: Chain) -> None:
    """The runs at work, one line each, and every failure with a link to its run."""
    if chain.stopped is not None:
        run = chain.stopped
        words = plain(run.status.message) or "no reason was recorded; see its log"
        st.error(f"{'Training' if run is chain.train else 'The attack'} is {run.status.state}: {words}")
        st.button("Open the run", key=f"details-{run.id}", on_click=open_run, args=(run.id,))
        return
    lines = [f"**Training**: {_training_text(chain.train)}"]
    if chain.train.status.state is RunState.DONE:
        lines.append(f"**Attack**: {_run_label(chain.attack)}")
    if chain.done and chain.active:
        controls = next((run for run in (*chain.controls, chain.match) if is_active(run.status)), chain.match)
        lines.append(f"**Controls**: {_run_label(controls)}; they fill in by themselves")
    st.markdown("  \n".join(lines))
    with st.container(horizontal=True):
        for name, run in (("Training run", chain.train), ("Attack run", chain.attack)):
            if run.status.state is not RunState.QUEUED:
                st.button(name, key=f"details-{run.id}", type="tertiary", on_click=open_run, args=(run.id,))


def _training_text(run: RunDetails) -> str:
    words = _run_label(run)
    flow = run.config.get("training", {}).get("recipe") == Recipe.FLOW
    return f"{words} · usually 2–5 s" if flow and run.status.state is RunState.RUNNING else words


def _run_label(run: RunDetails) -> str:
    if run.status.state is RunState.DONE:
        return f"done in {duration(run.status.seconds)}"
    return pace(run)


def _sentence(match: RunDetails) -> str:
    """The result of a match run of points, as stated in its status."""
    found = match.status.message.partition("; for comparison, ")[0]
    return found[:1].upper() + found[1:]
