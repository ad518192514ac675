"""A circle of the store, at work or over: run when somebody asks for it or turns a knob, and watched meanwhile."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import TypeGuard

import streamlit as st

from recon_core.errors import InputError
from recon_core.runs.circle import CircleRuns, CircleSettings, find_circle
from recon_core.scheduling import queue
from recon_core.store import RunState, RunStore, RunSummary, default_root
from recon_core.views.circle_frames import RADII
from ui.circle.cached import (
    candidates_of,
    circle_runs,
    cleaned,
    fields_of,
    final_candidates,
    forget_circles,
    neurons_of,
    truth,
    weights_of,
)
from ui.circle.choice import LIVE, Choice, Knobs, asked_to_run, turn_knobs
from ui.circle.player import Mode, Overlay, Scene, show_player
from ui.circle.stages import Attacked, stages
from ui.circle.words import controls_text, show_found
from ui.shared.formatting import duration, plain
from ui.shared.lecture import is_lecture
from ui.shared.live import keep_fresh
from ui.shared.pace import pace
from ui.shared.runs import go_to_run, is_active, show_state
from ui.shared.store import baseline_of, forget, run_details

LIVE_SECONDS = 0.4
_BACK = "Back to the circle"

_WORK = {"train": "Training", "reconstruct": "The attack"}


def show_one(choice: Choice) -> None:
    """One circle, the picture to the left and all about it to the right."""
    settings = _settings(choice)
    _start_what_was_asked_for([settings])

    def draw() -> None:
        runs = _runs(settings, 0)
        left, right = st.columns([2, 1], gap="medium")
        with right:
            panel = st.container(key="lecture-panel")
            knobs = turn_knobs([right] * 3, enabled=runs is not None and runs.done)
        with left:
            show_player(_scene(settings, runs, 0, knobs), key="circle-0")
        with panel:
            _show_standing(settings, runs, 0, knobs)

    keep_fresh(draw, _busy(settings, 0), LIVE_SECONDS)


def show_two(choices: Sequence[Choice]) -> None:
    """Two settings side by side, all about each below its picture."""
    both = [_settings(choice) for choice in choices]
    _start_what_was_asked_for(both)
    with st.container(key="lecture-hides-knobs" if is_lecture() else "circle-knobs"):
        places = list(st.columns([2, 2, 3]))
    knobs = turn_knobs(places, enabled=any(_is_done(settings, slot) for slot, settings in enumerate(both)))
    for slot, (column, settings) in enumerate(zip(st.columns(2, gap="medium"), both, strict=True)):
        with column:
            st.markdown(f"**{plain(settings.title())}**")
            _keep_beside(settings, slot, knobs)


def _settings(choice: Choice) -> CircleSettings:
    return CircleSettings(**asdict(choice))


def _runs(settings: CircleSettings, slot: int) -> CircleRuns | None:
    return circle_runs(settings, st.query_params.get(LIVE[slot]))


def _keep_beside(settings: CircleSettings, slot: int, knobs: Knobs) -> None:
    def draw() -> None:
        runs = _runs(settings, slot)
        show_player(replace(_scene(settings, runs, slot, knobs), beside=True), key=f"circle-{slot}")
        with st.container(key=f"lecture-hides-standing-{slot}" if is_lecture() else f"circle-standing-{slot}"):
            _show_standing(settings, runs, slot, knobs)

    keep_fresh(draw, _busy(settings, slot), LIVE_SECONDS)


def _busy(settings: CircleSettings, slot: int) -> Callable[[], bool]:
    def busy() -> bool:
        runs = _runs(settings, slot)
        return runs is not None and runs.active

    return busy


def _is_done(settings: CircleSettings, slot: int) -> bool:
    runs = _runs(settings, slot)
    return runs is not None and runs.done


def _scene(settings: CircleSettings, runs: CircleRuns | None, slot: int, knobs: Knobs) -> Scene:
    return replace(_bare_scene(settings, runs, slot, knobs), lecture=is_lecture())


def _bare_scene(settings: CircleSettings, runs: CircleRuns | None, slot: int, knobs: Knobs) -> Scene:
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
        story = stages(settings.n, _train_error(runs), None, knobs) if mode is Mode.RECORDING else []
        label = f"{title}: {'in the making' if mode is Mode.LIVE else 'as far as it got'}"
        return Scene(identity, str(slot), mode, label, points, fields, candidates, stages=story)
    result = cleaned(runs.attack.id, settings, knobs.threshold, knobs.distance)
    settled = cleaned(runs.attack.id, settings, 0.0, 0.0).settled[RADII[0]]
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
        stages(settings.n, _train_error(runs), Attacked(result, settled), knobs),
        _overlays(runs, knobs),
        neurons=neurons_of(runs.train.id) if "neurons" in knobs.overlays else None,
        autoplay=st.query_params.get(LIVE[slot]) == runs.train.id,
    )


def _train_error(runs: CircleRuns) -> float | None:
    wrong = run_details(runs.train.id).result.get("train_error")
    return wrong if isinstance(wrong, float) else None


def _overlays(runs: CircleRuns, knobs: Knobs) -> list[Overlay]:
    drawn = []
    if "weights" in knobs.overlays:
        drawn.append(Overlay("weights", "first-layer weights", weights_of(runs.train.id)))
    if "inversion" in knobs.overlays and _has_ended_well(runs.inversion):
        inverted = final_candidates(runs.inversion.id)
        labels = inverted.labels.tolist()
        drawn.append(Overlay("inversion", "model inversion, ▽ −, △ +", inverted.points[-1], labels))
    return drawn


def _show_standing(settings: CircleSettings, runs: CircleRuns | None, slot: int, knobs: Knobs) -> None:
    """The state in words: progress, result, and what can be done next."""
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
            f"**This setting has not been run yet.** *Start* trains a network with two layers of {settings.width} "
            f"neurons on these {settings.n} points, draws 100 candidates out of its weights, and tries two other ways "
            "for comparison. For 20 points that is about half a minute on two cores, for more points more; you can "
            "watch."
        )
        if st.button("Start", key=f"start-{slot}", type="primary", icon=":material/play_arrow:", width="stretch"):
            _start(settings, slot)


def _offer_attack(settings: CircleSettings, runs: CircleRuns, slot: int) -> None:
    with st.container(border=True):
        st.markdown(
            "**This network is trained but was never attacked.** *Attack* draws 100 candidates out of its weights, in "
            "some twenty seconds on two cores."
        )
        if st.button("Attack", key=f"attack-{slot}", type="primary", icon=":material/play_arrow:", width="stretch"):
            _start(settings, slot, runs.train.id)


def _show_progress(runs: CircleRuns, slot: int) -> None:
    current = runs.current
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center"):
            show_state(current.status.state)
            st.markdown(f"**{_WORK[current.kind]}**")
        st.markdown(pace(run_details(current.id)))
        if current.kind == "train":
            st.caption("Colours show the network's output: red above zero, blue below. Next comes the attack.")
        else:
            st.caption("Candidates see only the weights. They stop where together they explain them.")
        if st.button("Cancel", key=f"cancel-{slot}", icon=":material/stop_circle:"):
            queue.cancel(_store().open(current.id))
            _look_again()


def _show_stop(settings: CircleSettings, runs: CircleRuns, stopped: RunSummary, slot: int) -> None:
    state = stopped.status.state
    reason = stopped.status.message or "no reason was recorded; see its log"
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
            _start(settings, slot, None if stopped.kind == "train" else runs.train.id)
        if st.button("Look at the run", key=f"look-{slot}", icon=":material/description:"):
            go_to_run(stopped.id, _BACK)


def _show_counts(settings: CircleSettings, runs: CircleRuns, attack: RunSummary, slot: int, knobs: Knobs) -> None:
    result = cleaned(attack.id, settings, knobs.threshold, knobs.distance)
    if st.button(
        "Run it live",
        key=f"live-{slot}",
        icon=":material/replay:",
        help="Runs it again now; the result shown was computed before.",
    ):
        _start(settings, slot, again=True)
    show_found(settings.n, result, knobs, controls_text(_controls(settings, runs, knobs)))
    spent = sum(run.status.seconds for run in (runs.train, attack))
    st.caption(
        f"Training and attack took {duration(spent)}. Scored with the training points, which the attack never sees."
    )
    with st.container(horizontal=True):
        for run, words in ((runs.train, "The training run"), (attack, "The attack's run")):
            if st.button(words, key=f"open-{slot}-{run.id}", type="tertiary", icon=":material/arrow_forward:"):
                go_to_run(run.id, _BACK)


def _controls(settings: CircleSettings, runs: CircleRuns, knobs: Knobs) -> dict[str, tuple[int, ...] | None]:
    found: dict[str, tuple[int, ...] | None] = {}
    for run, name, threshold, distance in (
        (runs.inversion, "inversion", 0.0, 0.0),  # it has no multipliers to go by
        (runs.untrained, "untrained", knobs.threshold, knobs.distance),
    ):
        if _has_ended_well(run):
            left = cleaned(run.id, settings, threshold, distance)
            found[name] = tuple(left.found(radius) for radius in RADII)
        elif run is not None and run.status.state in (RunState.QUEUED, RunState.RUNNING):
            found[name] = None
    return found


def _has_ended_well(run: RunSummary | None) -> TypeGuard[RunSummary]:
    return run is not None and run.status.state is RunState.DONE


def _start_what_was_asked_for(both: Sequence[CircleSettings]) -> None:
    asked = asked_to_run()
    if asked is not None and asked[0] < len(both):
        slot, again = asked
        _start(both[slot], slot, again=again)


def _start(settings: CircleSettings, slot: int, trained: str | None = None, *, again: bool = False) -> None:
    """Show what there is of these settings, or queue what is missing; `again` is for what is finished too."""
    store = _store()
    _leave_off(store, slot)
    found = find_circle(store, settings)
    if found is None or not (found.active or found.done) or (again and not _at_work(found)):
        runs = settings.queue(store, None if trained is None else store.open(trained))
        for run in runs:
            queue.submit(run)
        st.query_params[LIVE[slot]] = trained or runs[0].id
    else:
        st.query_params[LIVE[slot]] = found.train.id
    _look_again()


def _leave_off(store: RunStore, slot: int) -> None:
    """End what this page was watching where it has no result yet: a knob was turned, so nobody waits for it."""
    watched = st.query_params.get(LIVE[slot])
    started = [run for run in store.list() if watched in (run.id, *run.parents) and is_active(run.status)]
    if all(run.kind == "reconstruct" and baseline_of(run.id) for run in started):
        return  # the attack has ended, and its baselines may finish
    for run in started:
        with contextlib.suppress(InputError):  # it was deleted meanwhile
            queue.cancel(store.open(run.id))


def _at_work(found: CircleRuns) -> bool:
    return found.active and not found.done


def _look_again() -> None:
    forget()
    forget_circles()
    st.rerun()


def _store() -> RunStore:
    return RunStore(default_root())
