"""The fast recipe for networks without a closed form: convolutions and whatever else autograd can differentiate twice.

The same start and scales as `fast`, in the space of the pixels: no row space to work in, and no u_1 to read a curvature
from, so Adam takes the steps. Counts are lower than on dense networks; see the benchmark.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from recon_core.attack.fast import adam_direction, scaled_start
from recon_core.attack.settings import AttackSettings
from recon_core.attack.stationarity import Evaluation
from recon_core.attack.stepper import Candidates, Measurement, attack_device, make_engine
from recon_core.attack.target import Target
from recon_core.attack.terms import box_prior
from recon_core.devices import DTYPES

_LR_X = 0.02
_LR_LOG_MULTIPLIER = 0.02


class FastAnyRecipe:
    """State: candidates x (m, d), magnitudes q (m,) of the coefficients, Adam's memory of both."""

    def __init__(self, target: Target, settings: AttackSettings, seed: int) -> None:
        self.settings = settings
        self.engine = make_engine(target, settings)
        device, dtype = attack_device(settings), DTYPES[settings.dtype]
        start = scaled_start(target, settings, seed)
        self.labels, self.signs = start.labels.to(device), start.signs.to(device, dtype)
        self.x = start.x.to(device, dtype)
        self.q = start.lam.to(device, dtype) * (start.scale / settings.m)
        self.x_memory, self.q_memory = torch.zeros_like(self.x), torch.zeros_like(self.q)
        self.x_square, self.q_square = torch.zeros_like(self.x), torch.zeros_like(self.q)
        self.iteration = 0
        self._known: Evaluation | None = None

    def step(self) -> None:
        """Adam on x and log q, cosine rate, box prior as in the papers."""
        settings, point = self.settings, self._point()
        prior = box_prior(self.x, settings.box_low, settings.box_high, settings.prior)
        self.iteration += 1
        factor = 0.5 * (1 + math.cos(math.pi * self.iteration / max(1, settings.iterations)))
        slope = point.gradients.x + settings.weight_prior * prior.gradient
        self.x.sub_(
            adam_direction(self.x_memory, self.x_square, slope, self.iteration), alpha=(settings.lr_x or _LR_X) * factor
        )
        slope = point.gradients.coefficients * self.signs * self.q
        turn = adam_direction(self.q_memory, self.q_square, slope, self.iteration)
        self.q.mul_(torch.exp(turn * (-_LR_LOG_MULTIPLIER * factor)))
        self._known = None

    def _point(self) -> Evaluation:
        if self._known is None:
            alpha = self.settings.alpha_at(self.iteration)
            self._known = self.engine.evaluate(self.x, self.signs * self.q, self.labels, alpha)
        return self._known

    def measure(self) -> Measurement:
        prior = box_prior(self.x, self.settings.box_low, self.settings.box_high, self.settings.prior)
        alpha = self.settings.alpha_at(self.iteration)
        return Measurement(self._point().loss, torch.zeros_like(prior.value), prior.value, alpha)

    def candidates(self) -> Candidates:
        return Candidates(self.x, self.q * self.settings.m, self.labels)

    def take_notes(self) -> list[str]:
        """Nothing is adapted, so there is nothing to say."""
        return []

    def state(self) -> dict[str, Tensor]:
        return {**self._tensors(), "iteration": torch.tensor(self.iteration)}

    def _tensors(self) -> dict[str, Tensor]:
        names = ("x", "q", "x_memory", "q_memory", "x_square", "q_square")
        return {name: getattr(self, name) for name in names}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        for name, tensor in self._tensors().items():
            tensor.copy_(tensors[name])
        self.iteration = int(tensors["iteration"])
        self._known = None
