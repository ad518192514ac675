"""The circle, for teaching: one small training set seen whole, learnt, and drawn out of the weights again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

import streamlit as st

from recon_core.attacks.circle import PAPER_DISTANCE, PAPER_THRESHOLD
from recon_core.config import PlanarLabels
from recon_core.runs.circle import CircleRuns, CircleSettings, find_circle
from recon_core.scheduling import queue
from recon_core.store import RunState, RunStore, RunSummary, default_root
from recon_core.views.circle_recording import RADII, CleanUp
from ui.circle.cached import (
    candidates_of,
    circle_runs,
    cleaned,
    fields_of,
    final_candidates,
    forget_circles,
    truth,
    weights_of,
)
from ui.circle.player import Mode, Overlay, Scene, Stage, show_player
from ui.shared.formatting import duration, plain
from ui.shared.live import keep_fresh
from ui.shared.runs import show_progress, show_state
from ui.shared.store import RunDetails, forget, run_details

LIVE_SECONDS = 0.7

COUNTS = (4, 6, 8, 10, 12, 16, 20, 24, 30)
WIDTHS = (50, 100, 200, 300, 500, 1000)
DECAYS = (0.0, 0.001, 0.002, 0.005)
LABELS = {
    PlanarLabels.ALTERNATING: "alternating",
    PlanarLabels.RANDOM: "random",
    PlanarLabels.ARCS: "two arcs",
}
OVERLAYS = {
    "inversion": "Model inversion",
    "weights": "First-layer weights",
    "found": "What was found",
}
DEFAULTS = (CircleSettings(), CircleSettings(labels=PlanarLabels.ARCS))
"""Of the circle, and of the one it is compared with."""

_BOUND: dict[str, Any] = {"bind": "query-params", "persist_state": "session"}
_WORK = {"train": "Training", "reconstruct": "The attack"}


@dataclass(frozen=True)
class Knobs:
    """What is asked of a finished run: its clean-up, and what is drawn on top."""

    threshold: float
    distance: float
    overlays: tuple[str, ...]


def circle_view() -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.button("Home", icon=":material/arrow_back:"):
            del st.query_params["view"]
            st.rerun()
        st.header("The circle", anchor=False, width="content")
        st.space("stretch")
        two = st.toggle("Compare with another setting", key="c_two", **_BOUND)
    first = _choose(0)
    if not two:
        _keep_one(first)
        return
    second = _choose(1)
    knobs = _turn_knobs(st.columns([2, 2, 3]), enabled=any(_is_done(chosen) for chosen in (first, second)))
    for slot, (column, chosen) in enumerate(zip(st.columns(2, gap="medium"), (first, second), strict=True)):
        with column:
            st.markdown(f"**{plain(chosen.title())}**")
            _keep_beside(chosen, slot, knobs)


def _choose(slot: int) -> CircleSettings:
    """A row of widgets; each is part of the address."""
    default, prefix = DEFAULTS[slot], ("c", "d")[slot]
    columns = st.columns(5)
    n = columns[0].selectbox("Training points", COUNTS, COUNTS.index(default.n), key=f"{prefix}_n", **_BOUND)
    labels = columns[1].selectbox(
        "Labels",
        list(LABELS),
        list(LABELS).index(default.labels),
        format_func=lambda choice: LABELS[choice],
        key=f"{prefix}_labels",
        help="Neighbours of opposite classes, classes by chance, or a class for each half of the circle.",
        **_BOUND,
    )
    width = columns[2].selectbox(
        "Width",
        WIDTHS,
        WIDTHS.index(default.width),
        key=f"{prefix}_width",
        help="Neurons in each of the two hidden layers. The paper has 1000; narrow networks are quicker and leak less.",
        **_BOUND,
    )
    decay = columns[3].selectbox(
        "Weight decay",
        DECAYS,
        DECAYS.index(default.weight_decay),
        format_func=lambda value: f"{value:g}" if value else "none",
        key=f"{prefix}_decay",
        **_BOUND,
    )
    seed = columns[4].number_input(
        "Seed",
        0,
        9999,
        default.seed,
        key=f"{prefix}_seed",
        help="Another seed is another start of the network and of the candidates, and other random labels.",
        **_BOUND,
    )
    return CircleSettings(n=n, labels=labels, width=width, weight_decay=decay, seed=seed)


def _keep_one(settings: CircleSettings) -> None:
    """One circle, the picture to the left and all about it to the right."""

    def draw() -> None:
        runs = circle_runs(settings)
        left, right = st.columns([3, 2], gap="large")
        with right:
            panel = st.container()
            knobs = _turn_knobs([right] * 3, enabled=runs is not None and runs.done)
        with left:
            show_player(_scene(settings, runs, 0, knobs), key="circle-0")
        with panel:
            _show_standing(settings, runs, 0, knobs)

    keep_fresh(draw, _busy(settings), LIVE_SECONDS)


def _keep_beside(settings: CircleSettings, slot: int, knobs: Knobs) -> None:
    """One of two circles, all about it below the picture."""

    def draw() -> None:
        runs = circle_runs(settings)
        show_player(replace(_scene(settings, runs, slot, knobs), beside=True), key=f"circle-{slot}")
        _show_standing(settings, runs, slot, knobs)

    keep_fresh(draw, _busy(settings), LIVE_SECONDS)


def _busy(settings: CircleSettings) -> Callable[[], bool]:
    def busy() -> bool:
        runs = circle_runs(settings)
        return runs is not None and runs.active

    return busy


def _is_done(settings: CircleSettings) -> bool:
    runs = circle_runs(settings)
    return runs is not None and runs.done


def _turn_knobs(places: list[Any], enabled: bool) -> Knobs:
    threshold = places[0].slider(
        "Drop multipliers below",
        0.0,
        40.0,
        PAPER_THRESHOLD,
        0.5,
        key="c_lam",
        disabled=not enabled,
        help="A candidate with a small multiplier hardly acts on the weights and can lie anywhere. The paper takes 5.",
        **_BOUND,
    )
    distance = places[1].slider(
        "Count as one when closer than",
        0.0,
        0.3,
        PAPER_DISTANCE,
        0.01,
        key="c_r",
        disabled=not enabled,
        help="Several candidates often end at the same place. The paper takes 0.03.",
        **_BOUND,
    )
    overlays = places[2].pills(
        "Show as well",
        list(OVERLAYS),
        selection_mode="multi",
        format_func=lambda choice: OVERLAYS[choice],
        key="c_over",
        disabled=not enabled,
        help="Model inversion: inputs that make the output extreme. First-layer weights: each neuron's weights as a "
        "point. What was found: training points with a result near them, known only to the examiner.",
        **_BOUND,
    )
    return Knobs(threshold, distance, tuple(overlays))


def _scene(settings: CircleSettings, runs: CircleRuns | None, slot: int, knobs: Knobs) -> Scene:
    points = truth(settings)
    title = settings.title()
    if runs is None:
        return Scene(title, str(slot), Mode.STILL, f"{title}: the training points", points)
    fields = fields_of(runs.train.id)
    candidates = None if runs.attack is None else candidates_of(runs.attack.id)
    identity = f"{runs.train.id}+{runs.attack.id if runs.attack else ''}"
    trained = runs.train.status.state is RunState.DONE
    if not runs.done or runs.attack is None:
        # With nothing more to come, what there is can be played.
        mode = Mode.LIVE if runs.active else Mode.RECORDING if trained and candidates is None else Mode.STILL
        stages = _stages(settings, run_details(runs.train.id), None, None, knobs) if mode is Mode.RECORDING else []
        label = f"{title}: {'in the making' if mode is Mode.LIVE else 'as far as it got'}"
        return Scene(identity, str(slot), mode, label, points, fields, candidates, stages=stages)
    result = cleaned(runs.attack.id, settings, knobs.threshold, knobs.distance)
    everything = cleaned(runs.attack.id, settings, 0.0, 0.0)
    return Scene(
        identity,
        str(slot),
        Mode.RECORDING,
        f"{title}: a recording",
        points,
        fields,
        candidates,
        result.filtered,
        result.kept,
        result.distances <= RADII[0] if "found" in knobs.overlays else None,
        RADII[0],
        _stages(settings, run_details(runs.train.id), result, everything, knobs),
        _overlays(runs, knobs),
    )


def _overlays(runs: CircleRuns, knobs: Knobs) -> list[Overlay]:
    drawn = []
    if "weights" in knobs.overlays:
        drawn.append(Overlay("weights", "first-layer weights", weights_of(runs.train.id)))
    if "inversion" in knobs.overlays and _has_ended_well(runs.inversion):
        inverted = final_candidates(runs.inversion.id)
        labels = inverted.labels.tolist()
        drawn.append(Overlay("inversion", "model inversion, ▽ −, △ +", inverted.points[-1], labels))
    return drawn


def _stages(
    settings: CircleSettings, train: RunDetails, result: CleanUp | None, everything: CleanUp | None, knobs: Knobs
) -> list[Stage]:
    """The steps of Haim et al. 2022, Fig. 2 a-f, with what to notice in each."""
    stages = [
        Stage(
            "a",
            "Data",
            "The training set",
            f"{settings.n} points on a circle, × and + for the two classes. The attacker never sees them; "
            "they stay in the picture for us to compare with.",
        ),
        Stage(
            "b",
            "Training",
            "The network learns",
            f"Red where it says +, blue where it says −, pale where it is unsure. Notice that {_lesson(train)}.",
        ),
    ]
    if result is None or everything is None:
        return stages
    m, n = len(result.kept), settings.n
    near, nearer = RADII
    return [
        *stages,
        Stage(
            "c",
            "Start",
            "Random candidates",
            f"{m} random points, half for each class. Notice that from here on only the weights are used.",
        ),
        Stage(
            "d",
            "Attack",
            "The attack",
            "Candidates move until together they explain the weights. Notice where they stop: "
            f"{everything.settled[near]} of {m} end within {near:g} of a training point of their class.",
        ),
        Stage(
            "e",
            "Filter",
            "Small multipliers go",
            f"A multiplier says how much a candidate adds to the weights. {int(result.filtered.sum())} of {m} reach "
            f"{knobs.threshold:g} and stay. Notice which ones go.",
        ),
        Stage(
            "f",
            "Result",
            "Duplicates go",
            f"Of points closer than {knobs.distance:g} one stays, {int(result.kept.sum())} in all. Notice how many of "
            f"the {n} training points are among them: {result.found(near)} within {near:g}, {result.found(nearer)} "
            f"within {nearer:g}.",
        ),
    ]


def _lesson(train: RunDetails) -> str:
    wrong = train.result.get("train_error")
    if isinstance(wrong, float) and wrong > 0:
        return f"{wrong:.0%} of the training points are on the wrong side: it has not learnt them all"
    return "every training point ends up in a patch of its own colour"


def _show_standing(settings: CircleSettings, runs: CircleRuns | None, slot: int, knobs: Knobs) -> None:
    """In words: how far it is, what came out, and what can be done next."""
    if runs is None:
        _offer(settings, slot)
    elif runs.done and runs.attack is not None:
        _show_counts(settings, runs, runs.attack, slot, knobs)
    elif runs.stopped is not None:
        _show_stop(settings, runs, runs.stopped, slot)
    elif runs.attack is None and not runs.active:
        _offer_attack(settings, runs, slot)
    else:
        _show_progress(runs, slot)


def _offer(settings: CircleSettings, slot: int) -> None:
    st.markdown(
        "A network learns which points of a circle belong to which class. Then somebody who has only its weights tries "
        "to find the points: candidates start anywhere and move until they explain the weights "
        "(Haim et al. 2022, Fig. 2)."
    )
    with st.container(border=True):
        st.markdown(
            f"**Nobody has run this setting yet.** *Start* trains a network with two layers of {settings.width} "
            f"neurons on these {settings.n} points, draws 100 candidates out of its weights, and tries two other ways "
            "for comparison. For 20 points that is about half a minute on two cores, for more points more; you can "
            "watch."
        )
        if st.button("Start", key=f"start-{slot}", type="primary", icon=":material/play_arrow:", width="stretch"):
            _start(settings)


def _offer_attack(settings: CircleSettings, runs: CircleRuns, slot: int) -> None:
    with st.container(border=True):
        st.markdown(
            "**This network is trained but was never attacked.** *Attack* draws 100 candidates out of its weights, in "
            "some twenty seconds on two cores."
        )
        if st.button("Attack", key=f"attack-{slot}", type="primary", icon=":material/play_arrow:", width="stretch"):
            _start(settings, runs.train.id)


def _show_progress(runs: CircleRuns, slot: int) -> None:
    current = runs.current
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center"):
            show_state(current.status.state)
            st.markdown(f"**{_WORK[current.kind]}**")
        show_progress(current.status)
        if current.kind == "train":
            st.caption("Colours show the network's output: red above zero, blue below. Next comes the attack.")
        else:
            st.caption("Candidates see only the weights. They stop where together they explain them.")
        if st.button("Cancel", key=f"cancel-{slot}", icon=":material/stop_circle:"):
            queue.cancel(_store().open(current.id))
            _look_again()


def _show_stop(settings: CircleSettings, runs: CircleRuns, stopped: RunSummary, slot: int) -> None:
    state = stopped.status.state
    reason = stopped.status.message or "without a word; its log may tell"
    sentence = f"{_WORK[stopped.kind]} {'' if state is RunState.FAILED else 'was '}{state}: {plain(reason)}"
    if state is RunState.FAILED:
        st.error(sentence, icon=":material/error:")
    else:
        st.warning(sentence, icon=":material/power_off:")
    with st.container(horizontal=True):
        if st.button("Go on", key=f"resume-{slot}", type="primary", icon=":material/play_circle:"):
            queue.resume(_store().open(stopped.id))
            _look_again()
        if st.button("Start again", key=f"again-{slot}", icon=":material/restart_alt:"):
            _start(settings, None if stopped.kind == "train" else runs.train.id)
        if st.button("Look at the run", key=f"look-{slot}", icon=":material/description:"):
            _open(stopped)


def _show_counts(settings: CircleSettings, runs: CircleRuns, attack: RunSummary, slot: int, knobs: Knobs) -> None:
    result = cleaned(attack.id, settings, knobs.threshold, knobs.distance)
    with st.container(horizontal=True):
        for radius in RADII:
            st.metric(
                f"Found within {radius:g}", f"{result.found(radius)} of {settings.n}", border=True, width="content"
            )
    kept = int(result.kept.sum())
    near = RADII[0]
    if not kept:
        st.warning(
            f"No candidate has a multiplier of {knobs.threshold:g} or more; move the first slider to the left.",
            icon=":material/filter_alt_off:",
        )
    else:
        st.markdown(
            f"{kept} points are left, {result.settled[near]} of them within {near:g} of a training point of their "
            "class."
        )
    radii = " and ".join(f"{radius:g}" for radius in RADII)
    st.markdown(f"For comparison, within {radii}: {_floors(settings, runs, knobs)}.")
    spent = sum(run.status.seconds for run in (runs.train, attack))
    st.caption(
        "Counts are known only to the examiner, who has the training points to compare with. "
        f"Training and attack took {duration(spent)}."
    )
    with st.container(horizontal=True):
        for run, words in ((runs.train, "The training run"), (attack, "The attack's run")):
            if st.button(words, key=f"open-{slot}-{run.id}", type="tertiary", icon=":material/arrow_forward:"):
                _open(run)


def _floors(settings: CircleSettings, runs: CircleRuns, knobs: Knobs) -> str:
    """What those find who do not use the attack, at the same distances."""
    words = []
    for run, name, threshold, distance in (
        (runs.inversion, "model inversion finds", 0.0, 0.0),  # it has no multipliers to go by
        (runs.untrained, "the same attack on an untrained network", knobs.threshold, knobs.distance),
    ):
        if _has_ended_well(run):
            floor = cleaned(run.id, settings, threshold, distance)
            words.append(f"{name} " + " and ".join(str(floor.found(radius)) for radius in RADII))
        elif run is not None and run.status.state in (RunState.QUEUED, RunState.RUNNING):
            words.append(f"{name} … (still running)")
    return "; ".join(words) or "no baseline was run on this network"


def _has_ended_well(run: RunSummary | None) -> TypeGuard[RunSummary]:
    return run is not None and run.status.state is RunState.DONE


def _start(settings: CircleSettings, trained: str | None = None) -> None:
    """Put what is missing in line, unless somebody else has just done so."""
    store = _store()
    found = find_circle(store, settings)
    if found is None or not (found.active or found.done):
        for run in settings.queue(store, None if trained is None else store.open(trained)):
            queue.submit(run)
    _look_again()


def _open(run: RunSummary) -> None:
    st.query_params["run"] = run.id
    st.rerun()


def _look_again() -> None:
    forget()
    forget_circles()
    st.rerun()


def _store() -> RunStore:
    return RunStore(default_root())
