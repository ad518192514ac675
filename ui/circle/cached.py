"""Cached reads of a circle's runs, by the version of their files."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from recon_core.runs.circle import CircleRuns, CircleSettings, find_circle
from recon_core.store import Run, RunStore, default_root
from recon_core.views.circle_recording import (
    CandidateFrames,
    CleanUp,
    FieldFrames,
    Points,
    TrainingPoints,
    candidate_frames,
    clean_up,
    field_frames,
    final_points,
    first_layer_points,
    training_points,
)

# A recording is half a megabyte, and few are looked at together.
_RECORDINGS = 16


def circle_runs(settings: CircleSettings) -> CircleRuns | None:
    """The best try at these settings in the store, at most half a second old."""
    return _runs(str(default_root()), settings.model_dump_json())


@st.cache_data(ttl=0.5, max_entries=16, show_spinner=False)
def _runs(root: str, settings: str) -> CircleRuns | None:
    return find_circle(RunStore(Path(root)), CircleSettings.model_validate_json(settings))


def forget_circles() -> None:
    """Read anew what a page has just changed."""
    _runs.clear()


def truth(settings: CircleSettings) -> TrainingPoints:
    return _truth(settings.model_dump_json())


@st.cache_data(max_entries=64, show_spinner=False)
def _truth(settings: str) -> TrainingPoints:
    return training_points(CircleSettings.model_validate_json(settings).training())


def fields_of(run_id: str) -> FieldFrames | None:
    return _fields(*_version(run_id))


@st.cache_data(max_entries=_RECORDINGS, show_spinner=False)
def _fields(root: str, run_id: str, version: str) -> FieldFrames | None:
    return field_frames(_open(root, run_id))


def candidates_of(run_id: str) -> CandidateFrames | None:
    return _candidates(*_version(run_id))


@st.cache_data(max_entries=_RECORDINGS, show_spinner=False)
def _candidates(root: str, run_id: str, version: str) -> CandidateFrames | None:
    return candidate_frames(_open(root, run_id))


def final_candidates(run_id: str) -> CandidateFrames:
    return _final(*_version(run_id))


@st.cache_data(max_entries=_RECORDINGS, show_spinner=False)
def _final(root: str, run_id: str, version: str) -> CandidateFrames:
    return final_points(_open(root, run_id))


def weights_of(run_id: str) -> Points:
    return _weights(*_version(run_id))


@st.cache_data(max_entries=_RECORDINGS, show_spinner=False)
def _weights(root: str, run_id: str, version: str) -> Points:
    return first_layer_points(_open(root, run_id))


def cleaned(run_id: str, settings: CircleSettings, threshold: float, distance: float) -> CleanUp:
    return _cleaned(*_version(run_id), settings.model_dump_json(), threshold, distance)


@st.cache_data(max_entries=256, show_spinner=False)
def _cleaned(root: str, run_id: str, version: str, settings: str, threshold: float, distance: float) -> CleanUp:
    return clean_up(_open(root, run_id), _truth(settings), threshold=threshold, distance=distance)


def _version(run_id: str) -> tuple[str, str, str]:
    root = str(default_root())
    return root, run_id, _open(root, run_id).content_version()


def _open(root: str, run_id: str) -> Run:
    return RunStore(Path(root)).open(run_id)
