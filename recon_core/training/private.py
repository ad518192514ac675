"""DP-SGD: clipped per-sample gradients with noise, by Opacus, and what its accountant says was spent.

Abadi et al. 2016. Opacus clips (ghost clipping: norms of per-sample gradients without forming them), adds the noise and
accounts for it; the batches are Poisson samples, as its analysis asks. The guarantee is about adding or removing one
training image. Not covered by it: the mean image that is subtracted from all inputs, choices of settings made with the
data in view, and noise whose seed is known; here it is, so that a run can be repeated, so these are experiments and no
way to train a model for release.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from recon_core.errors import InputError
from recon_core.models import Network
from recon_core.training.losses import Loss
from recon_core.training.trainable import Trainable

ACCOUNTANT = "rdp"


class PrivateRecipe:
    """One epoch a step: n / batch_size Poisson-sampled batches."""

    def __init__(
        self,
        trainable: Trainable,
        images: Tensor,
        loss: Loss,
        *,
        rate: float,
        decay: float,
        batch_size: int,
        seed: int,
        clip_norm: float,
        noise_multiplier: float,
        delta: float,
    ) -> None:
        opacus = load_opacus()
        self.trainable, self.images, self.loss = trainable, images, loss
        self.seed, self.delta, self.noise_multiplier = seed, delta, noise_multiplier
        self.rate = sample_rate(loss.n, batch_size)
        self.batches = batches(loss.n, batch_size)
        self.epoch = 0
        # Opacus's hooks only see modules, so these hold the weights during a step.
        self.network: Network = trainable.to_network().train()
        self.module = opacus.grad_sample.GradSampleModuleFastGradientClipping(
            self.network, max_grad_norm=clip_norm, use_ghost_clipping=True
        )
        self.noise = torch.Generator(device=images.device)
        self.optimiser = opacus.optimizers.DPOptimizerFastGradientClipping(
            torch.optim.SGD(self.module.parameters(), lr=rate, weight_decay=decay),
            noise_multiplier=noise_multiplier,
            max_grad_norm=clip_norm,
            expected_batch_size=max(1, round(self.rate * loss.n)),
            generator=self.noise,
        )

    def step(self) -> None:
        """One pass over the data, on average; its draws depend on the epoch's number alone, for runs that resume."""
        drawn = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        self.noise.manual_seed(self.seed * 1_000_003 + self.epoch)
        with torch.enable_grad(), warnings.catch_warnings():
            # Of hooks on a module whose inputs need no gradient, which images never do.
            warnings.filterwarnings("ignore", "Full backward hook is firing", UserWarning)
            for _ in range(self.batches):
                chosen = torch.rand(self.loss.n, generator=drawn) < self.rate
                self._descend(chosen.nonzero()[:, 0].to(self.images.device))
        self.trainable.load(self.network)
        self.epoch += 1

    def _descend(self, batch: Tensor) -> None:
        from opacus.utils.fast_gradient_clipping_utils import DPTensorFastGradientClipping

        self.optimiser.zero_grad()
        if len(batch):
            loss = self.loss.subset(batch)
            losses = loss.sample_losses(loss.rows(self.module(self.images[batch])).values)
            DPTensorFastGradientClipping(self.module, self.optimiser, losses, "mean").backward()
        else:  # noise alone, as the accountant counts it
            for parameter in self.module.parameters():
                parameter.grad = torch.zeros_like(parameter)
        self.optimiser.step()

    def spent(self) -> dict[str, float]:
        """The epsilon spent by all epochs so far, by Opacus's accountant."""
        epsilon = spent_epsilon(self.noise_multiplier, self.rate, self.epoch * self.batches, self.delta)
        return {"epsilon": epsilon, "delta": self.delta, "noise_multiplier": self.noise_multiplier}

    def state(self) -> dict[str, Tensor]:
        return {"epoch": torch.tensor(self.epoch)}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        self.epoch = int(tensors["epoch"])
        with torch.no_grad():
            kept = self.trainable.to_network().state_dict()
            self.network.load_state_dict(kept)


def batches(n: int, batch_size: int) -> int:
    """Steps of an epoch."""
    return max(1, round(n / batch_size))


def sample_rate(n: int, batch_size: int) -> float:
    """Probability with which each sample is in a batch."""
    return min(1.0, batch_size / n)


def noise_for(epsilon: float, delta: float, rate: float, steps: int) -> float:
    """The noise multiplier with which so many steps spend at most `epsilon`."""
    opacus = load_opacus()
    least = least_epsilon(delta)
    if epsilon < least:  # the search would go on to ever larger noise
        raise InputError(
            f"epsilon must be at least {least:.2g} at delta {delta:g}, below which the accountant shows nothing, "
            f"got {epsilon:g}; use a larger epsilon or delta"
        )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Optimal order is the", UserWarning)
        return float(
            opacus.accountants.utils.get_noise_multiplier(
                target_epsilon=epsilon, target_delta=delta, sample_rate=rate, steps=steps, accountant=ACCOUNTANT
            )
        )


def least_epsilon(delta: float) -> float:
    """What the accountant says of noise without end, and a tenth: it looks at orders alpha up to 63 only.

    With a Renyi divergence of 0 its epsilon is log((alpha - 1) / alpha) - (log delta + log alpha) / (alpha - 1).
    """
    orders = load_opacus().accountants.RDPAccountant.DEFAULT_ALPHAS
    floors = (math.log1p(-1 / alpha) - (math.log(delta) + math.log(alpha)) / (alpha - 1) for alpha in orders)
    return 1.1 * max(0.01, float(min(floors)))


def spent_epsilon(noise_multiplier: float, rate: float, steps: int, delta: float) -> float:
    """Of Opacus's accountant; 0 before the first step."""
    if not steps:
        return 0.0
    accountant = load_opacus().accountants.create_accountant(mechanism=ACCOUNTANT)
    accountant.history = [(noise_multiplier, rate, steps)]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Optimal order is the", UserWarning)
        return float(accountant.get_epsilon(delta=delta))


def load_opacus() -> Any:
    """Opacus with the parts used here, or a sentence how to get it."""
    try:
        import opacus
        import opacus.accountants.utils
        import opacus.grad_sample
        import opacus.optimizers
    except ImportError:
        raise InputError(
            "recipe dpsgd needs Opacus, which is not installed; install it with: pip install 'afterimage[privacy]'"
        ) from None
    return opacus
