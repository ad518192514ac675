"""The papers' recipe: momentum on candidates and multipliers, a rate for each, nothing adapted on the way.

Haim et al. 2022, Section 5.2, with what their code adds: the sum divided by m, squared hinges, a rate of its
own for the multipliers. By default in float64 through autograd's double backward, as its authors run it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from recon_core.attacks.labels import assign_labels, learnt_labels, multiplier_signs
from recon_core.attacks.settings import AttackSettings, Hinge, LabelPolicy
from recon_core.attacks.stationarity import Evaluation
from recon_core.attacks.stepper import Candidates, Measurement, attack_device, draw_start, make_engine
from recon_core.attacks.target import Target
from recon_core.attacks.terms import Term, box_prior, multiplier_floor
from recon_core.devices import DTYPES


class _Point(NamedTuple):
    stationarity: Evaluation
    floor: Term
    prior: Term
    alpha: float


class PaperRecipe:
    """State: candidates x (m, d), multipliers lam (m,), their velocities, the number of iterations done."""

    def __init__(self, target: Target, settings: AttackSettings, seed: int) -> None:
        assert settings.lr_x is not None
        assert settings.lam_scale is not None
        self.settings = settings
        self.lr_x, self.lam_scale = settings.lr_x, settings.lam_scale
        self.engine = make_engine(target, settings)
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
        # A multiplier of free sign has no floor (Buzaglo et al. 2023, Section 5).
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
