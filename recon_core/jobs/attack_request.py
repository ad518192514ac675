"""Attacks as a form asks for them: what stands where nothing was filled in, and which baselines go with a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recon_core.attack import AUTHORS_PRESETS, AttackRecipe, AttackSettings
from recon_core.attack.search import SearchSettings
from recon_core.config import parse_config
from recon_core.errors import InputError
from recon_core.jobs.models import AttackModel
from recon_core.jobs.reconstruction import (
    INVERSION_STEPS,
    Baseline,
    ReconstructConfig,
    attack_settings,
    check_request,
    warning_for,
)
from recon_core.jobs.requests import queue_reconstruction, queue_search
from recon_core.jobs.search import SearchConfig, check_search, trial_settings
from recon_core.store import Run, RunStore

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "fast": {"recipe": AttackRecipe.FAST},
    "paper": {"recipe": AttackRecipe.PAPER},
    **AUTHORS_PRESETS,
}
"""Where an attack may start from, by name: a recipe with its own choices, or what the authors released."""

_LEAST_CANDIDATES = 100
_PER_SAMPLE = 2  # as both papers do

Request = ReconstructConfig | SearchConfig


def usual_count(model_run: Run) -> int:
    """Candidates unless somebody says otherwise: twice the training samples, where it is known how many there were.

    The attack is told m, never n. With somebody else's model m is a guess.
    """
    n = (model_run.result() or {}).get("n")
    return max(_LEAST_CANDIDATES, _PER_SAMPLE * n) if isinstance(n, int) else _LEAST_CANDIDATES


def attack_request(
    model_run: Run, model: AttackModel, preset: str, given: Mapping[str, Any], known_init: bool
) -> ReconstructConfig:
    """One attack: the preset, then what follows from the model, then what was filled in."""
    settings = attack_settings(model, given, {"m": usual_count(model_run), **_preset(preset)})
    return ReconstructConfig(model=model_run.id, settings=settings, known_init=known_init)


def search_request(
    model_run: Run,
    model: AttackModel,
    recipe: str,
    given: Mapping[str, Any],
    search: Mapping[str, Any],
    known_init: bool,
    places: Mapping[str, Any] | None = None,
) -> SearchConfig:
    """Many attacks; `search` says how many and over what, `given` what they have in common, `places` where."""
    attack = trial_settings(model, {"m": usual_count(model_run), "recipe": recipe, **given})
    asked = parse_config(SearchSettings, {**search, "attack": attack.model_dump()})
    config = {**(places or {}), "model": model_run.id, "settings": asked, "known_init": known_init}
    return parse_config(SearchConfig, config)


def baselines_of(model: AttackModel) -> tuple[Baseline, ...]:
    """What this model's reconstructions can be compared with."""
    shown = Baseline.WEIGHTS if model.architecture.dense else Baseline.KERNELS
    return (Baseline.INVERSION, shown, Baseline.UNTRAINED)


def baseline_request(
    model_run: Run, model: AttackModel, baseline: Baseline, like: AttackSettings | None = None
) -> ReconstructConfig:
    """A baseline with as many candidates as the attack it is compared with, `like`; untrained, attacked alike."""
    if baseline is Baseline.UNTRAINED and like is not None:
        return ReconstructConfig(model=model_run.id, settings=like, baseline=baseline)
    given: dict[str, Any] = {"m": usual_count(model_run) if like is None else like.m}
    if baseline is Baseline.INVERSION:
        given["iterations"] = INVERSION_STEPS
    return ReconstructConfig(model=model_run.id, settings=attack_settings(model, given), baseline=baseline)


def check(model: AttackModel, request: Request) -> None:
    """Raise now what would end the run at its start."""
    if isinstance(request, SearchConfig):
        check_search(model, request)
    else:
        check_request(model, request)


def warning(model: AttackModel, request: Request) -> str | None:
    """Why this will not work, where that is known beforehand."""
    return warning_for(model, attack_of(request))


def attack_of(request: Request) -> AttackSettings:
    """The settings of one attack of it."""
    return request.settings.attack if isinstance(request, SearchConfig) else request.settings


def queue_request(store: RunStore, model: AttackModel, request: Request) -> Run:
    """A run for it, if it can be done; whoever calls puts it in line."""
    check(model, request)
    if isinstance(request, SearchConfig):
        return queue_search(store, request)
    return queue_reconstruction(store, request)


def _preset(name: str) -> Mapping[str, Any]:
    if name not in PRESETS:
        raise InputError(f"unknown preset {name!r}; there are {', '.join(PRESETS)}")
    return PRESETS[name]
