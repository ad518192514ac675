"""Settings of an attack, checked once, and the ranges that the authors of both papers searched over.

Numbers left out follow from the attack and the objective (`registry`). The attacker does not know how many samples
there were, so `m` is a guess from above; the papers take m = 2n.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Any, Literal, NamedTuple, Self

from pydantic import Field, ModelWrapValidatorHandler, model_validator

from recon_core.attacks.registry import ATTACKS, all_setting_names, find_attack, owners_of, unknown_attack
from recon_core.config import Frozen, Listed, Task
from recon_core.errors import InputError


class LabelPolicy(StrEnum):
    """How candidates get their labels: fixed halves, fixed equal shares, or by the sign their multiplier takes."""

    HALF = "half"
    PER_CLASS = "per-class"
    LEARNT = "learnt"


class Hinge(StrEnum):
    """Shape of a penalty beyond a bound: squared as in the authors' code, linear as in the papers."""

    SQUARED = "squared"
    LINEAR = "linear"
    OFF = "off"


class Prior(StrEnum):
    """What is assumed of candidates besides the loss: natural images (sparse edges), the papers' box, or nothing."""

    NATURAL = "natural"
    BOX = "box"
    OFF = "off"


class Engine(StrEnum):
    """How the loss is differentiated: written out (dense networks) or by autograd's double backward (any)."""

    CLOSED = "closed"
    AUTOGRAD = "autograd"


# The first of each is the default.
LABEL_POLICIES: Mapping[Task, tuple[LabelPolicy, ...]] = {
    Task.BINARY: (LabelPolicy.HALF, LabelPolicy.LEARNT),
    Task.MULTICLASS: (LabelPolicy.PER_CLASS,),
    Task.REGRESSION: (LabelPolicy.LEARNT,),
}


class Range(NamedTuple):
    """What a search draws from: uniform, or uniform in the logarithm."""

    low: float
    high: float
    log: bool


# Haim et al. 2022, App. B.2; Buzaglo et al. 2023, App. B.
SEARCH_RANGES: Mapping[str, Mapping[str, Range]] = {
    "haim2022": {
        "lr_x": Range(1e-5, 1.0, log=True),
        "x_init_scale": Range(1e-6, 1.0, log=True),
        "lam_min": Range(1e-4, 1.0, log=True),
        "alpha": Range(10.0, 500.0, log=False),
    },
    "buzaglo2023": {
        "lr_x": Range(1e-5, 1.0, log=True),
        "x_init_scale": Range(1e-6, 0.1, log=True),
        "lam_min": Range(0.01, 0.5, log=False),
        "alpha": Range(10.0, 500.0, log=False),
    },
}

# Model inversion, the baseline: Haim et al. 2022, App. B.2.
INVERSION_RANGES: Mapping[str, Range] = {
    "lr_x": Range(1e-6, 1.0, log=True),
    "x_init_scale": Range(1e-7, 1.0, log=True),
}


RECIPE = "the attack by its name; the command attacks lists them"


class AttackSettings(Frozen):
    """Settings that all attacks share; each attack has a subclass with its own, chosen by `recipe`.

    Made from values, this is always of the subclass that `recipe` names: AttackSettings(recipe="paper") gives
    PaperSettings. In a file they stand flat, side by side.
    """

    recipe: str = Field("fast", description=RECIPE)
    objective: Task | None = Field(
        None, description="binary, multiclass or regression; left out, binary for one output, multiclass for more"
    )
    m: int = Field(
        100, ge=1, le=1_000_000, description="number of candidates; at least twice the number of training samples"
    )
    labels: LabelPolicy | None = Field(None, description="half, per-class or learnt; left out, what the objective asks")

    iterations: int = Field(1000, ge=1, description="iterations of each seed")
    max_seconds: float | None = Field(None, gt=0.0, description="stop after so many seconds for all seeds together")
    seed: int = Field(0, ge=0, description="seed of the first start; further starts count up from it")
    seeds: int = Field(
        1, ge=1, le=1000, description="number of starts, one after the other; their candidates are pooled"
    )
    dtype: Literal["float32", "float64"] = Field("float32", description="precision of candidates and loss")
    device: Literal["auto", "cpu", "cuda", "mps"] = Field("auto", description="auto takes a GPU where there is one")
    measure_every: int | None = Field(None, ge=1, description="iterations between measurements")
    snapshots: int = Field(24, ge=1, le=1000, description="snapshots of the candidates kept during the attack, at most")

    @classmethod
    def field_names(cls) -> tuple[str, ...]:
        return all_setting_names() if cls is AttackSettings else super().field_names()

    def __new__(cls, /, **values: Any) -> Self:
        """Of the class that belongs to the recipe; one that is not known is refused when values are checked."""
        known = ATTACKS.get(str(values.get("recipe") or _recipe_of(cls)))
        return super().__new__(known.settings if known is not None and issubclass(known.settings, cls) else cls)

    @model_validator(mode="wrap")
    @classmethod
    def _of_the_attack(cls, values: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """What is left out follows from the attack and the objective."""
        if isinstance(values, AttackSettings) or not isinstance(values, Mapping):
            return handler(values)
        given = {key: value for key, value in values.items() if value is not None}
        recipe = given.setdefault("recipe", _recipe_of(cls))
        attack = ATTACKS.get(recipe) if isinstance(recipe, str) else None
        if attack is None:
            raise ValueError(unknown_attack(recipe))
        if not issubclass(attack.settings, cls):
            raise ValueError(f"recipe {recipe} has {attack.settings.__name__}, got {cls.__name__}")
        if cls is not attack.settings:
            return attack.settings.model_validate(values)
        fitting = next((some for task, some in attack.task_defaults.items() if task == given.get("objective")), {})
        return handler({**attack.defaults, **fitting, **_own(given, attack.setting_names)})

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        halves = self.objective in (None, Task.BINARY) and self.labels in (None, LabelPolicy.HALF)
        if halves and self.m % 2:
            raise ValueError(
                f"m must be even, half the candidates for each class, got {self.m}; try {self.m + 1} or labels=learnt"
            )
        if self.objective is not None and self.labels not in (None, *LABEL_POLICIES[self.objective]):
            raise ValueError(_wrong_labels(self.labels, self.objective))
        return self

    def label_policy(self, objective: Task) -> LabelPolicy:
        """The policy asked for, or the one this objective takes."""
        chosen = self.labels or LABEL_POLICIES[objective][0]
        if chosen not in LABEL_POLICIES[objective]:
            raise InputError(_wrong_labels(chosen, objective))
        return chosen

    @property
    def total_steps(self) -> int:
        """Steps of the whole run as a session counts them; each further seed has a step for its start."""
        return self.seeds * (self.iterations + 1) - 1


class StationaritySettings(AttackSettings):
    """What attacks share that explain the weights by candidates' gradients, Haim et al. 2022, Eq. 6.

    Candidates start as N(0, x_init_scale^2), multipliers as U[0, 1]. The coefficient of candidate i is
    c_i = lam_scale * lam_i * y_i / m: like the authors' code, and unlike their Eq. 6, the sum is divided by m.
    """

    alpha: float = Field(10.0, gt=0.0, description="sharpness of the gate sigmoid(alpha z) in ReLU's backward")
    alpha_end: float | None = Field(None, gt=0.0, description="where alpha has grown to at the end; left out, it stays")
    lr_x: float | None = Field(None, gt=0.0, description="step size of the candidates; left out, the attack's choice")
    x_init_scale: float = Field(1e-3, gt=0.0, description="standard deviation of the candidates at the start")
    lam_min: float = Field(0.45, ge=0.0, description="multipliers below this are pushed up")
    lam_scale: float | None = Field(None, gt=0.0, description="unit of the multipliers; left out, the attack's choice")
    layer_weights: Listed[float] | None = Field(None, description="weight of each layer in the loss; left out, 1 each")
    block_size: int = Field(2048, ge=1, description="candidates worked on at once; bounds memory, not the result")

    @model_validator(mode="after")
    def _weights_are_not_negative(self) -> Self:
        for weight in self.layer_weights or ():
            if weight < 0:
                raise ValueError(f"layer_weights must all be at least 0, got {weight}")
        return self

    def alpha_at(self, iteration: int) -> float:
        """Geometric from alpha to alpha_end over the run; constant without alpha_end."""
        if self.alpha_end is None:
            return self.alpha
        share = min(1.0, iteration / max(1, self.iterations - 1))
        return float(self.alpha * (self.alpha_end / self.alpha) ** share)


def _recipe_of(kind: type[AttackSettings]) -> str:
    return str(kind.model_fields["recipe"].default)


def _own(given: Mapping[Any, Any], known: Collection[str]) -> dict[str, Any]:
    """Drop the settings of other attacks: files from before 0.2.0 hold those of all attacks."""
    others = all_setting_names()
    for name in given:
        if name not in known and name not in others:
            raise ValueError(f"unknown key {repr(name)[:80]}; known here: {', '.join(known)}")
    return {name: value for name, value in given.items() if name in known}


def check_settings(recipe: str, given: Iterable[str]) -> None:
    """Raise an `InputError` for a setting that this attack does not have; stored files may hold such settings."""
    known = find_attack(recipe).setting_names
    for name in given:
        if name not in known and (owners := owners_of(name)):
            raise InputError(f"{name} is a setting of recipe {' and '.join(owners)}, got recipe {recipe}; leave it out")


def _wrong_labels(policy: LabelPolicy | None, objective: Task) -> str:
    return f"objective {objective} goes with labels {' or '.join(LABEL_POLICIES[objective])}, got {policy}"
