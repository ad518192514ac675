"""Cached reads for the Studies page: what studies cost, their numbers, their figures, and the models behind them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import streamlit as st

from recon_core.analysis.leakage import LeakPanel
from recon_core.analysis.studies import AlignedGrid, StudyTable
from recon_core.config import parse_config
from recon_core.store import RunStore, default_root
from recon_core.studies.catalogue import CATALOGUE, StudySize
from recon_core.studies.costs import StudyCost, single_thread_estimator, study_cost
from recon_core.studies.figures import Exhibit, exhibits
from recon_core.studies.plan import StudyPlan
from recon_core.studies.record import FILE
from recon_core.studies.results import StudyResults, aligned, scatters, study_results

PICTURES = 60
"""Pairs shown of one model, at most."""


def catalogue_costs() -> dict[tuple[str, str], StudyCost]:
    """Of every built-in study, by name and size."""
    return _catalogue_costs(str(default_root()))


@st.cache_data(ttl=600, max_entries=4, show_spinner="Estimating how long each study takes on this machine …")
def _catalogue_costs(root: str) -> dict[tuple[str, str], StudyCost]:
    estimator = single_thread_estimator(RunStore(Path(root)))
    return {
        (study.name, str(size)): study_cost(study.plan(size), estimator)
        for study in CATALOGUE.values()
        for size in study.sizes
    }


@st.cache_data(max_entries=32, show_spinner=False)
def built_in_plan(name: str, size: str) -> StudyPlan:
    return CATALOGUE[name].plan(StudySize(size))


def cost_of(plan: StudyPlan) -> StudyCost:
    return _cost(str(default_root()), plan.model_dump_json())


@st.cache_data(ttl=60, max_entries=64, show_spinner="Estimating the time …")
def _cost(root: str, plan: str) -> StudyCost:
    return study_cost(parse_config(StudyPlan, json.loads(plan)), single_thread_estimator(RunStore(Path(root))))


def results_of(run_id: str) -> StudyResults:
    """What a study has found so far."""
    return _results(str(default_root()), run_id, _version(run_id))


@st.cache_resource(max_entries=16, show_spinner=False)
def _results(root: str, run_id: str, version: str) -> StudyResults:
    del version  # part of the key
    return study_results(RunStore(Path(root)), run_id)


def exhibits_of(results: StudyResults) -> tuple[Exhibit, ...]:
    return _exhibits(str(default_root()), results.run_id, _picture_version(results), results)


@st.cache_resource(max_entries=6, show_spinner="Reading the models of this study …")
def _exhibits(root: str, run_id: str, version: str, _results: StudyResults) -> tuple[Exhibit, ...]:
    del run_id, version  # parts of the key
    return exhibits(RunStore(Path(root)), _results)


@dataclass(frozen=True, eq=False)
class ModelPictures:
    """One model's points and images; None where its runs are gone, or it was trained on points of the plane."""

    panel: LeakPanel | None
    grid: AlignedGrid | None


def pictures_of(results: StudyResults, cell: str) -> ModelPictures:
    return _pictures(str(default_root()), results.run_id, cell, _picture_version(results), results)


@st.cache_resource(max_entries=48, show_spinner=False)
def _pictures(root: str, run_id: str, cell: str, version: str, _results: StudyResults) -> ModelPictures:
    del run_id, version  # parts of the key
    store, row = RunStore(Path(root)), _results.row(cell)
    alone = replace(_results, table=StudyTable((row,)))
    found = scatters(store, alone, row.panel, row.seed).found
    return ModelPictures(found[0] if found else None, aligned(store, alone, row.panel, row.seed, PICTURES))


def _version(run_id: str) -> str:
    """Changes when a model is begun or finished; the run's progress, many times a second, does not bear on it."""
    path = RunStore(default_root()).open(run_id).dir / f"{FILE}.json"
    try:
        found = path.stat()
    except FileNotFoundError:  # not begun
        return ""
    return f"{found.st_ino}-{found.st_mtime_ns}-{found.st_size}"


def _picture_version(results: StudyResults) -> str:
    """Changes with the finished models, and when runs with their pictures are deleted."""
    root = default_root()
    there = [
        row.cell + str((root / row.runs["match"]).is_dir()) for row in results.table.finished if "match" in row.runs
    ]
    return f"{_version(results.run_id)} {sum(text.endswith('True') for text in there)} of {len(there)}"
