"""SSIM against what the network says of a sample (Haim et al. 2022, Fig. 4 and 16; Buzaglo et al. 2023, Fig. 14)."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from recon_core.analysis.arrays import Floats
from recon_core.analysis.leakage import AxisScale, LeakAxis, LeakPanel, LeakScatter
from recon_core.errors import InputError
from recon_core.matching.protocol import MatchSettings
from recon_core.plots.style import (
    BLACK,
    BLUE,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    conditions,
    dress,
    figure,
    literal,
    ssim_name,
)

_NAMES = {
    LeakAxis.MARGIN: "distance to the margin",
    LeakAxis.RELATIVE: "relative distance to the margin",
    LeakAxis.OUTPUT: "model output φ(x)",
}
AXIS_TITLES = {
    LeakAxis.MARGIN: "signed distance to the margin, q − γ",
    LeakAxis.RELATIVE: "signed distance to the margin, q/γ − 1",
    LeakAxis.OUTPUT: "model output φ(x)",
}
# Behind every figure with such an axis, since papers and programs differ in it.
DISTANCE_NOTE = (
    "q: y φ, or the true class's output less the best other; γ: the smallest q of a correctly classified sample; "
    "misclassified samples lie at or below −γ"
)
# Shape as well as colour says the class, for prints in grey.
_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "x", "star", "pentagon", "hexagon", "triangle-down")
_COLOURS = (BLUE, ORANGE, SKY, PURPLE, BLACK, GREY)
_CONTROL_LOOKS = {
    "mean_image_ssim": ("mean image alone", GREY, "line-ew"),
    "untrained_ssim": ("untrained network", PURPLE, "line-ns"),
}
_SIZE, _CHOSEN_SIZE = 9, 12  # pixels
_MOST_COLUMNS = 3
_TITLE_LETTERS = 42  # that fit above one panel
_PANEL_HEIGHT = 350  # pixels


def plot_ssim_by_output(
    scatter: LeakScatter, class_names: tuple[str, ...], settings: MatchSettings, threshold: float
) -> go.Figure:
    return plot_leakage(scatter, LeakAxis.OUTPUT, class_names, settings, threshold)


def plot_ssim_by_margin(
    scatter: LeakScatter, class_names: tuple[str, ...], settings: MatchSettings, threshold: float
) -> go.Figure:
    return plot_leakage(scatter, LeakAxis.MARGIN, class_names, settings, threshold)


def plot_leakage(
    scatter: LeakScatter,
    axis: LeakAxis,
    class_names: tuple[str, ...],
    settings: MatchSettings,
    threshold: float,
    *,
    chosen: Collection[int] | None = None,
    ringed: int | None = None,
    show_controls: bool = False,
    scale: AxisScale = AxisScale.LINEAR,
) -> go.Figure:
    """One point for each training sample. Every point's customdata begins with its sample number.

    `chosen` samples stand out from the others, `ringed` is circled, and `show_controls` draws what each control scores
    on each sample.
    """
    errors = [
        f"{name} error {error:.1%}"
        for name, error in (("train", scatter.train_error), ("test", scatter.test_error))
        if error is not None
    ]
    caption = "; ".join([_count_text(scatter, threshold), conditions(settings, threshold), *errors])
    scaled = _Scaled(scale, scatter.along(axis))
    x = scaled(scatter.along(axis))
    drawn = figure(f"SSIM against {_NAMES[axis]}", caption, f"{AXIS_TITLES[axis]}{scaled.full}", ssim_name(settings))
    if show_controls:
        _add_controls(drawn, scatter, x)
    for trace in _class_traces(scatter, x, class_names, chosen):
        drawn.add_trace(trace)
    if ringed is not None:
        drawn.add_trace(_ring(scatter, x, ringed))
    drawn.update_xaxes(**scaled.axis)
    drawn.add_hline(y=threshold, line={"color": BLACK, "dash": "dash", "width": 1})
    drawn.update_yaxes(range=_ssim_range([scatter]))
    return drawn


def plot_leakage_panels(
    panels: Sequence[LeakPanel], axis: LeakAxis, threshold: float, scale: AxisScale = AxisScale.LINEAR
) -> go.Figure:
    """Several models side by side on common axes, each with its count and its chance level."""
    if not panels:
        raise InputError("small multiples need at least 1 model, got none; choose some")
    columns = min(_MOST_COLUMNS, len(panels))
    rows = math.ceil(len(panels) / columns)
    drawn = make_subplots(
        rows,
        columns,
        shared_xaxes="all",
        shared_yaxes="all",
        subplot_titles=[_panel_title(panel, threshold) for panel in panels],
        horizontal_spacing=0.04,
        vertical_spacing=0.4 / rows,
    )
    said = sorted({conditions(panel.settings, threshold) for panel in panels})
    scaled = _Scaled(scale, *(panel.scatter.along(axis) for panel in panels))
    caption = f"{' / '.join(said)}; chance level: the larger of mean image alone and, where attacked, untrained network"
    if scaled.note:
        caption += f"; axis{scaled.full}"
    dress(drawn, f"SSIM against {_NAMES[axis]}, model by model", caption)
    named: set[str] = set()
    for index, panel in enumerate(panels):
        place = {"row": index // columns + 1, "col": index % columns + 1}
        for trace in _class_traces(panel.scatter, scaled(panel.scatter.along(axis)), panel.class_names, None):
            # One entry in the legend for a class, which then hides it in every panel.
            trace.update(legendgroup=trace.name, showlegend=trace.name not in named, marker_size=7)
            named.add(trace.name)
            drawn.add_trace(trace, **place)
        drawn.add_hline(y=threshold, line={"color": BLACK, "dash": "dash", "width": 1}, **place)
        if index % columns == 0:
            drawn.update_yaxes(title="SSIM", **place)
        drawn.update_xaxes(
            title={"text": f"{_NAMES[axis]}{scaled.note}", "standoff": 4},
            showticklabels=True,
            **scaled.axis,
            **place,
        )
    drawn.update_yaxes(range=_ssim_range([panel.scatter for panel in panels]))
    drawn.update_annotations(font_size=13)
    drawn.update_layout(
        width=max(760, 380 * columns),
        height=rows * _PANEL_HEIGHT + 190,
        margin={"t": 130},
        legend_y=-0.3 / rows,
    )
    return drawn


def _panel_title(panel: LeakPanel, threshold: float) -> str:
    """Name and count; what follows a colon in a long name goes below it, or neighbours would run into each other."""
    head, _, rest = panel.name.partition(": ")
    name = f"<b>{literal(panel.name)}</b>"
    if rest and len(panel.name) > _TITLE_LETTERS:
        name = f"<b>{literal(head)}</b><br>{literal(rest)}"
    return f"{name}<br>{_short_text(panel.scatter, threshold)}"


class _Scaled:
    """Where positions are drawn along an axis of some scale, and how that axis is marked."""

    def __init__(self, scale: AxisScale, *positions: Floats) -> None:
        values = np.concatenate([found[np.isfinite(found)] for found in positions])
        sizes = np.abs(values[values != 0])
        if not len(sizes):  # nothing that a logarithm could spread
            scale = AxisScale.LINEAR
        elif scale is AxisScale.LOG and (values < 0).any():
            scale = AxisScale.SYMLOG
        self.scale = scale
        self.note = self.full = ""
        self.axis: dict[str, object] = {}
        if scale is AxisScale.LOG:
            self._edge = float(sizes.min()) / 2
            self.note = " (log)"
            self.full = " (log, 0 at the left edge)" if (values == 0).any() else self.note
            self.axis = {"type": "log", "exponentformat": "power", "dtick": 1}
        elif scale is AxisScale.SYMLOG:
            # Linear below the smallest tenth of the distances, a decade from there on at equal steps.
            self._linear = 10.0 ** math.floor(math.log10(float(np.quantile(sizes, 0.1))))
            ticks = self._ticks(float(values.min()), float(values.max()))
            self.note = " (symlog)"
            self.full = f" (symlog, linear within ±{self._linear:g})"
            drawn = self(np.array(ticks)).tolist()
            self.axis = {"tickvals": drawn, "ticktext": [f"{tick:g}".replace("-", "−") for tick in ticks]}

    def __call__(self, positions: Floats) -> Floats:
        if self.scale is AxisScale.LOG:
            return np.maximum(positions, self._edge)
        if self.scale is AxisScale.SYMLOG:
            return np.arcsinh(positions / self._linear) / math.log(10)
        return positions

    def _ticks(self, low: float, high: float) -> list[float]:
        decades = math.ceil(math.log10(max(abs(low), abs(high)) / self._linear))
        step = max(1, math.ceil(decades / 4))
        sizes = [self._linear * 10.0**power for power in range(0, decades + 1, step)]
        return [tick for tick in (*(-size for size in reversed(sizes)), 0.0, *sizes) if 10 * low <= tick <= 10 * high]


def _ssim_range(scatters: Sequence[LeakScatter]) -> list[float]:
    """Up to 1 always, so that points move and not the axis when B does."""
    lowest = min((float(np.nanmin(scatter.ssim, initial=0.0)) for scatter in scatters), default=0.0)
    return [lowest - 0.05, 1.05]


def _count_text(scatter: LeakScatter, threshold: float) -> str:
    """The count with its chance level."""
    count = f"{scatter.good(threshold)} of {len(scatter.ssim)} good"
    controls = ", ".join(f"{name} {matched}" for name, matched in scatter.controls(threshold).items())
    return f"{count} (controls: {controls})" if controls else count


def _short_text(scatter: LeakScatter, threshold: float) -> str:
    chance = max(scatter.controls(threshold).values(), default=None)
    return f"{scatter.good(threshold)} of {len(scatter.ssim)} good" + (
        "" if chance is None else f", chance level {chance}"
    )


def _class_traces(
    scatter: LeakScatter, x: Floats, class_names: tuple[str, ...], chosen: Collection[int] | None
) -> list[go.Scatter]:
    positions = scatter.to_frame().assign(x=x)
    traces = []
    for label, rows in positions.groupby("label"):
        index = int(str(label))
        name = literal(class_names[index])
        # Not by plotly's own selection: a chart drawn anew would take a click on a selected point for its end.
        stands_out = rows["sample"].isin(chosen) if chosen else None
        trace = go.Scatter(
            x=rows["x"],
            y=rows["ssim"],
            mode="markers",
            name=name,
            customdata=rows[["sample", "id", "margin_distance", "output"]],
            hovertemplate=(
                f"<b>image %{{customdata[1]}}</b>, {name}<br>SSIM %{{y:.3f}}<br>distance to the margin "
                "%{customdata[2]:.4g}<br>output %{customdata[3]:.4g}<extra></extra>"
            ),
            marker={
                "color": _COLOURS[index % len(_COLOURS)],
                "symbol": _SYMBOLS[index % len(_SYMBOLS)],
                "size": _SIZE if stands_out is None else np.where(stands_out, _CHOSEN_SIZE, _SIZE),
                "opacity": 0.85 if stands_out is None else np.where(stands_out, 1.0, 0.25),
                "line": {"width": 0.5, "color": "white"},
            },
        )
        traces.append(trace)
    return traces


def _ring(scatter: LeakScatter, x: Floats, sample: int) -> go.Scatter:
    if not 0 <= sample < len(scatter.ids):
        raise InputError(f"there is no training image {sample}; the first is 0 and the last {len(scatter.ids) - 1}")
    return go.Scatter(
        x=[x[sample]],
        y=[scatter.ssim[sample]],
        mode="markers+text",
        name=f"image {scatter.ids[sample]}",
        text=[f"image {scatter.ids[sample]}"],
        textposition="top center",
        textfont={"color": BLACK},
        customdata=[[sample]],
        hoverinfo="skip",
        marker={"symbol": "circle-open", "size": 22, "color": BLACK, "line": {"width": 3}},
        showlegend=False,
    )


def _add_controls(drawn: go.Figure, scatter: LeakScatter, x: Floats) -> None:
    positions = scatter.to_frame().assign(x=x)
    for column, (name, colour, symbol) in _CONTROL_LOOKS.items():
        if column in positions:
            drawn.add_scatter(
                x=positions["x"],
                y=positions[column],
                mode="markers",
                name=f"control: {name}",
                customdata=positions[["sample", "id"]],
                hovertemplate=f"image %{{customdata[1]}}: {name} scores %{{y:.3f}}<extra></extra>",
                marker={"symbol": symbol, "size": 8, "color": colour, "line": {"width": 2, "color": colour}},
            )


def frame_of(scatter: LeakScatter, class_names: tuple[str, ...]) -> pd.DataFrame:
    """The numbers behind the figure with the classes by name."""
    frame = scatter.to_frame()
    frame.insert(3, "class", [class_names[label] for label in scatter.labels])
    return frame
