"""Gradient descent at a fixed rate as the papers run it, with the usual regularisation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from recon_core.config import Augmentation
from recon_core.training.augmentation import augment
from recon_core.training.losses import Loss
from recon_core.training.trainable import Pass, Trainable


@dataclass(frozen=True)
class Regularisation:
    """Regularisation besides weight decay. Augmentation needs the whole input space."""

    label_smoothing: float = 0.0
    dropout: float = 0.0
    augmentation: Augmentation = Augmentation.NONE


@dataclass
class DescentRecipe:
    """theta -= rate * (grad mean loss + decay * theta), one epoch a step.

    With `batch_size` the epoch is a seeded permutation cut into batches (Haim et al. 2022, C.3.3);
    without, one full-batch step (Section 5.1). The work happens in the span of the data, which changes
    nothing but the rounding; augmented images leave that span.
    """

    trainable: Trainable
    loss: Loss
    rate: float
    decay: float
    batch_size: int | None
    seed: int
    images: Tensor | None = None
    """(n, *input_shape), centred, where they are to be augmented."""
    against: Regularisation = Regularisation()

    def __post_init__(self) -> None:
        self.epoch = 0

    def step(self) -> None:
        """One pass over the data."""
        # Draws depend on the epoch's number alone, so a resumed run makes the same ones.
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        if self.batch_size is None or self.batch_size >= self.loss.n:
            self._descend(None, self.loss, generator)
        else:
            order = torch.randperm(self.loss.n, generator=generator).to(self.trainable.data.device)
            for batch in torch.split(order, self.batch_size):
                self._descend(batch, self.loss.subset(batch), generator)
        self.epoch += 1

    def _descend(self, batch: Tensor | None, loss: Loss, generator: torch.Generator) -> None:
        run = self._forward(batch, generator)
        output_grad = loss.output_gradients(run.outputs, self.against.label_smoothing) / loss.n
        self.trainable.descend_(run, output_grad, self.rate, keep=1.0 - self.rate * self.decay)

    def _forward(self, batch: Tensor | None, generator: torch.Generator) -> Pass:
        net, how = self.trainable, self.against.augmentation
        if how is Augmentation.NONE:
            data = net.data if batch is None else net.data[batch]
        else:
            assert self.images is not None
            images = self.images if batch is None else self.images[batch]
            data = net.prepare(augment(images, how, generator))[0]
        return net.drop(data, self.against.dropout, generator) if self.against.dropout else net.forward(data)

    def state(self) -> dict[str, Tensor]:
        return {"epoch": torch.tensor(self.epoch)}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        self.epoch = int(tensors["epoch"])
