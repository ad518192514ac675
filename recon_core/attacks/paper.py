"""The papers' recipe: momentum on candidates and multipliers, a rate for each, nothing adapted on the way.

Haim et al. 2022, Section 5.2, with what their code adds: the sum divided by m, squared hinges, a rate of its
own for the multipliers. By default in float64 through autograd's double backward, as its authors run it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from recon_core.attacks.labels import assign_labels, learnt_labels, multiplier_signs
from recon_core.attacks.registry import Attack, Cost, NetworkSize, autograd_cost, closed_form_cost, register
from recon_core.attacks.settings import RECIPE, Engine, Hinge, LabelPolicy, StationaritySettings
from recon_core.attacks.stationarity import Evaluation
from recon_core.attacks.stepper import Candidates, Measurement, attack_device, draw_start, make_engine
from recon_core.attacks.target import Target
from recon_core.attacks.terms import Term, box_prior, multiplier_floor
from recon_core.devices import DTYPES


class PaperSettings(StationaritySettings):
    """The weights and shapes of all terms of Eq. 8, and a rate for candidates and multipliers each."""

    recipe: str = Field("paper", description=RECIPE)
    engine: Engine | None = Field(None, description="closed or autograd; left out, closed wherever it applies")
    lr_lam: float = Field(1e-2, gt=0.0, description="step size of the multipliers")
    momentum: float = Field(0.9, ge=0.0, lt=1.0, description="momentum of candidates and multipliers")
    weight_stationarity: float = Field(
        1.0, gt=0.0, description="weight of the stationarity loss, alpha_1 of Haim et al. 2022, Eq. 8"
    )
    weight_floor: float = Field(5.0, ge=0.0, description="weight of the multipliers' lower bound, alpha_2 of Eq. 8")
    weight_prior: float = Field(1.0, ge=0.0, description="weight of the pixel prior, alpha_3 of Eq. 8")
    floor: Hinge = Field(
        Hinge.SQUARED, description="penalty on multipliers below their lower bound; off where signs are learnt"
    )
    prior: Hinge = Field(Hinge.SQUARED, description="penalty on pixels outside their range; off in the plane")
    box_low: float = Field(-1.0, description="smallest centred pixel the prior allows")
    box_high: float = Field(1.0, description="largest centred pixel the prior allows")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.box_low >= self.box_high:
            raise ValueError(f"box_low must be below box_high, got {self.box_low} and {self.box_high}")
        if self.lr_x is None or self.lam_scale is None:
            raise ValueError("recipe paper needs lr_x and lam_scale")
        return self


def _authors(lr_x: float, x_init_scale: float, lam_min: float, alpha: float, lr_lam: float = 1e-4) -> dict[str, Any]:
    return {
        "recipe": "paper",
        "lr_x": lr_x,
        "lr_lam": lr_lam,
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
    # Buzaglo et al. 2023: ten classes, and regression, where lam_min has no effect since signs are learnt.
    "multiclass": _authors(0.00136, 6.2e-5, 0.203, 39.5, lr_lam=0.479),
    "regression-a": _authors(0.95, 0.0197, 0.47, 90.0),
    "regression-b": _authors(0.87, 0.0137, 0.44, 107.0),
}


class _Point(NamedTuple):
    stationarity: Evaluation
    floor: Term
    prior: Term
    alpha: float


class PaperRecipe:
    """State: candidates x (m, d), multipliers lam (m,), their velocities, the number of iterations done."""

    def __init__(self, target: Target, settings: PaperSettings, seed: int) -> None:
        assert settings.lr_x is not None
        assert settings.lam_scale is not None
        self.settings = settings
        self.lr_x, self.lam_scale = settings.lr_x, settings.lam_scale
        self.engine = make_engine(target, settings, settings.engine)
        self.policy = settings.label_policy(target.objective)
        device, dtype = attack_device(settings), DTYPES[settings.dtype]
        d = math.prod(target.architecture.input_shape)
        signed = self.policy is LabelPolicy.LEARNT
        start = draw_start(settings.m, d, settings.x_init_scale, seed, signed=signed)
        self.x, self.lam = start.x.to(device, dtype), start.lam.to(device, dtype)
        self.x_velocity, self.lam_velocity = torch.zeros_like(self.x), torch.zeros_like(self.lam)
        self.labels = assign_labels(self.policy, settings.m, target.architecture.outputs).to(device)
        # c = unit * lam
        self.unit = multiplier_signs(self.labels, self.policy, dtype) * (self.lam_scale / settings.m)
        # A multiplier of free sign has no lower bound (Buzaglo et al. 2023, Section 5).
        self.floor_hinge = Hinge.OFF if signed else settings.floor
        self.iteration = 0
        self._known: _Point | None = None

    def step(self) -> None:
        """v = momentum v + gradient, then a step of the rate along -v, for x and lam alike."""
        settings, point = self.settings, self._point()
        gradients = point.stationarity.gradients
        x_gradient = gradients.x * settings.weight_stationarity
        x_gradient.add_(point.prior.gradient, alpha=settings.weight_prior)
        lam_gradient = gradients.coefficients * self.unit * settings.weight_stationarity
        lam_gradient.add_(point.floor.gradient, alpha=settings.weight_floor)
        self.x_velocity.mul_(settings.momentum).add_(x_gradient)
        self.lam_velocity.mul_(settings.momentum).add_(lam_gradient)
        self.x.add_(self.x_velocity, alpha=-self.lr_x)
        self.lam.add_(self.lam_velocity, alpha=-settings.lr_lam)
        self.iteration += 1
        self._known = None

    def _point(self) -> _Point:
        """All terms here and now; a measurement and the step after it share them."""
        if self._known is None:
            settings = self.settings
            alpha = settings.alpha_at(self.iteration)
            self._known = _Point(
                self.engine.evaluate(self.x, self.unit * self.lam, self.labels, alpha),
                multiplier_floor(self.lam, settings.lam_min, self.floor_hinge),
                box_prior(self.x, settings.box_low, settings.box_high, settings.prior),
                alpha,
            )
        return self._known

    def measure(self) -> Measurement:
        point = self._point()
        return Measurement(point.stationarity.loss, point.floor.value, point.prior.value, point.alpha)

    def candidates(self) -> Candidates:
        labels = learnt_labels(self.lam) if self.policy is LabelPolicy.LEARNT else self.labels
        return Candidates(self.x, self.lam * self.lam_scale, labels)

    def take_notes(self) -> list[str]:
        """Nothing is adapted, so there is nothing to say."""
        return []

    def state(self) -> dict[str, Tensor]:
        return {
            "x": self.x,
            "lam": self.lam,
            "x_velocity": self.x_velocity,
            "lam_velocity": self.lam_velocity,
            "iteration": torch.tensor(self.iteration),
        }

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        for name in ("x", "lam", "x_velocity", "lam_velocity"):
            getattr(self, name).copy_(tensors[name])
        self.iteration = int(tensors["iteration"])
        self._known = None


def _cost(settings: PaperSettings, size: NetworkSize) -> Cost:
    if settings.engine is Engine.CLOSED and size.dense:
        return closed_form_cost(settings, size, in_span=False)
    return autograd_cost(settings, size)


def _check(target: Target, settings: PaperSettings) -> None:
    make_engine(target, settings, settings.engine)


register(
    Attack(
        name="paper",
        description="the papers' own attack with their hyper-parameters, in double precision; takes hours",
        settings=PaperSettings,
        make=PaperRecipe,
        defaults={
            **AUTHORS_PRESETS["cifar10-a"],
            "engine": Engine.AUTOGRAD,
            "dtype": "float64",
            "lam_scale": 1.0,
            "iterations": 100_000,
        },
        presets=AUTHORS_PRESETS,
        measure_every=25,
        cost=_cost,
        check=_check,
    )
)
