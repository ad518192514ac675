"""SSIM against what the network says of a sample (Haim et al. 2022, Fig. 4 and 16; Buzaglo et al. 2023, Fig. 14)."""

from __future__ import annotations

import plotly.graph_objects as go

from recon_core.analysis.arrays import Floats
from recon_core.analysis.leakage import LeakScatter
from recon_core.matching.protocol import MatchSettings
from recon_core.plots.style import BLACK, BLUE, GREY, ORANGE, PURPLE, SKY, conditions, figure, ssim_name

# Shape as well as colour says the class, for prints in grey.
_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "x", "star", "pentagon", "hexagon", "triangle-down")
_COLOURS = (BLUE, ORANGE, SKY, PURPLE, BLACK, GREY)


def plot_ssim_by_output(
    scatter: LeakScatter, class_names: tuple[str, ...], settings: MatchSettings, threshold: float
) -> go.Figure:
    return _scatter(scatter, scatter.outputs, "model output φ(x)", class_names, settings, threshold)


def plot_ssim_by_margin(
    scatter: LeakScatter, class_names: tuple[str, ...], settings: MatchSettings, threshold: float
) -> go.Figure:
    return _scatter(scatter, scatter.margin_distances, "distance to the margin", class_names, settings, threshold)


def _scatter(
    scatter: LeakScatter,
    x: Floats,
    x_title: str,
    class_names: tuple[str, ...],
    settings: MatchSettings,
    threshold: float,
) -> go.Figure:
    errors = [
        f"{name} error {error:.1%}"
        for name, error in (("train", scatter.train_error), ("test", scatter.test_error))
        if error is not None
    ]
    caption = "; ".join([conditions(settings, threshold), *errors])
    drawn = figure(f"Reconstruction quality against {x_title}", caption, x_title, ssim_name(settings))
    positions = scatter.to_frame().assign(x=x)
    for label, rows in positions.groupby("label"):
        index = int(str(label))
        drawn.add_scatter(
            x=rows["x"],
            y=rows["ssim"],
            mode="markers",
            name=class_names[index],
            customdata=rows.index,
            hovertemplate="sample %{customdata}<br>%{x:.4g}, SSIM %{y:.3f}<extra></extra>",
            marker={
                "color": _COLOURS[index % len(_COLOURS)],
                "symbol": _SYMBOLS[index % len(_SYMBOLS)],
                "size": 8,
                "opacity": 0.8,
                "line": {"width": 0.5, "color": "white"},
            },
        )
    drawn.add_hline(y=threshold, line={"color": BLACK, "dash": "dash", "width": 1})
    return drawn
