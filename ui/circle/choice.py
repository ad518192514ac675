"""The controls of the circle: the few settings of the experiment, and those of the clean-up after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import streamlit as st

from recon_core.config import PlanarLabels

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
    "neurons": "Neurons",
    "found": "What was found",
}
# The paper's, as in `recon_core.attacks.circle`, which cannot be asked before the engine is loaded.
THRESHOLD, DISTANCE = 5.0, 0.03

LIVE = ("c_live", "d_live")
"""In the address of a circle that was run here: its training run, for each slot."""
_DRAWN = "circle-drawn-"
_TURNED, _AGAIN = "circle-turned", "circle-again"
_KEYS = ("c_two", *(f"{prefix}_{name}" for prefix in "cd" for name in ("n", "labels", "width", "decay", "seed")))

BOUND: dict[str, Any] = {"bind": "query-params", "persist_state": "session"}


@dataclass(frozen=True)
class Choice:
    """The settings of one circle, as `recon_core.runs.circle.CircleSettings` takes them."""

    n: int = 20
    labels: PlanarLabels = PlanarLabels.ALTERNATING
    width: int = 1000
    weight_decay: float = 0.0
    seed: int = 0


DEFAULTS = (Choice(), Choice(labels=PlanarLabels.ARCS))
"""Of the circle, and of the one it is compared with."""


@dataclass(frozen=True)
class Knobs:
    """The settings for a finished run: its clean-up, and the overlays."""

    threshold: float
    distance: float
    overlays: tuple[str, ...]


def choose(slot: int, turned: Callable[[int], None]) -> Choice:
    """A row of widgets; each is part of the address. `turned` hears of a change, which is to be run."""
    default, prefix = DEFAULTS[slot], ("c", "d")[slot]
    columns = st.columns(5)
    n = columns[0].selectbox(
        "Training points",
        COUNTS,
        COUNTS.index(default.n),
        key=f"{prefix}_n",
        on_change=turned,
        args=(slot,),
        **BOUND,
    )
    labels = columns[1].selectbox(
        "Labels",
        list(LABELS),
        list(LABELS).index(default.labels),
        format_func=lambda choice: LABELS[choice],
        key=f"{prefix}_labels",
        help="Neighbours of opposite classes, classes by chance, or a class for each half of the circle.",
        on_change=turned,
        args=(slot,),
        **BOUND,
    )
    width = columns[2].selectbox(
        "Width",
        WIDTHS,
        WIDTHS.index(default.width),
        key=f"{prefix}_width",
        help="Neurons in each of the two hidden layers. The paper has 1000; narrow networks are quicker and leak less.",
        on_change=turned,
        args=(slot,),
        **BOUND,
    )
    decay = columns[3].selectbox(
        "Weight decay",
        DECAYS,
        DECAYS.index(default.weight_decay),
        format_func=lambda value: f"{value:g}" if value else "none",
        key=f"{prefix}_decay",
        on_change=turned,
        args=(slot,),
        **BOUND,
    )
    seed = columns[4].number_input(
        "Seed",
        0,
        9999,
        default.seed,
        key=f"{prefix}_seed",
        help="Another seed is another start of the network and of the candidates, and other random labels.",
        on_change=turned,
        args=(slot,),
        **BOUND,
    )
    chosen = Choice(n=n, labels=labels, width=width, weight_decay=decay, seed=seed)
    st.session_state[f"{_DRAWN}{slot}"] = chosen
    return chosen


def was_turned(slot: int) -> bool:
    """Whether a knob says something else than when it was drawn last.

    Streamlit calls back as well when a widget's value was taken out of the session and comes back as it was.
    """
    drawn, prefix = st.session_state.get(f"{_DRAWN}{slot}", DEFAULTS[slot]), ("c", "d")[slot]
    names = {"n": "n", "labels": "labels", "width": "width", "decay": "weight_decay", "seed": "seed"}
    return any(
        st.session_state.get(f"{prefix}_{key}", getattr(drawn, name)) != getattr(drawn, name)
        for key, name in names.items()
    )


def ask_to_run(slot: int, *, again: bool = False) -> None:
    """Somebody turned a knob, or wants to see it `again`: it is started when the page is drawn next.

    A callback cannot start it: only the page knows what all the knobs say together.
    """
    st.session_state[_TURNED], st.session_state[_AGAIN] = slot, again


def asked_to_run() -> tuple[int, bool] | None:
    """The slot, and whether again, of `ask_to_run`; once."""
    slot, again = st.session_state.pop(_TURNED, None), st.session_state.pop(_AGAIN, False)
    return None if slot is None else (slot, again)


def forget_choice() -> None:
    """Forget the choices, so that the circle opens with the recording again."""
    for key in (*_KEYS, f"{_DRAWN}0", f"{_DRAWN}1"):
        st.session_state.pop(key, None)


def turn_knobs(places: list[Any], enabled: bool) -> Knobs:
    threshold = places[0].slider(
        "Drop multipliers below",
        0.0,
        40.0,
        THRESHOLD,
        0.5,
        key="c_lam",
        disabled=not enabled,
        help="A candidate with a small multiplier hardly acts on the weights and can lie anywhere. The paper takes 5.",
        **BOUND,
    )
    distance = places[1].slider(
        "Count as one when closer than",
        0.0,
        0.3,
        DISTANCE,
        0.01,
        key="c_r",
        disabled=not enabled,
        help="Several candidates often end at the same place. The paper takes 0.03.",
        **BOUND,
    )
    overlays = places[2].pills(
        "Show as well",
        list(OVERLAYS),
        selection_mode="multi",
        format_func=lambda choice: OVERLAYS[choice],
        key="c_over",
        disabled=not enabled,
        wrap=True,
        help="Model inversion: inputs that make the output extreme. First-layer weights: each neuron's weights as a "
        "point. Neurons: the lines at which the first layer bends the output, the strongest ones. What was found: "
        "training points with a result near them, which takes the training data to know.",
        **BOUND,
    )
    return Knobs(threshold, distance, tuple(overlays))
