"""Which training images are chosen on the Analyze page, in the plot or in the grid; kept in the page's address."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import streamlit as st

_STATE = "analyze-choice"
_SAMPLES, _RINGED = "a_sel", "a_img"
_LONGEST = 4000  # characters of an address that are looked at


@dataclass(frozen=True)
class Choice:
    """Sample numbers of one run: those shown in the grid (all if empty), and the one that stands out."""

    run: str
    samples: frozenset[int] = frozenset()
    ringed: int | None = None


def current_choice(run: str, count: int) -> Choice:
    """What was chosen for this run of `count` images, here or, for a new visitor, in the address."""
    choice = st.session_state.get(_STATE)
    if choice is None:
        choice = _from_address(run)
    if choice.run != run:
        choice = Choice(run)
    kept = frozenset(sample for sample in choice.samples if sample < count)
    ringed = choice.ringed if choice.ringed is not None and choice.ringed < count else None
    choice = replace(choice, samples=kept, ringed=ringed)
    choose(choice)
    return choice


def choose(choice: Choice) -> None:
    st.session_state[_STATE] = choice
    _put(_SAMPLES, f"{choice.run}:{written(choice.samples)}" if choice.samples else None)
    _put(_RINGED, f"{choice.run}:{choice.ringed}" if choice.ringed is not None else None)


def toggle_ring(choice: Choice, sample: int) -> None:
    choose(replace(choice, ringed=None if choice.ringed == sample else sample))


def written(samples: Iterable[int]) -> str:
    """{3, 4, 5, 9} -> '3-5,9'."""
    runs: list[list[int]] = []
    for sample in sorted(set(samples)):
        if runs and sample == runs[-1][1] + 1:
            runs[-1][1] = sample
        else:
            runs.append([sample, sample])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def read(text: str, most: int = 10_000) -> frozenset[int]:
    """The inverse of `written`; invalid parts are ignored."""
    found: set[int] = set()
    for part in text[:_LONGEST].split(","):
        first, _, last = part.partition("-")
        last = last or first
        if first.isdecimal() and last.isdecimal() and len(first) < 7 and len(last) < 7:
            found.update(range(int(first), min(int(last), most) + 1))
    return frozenset(found)


def _from_address(run: str) -> Choice:
    def said(name: str) -> str:
        whose, _, rest = st.query_params.get(name, "").partition(":")
        return rest if whose == run else ""

    return Choice(run, read(said(_SAMPLES)), min(read(said(_RINGED)), default=None))


def _put(name: str, value: str | None) -> None:
    """Write only a changed value, since every write is sent to the browser."""
    if value is None:
        st.query_params.pop(name, None)
    elif st.query_params.get(name) != value:
        st.query_params[name] = value
