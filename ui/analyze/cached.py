"""Cached reads for the Analyze page: runs that can be analysed, models, and what leaked of them at any B."""

from __future__ import annotations

from dataclasses import dataclass

from recon_core.analysis.leakage import LeakPanel
from recon_core.analysis.studies import AlignedGrid
from recon_core.attacks.settings import Prior
from recon_core.errors import InputError
from recon_core.runs.match_request import QUICK_CANDIDATES, PoolFacts, pool_facts
from recon_core.runs.match_source import MatchConfig, load_source
from recon_core.runs.prior_runs import attack_config, matches_by_prior
from recon_core.store import Run, RunStore
from recon_core.views.aligned import aligned_matches
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
from ui.shared.cached import run_read, store_read

# Models beside each other are merged anew at each B, so their pools stay open if they are small.
POOLS_KEPT, LEAKAGES_KEPT = 12, 36
ALIGNED = 10  # images followed through several models


@dataclass(frozen=True)
class Request:
    """The settings of a matching, and what is known of it before its candidates are read."""

    run: str
    config: MatchConfig
    facts: PoolFacts
    versions: tuple[str, ...]
    """Of all runs that are read."""
    was_matched: bool
    """It is a match run, so its neighbours are in the cache."""

    def at(self, merge_factor: float) -> MatchConfig:
        """The same at another B, which protocol haim ignores."""
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


# Kept for a second, which no viewer notices. The list is never changed, so all sessions share it: copies of
# thousands for each question would cost more than the list.
@store_read(keep=4, seconds=1, shared=True)
def runs_to_analyse(store: RunStore) -> tuple[AnalysedRun, ...]:
    return analysed_runs(store)


@store_read(keep=4, seconds=1, shared=True)
def models(store: RunStore) -> tuple[ModelEntry, ...]:
    return model_index(store)


@store_read(keep=64, seconds=1)
def request_for(store: RunStore, run_id: str) -> Request:
    config = match_request(store, run_id)
    facts = pool_facts(store, config.runs)
    read = [facts.model, *config.runs, *([config.untrained] if config.untrained else [])]
    versions = tuple(store.open(name).content_version() for name in read)
    return Request(run_id, config, facts, versions, was_matched=store.open(run_id).kind == "match")


def aligned_of(named: tuple[tuple[str, str], ...], threshold: float) -> AlignedGrid | None:
    """The same images through match runs, each (label, id); None where there are not two to compare."""
    return _aligned(named, threshold) if len(named) > 1 else None


@store_read(keep=16, seconds=600, shared=True)
def _aligned(store: RunStore, named: tuple[tuple[str, str], ...], threshold: float) -> AlignedGrid | None:
    return aligned_matches(store, named, ALIGNED, threshold)


@store_read(keep=16, seconds=10, shared=True)
def prior_matches(store: RunStore, run_id: str) -> tuple[tuple[str, str], ...]:
    """Match runs of the same attack with each prior, as (label, id)."""
    config = attack_config(store, request_for(run_id).config.runs[0])
    found = {} if config is None else matches_by_prior(store, store.list(), config)
    return tuple((f"prior: {prior}", found[prior]) for prior in Prior if prior in found)


@run_read(keep=64)
def scores_of(match_run: Run) -> StoredScores:
    """Counted from what the match run kept, at its own B."""
    return stored_scores(match_run)


def leakage_of(request: Request, pool: ImagePool, view: PairView) -> Leakage:
    """The leakage of a pool that is already open."""
    return Leakage(view, _panel(request.versions, view.settings.merge_factor, request.run, _pool=pool, _view=view))


def leakage_at(request: Request, merge_factor: float) -> Leakage:
    """Of one model among several. Waits for the candidates to be read; large ones are not kept."""
    if request.is_large and not request.was_matched:
        raise InputError(
            f"run {request.run} has {sum(request.facts.sizes.values()):,} candidates, too many to match while a page "
            "waits; match it on the Match page, then choose that match run here"
        )
    return _leakage(request, merge_factor)


@store_read(keep=LEAKAGES_KEPT, shared=True)
def _panel(
    store: RunStore, versions: tuple[str, ...], merge_factor: float, run: str, *, _pool: ImagePool, _view: PairView
) -> LeakPanel:
    return leak_panel(_pool, _view)


_BY_CONTENT = {Request: lambda request: (request.config.model_dump_json(), request.versions)}


@store_read(keep=LEAKAGES_KEPT, shared=True, spinner="Reading candidates and merging them", hash_funcs=_BY_CONTENT)
def _leakage(store: RunStore, request: Request, merge_factor: float) -> Leakage:
    pool = _open(store, request) if request.is_large else _small_pool(request)
    view = pool.view(request.at(merge_factor))
    return Leakage(view, leak_panel(pool, view))


@store_read(keep=POOLS_KEPT, shared=True, hash_funcs=_BY_CONTENT)
def _small_pool(store: RunStore, request: Request) -> ImagePool:
    return _open(store, request)


def _open(store: RunStore, request: Request) -> ImagePool:
    pool = open_pool(store, request.config, load_source(store, request.config))
    if not isinstance(pool, ImagePool):
        raise InputError(f"run {request.run} reconstructed points of the plane; choose runs on images to compare")
    return pool
