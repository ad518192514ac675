"""Attacks as a form requests them: defaults for fields left empty, and the baselines that fit a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recon_core.attacks import ATTACKS, AttackSettings, attack_presets
from recon_core.errors import InputError
from recon_core.runs.models import AttackModel
from recon_core.runs.reconstruction import (
    INVERSION_STEPS,
    Baseline,
    ReconstructConfig,
    attack_settings,
)
from recon_core.store import Run


def attack_request(
    model_run: Run, model: AttackModel, preset: str, given: Mapping[str, Any], known_init: bool
) -> ReconstructConfig:
    """One attack: the preset, then what follows from the model, then what was filled in."""
    settings = attack_settings(model, given, _preset(preset))
    return ReconstructConfig(model=model_run.id, settings=settings, known_init=known_init)


def baselines_of(model: AttackModel) -> tuple[Baseline, ...]:
    """The baselines with which reconstructions of this model can be compared."""
    shown = Baseline.WEIGHTS if model.architecture.dense_first else Baseline.KERNELS
    return (Baseline.INVERSION, shown, Baseline.UNTRAINED)


def baseline_request(
    model_run: Run, model: AttackModel, baseline: Baseline, like: AttackSettings | None = None
) -> ReconstructConfig:
    """A baseline with as many candidates as the attack it is compared with, `like`; untrained, attacked alike."""
    if baseline is Baseline.UNTRAINED and like is not None:
        return ReconstructConfig(model=model_run.id, settings=like, baseline=baseline)
    given: dict[str, Any] = {} if like is None else {"m": like.m}
    if baseline is Baseline.INVERSION:
        given["iterations"] = INVERSION_STEPS
    return ReconstructConfig(model=model_run.id, settings=attack_settings(model, given), baseline=baseline)


def starting_points() -> dict[str, Mapping[str, Any]]:
    """What an attack may start from, by name: an attack with its own choices, or released hyper-parameters."""
    return {**{name: {"recipe": name} for name in ATTACKS}, **attack_presets()}


def _preset(name: str) -> Mapping[str, Any]:
    known = starting_points()
    if name not in known:
        raise InputError(f"unknown preset {name!r}; there are {', '.join(known)}")
    return known[name]
