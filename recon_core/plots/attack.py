"""An attack under way: the residual of every layer, and candidates in the plane."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from recon_core.analysis.arrays import Floats, Integers
from recon_core.analysis.residuals import ResidualCurves
from recon_core.plots.style import BLACK, BLUE, GREY, ORANGE, PURPLE, SKY, figure

# Dashes as well as colours tell layers apart.
_LAYER_LINES = ((BLUE, "dash"), (ORANGE, "dot"), (PURPLE, "dashdot"), (SKY, "longdash"), (GREY, "longdashdot"))
_CLASS_MARKS = ((BLUE, "circle-open"), (ORANGE, "diamond-open"))
_WIDE = 30.0  # from here on powers of ten are ticks enough
_REACH = 1.6  # the planar sets lie within this of the origin; axes that do not move let points be seen moving
_SMALLEST_MARK, _LARGEST_MARK = 5.0, 14.0


def plot_residuals(curves: ResidualCurves) -> go.Figure:
    """On a logarithmic axis; each seed's curve begins anew."""
    drawn = figure(
        "KKT residual of the attack",
        "relative KKT residual: share of the squared weights unexplained",
        "step" if len(set(curves.seeds.tolist())) == 1 else "step, one seed after the other",
        "residual",
    )
    breaks = np.flatnonzero(np.diff(curves.seeds)) + 1
    steps = np.insert(curves.steps.astype(float), breaks, np.nan)
    for index, values in enumerate(curves.layers):
        colour, dash = _LAYER_LINES[index % len(_LAYER_LINES)]
        _curve(drawn, steps, np.insert(values, breaks, np.nan), f"layer {index + 1}", colour, dash, 2.0)
    _curve(drawn, steps, np.insert(curves.whole, breaks, np.nan), "all layers", BLACK, "solid", 3.0)
    drawn.update_yaxes(type="log", **log_ticks(np.concatenate([curves.whole, curves.layers.ravel()])))
    # At the foot of the figure, however small that is, so that it never lies over the axis.
    drawn.update_layout(legend={"yref": "container", "y": 0.0, "yanchor": "bottom"})
    return drawn


def log_ticks(values: Floats) -> dict[str, Any]:
    """Ticks of a logarithmic axis for these values: powers of ten, or 1, 2, 5 where they span few; else plotly's."""
    positive = values[np.isfinite(values) & (values > 0)]
    low, high = (float(positive.min()), float(positive.max())) if len(positive) else (1.0, 1.0)
    if high / low > _WIDE:
        return {"exponentformat": "power", "dtick": 1}
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    places = [digit * 10.0**power for power in powers for digit in (1, 2, 5) if low <= digit * 10.0**power <= high]
    return {"tickvals": places, "ticktext": [f"{place:g}" for place in places]} if len(places) > 1 else {}


def _curve(drawn: go.Figure, x: Floats, y: Floats, name: str, colour: str, dash: str, width: float) -> None:
    positive = np.where(y > 0, y, np.nan)  # a residual of 0 has no place on a logarithmic axis
    drawn.add_scatter(
        x=x,
        y=positive,
        name=name,
        mode="lines",
        line={"color": colour, "dash": dash, "width": width},
        hovertemplate=f"{name}: %{{y:.3g}} at step %{{x}}<extra></extra>",
    )


def plot_candidate_points(
    candidates: NDArray[np.float32], labels: Integers, multipliers: Floats, truth: tuple[Floats, Integers] | None
) -> go.Figure:
    """Candidates (m, 2), larger where their multiplier is; with `truth`, training points and classes, as crosses."""
    caption = "size follows the multiplier" if truth is None else "size follows the multiplier; crosses are the truth"
    drawn = figure("Candidates in the plane", caption, "x", "y")
    sizes = np.abs(np.nan_to_num(multipliers))
    largest = sizes.max(initial=0.0)
    marks = _SMALLEST_MARK + (_LARGEST_MARK - _SMALLEST_MARK) * (sizes / largest if largest > 0 else sizes)
    for label, (colour, symbol) in enumerate(_CLASS_MARKS):
        own = labels == label
        x, y = candidates[own].T
        drawn.add_scatter(
            x=x,
            y=y,
            mode="markers",
            name=f"candidates, class {label}",
            marker={"color": colour, "symbol": symbol, "size": marks[own], "line": {"width": 2}},
            customdata=multipliers[own],
            hovertemplate="%{x:.3f}, %{y:.3f}<br>multiplier %{customdata:.3g}<extra></extra>",
        )
    if truth is not None:
        points, classes = truth
        for label, (colour, _) in enumerate(_CLASS_MARKS):
            x, y = points[classes == label].T
            name = f"training points, class {label}"
            mark = {"color": colour, "symbol": "cross-thin", "size": 11, "line": {"width": 3, "color": colour}}
            drawn.add_scatter(x=x, y=y, mode="markers", name=name, marker=mark)
    drawn.update_xaxes(range=[-_REACH, _REACH], constrain="domain")
    drawn.update_yaxes(range=[-_REACH, _REACH], constrain="domain", scaleanchor="x")
    drawn.update_layout(width=640, height=640)
    return drawn
