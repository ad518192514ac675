"""What an attack is asked to do, checked once, and what the authors of both papers ran.

Numbers left out follow from the recipe (`RECIPE_DEFAULTS`) and the objective (`OBJECTIVE_DEFAULTS`). The attacker
does not know how many samples there were, so `m` is a guess from above; the papers take m = 2n.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from recon_core.config import Frozen, Listed, Task
from recon_core.errors import InputError


class AttackRecipe(StrEnum):
    FAST = "fast"
    PAPER = "paper"


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


def _authors(lr_x: float, x_init_scale: float, lam_min: float, alpha: float) -> dict[str, Any]:
    return {
        "recipe": AttackRecipe.PAPER,
        "lr_x": lr_x,
        "lr_lam": 1e-4,
        "x_init_scale": x_init_scale,
        "lam_min": lam_min,
        "alpha": alpha,
        "floor": Hinge.SQUARED,
        "prior": Hinge.SQUARED,
    }


# Hyper-parameters released with the papers' code, found there by searches of 100 runs each.
AUTHORS_PRESETS: Mapping[str, Mapping[str, Any]] = {
    "mnist-a": _authors(0.0305, 0.035, 0.447, 150.0),
    "mnist-b": _authors(0.282, 0.0017, 0.415, 19.2),
    "cifar10-a": _authors(0.555, 0.00089, 0.498, 19.1),
    "cifar10-b": _authors(0.346, 0.0045, 0.494, 21.7),
}

# What a recipe takes for whatever is left out.
RECIPE_DEFAULTS: Mapping[AttackRecipe, Mapping[str, Any]] = {
    AttackRecipe.FAST: {"alpha_end": 200.0, "iterations": 1200},
    AttackRecipe.PAPER: {
        **AUTHORS_PRESETS["cifar10-a"],
        "engine": Engine.AUTOGRAD,
        "dtype": "float64",
        "lam_scale": 1.0,
        "iterations": 100_000,
    },
}

# Over that, what an objective needs. With several classes a candidate's rival changes under way, and the usual pace may
# jump: on five models of ten classes of 5 it had 4 to 30 good and lost its footing on one, where 0.05 had 31 to 38.
OBJECTIVE_DEFAULTS: Mapping[tuple[AttackRecipe, Task], Mapping[str, Any]] = {
    (AttackRecipe.FAST, Task.MULTICLASS): {"pace": 0.05},
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


class AttackSettings(Frozen):
    """One attack, whole. Candidates start as N(0, x_init_scale^2), multipliers as U[0, 1].

    The coefficient of candidate i is c_i = lam_scale * lam_i * y_i / m: like the authors' code, and unlike
    their Eq. 6, the sum is divided by m.
    """

    recipe: AttackRecipe = AttackRecipe.FAST
    objective: Task | None = Field(
        None, description="binary, multiclass or regression; left out, binary for one output, multiclass for more"
    )
    m: int = Field(100, ge=1, le=1_000_000, description="candidates; at least twice the number of training samples")
    labels: LabelPolicy | None = Field(None, description="half, per-class or learnt; left out, what the objective asks")
    engine: Engine | None = Field(None, description="closed or autograd; left out, closed wherever it applies")

    alpha: float = Field(10.0, gt=0.0, description="sharpness of the gate sigmoid(alpha z) in ReLU's backward")
    alpha_end: float | None = Field(None, gt=0.0, description="where alpha has grown to at the end; left out, it stays")
    lr_x: float | None = Field(None, gt=0.0, description="step size of the candidates; left out, the recipe's choice")
    lr_lam: float = Field(1e-2, gt=0.0, description="step size of the multipliers")
    momentum: float = Field(0.9, ge=0.0, lt=1.0)
    x_init_scale: float = Field(1e-3, gt=0.0, description="standard deviation of the candidates at the start")
    lam_min: float = Field(0.45, ge=0.0, description="multipliers below this are pushed up")
    lam_scale: float | None = Field(None, gt=0.0, description="unit of the multipliers; left out, the recipe's choice")

    pace: float = Field(
        0.2,
        gt=0.0,
        lt=1.0,
        description="fast: step of the candidates as a part of 1/curvature; left out, 0.05 with several classes",
    )
    pace_lam: float = Field(0.02, gt=0.0, lt=1.0, description="fast: the same for the multipliers")
    search_share: float = Field(0.33, gt=0.0, lt=1.0, description="fast: part of the iterations in the first stage")
    lr_refine: float = Field(0.1, gt=0.0, description="fast: Adam's step on the candidates in the second stage")
    ridge: float = Field(0.1, gt=0.0, description="fast: ridge of the candidates' covariance, of its mean variance")
    weight_upper: float = Field(0.3, ge=0.0, description="fast: weight of the layers above the first, second stage")
    input_norm: float | None = Field(
        None, gt=0.0, description="fast: expected norm of a centred input; left out, 0.24 sqrt(d), 1 in the plane"
    )

    weight_stationarity: float = Field(1.0, gt=0.0, description="alpha_1 of Eq. 8")
    weight_floor: float = Field(5.0, ge=0.0, description="alpha_2 of Eq. 8")
    weight_prior: float = Field(1.0, ge=0.0, description="alpha_3 of Eq. 8")
    floor: Hinge = Field(Hinge.SQUARED, description="shape of the multiplier floor; off where signs are learnt")
    prior: Hinge = Field(Hinge.SQUARED, description="shape of the box prior on pixels; off for points in the plane")
    box_low: float = Field(-1.0, description="smallest centred pixel the prior allows")
    box_high: float = Field(1.0, description="largest centred pixel the prior allows")
    layer_weights: Listed[float] | None = Field(None, description="weight of each layer in the loss; left out, 1 each")

    iterations: int = Field(1000, ge=1, description="per seed")
    max_seconds: float | None = Field(None, gt=0.0, description="for all seeds together")
    seed: int = Field(0, ge=0, description="of the first start; the others count up from it")
    seeds: int = Field(1, ge=1, le=1000, description="starts, one after the other; their candidates are pooled")
    dtype: Literal["float32", "float64"] = "float32"
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    block_size: int = Field(2048, ge=1, description="candidates worked on at once; bounds memory, not the result")
    measure_every: int | None = Field(None, ge=1, description="iterations between measurements")
    snapshots: int = Field(24, ge=1, le=1000, description="pictures of the candidates kept along the way, at most")

    @model_validator(mode="before")
    @classmethod
    def _follow_recipe(cls, values: Any) -> Any:
        """What is left out follows from the recipe and the objective."""
        if not isinstance(values, Mapping):
            return values
        given = {key: value for key, value in values.items() if value is not None}
        recipe = given.get("recipe", AttackRecipe.FAST)
        usual = next((values for known, values in RECIPE_DEFAULTS.items() if known == recipe), {})
        asked = (recipe, given.get("objective"))
        fitting = next((values for known, values in OBJECTIVE_DEFAULTS.items() if known == asked), {})
        return {**usual, **fitting, **given}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        halves = self.objective in (None, Task.BINARY) and self.labels in (None, LabelPolicy.HALF)
        if halves and self.m % 2:
            raise ValueError(
                f"m must be even, half the candidates for each class, got {self.m}; try {self.m + 1} or labels=learnt"
            )
        if self.objective is not None and self.labels not in (None, *LABEL_POLICIES[self.objective]):
            raise ValueError(_wrong_labels(self.labels, self.objective))
        if self.box_low >= self.box_high:
            raise ValueError(f"box_low must be below box_high, got {self.box_low} and {self.box_high}")
        for weight in self.layer_weights or ():
            if weight < 0:
                raise ValueError(f"layer_weights must all be at least 0, got {weight}")
        if self.recipe is AttackRecipe.PAPER and (self.lr_x is None or self.lam_scale is None):
            raise ValueError("recipe paper needs lr_x and lam_scale")
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

    def alpha_at(self, iteration: int) -> float:
        """Geometric from alpha to alpha_end over the run; constant without alpha_end."""
        if self.alpha_end is None:
            return self.alpha
        share = min(1.0, iteration / max(1, self.iterations - 1))
        return float(self.alpha * (self.alpha_end / self.alpha) ** share)


def _wrong_labels(policy: LabelPolicy | None, objective: Task) -> str:
    return f"objective {objective} goes with labels {' or '.join(LABEL_POLICIES[objective])}, got {policy}"
