"""The same training images at every value of a study, row by row; each picture opens its pair."""

from __future__ import annotations

import math

import streamlit as st

from recon_core.analysis.studies import AlignedGrid
from recon_core.plots.sheet import sheet
from ui.shared.formatting import plain
from ui.shared.mosaic import Tile, show_mosaic
from ui.shared.pair_view import PairSet
from ui.studies.model import row_pairs, titles

_WIDTHS = (1.0, 7.0)  # of a row's name and its pictures


def show_aligned(grid: AlignedGrid, key: str) -> None:
    """The training images first."""
    with st.container(gap="xxsmall"):
        label, pictures = st.columns(_WIDTHS, vertical_alignment="center")
        label.markdown("training images")
        with pictures:
            originals = [Tile(place, "", f"training image {image}") for place, image in enumerate(grid.ids.tolist())]
            show_mosaic(
                sheet(grid.originals), originals, key=f"{key}-originals", name="Training images", across=len(grid.ids)
            )
        for number, row in enumerate(grid.rows):
            label, pictures = st.columns(_WIDTHS, vertical_alignment="center")
            label.markdown(plain(row.label))
            pairs = row_pairs(grid, row)
            tiles = [
                Tile(
                    sample if sample >= 0 else -1 - place,
                    "",
                    f"{row.label}: {title}" if sample >= 0 else f"{row.label}: not trained on image {image}",
                    None if math.isnan(score) else bool(good),
                )
                for place, (sample, image, score, title, good) in enumerate(
                    zip(
                        row.samples.tolist(),
                        grid.ids.tolist(),
                        row.ssim.tolist(),
                        titles(grid, row),
                        grid.good(row),
                        strict=True,
                    )
                )
            ]
            with pictures:
                show_mosaic(
                    sheet(row.images),
                    tiles,
                    key=f"{key}-{number}",
                    name=f"Reconstructions at {row.label}",
                    across=len(grid.ids),
                    pairs=PairSet(pairs.pairs, sheet(grid.originals), sheet(row.images)),
                )
