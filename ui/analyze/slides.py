"""The Analyze page's figures as slides, in the order of a talk."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from recon_core.analysis.studies import AlignedGrid, AlignedRow
from recon_core.errors import InputError
from recon_core.plots.counts import plot_count_by_threshold, plot_roc, plot_sorted_ssim
from recon_core.plots.decay import plot_decay_curve
from recon_core.plots.points import plot_points
from recon_core.runs.scoring import RADII
from recon_core.units import LOG10_LOSS
from recon_core.views.leak_view import AnalysedRun, ModelEntry, membership_curve, ranked_ssim, threshold_counts
from recon_core.views.live_match import ImagePool, PairOrder, PairView, PointPool
from ui.analyze.cached import Leakage, aligned_of, leakage_of, prior_matches, request_for
from ui.analyze.controls import Controls, Settings, View
from ui.analyze.models import decay_matches, decay_of, model_table, newest_matched, panels_figure, panels_of
from ui.analyze.one import scatter_figure
from ui.match.pool import pool_for, view_of
from ui.shared.picture_slides import ACROSS, aligned_figure, best_pairs_figure
from ui.shared.presenter import Slide, SlideTable
from ui.shared.store import run_details

BEST_PAIRS = 2 * ACROSS

FIRST_SLIDES = {View.ONE: "leakage", View.SEVERAL: "models", View.DECAY: "weight-decay", View.ERRORS: "errors"}
"""Where presenting begins, by what the page shows at the time."""


def slides(controls: Controls) -> list[Slide]:
    run, runs, family, settings = controls.run, controls.runs, controls.family, controls.settings
    found: list[Slide] = []
    if run is not None:
        found += _of_points(run) if run.planar else _of_one(run, settings)
    if runs:
        found.append(Slide("models", lambda: _panels_figure(runs, settings)))
    if newest_matched(family):
        found.append(Slide("weight-decay", lambda: _decay_figure(family, settings)))
    found += _of_images(run, family, settings)
    if model_table(settings.threshold).rows:
        found.append(Slide("errors", lambda: _errors(settings.threshold)))
    return found


def _of_images(run: AnalysedRun | None, family: Sequence[ModelEntry], settings: Settings) -> list[Slide]:
    """The same images at every weight decay, and with every prior: where there are several to compare."""
    found = []
    decays = aligned_of(decay_matches(family), settings.threshold)
    if decays is not None:
        found.append(Slide("images-by-decay", lambda: aligned_figure(decays, "The same images at every weight decay")))
    priors = None if run is None or run.planar else aligned_of(prior_matches(run.run), settings.threshold)
    if priors is not None:
        found.append(Slide("images-by-prior", lambda: aligned_figure(priors, "What the attack's prior does")))
    return found


def _of_one(run: AnalysedRun, settings: Settings) -> list[Slide]:
    def by_threshold() -> go.Figure:
        view = _leakage(run, settings).view
        return plot_count_by_threshold(threshold_counts(view), view.settings, settings.threshold)

    def ranked() -> go.Figure:
        view = _leakage(run, settings).view
        return plot_sorted_ssim(ranked_ssim(view), view.settings, settings.threshold)

    def membership() -> go.Figure:
        view = _leakage(run, settings).view
        curve = membership_curve(view)
        if curve is None:
            raise InputError(f"run {run.run} knows no image outside its training set, so there is no ROC curve")
        return plot_roc(curve, view.settings)

    def pairs() -> go.Figure:
        view = _leakage(run, settings).view
        return best_pairs_figure(_best(view, run.run, settings.threshold), f"The best pairs of {run.model_name}")

    return [
        Slide("leakage", lambda: scatter_figure(_leakage(run, settings).panel, settings)),
        Slide("best-pairs", pairs),
        Slide("count-by-threshold", by_threshold),
        Slide("sorted-ssim", ranked),
        *([Slide("roc", membership)] if _knows_others(run) else []),
    ]


def _best(view: PairView, run_id: str, threshold: float) -> AlignedGrid:
    """The best pairs of a view, as a grid of one row."""
    best = view.order(PairOrder.SSIM)[:BEST_PAIRS]
    row = AlignedRow(
        "reconstructions", view.reconstructions[best], view.ssim[best], np.full(len(best), True), run_id, best
    )
    return AlignedGrid(view.samples.ids[best], view.images[best], (row,), threshold)


def _knows_others(run: AnalysedRun) -> bool:
    """Whether images outside the training set were matched; an attack that was not matched does not say."""
    count = run_details(run.run).result.get("count")
    return not isinstance(count, dict) or count.get("non_members") is not None


def _of_points(run: AnalysedRun) -> list[Slide]:
    def points() -> go.Figure:
        request = request_for(run.run)
        pool = pool_for(request.config, request.facts)
        if not isinstance(pool, PointPool):
            raise InputError(f"the points of run {run.run} are still being read; try again in a moment")
        return plot_points(pool.table, RADII[0])

    return [Slide("leakage", points)]


def _leakage(run: AnalysedRun, settings: Settings) -> Leakage:
    request = request_for(run.run)
    pool = pool_for(request.config, request.facts)
    if not isinstance(pool, ImagePool):
        raise InputError(f"the candidates of run {run.run} are still being read; try again in a moment")
    return leakage_of(request, pool, view_of(pool, request.at(settings.merge_factor)))


def _errors(threshold: float) -> SlideTable:
    table = model_table(threshold)
    ways = sorted({f"SSIM {row.ssim}, B = {row.merge_factor:g}" for row in table.rows if row.ssim and row.merge_factor})
    frame = pd.DataFrame(
        {
            "model": [row.name for row in table.rows],
            "good (chance level)": [f"{row.reconstructed} ({row.chance})" if row.ssim else "–" for row in table.rows],
            "train error": [f"{row.train_error:.1%}" for row in table.rows],
            "test error": ["–" if row.test_accuracy is None else f"{1 - row.test_accuracy:.1%}" for row in table.rows],
            LOG10_LOSS: [f"{row.log10_train_loss:.1f}" for row in table.rows],
            "margin": ["–" if row.margin is None else f"{row.margin:.3g}" for row in table.rows],
            "KKT residual": ["–" if row.kkt is None else f"{row.kkt:.2f}" for row in table.rows],
        }
    )
    said = f"good: SSIM above {threshold:g}" + (f"; {' / '.join(ways)}" if ways else "")
    return SlideTable(
        "What models learnt and what leaked",
        f"{said}; chance level: the largest of mean image, untrained network and held-out images",
        frame,
    )


def _panels_figure(runs: Sequence[AnalysedRun], settings: Settings) -> go.Figure:
    return panels_figure(panels_of(runs, settings), settings)


def _decay_figure(family: Sequence[ModelEntry], settings: Settings) -> go.Figure:
    found = decay_of(family, settings)
    return plot_decay_curve(found.curve, found.settings)
