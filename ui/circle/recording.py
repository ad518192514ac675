"""The circle that ships with the project: a recording of a real run, on the screen before the engine is loaded."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from recon_core.views.circle_frames import RADII, CandidatePoints, CleanUp, ShippedCircle, load_shipped
from ui.circle.choice import Choice, Knobs, turn_knobs
from ui.circle.player import Mode, Overlay, Scene, show_player
from ui.circle.stages import Attacked, stages
from ui.circle.words import controls_text, show_found
from ui.shared.formatting import duration
from ui.shared.lecture import is_lecture

RECORDED = Choice()
"""What was recorded: `assets/make_recordings.py` takes the same defaults."""


def show_recording(run_live: Callable[[], None]) -> None:
    """The recording, playing, beside what came out of it and the way to do it here and now."""
    circle = _shipped()
    left, right = st.columns([2, 1], gap="medium")
    with right:
        panel = st.container(key="lecture-panel")
        knobs = turn_knobs([right] * 3, enabled=True)
    cleaned = circle.cleaned
    controls = circle.controls
    if (knobs.threshold, knobs.distance) != (circle.threshold, circle.distance):
        cleaned, controls = _cleaned(knobs.threshold, knobs.distance)
    with left:
        show_player(_scene(circle, cleaned, knobs), key="circle-0")
    with panel:
        if st.button(
            "Run it live",
            key="run-live",
            type="primary",
            icon=":material/play_arrow:",
            width="stretch",
            help="Trains and attacks now, with the settings above. Changing a setting does the same.",
        ):
            run_live()
        show_found(RECORDED.n, cleaned, knobs, controls_text(controls))
        st.caption(
            f"Recorded from a real run, in which training and attack took {_unbroken(circle.seconds)}. Scored with the "
            "training points, which the attack never sees."
        )


def _unbroken(seconds: float) -> str:
    return duration(seconds).replace(" ", "\u00a0")


def _scene(circle: ShippedCircle, cleaned: CleanUp, knobs: Knobs) -> Scene:
    return Scene(
        "shipped",
        "0",
        Mode.RECORDING,
        "The circle: a recording",
        circle.truth,
        circle.fields,
        circle.candidates,
        cleaned.filtered,
        cleaned.kept,
        cleaned.distances <= RADII[0] if "found" in knobs.overlays else None,
        RADII[0],
        stages(RECORDED.n, circle.train_error, Attacked(cleaned, circle.settled), knobs),
        _overlays(circle, knobs),
        neurons=circle.neurons if "neurons" in knobs.overlays else None,
        autoplay=True,
        lecture=is_lecture(),
    )


def _overlays(circle: ShippedCircle, knobs: Knobs) -> list[Overlay]:
    drawn = []
    if "weights" in knobs.overlays:
        drawn.append(Overlay("weights", "first-layer weights", circle.weights))
    if "inversion" in knobs.overlays:
        inverted = circle.inversion
        drawn.append(Overlay("inversion", "model inversion, ▽ −, △ +", inverted.points, inverted.labels.tolist()))
    return drawn


@st.cache_resource(max_entries=1, show_spinner=False)
def _shipped() -> ShippedCircle:
    return load_shipped()


@st.cache_data(max_entries=64, show_spinner=False)
def _cleaned(threshold: float, distance: float) -> tuple[CleanUp, dict[str, tuple[int, ...]]]:
    """At other thresholds, which takes the engine: by then it is loaded."""
    from recon_core.views.circle_recording import clean_up_points

    circle = _shipped()

    def left(points: CandidatePoints, least: float, apart: float) -> CleanUp:
        return clean_up_points(points, circle.truth, threshold=least, distance=apart, seed=circle.seed)

    untrained = left(circle.untrained, threshold, distance)
    controls = {**circle.controls, "untrained": tuple(untrained.found(radius) for radius in RADII)}
    return left(circle.attack, threshold, distance), controls
