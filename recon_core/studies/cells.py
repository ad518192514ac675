"""From a plan to its cells: one model each, with the configs of its training, attack and matching."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from recon_core.attacks import AttackSettings
from recon_core.config import TrainConfig, parse_config
from recon_core.data import describe_source
from recon_core.data.tasks import plan_task, samples_per_side
from recon_core.errors import InputError
from recon_core.models import Architecture, Network, architecture_of
from recon_core.runs.match_source import MatchConfig
from recon_core.runs.models import AttackModel
from recon_core.runs.reconstruction import (
    INVERSION_STEPS,
    Baseline,
    ReconstructConfig,
    attack_settings,
    usual_candidates,
)
from recon_core.studies.plan import StudyPlan, Variant
from recon_core.studies.settings import ATTACK, BASELINE, MATCH, nested

# Starts of one seed's attack count up from it, so seeds of the study stand far apart.
_SEED_STRIDE = 1000
# Pictures along the way are for watching one run; a hundred runs would fill the disk with them.
_SNAPSHOTS = 1
# An untrained network is attacked for the chance level, not in place of the attack.
_BASELINES = (Baseline.INVERSION, Baseline.WEIGHTS, Baseline.KERNELS)


@dataclass(frozen=True)
class Cell:
    """One model of a study. `reference` cells are drawn as dashed lines rather than on the axis."""

    panel: str
    point: str
    reference: bool
    seed: int
    training: TrainConfig
    attack: AttackSettings
    m_from_rank: bool
    """Whether the attack takes twice the rank of the trained model's first layer; `attack.m` is then a guess from n."""
    match: Mapping[str, Any]
    """What the match run is asked for, but for its runs."""
    architecture: Architecture
    n: int
    baseline: Baseline | None = None
    """What is done in place of the attack; it then has no chance level of its own."""

    @property
    def id(self) -> str:
        """Unique in its study, and the same whenever the study is expanded."""
        return "/".join((self.panel, ("=" if self.reference else "") + self.point, str(self.seed)))

    @property
    def label(self) -> str:
        """For a run's name and a progress line."""
        return ", ".join([*([self.panel] if self.panel else []), self.point, f"seed {self.seed}"])

    @property
    def untrained_shape(self) -> tuple[object, ...]:
        """Cells alike in this share the attack on an untrained network."""
        settings = self.attack.model_dump(mode="json", exclude={"seed"})
        return self.architecture, tuple(sorted((key, repr(value)) for key, value in settings.items()))


def expand(plan: StudyPlan) -> tuple[Cell, ...]:
    """All cells, checked; seed by seed, so that a whole curve is there before the first interval."""
    variants = [(point, False) for point in plan.points] + [(reference, True) for reference in plan.references]
    return tuple(
        _cell(plan, panel, variant, reference, seed)
        for seed in plan.seeds
        for panel in plan.panels
        for variant, reference in variants
    )


def _cell(plan: StudyPlan, panel: Variant, variant: Variant, reference: bool, seed: int) -> Cell:
    seeded = {"model.seed": seed, "attack.seed": seed * _SEED_STRIDE}
    values = nested(seeded, plan.base, panel.settings, variant.settings)
    try:
        return _checked_cell(values, panel.label, variant.label, reference, seed)
    except InputError as error:
        place = ", ".join(filter(None, (panel.label, variant.label)))
        raise InputError(f"study {plan.name}, {place}: {error}") from None


def _checked_cell(values: dict[str, dict[str, Any]], panel: str, point: str, reference: bool, seed: int) -> Cell:
    given, matched = values.pop(ATTACK), values.pop(MATCH)
    baseline = _baseline(given.pop(BASELINE, None))
    if baseline is Baseline.INVERSION:
        given.setdefault("iterations", INVERSION_STEPS)
    training = parse_config(TrainConfig, values)
    source = describe_source(training.data.source, training.data.path)
    sides = 2 if training.data.source.planar else len(plan_task(training.data, source.class_names).sides)
    n = samples_per_side(training.data, sides).per_side * sides
    outputs = sides if training.data.task == "multiclass" else 1
    architecture = architecture_of(training.model, source.shape, outputs)
    with torch.device("meta"):  # sizes are all that is needed
        # The attack that the command line and the dashboard would make. The rank is known after training only.
        model = AttackModel(Network(architecture), training, expected_rank=n)
    attack = attack_settings(model, {"snapshots": _SNAPSHOTS, **given})
    parse_config(MatchConfig, {"runs": ["reconstruct-1"], **matched})
    return Cell(panel, point, reference, seed, training, attack, "m" not in given, matched, architecture, n, baseline)


def _baseline(asked: Any) -> Baseline | None:
    if asked is None or asked in _BASELINES:
        return asked if asked is None else Baseline(asked)
    raise InputError(f"{ATTACK}.{BASELINE} must be {', '.join(_BASELINES[:-1])} or {_BASELINES[-1]}, got {asked!r}")


def attack_request(cell: Cell, model_run: str, model: AttackModel | None = None) -> ReconstructConfig:
    """The attack on a trained `model`; without one, the same settings except an m that depends on it."""
    settings = cell.attack
    if cell.m_from_rank and model is not None:
        settings = settings.model_copy(update={"m": usual_candidates(model)})
    return ReconstructConfig(model=model_run, settings=settings, m_from_rank=cell.m_from_rank, baseline=cell.baseline)


def untrained_request(cell: Cell, model_run: str) -> ReconstructConfig:
    """The cell's attack on the network it started from, whose candidates match only by chance.

    It stands beside all models of a shape, so it gets the most dimensions any of them can have: one for each sample.
    """
    settings = cell.attack
    shape = cell.architecture
    if shape.dense and getattr(settings, "rank", 0) is None:
        settings = settings.model_copy(update={"rank": min(cell.n, math.prod(shape.input_shape), shape.widths[0])})
    return ReconstructConfig(model=model_run, settings=settings, baseline=Baseline.UNTRAINED)


def match_request(cell: Cell, attack_run: str, untrained_run: str | None) -> MatchConfig:
    return parse_config(MatchConfig, {"runs": [attack_run], "untrained": untrained_run, **cell.match})
