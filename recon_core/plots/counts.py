"""Counts and curves."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from recon_core.analysis.arrays import above
from recon_core.analysis.counts import CountByFactor, CountByThreshold, RocCurve, SortedSsim
from recon_core.matching.protocol import MatchSettings
from recon_core.plots.style import BLACK, BLUE, GREY, ORANGE, PURPLE, conditions, figure, ssim_name


def plot_count_by_threshold(counts: CountByThreshold, settings: MatchSettings, threshold: float) -> go.Figure:
    drawn = figure(
        f"Good reconstructions of {counts.of} training images",
        f"{conditions(settings)}; dashed: chance levels, what matches although nothing leaked",
        f"threshold of {ssim_name(settings)}",
        "images above the threshold",
    )
    _line(drawn, counts.thresholds, counts.good, "reconstructions", BLUE)
    _line(drawn, counts.thresholds, counts.mean_image, "mean image alone", GREY, "dot")
    if counts.untrained is not None:
        _line(drawn, counts.thresholds, counts.untrained, "untrained network", PURPLE, "dashdot")
    if counts.non_members is not None:
        name = f"{counts.non_members_of} held-out images"
        _line(drawn, counts.thresholds, counts.non_members, name, ORANGE, "dash")
    drawn.add_vline(x=threshold, line={"color": BLACK, "width": 1})
    return drawn


def plot_count_by_factor(counts: CountByFactor, settings: MatchSettings) -> go.Figure:
    drawn = figure(
        f"Good reconstructions of {counts.of} training images against B",
        f"{ssim_name(settings)} above {counts.threshold:g}, {settings.protocol} protocol; line at B in use",
        "merge factor B",
        "good reconstructions",
    )
    _line(drawn, counts.factors, counts.good, "training images", BLUE, mode="lines+markers")
    if counts.non_members is not None:
        _line(drawn, counts.factors, counts.non_members, "not trained on", ORANGE, "dash", mode="lines+markers")
    drawn.add_vline(x=settings.merge_factor, line={"color": BLACK, "width": 1})
    return drawn


def plot_sorted_ssim(ranked: SortedSsim, settings: MatchSettings, threshold: float) -> go.Figure:
    good = int(above(ranked.ssim, threshold).sum())
    drawn = figure(
        f"{good} of {len(ranked.ssim)} reconstructions are good",
        conditions(settings, threshold),
        "training images, best first",
        ssim_name(settings),
    )
    ranks = np.arange(1, len(ranked.ssim) + 1)
    _line(drawn, ranks, ranked.ssim, "SSIM", BLUE, mode="lines+markers" if len(ranks) <= 100 else "lines")
    drawn.add_hline(y=threshold, line={"color": BLACK, "dash": "dash", "width": 1})
    drawn.update_layout(showlegend=False)
    return drawn


def plot_roc(curve: RocCurve, settings: MatchSettings) -> go.Figure:
    drawn = figure(
        f"Telling members from others by SSIM: AUC {curve.auc:.3f}",
        f"true-positive rate {curve.tpr_at_1_percent_fpr:.1%} at 1% false positives; {conditions(settings)}",
        "false-positive rate",
        "true-positive rate",
    )
    _line(drawn, curve.false_positive_rates, curve.true_positive_rates, "SSIM", BLUE)
    _line(drawn, np.array([0.0, 1.0]), np.array([0.0, 1.0]), "chance", GREY, "dot")
    return drawn


def _line(
    drawn: go.Figure, x: object, y: object, name: str, colour: str, dash: str = "solid", mode: str = "lines"
) -> None:
    drawn.add_scatter(x=x, y=y, name=name, mode=mode, line={"color": colour, "width": 2, "dash": dash})
