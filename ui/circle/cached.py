"""Cached reads of a circle's runs, by the version of their files."""

from __future__ import annotations

import streamlit as st

from recon_core.runs.circle import CircleRuns, CircleSettings, find_circle
from recon_core.store import Run, RunStore
from recon_core.views.circle_frames import CandidateFrames, CleanUp, FieldFrames, Points, TrainingPoints
from recon_core.views.circle_recording import (
    candidate_frames,
    clean_up,
    field_frames,
    final_points,
    first_layer_points,
    neuron_lines,
    training_points,
)
from ui.shared.cached import run_read, store_read

# A recording is half a megabyte, and few are looked at together.
_RECORDINGS = 16


def circle_runs(settings: CircleSettings, train: str | None = None) -> CircleRuns | None:
    """The try with that training run, else the best one at these settings in the store; at most 0.3 s old."""
    return _runs(settings.model_dump_json(), train)


@store_read(keep=16, seconds=0.3)
def _runs(store: RunStore, settings: str, train: str | None) -> CircleRuns | None:
    return find_circle(store, CircleSettings.model_validate_json(settings), train)


def forget_circles() -> None:
    """Read anew what a page has just changed."""
    _runs.clear()


def truth(settings: CircleSettings) -> TrainingPoints:
    return _truth(settings.model_dump_json())


@st.cache_data(max_entries=64, show_spinner=False)
def _truth(settings: str) -> TrainingPoints:
    return training_points(CircleSettings.model_validate_json(settings).training())


@run_read(keep=_RECORDINGS)
def fields_of(run: Run) -> FieldFrames | None:
    return field_frames(run)


@run_read(keep=_RECORDINGS)
def candidates_of(run: Run) -> CandidateFrames | None:
    return candidate_frames(run)


@run_read(keep=_RECORDINGS)
def final_candidates(run: Run) -> CandidateFrames:
    return final_points(run)


@run_read(keep=_RECORDINGS)
def weights_of(run: Run) -> Points:
    return first_layer_points(run)


@run_read(keep=_RECORDINGS)
def neurons_of(run: Run) -> Points:
    return neuron_lines(run)


def cleaned(run_id: str, settings: CircleSettings, threshold: float, distance: float) -> CleanUp:
    return _cleaned(run_id, settings.model_dump_json(), threshold, distance)


@run_read(keep=256)
def _cleaned(run: Run, settings: str, threshold: float, distance: float) -> CleanUp:
    return clean_up(run, _truth(settings), threshold=threshold, distance=distance)
