"""The best pairs of an attack at work, which move to their places as they get better, above all its candidates."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamlit as st

from recon_core.plots.sheet import Sheet

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


def show_gallery(gallery: Gallery, *, key: str) -> None:
    """Draw it. With the same `key` pairs glide from where they were to where they are now."""
    _component()(key=key, data=described(gallery))


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
    }


def _sheet(sheet: Sheet | None) -> dict[str, Any] | None:
    return None if sheet is None else {**asdict(sheet), "png": base64.b64encode(sheet.png).decode()}


# Registered when first drawn, once for a process.
@cache
def _component() -> ComponentRenderer:
    html, css, js = ((_FOLDER / f"gallery.{kind}").read_text(encoding="utf-8") for kind in ("html", "css", "js"))
    return st.components.v2.component("afterimage_gallery", html=html, css=css, js=js)
