"""Training images above their reconstructions, as a figure."""

from __future__ import annotations

import base64

import plotly.graph_objects as go

from recon_core.analysis.pairs import BestPairs
from recon_core.matching.protocol import MatchSettings
from recon_core.plots.mosaic import pairs_mosaic
from recon_core.plots.sheet import png
from recon_core.plots.style import conditions, figure

_WIDTH, _MARGINS = 960, 140


def plot_pairs(pairs: BestPairs, settings: MatchSettings, good: int, of: int, columns: int = 20) -> go.Figure:
    """The best pairs, framed blue where good and orange, dashed, where not; `good` of `of` are good in all."""
    mosaic = pairs_mosaic(pairs, columns, scale=2)
    height, width, _ = mosaic.shape
    drawn = figure(
        f"{good} of {of} training images reconstructed",
        f"training image above reconstruction, best first; {conditions(settings, pairs.threshold)}",
        "",
        "",
    )
    drawn.add_trace(go.Image(source="data:image/png;base64," + base64.b64encode(png(mosaic)).decode("ascii")))
    drawn.update_xaxes(visible=False)
    drawn.update_yaxes(visible=False)
    drawn.update_layout(
        width=_WIDTH, height=_MARGINS + round(_WIDTH * height / width), margin={"l": 10, "r": 10, "b": 10}
    )
    return drawn
