"""A finished match run as the papers would show it: tables, figures, grids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from recon_core.analysis.counts import count_by_factor, count_by_threshold, roc_curve, sorted_ssim
from recon_core.analysis.frames import Tabular, write_frame
from recon_core.analysis.leakage import leak_scatter
from recon_core.analysis.models import ModelTable, model_row
from recon_core.analysis.multipliers import multiplier_histogram
from recon_core.analysis.pairs import best_pairs
from recon_core.analysis.points import point_table
from recon_core.analysis.table import match_table
from recon_core.analysis.weights import singular_values, weight_images
from recon_core.config import parse_config
from recon_core.errors import InputError
from recon_core.matching.protocol import GOOD_SSIM, MatchSettings
from recon_core.matching.roc import roc
from recon_core.plots.counts import plot_count_by_factor, plot_count_by_threshold, plot_roc, plot_sorted_ssim
from recon_core.plots.files import STATIC_FORMATS, write_figures
from recon_core.plots.leakage import plot_ssim_by_margin, plot_ssim_by_output
from recon_core.plots.model import plot_models, plot_multipliers, plot_singular_values
from recon_core.plots.mosaic import Mosaic, image_mosaic, pairs_mosaic, save_mosaic
from recon_core.plots.points import plot_points
from recon_core.runs.match_source import model_run_of
from recon_core.store import Run, RunState, RunStore

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from torch import Tensor

TABLE = "table"
GRID = "grid"
SHOWN_PAIRS = 40


@dataclass(frozen=True, eq=False)
class MatchReport:
    """All by name: `tables` holds the numbers behind `figures`, `mosaics` are pictures as pixels."""

    tables: dict[str, Tabular] = field(default_factory=dict)
    figures: dict[str, go.Figure] = field(default_factory=dict)
    mosaics: dict[str, Mosaic] = field(default_factory=dict)


@dataclass(frozen=True)
class WrittenReport:
    paths: tuple[Path, ...]
    missing: str | None
    """A sentence if the figures could not be written as PNG, SVG and PDF."""


@dataclass(frozen=True, eq=False)
class _Parts:
    """What a match run and those it came from say."""

    result: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    model: Run
    model_result: Mapping[str, Any]
    samples: Mapping[str, Tensor]
    runs: tuple[str, ...]
    """Those with candidates, in the pool's order."""
    multipliers: Tensor
    threshold: float


def match_report(store: RunStore, run_id: str, pairs: int = SHOWN_PAIRS) -> MatchReport:
    """Everything that can be shown of a finished match run, the `pairs` best in the grid."""
    run = store.open(run_id)
    if run.kind != "match":
        raise InputError(f"run {run_id} is a {run.kind} run; choose a match run")
    if run.status().state is not RunState.DONE:
        raise InputError(f"run {run_id} is {run.status().state}, not done; resume it first")
    parts = _read(store, run)
    report = MatchReport()
    if parts.result["kind"] == "images":
        _show_images(report, parts, pairs)
    else:
        _show_points(report, parts)
    _show_model(report, parts)
    return report


def write_report(report: MatchReport, folder: Path, formats: Sequence[str] = STATIC_FORMATS) -> WrittenReport:
    """Tables as CSV and Parquet, mosaics as PNG, figures as HTML and in the static `formats`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        paths = [path for name, table in report.tables.items() for path in write_frame(table, folder / name)]
        paths += [save_mosaic(mosaic, folder / f"{name}.png") for name, mosaic in report.mosaics.items()]
        figures = write_figures(report.figures, folder, formats)
    except OSError as error:
        raise InputError(
            f"cannot write into {str(folder)!r}: {error.strerror or error}; choose another folder to export to"
        ) from error
    return WrittenReport((*paths, *figures.paths), figures.missing)


def _read(store: RunStore, run: Run) -> _Parts:
    result = run.result() or {}
    # Not by the result's word: an imported run may have a new id, its results keep the old ones.
    model = model_run_of(store, store.open(run.config["runs"][0]))
    pooled = {}
    for run_id in run.config["runs"]:
        multipliers = store.open(run_id).tensors("candidates")["multipliers"]
        if len(multipliers):
            pooled[run_id] = multipliers
    return _Parts(
        result=result,
        tensors=run.tensors("match"),
        model=model,
        model_result=model.result() or {},
        samples=model.tensors("samples"),
        runs=tuple(pooled),
        multipliers=torch.cat(list(pooled.values())),
        threshold=run.config.get("threshold", GOOD_SSIM),
    )


def _show_images(report: MatchReport, parts: _Parts, pairs: int) -> None:
    found, threshold = parts.tensors, parts.threshold
    settings = parse_config(MatchSettings, parts.result["settings"])
    about = parts.model_result["data"]
    names = tuple(about["class_names"])
    ssim, labels, outputs = found["ssim"], found["labels"], parts.samples["outputs"]
    untrained, others = found.get("untrained_ssim"), found.get("non_member_ssim")

    report.tables[TABLE] = match_table(
        found["images"],
        found["reconstructions"],
        ssim,
        found["distances"],
        found["merged_counts"],
        found["capped"],
        found["nearest"],
        ids=about["train_ids"],
        labels=labels,
        class_names=names,
        runs=parts.runs,
        run_starts=found["run_starts"].tolist(),
        outputs=outputs,
        threshold=threshold,
    )
    best = best_pairs(found["images"], found["reconstructions"], ssim, pairs, threshold)
    report.tables["best_pairs"] = best
    report.mosaics[GRID] = pairs_mosaic(best)
    report.mosaics["grid_beside"] = pairs_mosaic(best, columns=5, arrangement="beside")

    errors = (parts.model_result.get("train_error"), parts.model_result.get("test_error"))
    scatter = leak_scatter(
        ssim,
        outputs,
        labels,
        parts.samples["on_margin"],
        *errors,
        ids=about["train_ids"],
        mean_image=found["mean_image_ssim"],
        untrained=untrained,
    )
    report.tables["leakage"] = scatter
    report.figures["ssim_by_output"] = plot_ssim_by_output(scatter, names, settings, threshold)
    report.figures["ssim_by_margin"] = plot_ssim_by_margin(scatter, names, settings, threshold)

    by_threshold = count_by_threshold(ssim, found["mean_image_ssim"], untrained, others)
    report.tables["count_by_threshold"] = by_threshold
    report.figures["count_by_threshold"] = plot_count_by_threshold(by_threshold, settings, threshold)
    ranked = sorted_ssim(ssim)
    report.tables["sorted_ssim"] = ranked
    report.figures["sorted_ssim"] = plot_sorted_ssim(ranked, settings, threshold)
    if len(found["factors"]):
        by_factor = count_by_factor(
            found["factors"], found["ssim_by_factor"], threshold, found.get("non_member_ssim_by_factor")
        )
        report.tables["count_by_factor"] = by_factor
        report.figures["count_by_factor"] = plot_count_by_factor(by_factor, settings)
    if others is not None:
        curve = roc_curve(roc(ssim, others))
        report.tables["roc"] = curve
        report.figures["roc"] = plot_roc(curve, settings)


def _show_points(report: MatchReport, parts: _Parts) -> None:
    found = parts.tensors
    table = point_table(
        found["points"],
        found["labels"],
        found["distances"],
        found["nearest"],
        found["candidates"],
        found["candidate_labels"],
        found["kept"],
    )
    report.tables[TABLE] = table
    report.figures["points"] = plot_points(table, parts.result["counts"][0]["radius"])


def _show_model(report: MatchReport, parts: _Parts) -> None:
    candidates = multiplier_histogram(parts.multipliers)
    report.tables["multipliers"] = candidates
    report.figures["multipliers"] = plot_multipliers(candidates, "the candidates")
    samples = multiplier_histogram(parts.samples["multipliers"])
    report.tables["sample_multipliers"] = samples
    report.figures["sample_multipliers"] = plot_multipliers(samples, "the training samples")
    spectrum = singular_values(parts.samples["singular_values"])
    report.tables["singular_values"] = spectrum
    report.figures["singular_values"] = plot_singular_values(spectrum)
    good = parts.result["count"]["good"] if parts.result["kind"] == "images" else None
    models = ModelTable((model_row(parts.model.name, parts.model_result, good),))
    report.tables["models"] = models
    report.figures["models"] = plot_models(models)
    shape = tuple(parts.model_result["data"]["input_shape"])
    if len(shape) == 3:
        weights = weight_images(parts.model.tensors("weights")["layers.0.weight"], shape)
        report.tables["first_layer"] = weights
        report.mosaics["first_layer"] = image_mosaic(weights.images, columns=8)
