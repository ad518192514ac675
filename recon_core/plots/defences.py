"""Leak against accuracy: where each defence stands, with its chance level below it.

Every mark carries a cell's id as customdata, so that a click finds the pictures behind it.
"""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from recon_core.analysis.defences import Defence, Defences
from recon_core.analysis.studies import Spread
from recon_core.plots.style import BLACK, BLUE, GREY, ORANGE, PURPLE, SKY, figure, literal

_LOOKS = ((BLACK, "star"), (BLUE, "circle"), (ORANGE, "diamond"), (PURPLE, "square"), (SKY, "triangle-up"))
_PLACES = ("top center", "bottom center", "middle right", "middle left")
_NEAR = 0.03
"""Marks nearer than this on both axes have their names on different sides."""


def plot_defences(found: Defences, title: str, caption: str) -> go.Figure:
    """Test accuracy to the right, share of training images reconstructed upwards: the best corner is below right."""
    drawn = figure(literal(title), literal(caption), "test accuracy", "training images reconstructed")
    groups = list(dict.fromkeys(row.names.group for row in found.rows))
    sides = _sides(found.rows)
    for group in groups:
        colour, symbol = _LOOKS[groups.index(group) % len(_LOOKS)]
        rows = [row for row in found.rows if row.names.group == group]
        drawn.add_scatter(
            x=[row.accuracy.mean for row in rows],
            y=[row.share.mean for row in rows],
            mode="markers+text",
            name=literal(group),
            text=[literal(row.names.label) for row in rows],
            textposition=[sides[row.names.label] for row in rows],
            textfont={"size": 11, "color": colour},
            marker={"color": colour, "symbol": symbol, "size": 12},
            error_x=_bars([row.accuracy for row in rows], colour),
            error_y=_bars([row.share for row in rows], colour),
            cliponaxis=False,
            customdata=[[row.rows[0].cell, literal(row.names.label), *_texts(row)] for row in rows],
            hovertemplate="<b>%{customdata[1]}</b><br>%{customdata[2]}<br>%{customdata[3]}<extra></extra>",
        )
    several = [(row, model) for row in found.rows if len(row.rows) > 1 for model in range(len(row.rows))]
    if several:
        drawn.add_scatter(
            x=[row.accuracy.values[model] for row, model in several],
            y=[row.share.values[model] for row, model in several],
            mode="markers",
            name="each seed",
            marker={"color": GREY, "symbol": "circle-open", "size": 6},
            cliponaxis=False,
            customdata=[
                [row.rows[model].cell, literal(row.names.label), row.rows[model].seed] for row, model in several
            ],
            hovertemplate="<b>%{customdata[1]}</b>, seed %{customdata[2]}<br>%{y:.0%} at %{x:.1%}<extra></extra>",
        )
    drawn.add_scatter(
        x=[row.accuracy.mean for row in found.rows],
        y=[row.chance.mean / row.of for row in found.rows],
        mode="markers",
        name="chance level",
        marker={"color": GREY, "symbol": "line-ew", "size": 12, "line": {"width": 2, "color": GREY}},
        hovertemplate="chance level %{y:.0%}<extra></extra>",
        cliponaxis=False,
    )
    drawn.update_xaxes(tickformat=".0%")
    drawn.update_yaxes(tickformat=".0%", range=[-0.03, 1.03])
    drawn.update_layout(width=1000, height=640, margin={"b": 110})
    return drawn


def _sides(rows: Sequence[Defence]) -> dict[str, str]:
    """Where each name stands, so that neighbours do not write over each other."""
    placed: list[tuple[float, float, int]] = []
    found = {}
    for row in rows:
        x, y = row.accuracy.mean, row.share.mean
        taken = {side for a, b, side in placed if abs(a - x) < _NEAR and abs(b - y) < _NEAR}
        side = next((one for one in range(len(_PLACES)) if one not in taken), len(placed) % len(_PLACES))
        placed.append((x, y, side))
        found[row.names.label] = _PLACES[side]
    return found


def _bars(spreads: Sequence[Spread], colour: str) -> dict[str, object] | None:
    """Shares lie between 0 and 1, so what is drawn of an interval does."""
    if all(one.low is None for one in spreads):
        return None
    above = [0.0 if one.high is None else min(1.0, one.high) - one.mean for one in spreads]
    below = [0.0 if one.low is None else one.mean - max(0.0, one.low) for one in spreads]
    return {"type": "data", "array": above, "arrayminus": below, "color": colour, "thickness": 1, "width": 3}


def _texts(row: Defence) -> tuple[str, str]:
    back = f"{row.good} of {row.of} images reconstructed, chance level {row.chance.mean:.3g}"
    return literal(back), literal(f"test accuracy {row.accuracy.mean:.1%}")
