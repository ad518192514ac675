"""Gradient descent as the papers run it: a fixed rate, full batch or mini-batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from recon_core.training.losses import Loss
from recon_core.training.trainable import Trainable


@dataclass
class DescentRecipe:
    """theta -= rate * (grad mean loss + decay * theta), one epoch a step.

    With `batch_size` the epoch is a seeded permutation cut into batches (Haim et al. 2022, C.3.3);
    without, one full-batch step (Section 5.1). The work happens in the span of the data, which changes
    nothing but the rounding.
    """

    trainable: Trainable
    loss: Loss
    rate: float
    decay: float
    batch_size: int | None
    seed: int

    def __post_init__(self) -> None:
        self.epoch = 0

    def step(self) -> None:
        """One pass over the data."""
        net = self.trainable
        if self.batch_size is None or self.batch_size >= self.loss.n:
            self._descend(net.data, self.loss)
        else:
            # The order depends on the epoch's number alone, so a resumed run draws the same batches.
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
            order = torch.randperm(self.loss.n, generator=generator).to(net.data.device)
            for batch in torch.split(order, self.batch_size):
                self._descend(net.data[batch], self.loss.subset(batch))
        self.epoch += 1

    def _descend(self, data: Tensor, loss: Loss) -> None:
        run = self.trainable.forward(data)
        rows = loss.rows(run.outputs)
        slopes = loss.slopes(rows.values) / loss.n
        output_grad = (slopes[:, :, None] * rows.directions).sum(1)
        self.trainable.descend_(run, output_grad, self.rate, keep=1.0 - self.rate * self.decay)

    def state(self) -> dict[str, Tensor]:
        return {"epoch": torch.tensor(self.epoch)}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        self.epoch = int(tensors["epoch"])
