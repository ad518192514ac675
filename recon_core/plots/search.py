"""Figures of a search: residuals of the trials, parallel coordinates, and the importance of hyper-parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from recon_core.analysis.search import ParameterImportance, TrialTable
from recon_core.attacks.settings import Range
from recon_core.errors import InputError
from recon_core.plots.attack import log_ticks
from recon_core.plots.style import BLUE, GREY, ORANGE, PURPLE, SKY, figure

PARAMETER_LABELS = {
    "lr_x": "step size of candidates (lr_x)",
    "x_init_scale": "size at the start (x_init_scale)",
    "lam_min": "lower bound of multipliers (lam_min)",
    "alpha": "sharpness of ReLU's gate (alpha)",
}

_SMALLEST = 1e-12  # a residual of 0 has no logarithm
_MOST_TICKS = 7
# Width as well as colour says how well.
_FIFTHS = (
    ("best fifth", BLUE, 4.0),
    ("second", SKY, 3.0),
    ("third", GREY, 2.0),
    ("fourth", PURPLE, 1.5),
    ("worst fifth", ORANGE, 1.5),
)


def plot_trials(table: TrialTable) -> go.Figure:
    """Residual of every complete trial, and the best so far."""
    complete = table.complete
    drawn = figure(
        f"{len(complete)} of {len(table.records)} {'trial' if len(table.records) == 1 else 'trials'} complete",
        "residual at the end of each; smaller explains the weights better",
        "trial",
        "residual",
    )
    numbers = [trial.number + 1 for trial in complete]
    values = [math.nan if trial.value is None else trial.value for trial in complete]
    mark = {"color": ORANGE, "size": 8, "symbol": "circle-open", "line": {"width": 2}}
    drawn.add_scatter(x=numbers, y=values, mode="markers", name="trial", marker=mark)
    best = {"color": BLUE, "width": 3, "shape": "hv"}
    drawn.add_scatter(x=numbers, y=np.fmin.accumulate(values), mode="lines", name="best so far", line=best)
    drawn.update_yaxes(type="log", **log_ticks(np.array(values)))
    if len(numbers) <= _MOST_TICKS:  # there are no half trials
        drawn.update_xaxes(tickvals=numbers)
    drawn.update_layout(legend={"yref": "container", "y": 0.0, "yanchor": "bottom"})
    return drawn


def plot_parallel(table: TrialTable) -> go.Figure:
    """A line for every complete trial across the numbers that were varied, coloured by where its residual ranks.

    Drawn as plain lines, because plotly's own kind needs WebGL and does not follow a dark page.
    """
    complete = table.complete
    if not complete:
        raise InputError("no trial is complete yet, so there is nothing to compare; wait for the first")
    left_out = len(table.records) - len(complete)
    more = f"; {left_out} that diverged or were ended early are left out" if left_out else ""
    drawn = figure(
        "What the trials were given, and where they ended",
        f"a line for each complete trial, thick where it ended well; the legend hides and shows{more}",
        "",
        "",
    )
    residuals = [max(trial.value or 0.0, _SMALLEST) for trial in complete]
    spread = Range(min(residuals), max(residuals), log=True)
    axes = {**table.ranges, "residual": spread}
    rows = [{**trial.params, "residual": value} for trial, value in zip(complete, residuals, strict=True)]
    group_of = _fifths(residuals)
    for group, (name, colour, width) in enumerate(_FIFTHS):
        own = [index for index in range(len(rows)) if group_of[index] == group]
        if own:
            _add_lines(drawn, axes, [(complete[index].number, rows[index]) for index in own], name, colour, width)
    drawn.data = drawn.data[::-1]  # the best on top
    # All at once: plotly looks at all annotations again with each that is added.
    lines = [
        {"type": "line", "x0": place, "x1": place, "y0": 0, "y1": 1, "line": {"color": GREY, "width": 1}}
        for place in range(len(axes))
    ]
    words = [
        {"x": place, "y": _height(span, value), "text": f"{value:.3g}", "showarrow": False, "xanchor": "right"}
        for place, span in enumerate(axes.values())
        for value in _ticks(span)
    ]
    drawn.update_layout(shapes=[{**line, "layer": "below"} for line in lines])
    drawn.update_layout(annotations=[{**word, "xshift": -4} for word in words])
    ticks = {"tickvals": list(range(len(axes))), "ticktext": list(axes), "showline": False, "ticks": ""}
    drawn.update_xaxes(range=[-0.35, len(axes) - 0.9], showgrid=False, **ticks)
    drawn.update_yaxes(visible=False, range=[-0.04, 1.04])
    drawn.update_layout(
        height=440, legend={"yref": "container", "y": 0.0, "yanchor": "bottom", "traceorder": "reversed"}
    )
    return drawn


def _add_lines(
    drawn: go.Figure,
    axes: Mapping[str, Range],
    trials: Sequence[tuple[int, Mapping[str, float]]],
    name: str,
    colour: str,
    width: float,
) -> None:
    """All trials of a group in one trace, with a gap behind each."""
    x: list[float | None] = []
    y: list[float | None] = []
    words: list[str] = []
    for number, values in trials:
        x += [*range(len(axes)), None]
        y += [*(_height(span, values[key]) for key, span in axes.items()), None]
        words += [*(f"trial {number + 1}: {key} {values[key]:.3g}" for key in axes), ""]
    line = {"color": colour, "width": width}
    drawn.add_scatter(
        x=x, y=y, mode="lines", name=name, line=line, text=words, hovertemplate="%{text}<extra></extra>", opacity=0.85
    )


def _fifths(values: Sequence[float]) -> list[int]:
    """For each value the fifth it ranks in, 0 for the smallest."""
    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    return [int(rank * len(_FIFTHS) // len(values)) for rank in ranks]


def _height(span: Range, value: float) -> float:
    """Where a value stands between the ends of its range."""
    low, high, at = (math.log(v) for v in (span.low, span.high, value)) if span.log else (span.low, span.high, value)
    return 0.5 if high <= low else (at - low) / (high - low)


def _ticks(span: Range) -> list[float]:
    """A handful of round values, or the two ends where the range is narrow."""
    if not span.log:
        return [float(value) for value in np.linspace(span.low, span.high, 5)]
    low, high = math.log10(span.low), math.log10(span.high)
    powers = list(range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1))
    if len(powers) < 3:
        return sorted({span.low, span.high})
    return [10.0**power for power in powers[:: math.ceil(len(powers) / _MOST_TICKS)]]


def plot_importance(importance: ParameterImportance) -> go.Figure:
    drawn = figure(
        "Hyper-parameter importance",
        f"how far the best {importance.top} of {importance.of} trials lie apart from all of them (PED-ANOVA)",
        "share",
        "",
    )
    names = [PARAMETER_LABELS.get(name, name) for name in importance.shares]
    shares = list(importance.shares.values())
    drawn.add_bar(
        x=shares,
        y=names,
        orientation="h",
        marker={"color": BLUE},
        text=[f"{share:.0%}" for share in shares],
        textposition="outside",
        cliponaxis=False,
        hovertemplate="%{y}: %{x:.1%}<extra></extra>",
    )
    drawn.update_xaxes(range=[0, 1], tickformat=".0%")
    drawn.update_yaxes(autorange="reversed", automargin=True)
    drawn.update_layout(showlegend=False, height=340)
    return drawn
