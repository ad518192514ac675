"""Several models on the Analyze page: small multiples, the weight-decay curve, and the table of errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from recon_core.analysis.decay import DecayCurve, decay_curve
from recon_core.analysis.leakage import LeakPanel, panels_frame, usual_scale
from recon_core.analysis.models import ModelRow, ModelTable, model_row
from recon_core.errors import InputError
from recon_core.matching.protocol import MatchSettings
from recon_core.plots.decay import plot_decay_curve
from recon_core.plots.leakage import plot_leakage_panels
from recon_core.plots.style import conditions
from recon_core.units import LOG10_LOSS
from recon_core.views.leak_view import AnalysedRun, ModelEntry, StoredScores, decay_point
from ui.analyze.cached import leakage_at, models, request_for, scores_of
from ui.analyze.controls import Settings
from ui.shared.downloads import offer_file
from ui.shared.figures import show_figure, table_csv
from ui.shared.formatting import plain
from ui.shared.pages import STUDIES

_NAMED = 5  # models that a sentence names

MOST_IN_A_CURVE = 24
MOST_LISTED = 300


def show_several(runs: Sequence[AnalysedRun], settings: Settings) -> None:
    if not runs:
        st.info("Choose the runs to compare.", icon=":material/arrow_upward:")
        return
    panels = panels_of(runs, settings)
    show_figure(
        panels_figure(panels, settings),
        name=f"ssim-by-{settings.models_axis}-models",
        key="a_panels",
        table=panels_frame(panels),
        caption="All panels share their axes. Models of very different scale compare best by relative distance.",
    )


def panels_figure(panels: Sequence[LeakPanel], settings: Settings) -> go.Figure:
    axis = settings.models_axis
    scale = settings.scale or usual_scale(*(panel.scatter.along(axis) for panel in panels))
    return plot_leakage_panels(panels, axis, settings.threshold, scale)


def panels_of(runs: Sequence[AnalysedRun], settings: Settings) -> list[LeakPanel]:
    """One for each run, under the name of its model, and its own where that is not enough."""
    panels = [leakage_at(request_for(run.run), settings.merge_factor).panel for run in runs]
    names = [panel.name for panel in panels]
    return [
        replace(panel, name=f"{panel.name} ({run.run})") if names.count(panel.name) > 1 else panel
        for panel, run in zip(panels, runs, strict=True)
    ]


@dataclass(frozen=True)
class DecayFigure:
    """The curve and how all of its models were matched."""

    curve: DecayCurve
    settings: MatchSettings


def show_decay(family: Sequence[ModelEntry], settings: Settings) -> None:
    drawn = newest_matched(family)
    if sum(member.match_run is not None for member in family) > len(drawn):
        st.caption(f"The newest {len(drawn)} of {len(family):,} models alike.")
    family = [member for member in family if member.match_run is None or member in drawn]
    if not family:
        st.info("No model on images has been matched yet; do that on the Match page first.", icon=":material/info:")
        return
    found = decay_of(family, settings)
    show_figure(
        plot_decay_curve(found.curve, found.settings), name="weight-decay", key="a_decay", table=found.curve, height=560
    )
    if len({point.weight_decay for point in found.curve.points}) == 1:
        st.info(
            "These models all have the same weight decay. Train the same network with another one, reconstruct and "
            "match, and its point appears here.",
            icon=":material/info:",
        )
        st.page_link(STUDIES.file, label="Or let a study do all of that", icon=":material/arrow_forward:")
    unmatched = [plain(member.name) for member in family if member.match_run is None]
    if unmatched:
        more = f" and {len(unmatched) - _NAMED} more" if len(unmatched) > _NAMED else ""
        st.caption(f"Not drawn, because they were never matched: {', '.join(unmatched[:_NAMED])}{more}.")


def newest_matched(family: Sequence[ModelEntry]) -> list[ModelEntry]:
    """The runs a curve is drawn from; the candidates of each are read and merged."""
    return [member for member in family if member.match_run is not None][:MOST_IN_A_CURVE]


def decay_matches(family: Sequence[ModelEntry]) -> tuple[tuple[str, str], ...]:
    """The newest match run at each weight decay, the smallest first; as (label, id)."""
    newest: dict[float, str] = {}
    for member in newest_matched(family):
        newest.setdefault(member.weight_decay, member.match_run or "")
    return tuple((f"{decay:g}" if decay else "no decay", newest[decay]) for decay in sorted(newest))


def decay_of(family: Sequence[ModelEntry], settings: Settings) -> DecayFigure:
    """Every matched model at the sliders' B and threshold."""
    found = [
        (member, leakage_at(request_for(member.match_run), settings.merge_factor).view)
        for member in newest_matched(family)
        if member.match_run is not None
    ]
    ways = {view.settings for _, view in found}
    if len(ways) > 1:
        said = " / ".join(sorted(conditions(way) for way in ways))
        raise InputError(f"these models were matched in different ways ({said}); match them alike to compare them")
    points = [decay_point(member, view, settings.threshold) for member, view in found]
    return DecayFigure(decay_curve(points, settings.threshold), next(iter(ways)))


def show_errors(threshold: float) -> None:
    if len(models()) > MOST_LISTED:
        st.caption(f"The newest {MOST_LISTED} of {len(models()):,} models.")
    frame = error_frame(model_table(threshold))
    if frame.empty:
        st.info("No model has been trained to its end yet.", icon=":material/info:")
        return
    st.markdown("**All models: how well they fit, how near they came to the margin, and what leaked**")
    st.caption(
        f"Good: SSIM above {threshold:g} in the newest match run of each model, with that run's own B and SSIM. "
        "Chance level: "
        "the most that the mean image, an untrained network or held-out images match. Click a heading to sort."
    )
    st.dataframe(frame, hide_index=True, key="a_errors", column_config=_columns(), placeholder="–", row_height=40)
    offer_file(
        "Download as CSV",
        lambda: table_csv(frame),
        "models.csv",
        key="a_errors_csv",
        icon=":material/download:",
    )


def model_table(threshold: float) -> ModelTable:
    """Every model that was trained here, with what the newest match run of its images counted."""
    rows = []
    for model in models()[:MOST_LISTED]:
        try:
            row = model_row(model.name, model.result, weight_decay=model.weight_decay)
        except InputError:
            continue  # trained by a version that measured less
        rows.append(row if model.match_run is None else _counted(row, scores_of(model.match_run), threshold))
    return ModelTable(tuple(rows))


def _counted(row: ModelRow, scores: StoredScores, threshold: float) -> ModelRow:
    return replace(
        row,
        reconstructed=scores.good(threshold),
        chance=scores.chance(threshold),
        merge_factor=scores.settings.merge_factor,
        ssim=str(scores.settings.ssim),
    )


def error_frame(table: ModelTable) -> pd.DataFrame:
    """As people read it, what leaked first; empty cells where something was not measured."""
    frame = pd.DataFrame({text: [getattr(row, name) for row in table.rows] for name, text in _HEADINGS.items()})
    frame.insert(5, "test error", [None if row.test_accuracy is None else 1 - row.test_accuracy for row in table.rows])
    return frame.convert_dtypes()


_HEADINGS = {
    "name": "model",
    "reconstructed": "good",
    "chance": "chance level",
    "weight_decay": "weight decay",
    "train_error": "train error",
    "log10_train_loss": LOG10_LOSS,
    "test_loss": "test loss",
    "margin": "smallest margin",
    "kkt": "KKT residual",
    "kkt_layer1": "KKT residual of layer 1",
    "n": "n",
    "architecture": "architecture",
    "merge_factor": "B",
    "ssim": "SSIM",
}


def _columns() -> dict[str, Any]:
    number = st.column_config.NumberColumn
    return {
        "model": st.column_config.TextColumn(pinned=True),
        "n": number(help="Training images or points."),
        "weight decay": number(format="%.3g"),
        "train error": number(format="percent"),
        "test error": number(format="percent"),
        LOG10_LOSS: number(format="%.1f", help="Logarithm to base 10 of the mean training loss."),
        "test loss": number(format="%.3g"),
        "smallest margin": number(format="%.4g"),
        "KKT residual": number(format="%.3f", help="Share of the weights that samples on the margin do not explain."),
        "KKT residual of layer 1": number(format="%.3f"),
        "B": number(format="%.3g", help="Merge factor of the match run."),
    }
