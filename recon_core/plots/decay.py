"""Good reconstructions against weight decay, with chance levels (Buzaglo et al. 2023, Section 5)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pandas as pd
import plotly.graph_objects as go

from recon_core.analysis.decay import DecayCurve, DecayPoint
from recon_core.matching.protocol import MatchSettings
from recon_core.plots.style import BLUE, GREY, ORANGE, PURPLE, conditions, figure, literal

NONE_DECADES = 1.0  # how far left of the smallest decay the models without any stand
_ALONE = 1e-4  # where they stand when no model has decay


def plot_decay_curve(curve: DecayCurve, settings: MatchSettings) -> go.Figure:
    """Counts on a logarithmic axis of decay; models without decay stand apart on the left, at "none"."""
    drawn = figure(
        f"Good reconstructions of {curve.of} training images by weight decay",
        f"{conditions(settings, curve.threshold)}; dashed: chance levels, what matches although nothing leaked",
        "weight decay λ",
        "good reconstructions",
    )
    controls: dict[str, tuple[Callable[[DecayPoint], int | None], str, str]] = {
        "mean image alone": (lambda point: point.control_mean_image, GREY, "dot"),
        "untrained network": (lambda point: point.control_untrained, PURPLE, "dashdot"),
        "held-out images": (lambda point: point.non_members, ORANGE, "dash"),
    }
    for name, (value, colour, dash) in controls.items():
        _add_series(drawn, curve, value, name, colour, dash, symbol="line-ew")
    _add_series(drawn, curve, lambda point: point.good, "reconstructions", BLUE, "solid", symbol="circle")
    decays = sorted({point.weight_decay for point in curve.with_decay})
    ticks = [*([none_position(curve)] if curve.without else []), *decays]
    names = [*(["none"] if curve.without else []), *map(decay_label, decays)]
    drawn.update_xaxes(type="log", tickvals=ticks, ticktext=names, range=_range(ticks))
    drawn.update_yaxes(rangemode="tozero", range=[-0.02 * curve.of, 1.05 * curve.of])
    if curve.without and decays:
        drawn.add_vline(x=math.sqrt(none_position(curve) * decays[0]), line={"color": GREY, "width": 1, "dash": "dot"})
    return drawn


def decay_label(weight_decay: float) -> str:
    """'none', '1e-5', '0.001'."""
    if weight_decay == 0:
        return "none"
    mantissa, _, exponent = f"{weight_decay:e}".partition("e")
    return f"{weight_decay:g}" if weight_decay >= 1e-3 else f"{float(mantissa):g}e{int(exponent)}"


def none_position(curve: DecayCurve) -> float:
    """Where on the axis of decay the models without any are drawn."""
    decays = [point.weight_decay for point in curve.with_decay]
    return min(decays) / 10**NONE_DECADES if decays else _ALONE


def _add_series(
    drawn: go.Figure,
    curve: DecayCurve,
    value: Callable[[DecayPoint], int | None],
    name: str,
    colour: str,
    dash: str,
    symbol: str,
) -> None:
    """A mark for each model, and a line through the mean of models of like decay. "None" joins no line."""
    known = [point for point in curve.points if value(point) is not None]
    if not known:
        return
    apart = none_position(curve)
    frame = pd.DataFrame({"x": [p.weight_decay or apart for p in known], "y": [value(p) for p in known]})
    means = frame[frame["x"] != apart].groupby("x")["y"].mean() if curve.with_decay else pd.Series(dtype=float)
    if len(means) > 1:
        drawn.add_scatter(
            x=means.index,
            y=means,
            mode="lines",
            name=name,
            legendgroup=name,
            showlegend=False,
            hoverinfo="skip",
            line={"color": colour, "width": 2, "dash": dash},
        )
    drawn.add_scatter(
        x=frame["x"],
        y=frame["y"],
        mode="markers",
        name=name,
        legendgroup=name,
        customdata=[[literal(p.model), _of(p, name), _errors(p)] for p in known],
        hovertemplate="<b>%{customdata[0]}</b><br>" + name + ": %{y}%{customdata[1]}%{customdata[2]}<extra></extra>",
        marker={"color": colour, "symbol": symbol, "size": 11, "line": {"width": 2, "color": colour}},
    )


def _of(point: DecayPoint, name: str) -> str:
    of = point.non_members_of if name == "held-out images" else point.of
    return f" of {of}"


def _errors(point: DecayPoint) -> str:
    rates: Sequence[tuple[str, float | None]] = (("train", point.train_error), ("test", point.test_error))
    return "".join(f"<br>{name} error {rate:.1%}" for name, rate in rates if rate is not None)


def _range(ticks: Sequence[float]) -> list[float]:
    return [math.log10(min(ticks)) - 0.4, math.log10(max(ticks)) + 0.4]
