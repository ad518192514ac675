"""Presets by the figure of the papers they belong to, with a picture each: a dialog that fills the form."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import streamlit as st

from recon_core.plots.sheet import Sheet, sheet
from recon_core.presets import FIGURES, PRESETS
from recon_core.views.preset_pictures import preset_picture
from ui.shared.mosaic import Tile, show_mosaic

_PICKED = "t-preset-picked"
_WIDE = 96  # pixels of a picture


def offer_presets(choose: Callable[[str], None], chosen: str | None) -> None:
    """The button; `choose` is called with the name that was picked, before the page is drawn again."""
    if st.button("Choose by figure", key="t-presets", icon=":material/grid_view:", help="All presets, with pictures"):
        _show(choose, chosen)


@st.dialog("Presets, by figure of the papers", width="large")
def _show(choose: Callable[[str], None], chosen: str | None) -> None:
    def pick(names: tuple[str, ...], place: int) -> None:
        choose(names[place])
        st.session_state[_PICKED] = True

    if st.session_state.pop(_PICKED, False):
        st.rerun()  # which closes it
    for number, (figure, names) in enumerate(FIGURES.items()):
        st.markdown(f"**{figure}**")
        tiles = [
            Tile(place, PRESETS[name].title, f"{PRESETS[name].title} ({name})") for place, name in enumerate(names)
        ]
        show_mosaic(
            _pictures(names),
            tiles,
            key=f"t-presets-{number}",
            name=figure,
            chosen=names.index(chosen) if chosen in names else None,
            on_pick=partial(pick, names),
            tile_pixels=_WIDE,
        )


@st.cache_data(show_spinner="Drawing the presets …")
def _pictures(names: tuple[str, ...]) -> Sheet:
    return sheet(np.stack([preset_picture(name) for name in names]))
