"""Gradient flow on the log loss: the papers' path, on a clock that does not stop.

Haim et al. run gradient descent for 10^6 epochs because the gradient dies with the loss. Flow along
-grad log(loss) visits the same points (grad log L = grad L / L only changes the clock), so the
implicit bias (their Theorem 3.1) is the same. One step here covers what thousands of small ones do:

  1. Freeze the gradients of the rows q_i at the current parameters. In the frozen picture the
     parameters move by sum_i c_i grad q_i, the rows by K c with K the n x n Gram matrix of those
     gradients, and c follows dc/dt = w(q + K c), w = -d log(loss)/dq.
  2. Integrate that small equation with `SUBSTEPS` explicit steps inside its stability bound,
     dt <= 2 / lmax(sqrt(w) K sqrt(w)); all of w is non-negative, so c is.
  3. Apply c to the parameters at once, and look at the true gradients again.

The frozen picture holds while no layer moves far, so dt also keeps the relative change of every
layer below `max_change`. Measured against 10 times smaller steps the direction of the weights agrees
better (cosine 0.93 at 0.1) than that of plain steps at a tenth of the curvature bound (0.67).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from recon_core.training.heads import Head
from recon_core.training.trainable import Trainable

SUBSTEPS = 32
# Of the stability bound 2/lmax. Half leaves room for a power iteration that has not converged.
_STABLE = 0.5
_POWER_ITERATIONS = 10


def largest_eigenvalue(matrix: Tensor, start: Tensor) -> Tensor:
    """lmax of a symmetric positive semi-definite matrix, from below, without leaving the device."""
    v = start
    for _ in range(_POWER_ITERATIONS):
        v = matrix @ v
        v = v / v.norm().clamp_min(torch.finfo(v.dtype).tiny)
    return v @ (matrix @ v)


@dataclass
class FlowRecipe:
    """State of a flow: the parameters, and how much gradient-descent time has passed.

    `log_epochs` is the log of the number of full-batch gradient-descent epochs at `epoch_rate` that
    reach the same point: one epoch is `epoch_rate` of the original clock, and dt_original = dt / loss.
    """

    trainable: Trainable
    head: Head
    max_change: float
    log_target: float
    epoch_rate: float

    def __post_init__(self) -> None:
        reference = self.trainable.shrink
        self.log_epochs = torch.full_like(reference, -torch.inf, dtype=reference.dtype)

    def step(self) -> None:
        """One macro step; does nothing once the target loss is reached."""
        net, head = self.trainable, self.head
        run = net.forward()
        rows = head.rows(run.outputs)
        gradients = net.gradients(run, rows.directions)
        gram = torch.stack(gradients.grams).sum(0)
        q = rows.values
        log_total, w = head.log_loss(q)
        flat = w.reshape(-1)
        root = flat.sqrt()
        curvature = largest_eigenvalue(gram * root[:, None] * root, root)
        change = torch.stack(
            [
                (flat @ (layer_gram @ flat)).clamp_min(0).sqrt() / norm.sqrt()
                for layer_gram, norm in zip(gradients.grams, net.squared_norms(), strict=True)
            ]
        ).amax()
        dt = torch.minimum(2 * _STABLE / curvature, self.max_change / (SUBSTEPS * change))
        c = torch.zeros_like(q)
        log_n = math.log(head.n)
        original_time = self.log_epochs + math.log(self.epoch_rate)
        for _ in range(SUBSTEPS):
            log_mean = log_total - log_n
            running = (log_mean > self.log_target) * dt
            c = c + running * w
            # The original loss is the mean, and its clock ticks dt / loss.
            original_time = torch.logaddexp(original_time, running.log() - log_mean)
            log_total, w = head.log_loss(q + (gram @ c.reshape(-1)).view_as(q))
        self.log_epochs.copy_(original_time - math.log(self.epoch_rate))
        net.add_(run, gradients, c)

    def state(self) -> dict[str, Tensor]:
        return {"log_epochs": self.log_epochs}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        self.log_epochs.copy_(tensors["log_epochs"])
