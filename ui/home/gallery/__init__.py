"""The best pairs of an attack at work, which move to their places as they get better, above all its candidates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recon_core.plots.sheet import Sheet
from ui.shared.pair_view import PairSet, described_pairs, described_sheet, draw_pair_component, pair_component

if TYPE_CHECKING:
    from streamlit.components.v2.types import ComponentRenderer

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Pair:
    """One training image, and below it what came back of it so far."""

    sample: int
    label: str
    title: str
    """Said when one points at it, and to those who cannot see it."""
    good: bool


@dataclass(frozen=True)
class Gallery:
    """What is shown. `reconstructions` are in the order of `pairs`, `images` in that of the training set."""

    version: str
    images: Sheet
    pairs: Sequence[Pair]
    pairs_title: str
    reconstructions: Sheet | None = None
    candidates: Sheet | None = None
    candidates_title: str = ""
    opened: PairSet | None = None
    """What a click on one of `pairs` opens, by training image; its pictures are the gallery's own."""
    alone: PairSet | None = None
    """What a click on a candidate opens, by its place; its training images are the gallery's own."""


def show_gallery(gallery: Gallery, *, key: str) -> None:
    """Draw it. With the same `key` pairs glide from where they were to where they are now."""
    draw_pair_component(_component(), described(gallery), key=key)


def described(gallery: Gallery) -> dict[str, Any]:
    """The gallery as the browser gets it."""
    return {
        "version": gallery.version,
        "images": _sheet(gallery.images),
        "reconstructions": _sheet(gallery.reconstructions),
        "candidates": _sheet(gallery.candidates),
        "pairs": [asdict(pair) for pair in gallery.pairs],
        "pairs_title": gallery.pairs_title,
        "candidates_title": gallery.candidates_title,
        "opened": described_pairs(gallery.opened),
        "alone": described_pairs(gallery.alone),
    }


def _sheet(sheet: Sheet | None) -> dict[str, Any] | None:
    return None if sheet is None else described_sheet(sheet)


# Registered when first drawn, once for a process.
@cache
def _component() -> ComponentRenderer:
    html, css, js = ((_FOLDER / f"gallery.{kind}").read_text(encoding="utf-8") for kind in ("html", "css", "js"))
    return pair_component("afterimage_gallery", html, css, js)
