"""The image behind a point and what came back of it, while the pointer is on the point."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from recon_core.plots.sheet import sheet
from recon_core.views.live_match import PairView
from ui.shared.mosaic import whole_scale
from ui.shared.pair_view import described_sheet

if TYPE_CHECKING:
    from streamlit.components.v2.types import ComponentRenderer

_FOLDER = Path(__file__).parent
MOST_IMAGES = 1000
"""More of them than this would be megabytes for every page that is opened."""
_PIXELS = 84  # about how wide a picture is


def show_thumbnails(view: PairView, chart: str, *, key: str) -> None:
    """For the chart under that key, whose points' customdata begins with the number of a training image."""
    if len(view.ssim) <= MOST_IMAGES:
        pictures = sheet(view.images, view.reconstructions)
        data = {"sheet": described_sheet(pictures), "scale": whole_scale(pictures, _PIXELS), "chart": chart}
        _component()(key=key, data=data)


# Registered when first drawn, once for a process.
@cache
def _component() -> ComponentRenderer:
    html = '<div class="thumbnail" aria-hidden="true"><div class="picture"></div></div>'
    css, js = ((_FOLDER / f"hover.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    return st.components.v2.component("afterimage_hover", html=html, css=css, js=js)
