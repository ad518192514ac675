"""A training run as it goes, and several of them on common axes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go

from recon_core.analysis.arrays import Floats, Integers
from recon_core.analysis.training import LEVELS, MarginHistogram, TimeAxis, TrainingCurves, layer_readings
from recon_core.analysis.training_text import percent
from recon_core.plots.style import BLACK, BLUE, GREY, ORANGE, PURPLE, SKY, figure, literal
from recon_core.units import LOG10_LOSS

MOST_POINTS = 1_500
"""Of a line: more than a screen has columns."""

_X_TITLES = {
    TimeAxis.STEPS: "step",
    TimeAxis.SECONDS: "seconds",
    TimeAxis.EPOCHS: "epochs of gradient descent",
}
# Shape and dash as well as colour tell lines apart.
_COLOURS = (BLUE, ORANGE, PURPLE, BLACK, SKY, GREY)
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "x")
_BAND = "rgba(86, 180, 233, 0.30)"  # SKY, seen through: lines and grid stay visible on either background
_MOST_MARKED = 15
# Below a small chart it would stand on the axis title.
_LEGEND_ABOVE: dict[str, Any] = {
    "legend": {"y": 1.02, "yanchor": "bottom", "x": 0.0, "xanchor": "left", "orientation": "h"},
    "margin": {"b": 55},
}
_FEW_DECADES, _READABLE_EXPONENT = 2, 6
_WHOLE_DECADES = 12  # up to this many, each gets a tick


def plot_loss(curves: TrainingCurves, axis: TimeAxis = TimeAxis.STEPS) -> go.Figure:
    drawn = _over(axis, "Loss", "mean over the samples, logarithm to base 10", LOG10_LOSS)
    _line(drawn, curves, axis, curves.log10_loss, "training", BLUE)
    _line(drawn, curves, axis, curves.log10_test_loss, "test", ORANGE, "dash", "diamond")
    drawn.update_yaxes(hoverformat=".2f")
    return drawn


def plot_errors(curves: TrainingCurves, axis: TimeAxis = TimeAxis.STEPS) -> go.Figure:
    drawn = _over(axis, "Error", "share of the samples on the wrong side", "error")
    _line(drawn, curves, axis, curves.train_error, "training", BLUE)
    _line(drawn, curves, axis, curves.test_error, "test", ORANGE, "dash", "diamond")
    drawn.update_yaxes(tickformat=".0%", rangemode="tozero")
    return drawn


def plot_margins(curves: TrainingCurves, axis: TimeAxis = TimeAxis.STEPS) -> go.Figure:
    """The distribution of the margins as it moves."""
    drawn = _over(axis, "Margins of the training samples", "below 0 is on the wrong side", "margin")
    kept = _thinned(curves, axis, curves.margins[:, 0])
    x = curves.on_axis(axis)[kept]
    low, high = (curves.margins[kept, LEVELS.index(level)] for level in (0.1, 0.9))
    if np.isfinite(low).any():
        band: dict[str, Any] = {"x": x, "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
        drawn.add_scatter(y=low, showlegend=False, **band)
        drawn.add_scatter(y=high, name="10–90%", fill="tonexty", fillcolor=_BAND, **band)
    for level, name, dash in ((1.0, "largest", "dot"), (0.5, "median", "solid"), (0.0, "smallest", "dash")):
        values = curves.margins[:, LEVELS.index(level)]
        _line(drawn, curves, axis, values, name, BLUE if level == 0.5 else BLACK, dash, None)
    return drawn


def plot_margin_histogram(histogram: MarginHistogram) -> go.Figure:
    on, others = int(histogram.on_margin.sum()), int(histogram.others.sum())
    drawn = figure(
        "Where the training samples stand",
        f"{on} of {on + others} are on the margin",
        "margin, times the smallest" if histogram.normalised else "margin (below 0 is on the wrong side)",
        "samples",
    )
    centres = (histogram.edges[:-1] + histogram.edges[1:]) / 2
    widths = np.diff(histogram.edges)
    drawn.add_bar(x=centres, y=histogram.on_margin, width=widths, name="on the margin", marker={"color": BLUE})
    drawn.add_bar(
        x=centres,
        y=histogram.others,
        width=widths,
        name="beyond the margin",
        marker={"color": ORANGE, "pattern": {"shape": "/", "solidity": 0.25, "fillmode": "overlay"}},
    )
    drawn.update_layout(barmode="stack", bargap=0, **_LEGEND_ABOVE)
    return drawn


def plot_residuals(curves: TrainingCurves, axis: TimeAxis = TimeAxis.STEPS) -> go.Figure:
    readings = layer_readings(curves.last_residuals)
    caption = "explained: " + ", ".join(f"layer {reading.layer} {percent(reading.explained)}" for reading in readings)
    drawn = _over(axis, "KKT residual of each layer", caption if readings else "not measured yet", "residual")
    for index, values in enumerate(curves.residuals.T):
        _line(drawn, curves, axis, values, f"layer {index + 1}", *_look(index))
    drawn.update_yaxes(range=[0.0, 1.04])
    return drawn


def plot_gradient_norm(curves: TrainingCurves, axis: TimeAxis = TimeAxis.STEPS) -> go.Figure:
    """With weight decay: how far from a stationary point."""
    drawn = _over(axis, "Gradient norm over the decay term", "0 is stationary", "relative gradient norm")
    logs = np.full_like(curves.gradient_norms, np.nan)
    np.log10(curves.gradient_norms, out=logs, where=curves.gradient_norms > 0)
    _line(drawn, curves, axis, logs, "gradient norm", BLUE, power=True)
    _powers(drawn, logs)
    drawn.update_layout(showlegend=False)
    return drawn


def compare_losses(runs: Mapping[str, TrainingCurves], axis: TimeAxis = TimeAxis.STEPS) -> go.Figure:
    drawn = _over(axis, "Training loss", "mean over the samples, logarithm to base 10", LOG10_LOSS)
    for index, (name, curves) in enumerate(runs.items()):
        _line(drawn, curves, axis, curves.log10_loss, literal(name), *_look(index))
    drawn.update_yaxes(hoverformat=".2f")
    return drawn


def compare_errors(runs: Mapping[str, TrainingCurves], axis: TimeAxis = TimeAxis.STEPS) -> go.Figure:
    drawn = _over(axis, "Test error", "share of the test samples on the wrong side", "test error")
    for index, (name, curves) in enumerate(runs.items()):
        _line(drawn, curves, axis, curves.test_error, literal(name), *_look(index))
    drawn.update_yaxes(tickformat=".0%", rangemode="tozero")
    return drawn


def compare_margins(runs: Mapping[str, TrainingCurves], axis: TimeAxis = TimeAxis.STEPS) -> go.Figure:
    drawn = _over(axis, "Smallest margin", "below 0 a training sample is on the wrong side", "smallest margin")
    for index, (name, curves) in enumerate(runs.items()):
        _line(drawn, curves, axis, curves.margins[:, 0], literal(name), *_look(index))
    return drawn


def compare_residuals(runs: Mapping[str, TrainingCurves], axis: TimeAxis = TimeAxis.STEPS) -> go.Figure:
    drawn = _over(axis, "KKT residual of layer 1", "0 is explained whole by the training samples", "residual")
    for index, (name, curves) in enumerate(runs.items()):
        if curves.residuals.shape[1]:
            _line(drawn, curves, axis, curves.residuals[:, 0], literal(name), *_look(index))
    drawn.update_yaxes(range=[0.0, 1.04])
    return drawn


def _look(index: int) -> tuple[str, str, str]:
    return tuple(table[index % len(table)] for table in (_COLOURS, _DASHES, _SYMBOLS))  # type: ignore[return-value]


def _over(axis: TimeAxis, title: str, caption: str, y: str) -> go.Figure:
    drawn = figure(title, caption, _X_TITLES[axis], y)
    drawn.update_layout(showlegend=True, hovermode="x unified", **_LEGEND_ABOVE)
    if axis is TimeAxis.EPOCHS:
        drawn.update_xaxes(tickprefix="10<sup>", ticksuffix="</sup>", hoverformat=".1f")
    return drawn


def _thinned(curves: TrainingCurves, axis: TimeAxis, values: Floats) -> Integers:
    """The measurements at which `values` are known, at most MOST_POINTS of them."""
    kept = np.flatnonzero(np.isfinite(curves.on_axis(axis)) & np.isfinite(values)).astype(np.int64)
    if len(kept) <= MOST_POINTS:
        return kept
    return kept[np.linspace(0, len(kept) - 1, MOST_POINTS).round().astype(np.int64)]


def _line(
    drawn: go.Figure,
    curves: TrainingCurves,
    axis: TimeAxis,
    values: Floats,
    name: str,
    colour: str,
    dash: str = "solid",
    symbol: str | None = "circle",
    *,
    power: bool = False,
) -> None:
    """A line through the measurements that are there; marked where they are few. `power` shows 10^value."""
    kept = _thinned(curves, axis, values)
    if not len(kept):
        return
    marked = symbol is not None and len(kept) <= _MOST_MARKED
    drawn.add_scatter(
        x=curves.on_axis(axis)[kept],
        y=values[kept],
        name=name,
        mode="lines+markers" if marked else "lines",
        line={"color": colour, "width": 2.5, "dash": dash},
        marker={"symbol": symbol or "circle", "size": 7},
        cliponaxis=False,  # an error of 0 lies on the axis
        hovertemplate="10<sup>%{y:.2f}</sup>" if power else None,
    )


def _powers(drawn: go.Figure, *exponents: Floats) -> None:
    """The y axis holds exponents of 10 and reads as powers: numbers like 10^-434 have no other way onto an axis.

    Over a decade or two it reads as the numbers themselves, because 10^-0.4 says little.
    """
    finite = np.concatenate([values[np.isfinite(values)] for values in exponents])
    if not len(finite):
        return
    low, high = float(finite.min()), float(finite.max())
    if high - low <= _FEW_DECADES and max(abs(low), abs(high)) < _READABLE_EXPONENT:
        ticks = [lead * 10.0**power for power in range(math.floor(low) - 1, math.ceil(high) + 1) for lead in (1, 2, 5)]
        drawn.update_yaxes(tickvals=np.log10(ticks), ticktext=[f"{tick:g}" for tick in ticks])
    elif high - low <= _WHOLE_DECADES:
        drawn.update_yaxes(tickprefix="10<sup>", ticksuffix="</sup>", dtick=1)
    else:
        drawn.update_yaxes(tickprefix="10<sup>", ticksuffix="</sup>")
