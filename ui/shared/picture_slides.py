"""Slides made of images: the best pairs, and the same images at every value."""

from __future__ import annotations

import base64
from collections.abc import Sequence

import plotly.graph_objects as go

from recon_core.analysis.studies import AlignedGrid
from recon_core.plots.mosaic import framed_strip
from recon_core.plots.sheet import png
from recon_core.plots.studies import Strip, aligned_strips
from recon_core.plots.style import literal

ACROSS = 10
"""Images in a strip: more could not be seen from the last row."""
_LABEL_GAP = 1.0  # pixels


def strips_figure(strips: Sequence[Strip]) -> go.Figure:
    """Strips below each other, with their labels as an axis."""
    figure, centres, top = go.Figure(), [], 0.0
    width = max(strip.picture.shape[1] for strip in strips)
    for strip in strips:
        high, wide = strip.picture.shape[:2]
        source = f"data:image/png;base64,{base64.b64encode(png(strip.picture)).decode('ascii')}"
        figure.add_layout_image(
            source=source, xref="x", yref="y", x=0, y=top, sizex=wide, sizey=high, sizing="stretch", layer="above"
        )
        centres.append(top + high / 2)
        top += high + _LABEL_GAP
    # Without a point there would be no axes to place the pictures by.
    figure.add_scatter(x=[0, width], y=[0, top], mode="markers", opacity=0, hoverinfo="skip", showlegend=False)
    figure.update_xaxes(range=[0, width], visible=False, constrain="domain")
    figure.update_yaxes(
        range=[top, 0],
        tickvals=centres,
        ticktext=[literal(strip.label) for strip in strips],
        showgrid=False,
        zeroline=False,
        scaleanchor="x",
        constrain="domain",
        automargin=True,
    )
    return figure


def best_pairs_figure(grid: AlignedGrid, title: str) -> go.Figure:
    """The first images of a grid of one row, in two double strips: training images above, what came back below."""
    row, good = grid.rows[0], grid.good(grid.rows[0])
    strips = []
    for start in range(0, min(len(grid.ids), 2 * ACROSS), ACROSS):
        part = slice(start, start + ACROSS)
        strips.append(Strip("training images", framed_strip(grid.originals[part], None)))
        strips.append(Strip("reconstructions", framed_strip(row.images[part], [bool(one) for one in good[part]])))
    figure = strips_figure(strips)
    caption = f"{int(good.sum())} of these {len(grid.ids)} are good: SSIM above {grid.threshold:g}, framed in blue"
    figure.update_layout(title={"text": literal(title), "subtitle": {"text": caption}})
    return figure


def aligned_figure(grid: AlignedGrid, title: str) -> go.Figure:
    """The same training images at every value, with the count of each among all that is shown."""
    figure = strips_figure(aligned_strips(grid))
    counts = ", ".join(f"{row.label}: {int(grid.good(row).sum())}" for row in grid.rows)
    caption = f"good among these {len(grid.ids)} images (SSIM above {grid.threshold:g}, framed in blue): {counts}"
    figure.update_layout(title={"text": literal(title), "subtitle": {"text": literal(caption)}})
    return figure
