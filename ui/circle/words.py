"""The result of a circle in words and numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from recon_core.views.circle_frames import RADII, CleanUp
from ui.circle.choice import Knobs

_CONTROLS = {"inversion": "model inversion finds", "untrained": "the same attack on an untrained network"}


def show_found(n: int, result: CleanUp, knobs: Knobs, controls: str) -> None:
    """The counts, and beside them those of the baselines: `controls`, from `controls_text`."""
    with st.container(horizontal=True):
        for radius in RADII:
            st.metric(f"Found within {radius:g}", f"{result.found(radius)} of {n}", border=True, width="content")
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
    st.markdown(f"For comparison, within {radii}: {controls}.")


def controls_text(found: Mapping[str, Sequence[int] | None]) -> str:
    """The points that baselines find within the same distances; None stands for one that is still running."""
    words = []
    for name, verb in _CONTROLS.items():
        if name not in found:
            continue
        counts = found[name]
        words.append(f"{verb} … (still running)" if counts is None else f"{verb} {' and '.join(map(str, counts))}")
    return "; ".join(words) or "no baseline was run on this network"
