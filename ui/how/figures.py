"""The figures of the page that explains the idea, from the numbers of `recon_core.views.explanation`."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from recon_core.plots.style import BLUE, GREY, ORANGE, PURPLE, figure
from recon_core.views.circle_frames import RADII
from recon_core.views.explanation import Approach, Explained, MarginCourse, Multipliers


def plot_margins(course: MarginCourse, place: int) -> go.Figure:
    """All margins over the steps, those up to `place` in colour."""
    drawn = figure("Margins of the 20 points while the network learns", "", "training step", "margin y Φ(θ; x)")
    for sample in range(course.margins.shape[1]):
        drawn.add_scatter(
            x=course.steps[: place + 1],
            y=course.margins[: place + 1, sample],
            mode="lines",
            line={"color": BLUE, "width": 1},
            opacity=0.6,
            showlegend=False,
            hoverinfo="skip",
        )
    smallest = course.margins.min(axis=1)
    drawn.add_scatter(x=course.steps, y=smallest, mode="lines", line={"color": ORANGE, "width": 3}, name="the smallest")
    drawn.update_xaxes(range=[0, int(course.steps[-1])])
    drawn.update_yaxes(range=[min(0.0, float(course.margins.min())), float(course.margins.max()) * 1.05])
    return drawn


def plot_multipliers(found: Multipliers, threshold: float) -> go.Figure:
    """Candidates with a positive multiplier lie at training points, those without may lie anywhere."""
    drawn = figure("Multipliers of the 100 candidates", "", "distance to the nearest training point", "multiplier λ")
    distances = np.maximum(found.distances, 1e-4)
    for name, keep, colour in (("kept", found.values >= threshold, BLUE), ("dropped", found.values < threshold, GREY)):
        marks = {"color": colour, "size": 9, "symbol": "circle" if name == "kept" else "x"}
        drawn.add_scatter(x=distances[keep], y=found.values[keep], mode="markers", marker=marks, name=name)
    drawn.add_hline(y=threshold, line={"color": ORANGE, "dash": "dash"})
    drawn.update_xaxes(type="log")
    return drawn


def plot_approach(course: Approach) -> go.Figure:
    """How many of the points have a candidate near them, step by step."""
    drawn = figure("Training points with a candidate near them", "", "step of the attack", "points of 20")
    for radius, colour in zip(RADII, (BLUE, PURPLE), strict=True):
        drawn.add_scatter(
            x=course.steps, y=course.found(radius), mode="lines", line={"color": colour}, name=f"within {radius:g}"
        )
    drawn.update_yaxes(rangemode="tozero")
    return drawn


def plot_explained(chosen: Explained, usual: Explained) -> go.Figure:
    """The residual of the chosen training beside that of the usual one."""
    drawn = figure("What the samples leave unexplained of the weights", "", "training step", "KKT residual")
    drawn.add_scatter(
        x=usual.steps, y=usual.residuals, mode="lines", line={"color": GREY, "dash": "dot"}, name="start 1"
    )
    drawn.add_scatter(x=chosen.steps, y=chosen.residuals, mode="lines", line={"color": BLUE, "width": 3}, name="yours")
    drawn.update_yaxes(range=[0, 1.02])
    return drawn


def plot_found(found: dict[str, int], n: int) -> go.Figure:
    """The count beside its chance level."""
    drawn = figure(f"Training points found within {RADII[0]:g}", "", f"points of {n}", "")
    colours = [BLUE, *[GREY] * (len(found) - 1)]
    drawn.add_bar(
        x=list(found.values()), y=list(found), orientation="h", marker={"color": colours}, text=list(found.values())
    )
    drawn.update_yaxes(autorange="reversed")
    drawn.update_xaxes(range=[0, n])
    return drawn
