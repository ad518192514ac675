"""Counts against the training data in words: good reconstructions, and what matches although nothing leaked."""

from __future__ import annotations

import streamlit as st

from recon_core.matching.controls import LeakCount
from recon_core.matching.protocol import MatchSettings
from recon_core.plots.style import ssim_name
from recon_core.runs.scoring import PointCount
from ui.reconstruct.cached import Count, Counted
from ui.shared.formatting import plain

SCORED = "Scored with the training data, which the attack never sees."


def show_count(found: Counted) -> None:
    """A count with its chance level."""
    count = found.count
    when = "" if found.step is None else f" at step {found.step:,}"
    if isinstance(count, str):
        st.caption(plain(count))
    elif isinstance(count, LeakCount):
        with st.container(horizontal=True, gap="medium"):
            st.metric(f"Good reconstructions{when}", f"{count.good} of {count.of}", width="content")
            if (sure := found.certainty) is not None and sure.certain:
                st.metric("Certain and real", f"{sure.real} of {sure.certain}", width="content")
        st.caption(plain(f"Good is {_conditions(count)}. {_image_chance(count)}{_other_window(count)}"))
    else:
        for column, at in zip(st.columns(len(count)), count, strict=True):
            column.metric(f"Points within {at.radius:g}{when}", f"{at.recovered} of {at.of}")
        st.caption(plain(_point_chance(count)))
    if found.examined < found.total:
        st.caption(f"Counted among the first {found.examined:,} of {found.total:,} candidates; Match counts them all.")


def count_in_short(count: Count, total: int) -> str:
    """For a caption below `total` pictures or points; `conditions_in_short` says the rest once for several."""
    if isinstance(count, str):
        return count
    if isinstance(count, LeakCount):
        return f"{count.good} of {count.of} good, from {total:,} pictures.{_other_window(count)}"
    return f"{', '.join(f'{at.recovered} of {at.of} within {at.radius:g}' for at in count)}, from {total:,} points."


def conditions_in_short(count: Count) -> str:
    """What counts beside one another rest on, with the chance level of all."""
    if isinstance(count, str):
        return ""
    if isinstance(count, LeakCount):
        return f"Good is {_conditions(count)}. {_image_chance(count)}"
    return "Counted after clean-up."


def _conditions(count: LeakCount) -> str:
    name = ssim_name(MatchSettings(ssim=count.ssim_kind))
    return f"{name} above {count.threshold:g} after merging candidates with B = {count.merge_factor:g}"


def _image_chance(count: LeakCount) -> str:
    return f"Chance level: the mean image alone matches {count.control_mean_image}."


def _other_window(count: LeakCount) -> str:
    return "" if count.other is None else f" Good are {count.other}."


def _point_chance(counts: tuple[PointCount, ...]) -> str:
    matched = [f"{at.non_members} of {at.non_members_of} within {at.radius:g}" for at in counts if at.non_members_of]
    chance = f" Chance level, held-out points close to the training points: {', '.join(matched)}." if matched else ""
    return f"Found by one of the {counts[0].kept} candidates that are left after clean-up.{chance}"
