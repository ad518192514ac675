"""How candidates are matched: the sliders in sight, the rest behind them; all of it in the page's address."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from recon_core.matching.assignment import Assignment
from recon_core.matching.merging import Vote
from recon_core.matching.neighbours import SearchSize
from recon_core.matching.protocol import GOOD_SSIM, Protocol
from recon_core.matching.ssim import SsimKind
from recon_core.runs.match_request import PoolFacts
from recon_core.runs.match_source import DENSE_FACTOR, MatchConfig
from ui.shared.lecture import is_lecture

THRESHOLD_KEY, DENSE_KEY, CONVOLUTION_KEY, SHARE_KEY, RADIUS_KEY = "m_t", "m_b", "m_bc", "m_ncc", "m_r"
PAIR_KEY = "m_pair"
FACTORS, _SHARES = (1.0, 2.0), (0.5, 1.0)


class MergingSetting(NamedTuple):
    """The setting that says which candidates are merged."""

    name: str
    """In `MatchConfig`."""
    slider: str
    """The key of its slider."""
    range: tuple[float, float]

    def within(self, value: float) -> float:
        """The nearest value that the slider has."""
        low, high = self.range
        return min(max(value, low), high)


class _Option(NamedTuple):
    key: str
    label: str
    captions: tuple[str, ...]
    """One for each choice, in the order of the enum."""


_OPTIONS: dict[str, tuple[type[StrEnum], _Option]] = {
    "protocol": (
        Protocol,
        _Option(
            "m_protocol",
            "Protocol",
            (
                "Buzaglo et al. 2023: average all candidates within B times the nearest one's distance",
                "Haim et al. 2022: average all that correlate nearly as well as the best one",
            ),
        ),
    ),
    "ssim": (
        SsimKind,
        _Option(
            "m_ssim",
            "SSIM",
            ("11x11 window, as Wang et al. 2004 define it", "3x3 window, as both papers' code computes it"),
        ),
    ),
    "vote": (
        Vote,
        _Option(
            "m_vote",
            "Merge by",
            ("the average of each pixel", "the median of each pixel", "no merging: the nearest candidate alone"),
        ),
    ),
    "assignment": (
        Assignment,
        _Option(
            "m_assign",
            "Candidates may serve",
            (
                "any number of training images, as in both papers",
                "only the training image they are nearest to",
                "one training image each, all distances together smallest",
            ),
        ),
    ),
    "search_size": (
        SearchSize,
        _Option(
            "m_size",
            "Neighbours are searched on",
            ("images in full size", "images of half the size, as the papers' code does", "a quarter of the size"),
        ),
    ),
}


def choose_radius() -> float:
    """For points of the plane."""
    return st.slider(
        "Found means a candidate of its class within",
        0.01,
        0.3,
        0.03,
        0.01,
        key=RADIUS_KEY,
        help="Distance in the plane; the circle has radius 1.",
        bind="query-params",
        persist_state="session",
    )


def choose_settings(
    runs: Sequence[str], untrained: str | None, facts: PoolFacts, about: str = ""
) -> tuple[MatchConfig, DeltaGenerator]:
    """Sliders, and a menu with all that is seldom changed, headed by `about`; the place for more beside that menu."""
    left, right, rest = st.columns((2, 2, 3.4), gap="medium", vertical_alignment="center")
    key = "lecture-hides-matching" if is_lecture() else "match-actions"
    actions = rest.container(horizontal=True, horizontal_alignment="right", gap="xsmall", key=key)
    with left:
        threshold = st.slider(
            "Good means SSIM above",
            0.0,
            1.0,
            GOOD_SSIM,
            0.01,
            key=THRESHOLD_KEY,
            help="Structural similarity: 1 is the same picture, 0 has nothing in common. The papers use 0.4.",
            bind="query-params",
            persist_state="session",
        )
    slider = right.container()
    with actions, st.popover("Matching", icon=":material/tune:", help="How matching is done"):
        if about:
            st.markdown(about)
        chosen = _choose_options()
    with slider:
        if chosen["protocol"] is Protocol.HAIM:
            factor, share = None, _choose_share()
        else:
            factor, share = _choose_factor(facts.default_factor), None
    config = MatchConfig(
        runs=tuple(runs),
        untrained=untrained,
        threshold=threshold,
        merge_factor=factor,
        **({} if share is None else {"ncc_share": share}),
        **chosen,
    )
    return config, actions


def merging_setting(protocol: Protocol, usual_factor: float) -> MergingSetting:
    if protocol is Protocol.HAIM:
        return MergingSetting("ncc_share", SHARE_KEY, _SHARES)
    return MergingSetting("merge_factor", _factor_key(usual_factor), FACTORS)


def address_of(config: MatchConfig) -> dict[str, str | list[str]]:
    """What the widgets of `choose_settings` would leave in the address."""
    address: dict[str, str | list[str]] = {THRESHOLD_KEY: str(config.threshold), SHARE_KEY: str(config.ncc_share)}
    if config.merge_factor is not None:  # which of the two sliders is shown depends on the network
        address |= {DENSE_KEY: str(config.merge_factor), CONVOLUTION_KEY: str(config.merge_factor)}
    return address | {option.key: str(getattr(config, name)) for name, (_, option) in _OPTIONS.items()}


def _choose_factor(usual: float) -> float:
    # The two kinds of network have different usual values, and a slider one value: so each has its own.
    return st.slider(
        "Merge factor B",
        *FACTORS,
        usual,
        0.01,
        key=_factor_key(usual),
        help="Candidates up to B times as far from a training image as its nearest one are averaged, which removes "
        f"noise; 1 takes the nearest alone. The papers use {usual:g} for this kind of network.",
        bind="query-params",
        persist_state="session",
    )


def _factor_key(usual: float) -> str:
    return DENSE_KEY if usual == DENSE_FACTOR else CONVOLUTION_KEY


def _choose_share() -> float:
    return st.slider(
        "Correlation, as a share of the best",
        *_SHARES,
        0.9,
        0.01,
        key=SHARE_KEY,
        help="Candidates that correlate with a training image at least this well, compared with its best one, are "
        "averaged. Haim et al. use 0.9. The merge factor B belongs to the other protocol.",
        bind="query-params",
        persist_state="session",
    )


def _choose_options() -> dict[str, StrEnum]:
    found: dict[str, StrEnum] = {}
    for name, (choices, option) in _OPTIONS.items():
        picked = st.radio(
            option.label,
            [str(choice) for choice in choices],
            captions=option.captions,
            key=option.key,
            bind="query-params",
            persist_state="session",
        )
        found[name] = choices(picked)
    return found
