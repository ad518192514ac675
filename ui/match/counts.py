"""Good reconstructions beside their chance level."""

from __future__ import annotations

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from recon_core.matching.controls import LeakCount
from recon_core.plots.style import conditions
from recon_core.views.live_match import PairView, PointPool
from ui.match.board import Text
from ui.shared.formatting import plain

_FEWER = 0.5  # an untrained pool below this share of the pool makes too low a chance level


def count_texts(view: PairView) -> dict[str, Text]:
    """What each count of the board is called and means; the counts themselves follow the threshold."""
    auc = "–" if view.auc is None else f"{view.auc:.2f}"
    return {
        "good": Text(
            "Good reconstructions",
            "Training images whose SSIM is above the threshold, from {unique} different candidates of "
            f"{view.evidence.matching.candidates:,}.",
        ),
        "mean_image": Text(
            "Chance: mean image",
            "Training images that the average of all training images would match, without any attack.",
        ),
        "untrained": Text(
            "Chance: untrained",
            "Training images matched by the same attack on a network that has seen no image.",
        ),
        "held_out": Text(
            "Held-out images",
            "Test images that the same candidates match: likeness by chance and common features, not memory.",
        ),
        "auc": Text(
            "AUC",
            "SSIM as a test of membership: the chance that an image of the training set scores above one that is "
            "not. 1 always tells them apart, 0.5 is guessing. It does not depend on the threshold.",
            auc,
        ),
    }


def show_conditions(view: PairView, threshold: float, saved: str = "") -> None:
    """The settings of the count, and warnings; `saved` is said first."""
    count = view.count(threshold)
    warnings = [f":material/warning: {plain(text)}" for text in _warnings(count, view)]
    said = plain(f"All counts: {conditions(view.settings, threshold)}.{_other_window(count)}")
    st.caption(" ".join(filter(None, [saved, said, *warnings])))


def show_point_counts(pool: PointPool, radius: float) -> None:
    """The planar counterpart: points found within a radius."""
    count = pool.count(radius)
    with _row():
        _metric(
            "Points found",
            f"{count.recovered} of {count.of}",
            f"Recall {count.recovered / count.of:.0%}: training points with a candidate of their class this near.",
        )
        _metric(
            "Precision",
            "–" if count.precision is None else f"{count.precision:.0%}, {_strays(count.strays)}",
            f"Of the {count.kept} candidates left after clean-up (large multiplier, no two in one place), "
            f"{count.settled} are at a training point of their class; the others are strays.",
        )
        _metric(
            "Chance: untrained",
            _of(count.control_untrained, count.of),
            "Training points found by the same attack on a network that has seen no point.",
        )
        _metric(
            "Held-out points",
            _of(count.non_members, count.non_members_of),
            "Other points of the same figure that a candidate comes as near to.",
        )
        _metric(
            "AUC",
            "–" if pool.auc is None else f"{pool.auc:.2f}",
            "The chance that a training point is nearer to a candidate than another point is: 0.5 is guessing.",
        )
    st.caption(plain(f"All counts: a candidate of the point's class within {radius:g}; points need no SSIM and no B."))


def _strays(count: int) -> str:
    return "1 stray" if count == 1 else f"{count or 'no'} strays"


def _other_window(count: LeakCount) -> str:
    return "" if count.other is None else f" Of {count.of} training images, {count.other}."


def _row() -> DeltaGenerator:
    """A row of metrics, as many in a line as there is room for."""
    return st.container(border=True, horizontal=True, gap="small", horizontal_alignment="distribute", key="m-counts")


def _metric(label: str, value: str, help: str) -> None:
    st.metric(label, value, width="content", help=help)


def _of(count: int | None, of: int | None) -> str:
    return "not run" if count is None else f"{count} of {of}"


def _warnings(count: LeakCount, view: PairView) -> list[str]:
    found = []
    if count.untrained_candidates is not None and count.untrained_candidates < _FEWER * count.candidates:
        found.append(
            f"The untrained control has {count.untrained_candidates:,} candidates, the count "
            f"{count.candidates:,}: a larger pool matches more by chance, so this chance level is too low."
        )
    if count.capped:
        found.append(
            f"{count.capped} merges reached the limit of candidates they may average; their SSIM may be overstated."
        )
    left_out = view.evidence.matching.non_finite
    if left_out:
        found.append(f"{left_out:,} candidates hold no finite numbers and were left out.")
    return found
