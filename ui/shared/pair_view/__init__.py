"""One pair at a time, large: training image, reconstruction, difference and scores, over whatever page it is opened on.

A component made by `pair_component` holds a viewer and opens it at a click, in the browser. Escape closes it, arrow
keys go to the next pair, and a link leads to the same pair on the Match page.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

import streamlit as st

from recon_core.plots.sheet import Sheet
from ui.shared.pages import MATCH

if TYPE_CHECKING:
    from streamlit.components.v2.types import ComponentRenderer

_FOLDER = Path(__file__).parent
_ASKED = "pair-to-match"
_HTML, _CSS, _JS = ((_FOLDER / f"pairs.{kind}").read_text(encoding="utf-8") for kind in ("html", "css", "js"))
MATCH_QUERY = "from", "m_pair"
"""What a link to the Match page holds: a run, and a training image by its number; ids only."""


@dataclass(frozen=True)
class Pair:
    """One training image and what came back of it, by their places in two sheets."""

    id: int
    """What the component calls it."""
    title: str
    image: int
    reconstruction: int
    facts: Sequence[tuple[str, str]] = ()
    """Scores, each with its name."""
    match: Mapping[str, str] = field(default_factory=dict)
    """The query of the Match page that shows it; empty where there is none."""


@dataclass(frozen=True, eq=False)
class PairSet:
    """Pairs in the order in which arrow keys walk them.

    Without sheets of their own their pictures are the tiles of the component's: the upper half is the training image,
    the lower one what came back.
    """

    pairs: Sequence[Pair]
    images: Sheet | None = None
    reconstructions: Sheet | None = None


def match_link(run_id: str, sample: int) -> dict[str, str]:
    """The query of the Match page that shows a training image with what a match run or an attack has of it."""
    return dict(zip(MATCH_QUERY, (run_id, str(sample)), strict=True))


def score_facts(ssim: float, threshold: float, name: str = "SSIM") -> tuple[tuple[str, str], ...]:
    """SSIM, and what it is judged by; NaN without a candidate."""
    if math.isnan(ssim):
        return ((name, "no candidate"),)
    return ((name, f"{ssim:.3f}"), (f"good (above {threshold:g})", "✓ yes" if ssim > threshold else "no"))


def described_sheet(sheet: Sheet) -> dict[str, object]:
    """As the browser gets it."""
    return {**asdict(sheet), "png": base64.b64encode(sheet.png).decode()}


def described_pairs(pairs: PairSet | None) -> dict[str, Any] | None:
    """As the browser gets them; None where there are none."""
    if pairs is None:
        return None
    return {
        "images": None if pairs.images is None else described_sheet(pairs.images),
        "reconstructions": None if pairs.reconstructions is None else described_sheet(pairs.reconstructions),
        "pairs": [
            {
                "id": pair.id,
                "title": pair.title,
                "image": pair.image,
                "reconstruction": pair.reconstruction,
                "facts": [list(fact) for fact in pair.facts],
                "match": urlencode(pair.match),
            }
            for pair in pairs.pairs
        ],
    }


def pair_component(name: str, html: str, css: str, js: str) -> ComponentRenderer:
    """A component of that name that holds a viewer of pairs. Register it once for a process."""
    return st.components.v2.component(name, html=html + _HTML, css=css + _CSS, js=_JS + js)


def draw_pair_component(component: ComponentRenderer, data: dict[str, Any], *, key: str, **callbacks: Any) -> None:
    """Draw such a component; a link in its viewer leads to the Match page."""
    component(key=key, data=data, on_match_change=_match_asked(key), **callbacks)
    _follow_to_match()


def _match_asked(key: str) -> Callable[[], None]:
    """For `on_match_change` of a component under that key, which names the query of the Match page."""

    def remember() -> None:
        asked = st.session_state[key].get("match")
        if isinstance(asked, str):
            st.session_state[_ASKED] = {name: text for name, text in parse_qsl(asked) if name in MATCH_QUERY}

    return remember


def _follow_to_match() -> None:
    """After the component is drawn: go where its link led, without loading the app anew."""
    asked = st.session_state.pop(_ASKED, None)
    if asked:
        st.switch_page(MATCH.file, query_params=asked)
