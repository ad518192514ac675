"""The fast recipe where no hidden dense layer holds the samples: the papers' loss itself, over pixels, by Adam.

Labels, the number of candidates and the gate's annealing are those of `fast`. The unit of the multipliers follows from
the weights: with the candidates of the start, it is the one that explains most of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from recon_core.attacks.adam import adam_direction
from recon_core.attacks.autograd_loss import AutogradStationarity
from recon_core.attacks.labels import assign_labels
from recon_core.attacks.settings import LabelPolicy, StationaritySettings
from recon_core.attacks.stationarity import Evaluation
from recon_core.attacks.stepper import Candidates, Measurement, attack_device
from recon_core.attacks.target import Target
from recon_core.config import Task
from recon_core.devices import DTYPES

_LR_X = 0.02
_LR_LOG_MULTIPLIER = 0.02
# Standard deviation of the pixels at the start: less than an image's, enough to open different gates.
_START = 0.1


class FastModuleRecipe:
    """State: candidates x (m, d), magnitudes q (m,) of the coefficients, Adam's memory of both."""

    def __init__(self, target: Target, settings: StationaritySettings, seed: int) -> None:
        self.settings = settings
        device, dtype = attack_device(settings), DTYPES[settings.dtype]
        self.engine = AutogradStationarity(
            target, dtype=dtype, device=device, layer_weights=settings.layer_weights, block_size=settings.block_size
        )
        architecture, m = target.architecture, settings.m
        policy = settings.label_policy(target.objective)
        policy = LabelPolicy.HALF if policy is LabelPolicy.LEARNT else policy
        self.labels = assign_labels(policy, m, architecture.outputs).to(device)
        signs = torch.ones(m) if target.objective is Task.MULTICLASS else (self.labels.cpu() * 2 - 1)
        self.signs = signs.to(device, dtype)
        generator = torch.Generator().manual_seed(seed)
        d = math.prod(architecture.input_shape)
        self.x = (torch.randn(m, d, generator=generator) * _START).to(device, dtype)
        self.q = torch.rand(m, generator=generator).clamp_min(settings.lam_min).to(device, dtype) / m
        norm = float((target.squared_norms() * self.engine.loss_weights.cpu().double()).sum())
        self.q.mul_(self._unit(norm))
        self.x_memory, self.x_square = torch.zeros_like(self.x), torch.zeros_like(self.x)
        self.q_memory, self.q_square = torch.zeros_like(self.q), torch.zeros_like(self.q)
        self.iteration = 0
        self._known: Evaluation | None = None

    def _unit(self, norm: float) -> float:
        """s that makes |T - s F|^2 least, T the weights and F what the start explains; |T| / |F| where that is < 0.

        With L = |T - F|^2 and g its gradient in c: <T, F> = |T|^2 - L + g.c / 2, |F|^2 = <T, F> + g.c / 2.
        """
        if self.settings.lam_scale is not None:
            return self.settings.lam_scale
        c = self.signs * self.q
        found = self.engine.evaluate(self.x, c, self.labels, self.settings.alpha)
        half = float(found.gradients.coefficients @ c) / 2
        along = norm - float(found.loss.total) + half
        size = max(along + half, torch.finfo(torch.float32).tiny)
        return along / size if along > 0 else math.sqrt(norm / size)

    def step(self) -> None:
        """Adam on x and log q, cosine rate."""
        found = self._point()
        done = self.iteration + 1
        factor = 0.5 * (1 + math.cos(math.pi * self.iteration / max(1, self.settings.iterations)))
        x_step = adam_direction(self.x_memory, self.x_square, found.gradients.x, done)
        q_slope = found.gradients.coefficients * self.signs * self.q
        q_step = adam_direction(self.q_memory, self.q_square, q_slope, done)
        self.x.sub_(x_step, alpha=(self.settings.lr_x or _LR_X) * factor)
        self.q.mul_(torch.exp(q_step * (-_LR_LOG_MULTIPLIER * factor)))
        self.iteration += 1
        self._known = None

    def _point(self) -> Evaluation:
        if self._known is None:
            alpha = self.settings.alpha_at(self.iteration)
            self._known = self.engine.evaluate(self.x, self.signs * self.q, self.labels, alpha)
        return self._known

    def measure(self) -> Measurement:
        zero = torch.zeros_like(self.q[0])
        return Measurement(self._point().loss, zero, zero, self.settings.alpha_at(self.iteration))

    def candidates(self) -> Candidates:
        return Candidates(self.x, self.q * self.settings.m, self.labels)

    def take_notes(self) -> list[str]:
        """Nothing is adapted, so there is nothing to say."""
        return []

    def _tensors(self) -> dict[str, Tensor]:
        names = ("x", "q", "x_memory", "x_square", "q_memory", "q_square")
        return {name: getattr(self, name) for name in names}

    def state(self) -> dict[str, Tensor]:
        return {**self._tensors(), "iteration": torch.tensor(self.iteration)}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        for name, tensor in self._tensors().items():
            tensor.copy_(tensors[name])
        self.iteration = int(tensors["iteration"])
        self._known = None
