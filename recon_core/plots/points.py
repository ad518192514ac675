"""Training points and reconstructed points (Haim et al. 2022, Fig. 2)."""

from __future__ import annotations

import plotly.graph_objects as go

from recon_core.analysis.points import PointTable
from recon_core.plots.style import BLACK, BLUE, ORANGE, figure


def plot_points(table: PointTable, radius: float) -> go.Figure:
    found = int((table.distances <= radius).sum())
    drawn = figure(
        f"{found} of {len(table.points)} training points found",
        f"within {radius:g} of a candidate of their class; {int(table.kept.sum())} candidates after clean-up",
        "x",
        "y",
    )
    for label, colour in enumerate((BLUE, ORANGE)):
        own = table.kept & (table.candidate_labels == label)
        x, y = table.candidates[own].T
        marker = {"color": colour, "symbol": "x", "size": 8}
        drawn.add_scatter(x=x, y=y, mode="markers", name=f"candidates, class {label}", marker=marker)
        x, y = table.points[table.labels == label].T
        ring = {"color": "rgba(0,0,0,0)", "size": 14, "line": {"color": colour if len(x) else BLACK, "width": 2}}
        drawn.add_scatter(x=x, y=y, mode="markers", name=f"training points, class {label}", marker=ring)
    drawn.update_yaxes(scaleanchor="x")
    drawn.update_layout(width=640, height=680)
    return drawn
