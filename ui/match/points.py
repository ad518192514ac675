"""Points of the plane and their reconstructions."""

from __future__ import annotations

import numpy as np
import streamlit as st

from recon_core.plots.points import plot_points
from recon_core.views.live_match import PointPool
from ui.match.counts import show_point_counts
from ui.match.settings import choose_radius
from ui.shared.figures import show_figure

_MARGIN = 1.7  # how far the picture reaches, over the outermost training point


def show_points(pool: PointPool) -> None:
    """Counts within a radius, and where the candidates ended up."""
    radius = choose_radius()
    show_point_counts(pool, radius)
    figure = plot_points(pool.table, radius)
    reach = _MARGIN * float(np.abs(pool.table.points).max())
    figure.update_xaxes(range=[-reach, reach])
    figure.update_yaxes(range=[-reach, reach])
    with st.container(width=760):
        show_figure(
            figure,
            name="points",
            key="m-points",
            table=pool.table,
            caption="Candidates that ended far away are outside the picture; zoom out to see them.",
        )
