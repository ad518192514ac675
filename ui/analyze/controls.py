"""The controls of the Analyze page: figures, runs, threshold and B; all of them are kept in the address."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from recon_core.analysis.leakage import AxisScale, LeakAxis
from recon_core.matching.protocol import GOOD_SSIM, Protocol
from recon_core.plots.leakage import AXIS_TITLES, DISTANCE_NOTE
from recon_core.runs.match_source import DENSE_FACTOR
from recon_core.store import RunState
from recon_core.views.leak_view import ANALYSED_KINDS, AnalysedRun, ModelEntry
from ui.analyze.cached import Request, models, request_for, runs_to_analyse
from ui.shared.formatting import plain
from ui.shared.pages import HOME
from ui.shared.pick import runs_of, show_nothing_yet
from ui.shared.store import recent_runs

MOST_PANELS = 9
_MOST_OFFERED = 1000
_AUTOMATIC = "auto"


class View(StrEnum):
    ONE = "One model"
    SEVERAL = "Several models"
    DECAY = "Weight decay"
    ERRORS = "Errors"


@dataclass(frozen=True)
class Settings:
    """The values of the sliders."""

    threshold: float
    merge_factor: float
    axis: LeakAxis
    models_axis: LeakAxis
    """Of several models beside each other."""
    scale: AxisScale | None
    """Of that axis; None where it follows from how the points lie."""
    controls: bool
    """Whether each image's chance level is drawn beside its score."""


@dataclass(frozen=True)
class Controls:
    """The values of all controls."""

    run: AnalysedRun | None
    request: Request | None
    """Of that run, where its view is shown."""
    runs: Sequence[AnalysedRun]
    family: Sequence[ModelEntry]
    settings: Settings


_BEARS_ON = {
    "run": {View.ONE},
    "runs": {View.SEVERAL},
    "family": {View.DECAY},
    "threshold": set(View),
    "factor": {View.ONE, View.SEVERAL, View.DECAY},
    "axis": {View.ONE},
    "models-axis": {View.SEVERAL},
    "scale": {View.ONE, View.SEVERAL},
}


def choose_view() -> View:
    chosen = st.segmented_control(
        "Show",
        [view.value for view in View],
        default=View.ONE.value,
        required=True,
        key="a_view",
        label_visibility="collapsed",
        bind="query-params",
        persist_state="session",
    )
    return View(chosen or View.ONE)


def _choose_run() -> AnalysedRun | None:
    """The run that is looked at alone: the newest match run, unless chosen."""
    found, names = {run.run: run for run in runs_to_analyse()}, _names()
    chosen = st.selectbox(
        "Run",
        _offered(found, "a_run"),
        format_func=lambda run_id: names.get(run_id, run_id),
        key="a_run",
        help="Match runs are shown as they were matched. Reconstructions that were never matched are matched now, with "
        "the newest attack on an untrained network as their chance level.",
        bind="query-params",
        persist_state="session",
    )
    return found.get(chosen) if chosen else None


def _choose_runs() -> list[AnalysedRun]:
    """Those put side by side: the newest match run of each model, unless chosen."""
    found, names = {run.run: run for run in runs_to_analyse() if not run.planar}, _names()
    usual = [model.match_run for model in models() if model.match_run in found][:MOST_PANELS]
    chosen = st.multiselect(
        "Runs on images, one for each panel",
        _offered(found, "a_runs", usual),
        default=usual,
        format_func=lambda run_id: names.get(run_id, run_id),
        key="a_runs",
        max_selections=MOST_PANELS,
        placeholder="Choose runs",
        bind="query-params",
        persist_state="session",
    )
    return [found[run_id] for run_id in chosen if run_id in found]


def _choose_family() -> tuple[ModelEntry, ...]:
    """Models of one shape that saw the same images; the family with most decays first. Empty where none was matched."""
    families: dict[str, list[ModelEntry]] = {}
    for model in models():
        families.setdefault(model.family, []).append(model)
    kept = {
        _family_label(members): tuple(members)
        for members in families.values()
        if any(member.match_run is not None for member in members)
    }
    if not kept:
        return ()
    chosen = st.selectbox(
        "Models alike but for their weight decay",
        sorted(kept, key=lambda text: -len(_decays(kept[text]))),
        key="a_family",
        bind="query-params",
        persist_state="session",
    )
    return kept.get(chosen or "", ())


def choose(view: View | None) -> Controls:
    """All of the page's questions; those that do not bear on `view` are out of sight, None means all are.

    They are drawn all the same: what is not drawn leaves the address, and a reload would forget it.
    """
    with _part("run"):
        run = _choose_run()
    hidden = [name for name, views in _BEARS_ON.items() if view is not None and view not in views]
    if view is View.ONE and run is not None and run.planar:  # points have no SSIM
        hidden = [name for name in _BEARS_ON if name != "run"]
    st.html(_hiding(hidden))
    with _part("runs"):
        runs = _choose_runs()
    with _part("family"):
        family = _choose_family()
    request = request_for(run.run) if run is not None and view in (None, View.ONE) else None
    with _part("threshold"):
        threshold = _choose_threshold()
    with _part("factor"):
        merge_factor = _choose_factor(request)
    with _part("axis"):
        axis = _choose_axis("a_x", LeakAxis.MARGIN)
        show_controls = _choose_controls()
    with _part("models-axis"):
        models_axis = _choose_axis("a_xs", LeakAxis.RELATIVE)
    with _part("scale"):
        scale = _choose_scale()
    settings = Settings(threshold, merge_factor, axis, models_axis, scale, show_controls)
    return Controls(run, request, runs, family, settings)


def _part(name: str) -> DeltaGenerator:
    return st.container(key=f"analyze-{name}")


def _hiding(names: Sequence[str]) -> str:
    selectors = ", ".join(f".st-key-analyze-{name}" for name in names)
    return f"<style>{selectors} {{ display: none; }}</style>" if names else "<style></style>"


def _choose_threshold() -> float:
    return st.slider(
        "Good means SSIM above",
        0.0,
        1.0,
        GOOD_SSIM,
        0.01,
        key="a_t",
        help="Structural similarity: 1 is the same picture, 0 has nothing in common. The papers draw the line at 0.4.",
        bind="query-params",
        persist_state="session",
    )


def _choose_factor(request: Request | None) -> float:
    """It begins at the run's own B."""
    return st.slider(
        "Merge factor B",
        1.0,
        2.0,
        DENSE_FACTOR if request is None else min(request.own_factor, 2.0),
        0.01,
        key="a_b",
        help="Candidates up to B times as far from a training image as its nearest one are averaged, which removes "
        "noise; 1 takes the nearest alone. The papers use 1.1, and 1.5 for convolutional networks. Haim's protocol "
        "has no B.",
        disabled=request is not None and request.config.protocol is not Protocol.BUZAGLO,
        bind="query-params",
        persist_state="session",
    )


def _choose_axis(key: str, usual: LeakAxis) -> LeakAxis:
    chosen = st.radio(
        "SSIM against",
        [axis.value for axis in LeakAxis],
        captions=[AXIS_TITLES[axis] for axis in LeakAxis],
        index=list(LeakAxis).index(usual),
        key=key,
        help="Images on the margin are those the network only just gets right, and they hold its weights in place. "
        "Relative to the margin, models of any scale compare. The output is what the network itself says. "
        f"{DISTANCE_NOTE}.",
        bind="query-params",
        persist_state="session",
    )
    return LeakAxis(chosen or usual)


def _choose_scale() -> AxisScale | None:
    chosen = st.segmented_control(
        "Scale of that axis",
        [_AUTOMATIC, *(scale.value for scale in AxisScale)],
        default=_AUTOMATIC,
        required=True,
        key="a_scale",
        help="Automatic: logarithmic where half of the images crowd at zero, else linear. Symlog is linear near zero "
        "and takes negative values too.",
        bind="query-params",
        persist_state="session",
    )
    return None if chosen in (None, _AUTOMATIC) else AxisScale(chosen)


def _choose_controls() -> bool:
    return st.toggle(
        "Draw chance levels",
        key="a_f",
        help="What the mean image alone, and an untrained network where one was attacked, would score on each image.",
        bind="query-params",
        persist_state="session",
    )


def show_nothing() -> None:
    """The empty state: what to do, and the state of unfinished runs."""
    show_nothing_yet(
        "There is nothing to analyse yet.",
        "Train a network, reconstruct images from its weights, and match them with the images it was trained on. Then "
        "this page shows which of them leaked, and what sets those apart.",
        HOME,
        "Start on the home page",
    )
    unfinished = runs_of(ANALYSED_KINDS, states=tuple(state for state in RunState if state is not RunState.DONE))
    for run in unfinished[:3]:
        st.caption(f"{plain(run.name)} is {run.status.state}. {plain(run.status.message)}")


def _offered(found: Collection[str], key: str, usual: Sequence[str] = ()) -> list[str]:
    """The newest runs, and those chosen already or by default: a list of thousands is slow to send and helps nobody."""
    kept = st.session_state.get(key) or ()
    chosen = {kept} if isinstance(kept, str) else {*kept}
    asked = chosen.union(usual, *(value.split(",") for value in st.query_params.get_all(key)))
    return [run for place, run in enumerate(found) if place < _MOST_OFFERED or run in asked]


def _names() -> dict[str, str]:
    """Names by run; no two runs of a store have the same. Asked for once, not for each of thousands of options."""
    return {run.id: run.name for run in recent_runs()}


def _family_label(members: Sequence[ModelEntry]) -> str:
    return f"{members[0].family_label} ({members[0].family_id})"


def _decays(members: Sequence[ModelEntry]) -> set[float]:
    return {member.weight_decay for member in members if member.match_run is not None}
