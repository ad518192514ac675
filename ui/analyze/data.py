"""Cached reads for the Analyze page: runs that can be analysed, models, and what leaked of them at any B."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import streamlit as st

from recon_core.analysis.leakage import LeakPanel
from recon_core.errors import InputError
from recon_core.runs.match_request import QUICK_CANDIDATES, PoolFacts, pool_facts
from recon_core.runs.match_source import MatchConfig, load_source
from recon_core.store import RunStore, default_root
from recon_core.views.leak_view import (
    AnalysedRun,
    ModelEntry,
    StoredScores,
    analysed_runs,
    leak_panel,
    match_request,
    model_index,
    stored_scores,
)
from recon_core.views.live_match import ImagePool, PairView, open_pool
from ui.shared.store import store_at

# Models beside each other are merged anew at each B, so their pools stay open if they are small.
POOLS_KEPT, LEAKAGES_KEPT = 12, 36


@dataclass(frozen=True)
class Request:
    """How a run is matched, and what is known before its candidates are read."""

    run: str
    config: MatchConfig
    facts: PoolFacts
    versions: tuple[str, ...]
    """Of all runs that are read."""
    was_matched: bool
    """It is a match run, so its neighbours are in the cache."""

    def at(self, merge_factor: float) -> MatchConfig:
        """The same at another B; a protocol that knows none pays no heed."""
        return self.config.model_copy(update={"merge_factor": merge_factor})

    @property
    def own_factor(self) -> float:
        return self.config.settings(self.facts.default_factor).merge_factor

    @property
    def is_large(self) -> bool:
        return sum(self.facts.sizes.values()) > QUICK_CANDIDATES


@dataclass(frozen=True, eq=False)
class Leakage:
    """One model's images at one B: pictures and counts in `view`, points of the plot in `panel`."""

    view: PairView
    panel: LeakPanel


def runs_to_analyse() -> tuple[AnalysedRun, ...]:
    return _runs(str(default_root()))


def models() -> tuple[ModelEntry, ...]:
    return _models(str(default_root()))


def request_for(run_id: str) -> Request:
    return _request(str(default_root()), run_id)


def leakage_of(request: Request, pool: ImagePool, view: PairView) -> Leakage:
    """Of a pool that is open already."""
    return Leakage(view, _panel(request.versions, view.settings.merge_factor, request.run, pool, view))


def leakage_at(request: Request, merge_factor: float) -> Leakage:
    """Of one model among several. Waits for the candidates to be read; large ones are not kept."""
    if request.is_large and not request.was_matched:
        raise InputError(
            f"run {request.run} has {sum(request.facts.sizes.values()):,} candidates, too many to match while a page "
            "waits; match it on the Match page, then choose that match run here"
        )
    return _leakage(str(default_root()), request, merge_factor)


def scores_of(match_run: str) -> StoredScores:
    """Counted from what the match run kept, at its own B."""
    root = str(default_root())
    return _scores(root, match_run, RunStore(Path(root)).open(match_run).content_version())


# A second is what a viewer does not notice.
@st.cache_data(ttl=1, max_entries=4, show_spinner=False)
def _runs(root: str) -> tuple[AnalysedRun, ...]:
    return analysed_runs(store_at(root))


@st.cache_data(ttl=1, max_entries=4, show_spinner=False)
def _models(root: str) -> tuple[ModelEntry, ...]:
    return model_index(store_at(root))


@st.cache_data(ttl=1, max_entries=64, show_spinner=False)
def _request(root: str, run_id: str) -> Request:
    store = store_at(root)
    config = match_request(store, run_id)
    facts = pool_facts(store, config.runs)
    read = [facts.model, *config.runs, *([config.untrained] if config.untrained else [])]
    versions = tuple(store.open(name).content_version() for name in read)
    return Request(run_id, config, facts, versions, was_matched=store.open(run_id).kind == "match")


@st.cache_resource(max_entries=LEAKAGES_KEPT, show_spinner=False)
def _panel(versions: tuple[str, ...], merge_factor: float, run: str, _pool: ImagePool, _view: PairView) -> LeakPanel:
    del versions, merge_factor, run  # parts of the key
    return leak_panel(_pool, _view)


@st.cache_resource(
    max_entries=LEAKAGES_KEPT,
    show_spinner="Reading candidates and merging them",
    hash_funcs={Request: lambda request: (request.config.model_dump_json(), request.versions)},
)
def _leakage(root: str, request: Request, merge_factor: float) -> Leakage:
    pool = _open(root, request) if request.is_large else _small_pool(root, request)
    view = pool.view(request.at(merge_factor))
    return Leakage(view, leak_panel(pool, view))


@st.cache_resource(
    max_entries=POOLS_KEPT,
    show_spinner=False,
    hash_funcs={Request: lambda request: (request.config.model_dump_json(), request.versions)},
)
def _small_pool(root: str, request: Request) -> ImagePool:
    return _open(root, request)


def _open(root: str, request: Request) -> ImagePool:
    store = RunStore(Path(root))
    pool = open_pool(store, request.config, load_source(store, request.config))
    if not isinstance(pool, ImagePool):
        raise InputError(f"run {request.run} reconstructed points of the plane; choose runs on images to compare")
    return pool


@st.cache_data(max_entries=64, show_spinner=False)
def _scores(root: str, match_run: str, version: str) -> StoredScores:
    del version  # part of the key
    return stored_scores(RunStore(Path(root)).open(match_run))
