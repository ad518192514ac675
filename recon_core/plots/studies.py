"""Curves of a study: means with 95% intervals over seeds, references, chance levels; images aligned across values.

Every mark of a single model carries its cell's id as customdata, so that a click finds the runs behind it.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import plotly.graph_objects as go

from recon_core.analysis.studies import AlignedGrid, AlignedRow, CurvePoint, Measure, StudyCurve
from recon_core.plots.mosaic import Mosaic, framed_strip
from recon_core.plots.style import BLACK, BLUE, GREY, ORANGE, PURPLE, SKY, figure, literal

_LOOKS = ((BLUE, "circle"), (ORANGE, "diamond"), (PURPLE, "square"), (SKY, "triangle-up"), (BLACK, "x"), (GREY, "star"))
_DASHES = ("dash", "dashdot", "longdash", "dot")
_CONTROL_LOOKS = {
    Measure.MEAN_IMAGE: ("control: mean image alone", GREY, "dot"),
    Measure.UNTRAINED: ("control: untrained network", PURPLE, "dot"),
    Measure.NON_MEMBERS: ("control: held-out images", ORANGE, "dot"),
}
_RATES = (Measure.TRAIN_ERROR, Measure.TEST_ERROR, Measure.SHARE, Measure.EXPLAINED, Measure.RESIDUAL)
_CROWDED = 8  # labels on the axis from here on are turned, where they are long
_LABEL_CHARACTERS, _LINE_PIXELS = 14, 20  # of a label below the axis; longer ones are broken into lines


@dataclass(frozen=True)
class StudyAxis:
    """What varies: its name, how it is laid out, and all its values with their positions."""

    title: str
    scale: Literal["log", "linear", "category"]
    values: tuple[tuple[str, float | None], ...]

    def place(self, label: str, position: float | None) -> float:
        """Where a value is drawn: a number on a numeric axis, else its rank. Those without a number stand left."""
        if self.scale == "category":
            return float([name for name, _ in self.values].index(label))
        if position is not None:
            return math.log10(position) if self.scale == "log" else position
        apart = [name for name, known in self.values if known is None]
        known = sorted(self.place(name, number) for name, number in self.values if number is not None)
        step = (known[-1] - known[0]) / max(1, len(known) - 1) if len(known) > 1 else 1.0
        return (known[0] if known else 0.0) - step * (1.3 + len(apart) - 1 - apart.index(label))

    def ticks(self) -> tuple[list[float], list[str]]:
        return [self.place(*value) for value in self.values], [literal(name) for name, _ in self.values]


@dataclass(frozen=True)
class Series:
    """A curve under the name it has in the legend."""

    name: str
    curve: StudyCurve


def plot_curves(
    title: str,
    caption: str,
    y_title: str,
    axis: StudyAxis,
    series: Sequence[Series],
    controls: Sequence[StudyCurve] = (),
    *,
    shares: bool = False,
) -> go.Figure:
    """Each series a line with its interval and its models as marks; references dashed across; chance levels dotted."""
    drawn = figure(literal(title), literal(caption), literal(axis.title), y_title)
    for curve in controls:
        _add_control(drawn, axis, curve)
    for number, one in enumerate(series):
        colour, symbol = _LOOKS[number % len(_LOOKS)]
        _add_references(drawn, axis, one, colour, named=len(series) == 1)
        _add_series(drawn, axis, one, colour, symbol)
    places, names = axis.ticks()
    crowded = len(names) >= _CROWDED
    lines = 1
    if not crowded:
        broken = [textwrap.wrap(name, _LABEL_CHARACTERS, break_long_words=False) for name, _ in axis.values]
        names, lines = ["<br>".join(map(literal, parts)) for parts in broken], max(map(len, broken))
    reach = max(places) - min(places) or 1.0
    drawn.update_xaxes(
        tickvals=places,
        ticktext=names,
        range=[min(places) - 0.06 * reach, max(places) + 0.06 * reach],
        tickangle=-40 if crowded else 0,
    )
    rates = shares or (bool(series) and series[0].curve.measure in _RATES)
    drawn.update_yaxes(rangemode="tozero", tickformat=".0%" if rates else None)
    lowest = [place for place, (_, number) in zip(places, axis.values, strict=True) if number is None]
    if axis.scale != "category" and lowest and len(lowest) < len(places):
        others = [place for place in places if place not in lowest]
        between = (max(lowest) + min(others)) / 2
        drawn.add_vline(x=between, line={"color": GREY, "width": 1, "dash": "dot"})
    below = _LINE_PIXELS * (max(map(len, names)) // 3 if crowded and max(map(len, names)) > 12 else lines - 1)
    drawn.update_layout(width=900, height=540 + below, margin={"b": 120 + below}, legend={"y": -0.28 - below / 340})
    return drawn


def _add_series(drawn: go.Figure, axis: StudyAxis, one: Series, colour: str, symbol: str) -> None:
    points, name = one.curve.points, literal(one.name)
    if not points:
        return
    places = [axis.place(point.label, point.position) for point in points]
    means = [point.spread.mean for point in points]
    # A value that stands apart is not on the way to the others.
    joined = [
        None if axis.scale != "category" and point.position is None else place
        for point, place in zip(points, places, strict=True)
    ]
    line = {"color": colour, "width": 2}
    if axis.scale != "category":
        drawn.add_scatter(
            x=joined, y=means, mode="lines", line=line, name=name, legendgroup=name, showlegend=False, hoverinfo="skip"
        )
    drawn.add_scatter(
        x=places,
        y=means,
        mode="markers",
        name=name,
        legendgroup=name,
        marker={"color": colour, "symbol": symbol, "size": 11},
        cliponaxis=False,  # or marks at 0 are cut in half
        error_y=_interval(points, colour),
        customdata=[[point.rows[0].cell, literal(point.label), _interval_text(point)] for point in points],
        hovertemplate="<b>%{customdata[1]}</b><br>" + name + ": %{customdata[2]}<extra></extra>",
    )
    several = [(place, point) for place, point in zip(places, points, strict=True) if len(point.rows) > 1]
    if several:
        marks = [
            (place, value, row)
            for place, point in several
            for value, row in zip(point.spread.values, point.rows, strict=True)
        ]
        drawn.add_scatter(
            x=[place for place, _, _ in marks],
            y=[value for _, value, _ in marks],
            mode="markers",
            name=f"{name}, each seed",
            legendgroup=name,
            showlegend=False,
            marker={"color": colour, "symbol": f"{symbol}-open", "size": 7, "opacity": 0.8},
            cliponaxis=False,
            customdata=[[row.cell, literal(row.point), f"{value:.4g}", row.seed] for _, value, row in marks],
            hovertemplate="<b>%{customdata[1]}</b>, seed %{customdata[3]}<br>%{customdata[2]}<extra></extra>",
        )


def _interval(points: Sequence[CurvePoint], colour: str) -> dict[str, object] | None:
    """Counts and rates cannot be below zero, so neither is what is drawn of an interval."""
    if all(point.spread.low is None for point in points):
        return None
    above = [0.0 if point.spread.high is None else point.spread.high - point.spread.mean for point in points]
    below = [0.0 if point.spread.low is None else point.spread.mean - max(0.0, point.spread.low) for point in points]
    return {"type": "data", "array": above, "arrayminus": below, "color": colour, "thickness": 1.5, "width": 5}


def _interval_text(point: CurvePoint) -> str:
    return literal(str(point.spread)) + (f", {len(point.rows)} seeds" if len(point.rows) > 1 else "")


def _add_references(drawn: go.Figure, axis: StudyAxis, one: Series, colour: str, *, named: bool) -> None:
    """Dashed lines across, like the papers' baselines."""
    places, _ = axis.ticks()
    reach = max(places) - min(places) or 1.0
    ends = [min(places) - 0.06 * reach, max(places) + 0.06 * reach]
    for number, point in enumerate(one.curve.references):
        own = (ORANGE, BLACK, PURPLE, GREY)[number % 4] if named else colour
        label = literal(point.label if named or not one.name else f"{one.name}, {point.label}")
        drawn.add_scatter(
            x=ends,
            y=[point.spread.mean] * 2,
            mode="lines",
            name=f"{label}: {point.spread.mean:.3g}",
            line={"color": own, "width": 2, "dash": _DASHES[number % len(_DASHES)]},
            customdata=[[point.rows[0].cell, label, _interval_text(point)]] * 2,
            hovertemplate="<b>%{customdata[1]}</b><br>%{customdata[2]}<extra></extra>",
        )


def _add_control(drawn: go.Figure, axis: StudyAxis, curve: StudyCurve) -> None:
    name, colour, dash = _CONTROL_LOOKS[curve.measure]
    places = [axis.place(point.label, point.position) for point in curve.points]
    drawn.add_scatter(
        x=places,
        y=[point.spread.mean for point in curve.points],
        mode="lines+markers" if axis.scale != "category" else "markers",
        name=name,
        line={"color": colour, "width": 1.5, "dash": dash},
        marker={"color": colour, "symbol": "line-ew", "size": 12, "line": {"width": 2, "color": colour}},
        customdata=[[point.rows[0].cell, literal(point.label), _interval_text(point)] for point in curve.points],
        hovertemplate="<b>%{customdata[1]}</b><br>" + name + ": %{customdata[2]}<extra></extra>",
    )


@dataclass(frozen=True, eq=False)
class Strip:
    """A row of pictures with its name beside it."""

    label: str
    picture: Mosaic


def aligned_strips(grid: AlignedGrid, scale: int | None = None) -> tuple[Strip, ...]:
    """The training images first, then a strip for each value; good ones are framed in blue, others in dashed orange."""
    first = Strip("training images", framed_strip(grid.originals, None, scale))
    return (first, *(Strip(row.label, framed_strip(row.images, _frames(grid, row), scale)) for row in grid.rows))


def _frames(grid: AlignedGrid, row: AlignedRow) -> list[bool | None]:
    """None for images that model never saw."""
    return [bool(good) if seen else None for good, seen in zip(grid.good(row), row.present, strict=True)]
