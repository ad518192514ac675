"""A module of one's own, trained by a loop of one's own; its training images, out of its weights.

    python examples/own_module.py

Any nn.Module will do that is made of Linear layers with ReLU between them and has no bias in the last one.
"""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.nn.functional import softplus

import recon_core as rc


class Classifier(nn.Module):
    """Animals or vehicles: one output, positive or negative."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(inputs, width)
        self.output = nn.Linear(width, 1, bias=False)
        with torch.no_grad():  # a small start is soon forgotten, and what is left in the weights is the data
            self.hidden.weight.mul_(1e-2)
            self.hidden.bias.mul_(1e-2)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.output(torch.relu(self.hidden(images.flatten(1))))[:, 0]


def main() -> None:
    asked = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    asked.add_argument("--n", type=int, default=10, help="training images")
    asked.add_argument("--steps", type=int, default=5000, help="of gradient descent")
    asked.add_argument("--iterations", type=int, default=None, help="of the attack; its own choice if left out")
    given = asked.parse_args()

    torch.manual_seed(0)
    data = rc.load_data("cifar10", n=given.n)
    images, signs = data.samples.train_x, data.samples.signs  # centred (n, 3, 32, 32), and -1 or 1
    module = Classifier(images[0].numel(), width=400)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for _ in range(given.steps):
        optimizer.zero_grad()
        loss = softplus(-signs * module(images)).mean()
        loss.backward()
        optimizer.step()
    print(f"trained to a loss of {loss.item():.1e}")

    attack = {} if given.iterations is None else {"iterations": given.iterations}
    found = rc.reconstruct(module, m=2 * given.n, **attack)  # weights only
    score = rc.match(found, data)
    print(score)


if __name__ == "__main__":
    main()
