"""Create match runs and their untrained control, and decide whether a page can match without a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from recon_core.config import TrainConfig, parse_config
from recon_core.matching.assignment import Assignment
from recon_core.runs.commands import create_run
from recon_core.runs.match_source import MatchConfig, candidate_run, common_model, model_run_of, usual_factor
from recon_core.runs.models import model_of
from recon_core.runs.reconstruction import Baseline, ReconstructConfig, attack_settings
from recon_core.runs.requests import create_reconstruction
from recon_core.store import Run, RunStore

QUICK_CANDIDATES = 5_000
"""Pools up to this size are matched in a second or two, so nobody need wait for a run in the background."""


@dataclass(frozen=True)
class PoolFacts:
    """Facts about a pool that are known before its candidates are read."""

    model: str
    """The training run whose network was attacked."""
    planar: bool
    default_factor: float
    sizes: Mapping[str, int]
    """Candidates by run; 0 where a run does not say."""


def pool_facts(store: RunStore, run_ids: Sequence[str]) -> PoolFacts:
    """Of finished runs on one model; else a sentence about what is wrong with the choice."""
    runs = [candidate_run(store, run_id) for run_id in run_ids]
    model = common_model(store, runs)
    trained = parse_config(TrainConfig, model.config)
    return PoolFacts(
        model.id, trained.data.source.planar, usual_factor(trained), {run.id: size_of(run) for run in runs}
    )


def size_of(run: Run) -> int:
    """How many candidates a run left."""
    stated = (run.result() or {}).get("candidates")
    return stated if isinstance(stated, int) else 0


def create_match(store: RunStore, config: MatchConfig, name: str | None = None) -> Run:
    """A match run with these settings."""
    parents = [*config.runs, *([config.untrained] if config.untrained else [])]
    return create_run(store, "match", config.model_dump(mode="json"), name=name, parents=parents)


def create_untrained_control(store: RunStore, run_id: str) -> Run:
    """The attack of run `run_id`, on an untrained network of the same shape: what chance alone would match."""
    attacked = store.open(run_id)
    model = model_run_of(store, attacked)
    settings = attacked.config.get("settings", {}) if attacked.kind == "reconstruct" else {}
    if not settings or attacked.config.get("baseline"):
        config = ReconstructConfig(
            model=model.id, settings=attack_settings(model_of(model), {}), baseline=Baseline.UNTRAINED
        )
    else:
        config = parse_config(
            ReconstructConfig, {"model": model.id, "settings": settings, "baseline": Baseline.UNTRAINED}
        )
    return create_reconstruction(store, config)


def is_quick(config: MatchConfig, sizes: Mapping[str, int], done: Iterable[MatchConfig]) -> bool:
    """Whether nothing large is left to search: pools are small, or a match run has left its neighbours in the cache.

    `sizes` gives the candidates of each run, `done` what finished match runs were asked for.
    """
    alike = [other for other in done if _search_of(other) == _search_of(config)]
    pooled = sum(sizes.get(run, 0) for run in config.runs)
    found = pooled <= QUICK_CANDIDATES or any(other.runs == config.runs for other in alike)
    control = 0 if config.untrained is None else sizes.get(config.untrained, 0)
    return found and (control <= QUICK_CANDIDATES or any(other.untrained == config.untrained for other in alike))


def _search_of(config: MatchConfig) -> tuple[object, ...]:
    """The settings, besides the candidates, on which neighbours depend."""
    return config.search_size, config.max_merged, config.assignment is Assignment.ONE_TO_ONE
