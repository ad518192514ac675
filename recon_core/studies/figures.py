"""A study as it is shown: figures and pictures one after the other, each with what it says. For a page and a report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from recon_core.analysis.frames import Tabular
from recon_core.analysis.leakage import LeakAxis, panels_frame
from recon_core.analysis.studies import Measure, StudyCurve
from recon_core.plots.defences import plot_defences
from recon_core.plots.leakage import DISTANCE_NOTE, plot_leakage_panels
from recon_core.plots.model import plot_models
from recon_core.plots.mosaic import image_mosaic
from recon_core.plots.studies import Series, Strip, StudyAxis, aligned_strips, plot_curves
from recon_core.plots.style import conditions
from recon_core.store import RunStore
from recon_core.studies.custom import slug
from recon_core.studies.defences import (
    NOT_TRIED,
    advice,
    defence_finding,
    found_defences,
    readable_defences,
    tradeoff_finding,
)
from recon_core.studies.findings import (
    aligned_finding,
    count_finding,
    error_finding,
    kernel_finding,
    margin_finding,
    scatter_finding,
)
from recon_core.studies.results import (
    StudyResults,
    aligned,
    kernels,
    match_settings,
    models,
    scatters,
    threshold_of,
)

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

_MARGIN_NOTE = "on the margin: at least 1% of the largest share of the loss gradient"


@dataclass(frozen=True, eq=False)
class StudyFigure:
    """One thing to look at: a figure, strips of pictures, or a table; `table` holds the numbers behind it."""

    name: str
    heading: str
    finding: str
    figure: go.Figure | None = None
    strips: tuple[Strip, ...] = ()
    table: pd.DataFrame | Tabular | None = field(default=None)
    shown: pd.DataFrame | None = None
    """A table that is itself what there is to see."""
    points: tuple[str, ...] = ()
    """Said below it, one by one."""
    notes: tuple[str, ...] = ()
    """What it does not tell."""


def study_figures(store: RunStore, results: StudyResults) -> tuple[StudyFigure, ...]:
    """Everything that can be shown now; of a study that is going on, what is finished."""
    return tuple(_all(store, results)) if results.table.finished else ()


def study_axis(results: StudyResults) -> StudyAxis:
    plan = results.plan
    return StudyAxis(plan.axis, plan.scale.value, tuple((point.label, point.position) for point in plan.points))


def _all(store: RunStore, results: StudyResults) -> Iterator[StudyFigure]:
    if results.plan.defences:
        for panel in results.panels:
            yield from _defences(store, results, panel)
    yield from _curves(store, results, Measure.GOOD)
    yield from _curves(store, results, Measure.ON_MARGIN)
    yield from _errors(results)
    for panel in results.panels:
        yield from _scatter(store, results, panel)
        yield from _images(store, results, panel)
        if results.plan.kernels:
            yield from _kernels(store, results, panel)
    for panel in results.panels:
        table = models(store, results, panel)
        if table.rows:
            yield StudyFigure(
                _name("models", panel),
                _heading("The models", panel),
                f"Loss, errors and count of each model of seed {results.plan.seeds[0]}, as in the papers' tables.",
                plot_models(table),
                table=table,
            )


def _defences(store: RunStore, results: StudyResults, panel: str) -> Iterator[StudyFigure]:
    found = found_defences(results, panel)
    if found is None:
        return
    heading = _heading("Leak against accuracy", panel)
    yield StudyFigure(
        _name("tradeoff", panel),
        heading,
        tradeoff_finding(found),
        plot_defences(found, heading, _count_caption(store, results)),
        table=found,
    )
    yield StudyFigure(
        _name("defences", panel),
        _heading("What each defence brings and costs", panel),
        defence_finding(found),
        table=found,
        shown=readable_defences(found),
        points=advice(found),
        notes=NOT_TRIED,
    )


_WORDS = {
    Measure.GOOD: ("Reconstructed training images", "good reconstructions"),
    Measure.ON_MARGIN: ("Training samples on the margin", "samples on the margin"),
}


def _curves(store: RunStore, results: StudyResults, measure: Measure) -> Iterator[StudyFigure]:
    """One figure for each panel, or all panels as lines of one."""
    heading, y_title = _WORDS[measure]
    finding = count_finding if measure is Measure.GOOD else margin_finding
    caption = _count_caption(store, results) if measure is Measure.GOOD else _MARGIN_NOTE
    groups = [results.panels] if results.plan.overlay else [(panel,) for panel in results.panels]
    for group in groups:
        shares = results.sizes_vary(*group)
        found = [(panel, results.curve(panel, measure, shares=shares)) for panel in group]
        series = [Series(panel or heading.lower(), curve) for panel, curve in found if curve is not None]
        if not series:
            continue
        single = group[0] if len(group) == 1 else ""
        alone = measure is Measure.GOOD and len(group) == 1
        controls = results.controls(group[0], shares=shares) if alone else ()
        title = _heading(heading, single)
        yield StudyFigure(
            _name(str(measure), single),
            title,
            " ".join(finding(results, panel) for panel in group),
            plot_curves(
                title,
                caption,
                f"{y_title}, of all its images" if shares else y_title,
                study_axis(results),
                series,
                controls,
                shares=shares,
            ),
            table=_joined([one.curve for one in series] + list(controls)),
        )


def _errors(results: StudyResults) -> Iterator[StudyFigure]:
    for panel in results.panels:
        named = (("train error", Measure.TRAIN_ERROR), ("test error", Measure.TEST_ERROR))
        found = [(name, results.curve(panel, measure)) for name, measure in named]
        # References are named beside the counts; here they would double every line.
        series = [
            Series(name, StudyCurve(panel, curve.measure, curve.points, ()))
            for name, curve in found
            if curve is not None
        ]
        if series:
            heading = _heading("Train and test error", panel)
            figure = plot_curves(heading, "wrong answers among all", "error", study_axis(results), series)
            yield StudyFigure(
                _name("errors", panel),
                heading,
                error_finding(results, panel),
                figure,
                table=_joined([one.curve for one in series]),
            )


def _scatter(store: RunStore, results: StudyResults, panel: str) -> Iterator[StudyFigure]:
    found = scatters(store, results, panel)
    if found.found:
        threshold = threshold_of(results)
        yield StudyFigure(
            _name("scatter", panel),
            _heading("SSIM and distance to the margin", panel),
            f"{scatter_finding(found.found, threshold, found.missing)} Distance: {DISTANCE_NOTE}.",
            plot_leakage_panels(found.found, LeakAxis.RELATIVE, threshold),
            table=panels_frame(found.found),
        )


def _images(store: RunStore, results: StudyResults, panel: str) -> Iterator[StudyFigure]:
    grid = aligned(store, results, panel)
    if grid is not None:
        yield StudyFigure(
            _name("images", panel),
            _heading("The same images at every value", panel),
            aligned_finding(grid),
            strips=aligned_strips(grid),
            table=grid,
        )


def _kernels(store: RunStore, results: StudyResults, panel: str) -> Iterator[StudyFigure]:
    found = kernels(store, results, panel)
    strips = tuple(Strip(label, image_mosaic(images.images, columns=16)) for label, images in found.found)
    if strips:
        yield StudyFigure(
            _name("kernels", panel),
            _heading("Kernels of the first layer", panel),
            kernel_finding(len(strips), found.missing),
            strips=strips,
        )


def _count_caption(store: RunStore, results: StudyResults) -> str:
    settings = match_settings(store, results)
    said = "" if settings is None else f"{conditions(settings, threshold_of(results))}; "
    seeds = len(results.plan.seeds)
    bars = f"bars: 95% interval of the mean over {seeds} seeds; " if seeds > 1 else "one seed; "
    return f"{said}{bars}dotted: controls; the largest is the chance level"


def _joined(curves: list[StudyCurve]) -> pd.DataFrame:
    import pandas as pd

    return pd.concat([curve.to_frame() for curve in curves], ignore_index=True)


def _name(what: str, panel: str) -> str:
    return slug(f"{what} {panel}")


def _heading(text: str, panel: str) -> str:
    return f"{text}, {panel}" if panel else text
