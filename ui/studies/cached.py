"""Cached reads for the Studies page: what studies cost, their numbers, their figures, and the models behind them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import streamlit as st

from recon_core.analysis.leakage import LeakPanel
from recon_core.analysis.studies import AlignedGrid, Measure, StudyTable
from recon_core.config import parse_config
from recon_core.store import Run, RunStore, default_root
from recon_core.studies.catalogue import CATALOGUE, StudySize
from recon_core.studies.costs import StudyCost, single_thread_estimator, study_cost
from recon_core.studies.figures import StudyFigure, study_figures
from recon_core.studies.plan import StudyPlan
from recon_core.studies.record import FILE
from recon_core.studies.results import StudyResults, aligned, scatters, study_results
from ui.shared.cached import open_run, run_read, store_read

PICTURES = 200
"""Pairs shown of one model, at most."""
BEST_PAIRS = 20
"""And on a slide."""


@store_read(keep=4, seconds=600, spinner="Estimating how long each study takes on this machine …")
def catalogue_costs(store: RunStore) -> dict[tuple[str, str], StudyCost]:
    """Of every built-in study, by name and size."""
    estimator = single_thread_estimator(store)
    return {
        (study.name, str(size)): study_cost(study.plan(size), estimator)
        for study in CATALOGUE.values()
        for size in study.sizes
    }


@st.cache_data(max_entries=32, show_spinner=False)
def built_in_plan(name: str, size: str) -> StudyPlan:
    return CATALOGUE[name].plan(StudySize(size))


def cost_of(plan: StudyPlan) -> StudyCost:
    return _cost(plan.model_dump_json())


@store_read(keep=64, seconds=60, spinner="Estimating the time …")
def _cost(store: RunStore, plan: str) -> StudyCost:
    return study_cost(parse_config(StudyPlan, json.loads(plan)), single_thread_estimator(store))


def _version(run: Run) -> str:
    """Changes when a model is begun or finished; the run's progress, many times a second, does not bear on it."""
    try:
        found = (run.dir / f"{FILE}.json").stat()
    except FileNotFoundError:  # not begun
        return ""
    return f"{found.st_ino}-{found.st_mtime_ns}-{found.st_size}"


@run_read(keep=16, shared=True, version=_version)
def results_of(run: Run) -> StudyResults:
    """What a study has found so far."""
    return study_results(RunStore(run.dir.parent), run.id)


def figures_of(results: StudyResults) -> tuple[StudyFigure, ...]:
    return _figures(results.run_id, _picture_version(results), _results=results)


@store_read(keep=6, shared=True, spinner="Reading the models of this study …")
def _figures(store: RunStore, run_id: str, version: str, *, _results: StudyResults) -> tuple[StudyFigure, ...]:
    return study_figures(store, _results)


@dataclass(frozen=True, eq=False)
class ModelPictures:
    """One model's points and images; None where its runs are gone, or it was trained on points of the plane."""

    panel: LeakPanel | None
    grid: AlignedGrid | None


def pictures_of(results: StudyResults, cell: str) -> ModelPictures:
    return _pictures(results.run_id, _picture_version(results), cell, _results=results)


def best_pictures(results: StudyResults) -> tuple[str, AlignedGrid] | None:
    """The images of the model with the largest share reconstructed, under the name of its value; None without any."""
    shares = {row.cell: row.value(Measure.SHARE) for row in results.table.finished}
    for cell in sorted((cell for cell in shares if shares[cell]), key=lambda cell: -(shares[cell] or 0.0)):
        grid = pictures_of(results, cell).grid
        if grid is not None:
            row = results.row(cell)
            return ", ".join([*filter(None, (row.panel, row.point)), f"seed {row.seed}"]), grid.first(BEST_PAIRS)
    return None


@store_read(keep=48, shared=True)
def _pictures(store: RunStore, run_id: str, version: str, cell: str, *, _results: StudyResults) -> ModelPictures:
    row = _results.row(cell)
    alone = replace(_results, table=StudyTable((row,)))
    found = scatters(store, alone, row.panel, row.seed).found
    return ModelPictures(found[0] if found else None, aligned(store, alone, row.panel, row.seed, PICTURES))


def _picture_version(results: StudyResults) -> str:
    """Changes with the finished models, and when runs with their pictures are deleted."""
    root = default_root()
    there = [
        row.cell + str((root / row.runs["match"]).is_dir()) for row in results.table.finished if "match" in row.runs
    ]
    return f"{_version(open_run(results.run_id))} {sum(text.endswith('True') for text in there)} of {len(there)}"
