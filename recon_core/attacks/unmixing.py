"""Images told apart by their edges alone, inside the row space of the first layer.

Every training image lies in the row space of W_1 (`rowspace`), and so does every mixture of them. A mixture of images
has differences between neighbouring pixels everywhere, an image has few and strong ones. So images are directions in
that space along which the differences are sparse: local minima of

  f(y) = mean_p log(sigma + u_p^2),   u = g / sqrt(mean g^2),   g the finite differences of the image of y,

which depends on neither scale nor sign. This is independent component analysis with a heavy-tailed density, the images
being the sources (Bell and Sejnowski 1997; Hyvarinen 1999). No gate, multiplier or label takes part, and nothing is
learnt from data. Coordinates are whitened, so that all directions start out alike.

Descent from random directions finds the images with the strongest edges again and again. Later rounds therefore begin
orthogonal to what was found, stay there for half of their steps, and are then let go.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import normalize

# Of the mean square difference: where a difference counts as none.
_SIGMA = 0.03
# Angle of a step on the sphere, in a free round and once a confined one is let go; both end at 0.
_RATE, _RATE_LET_GO = 0.05, 0.02
# Absolute cosine, whitened, from which two directions are one image.
_SAME = 0.9
_MOMENTUM, _SECOND = 0.9, 0.99
# A direction that all differences ignore, as a part of the one they see best.
_UNSEEN = 1e-8
_HALF_STEPS, _HALF_RATE = 60, 0.01


class _Descent:
    """Adam with one step size for each row, on the sphere. State: the two memories."""

    def __init__(self, y: Tensor) -> None:
        self.mean, self.square = torch.zeros_like(y), torch.zeros_like(y[:, :1])

    def advance(self, y: Tensor, slope: Tensor, rate: float, step: int, steps: int) -> Tensor:
        """Step `step`, counted from 0, of `steps`, over which the rate falls to 0."""
        self.mean.lerp_(slope, 1 - _MOMENTUM)
        self.square.lerp_(slope.square().mean(1, keepdim=True), 1 - _SECOND)
        mean = self.mean / (1 - _MOMENTUM ** (step + 1))
        size = (self.square / (1 - _SECOND ** (step + 1))).sqrt().clamp_min(torch.finfo(y.dtype).tiny)
        return normalize(y - mean / size * (rate * 0.5 * (1 + math.cos(math.pi * step / steps))))


class EdgeSparsity:
    """f and its slope for whitened directions y (k, r), given the differences (r, N) of the basis."""

    def __init__(self, differences: Tensor) -> None:
        covariance = (differences @ differences.T / differences.shape[1]).double().cpu()
        values, vectors = torch.linalg.eigh(covariance)
        values = values.clamp_min(values[-1].clamp_min(torch.finfo(values.dtype).tiny) * _UNSEEN)
        self.whiten = ((vectors * values.rsqrt()) @ vectors.T).to(differences)
        self.unwhiten = ((vectors * values.sqrt()) @ vectors.T).to(differences)
        self.differences = self.whiten @ differences

    def value(self, y: Tensor) -> Tensor:
        """f (k,)."""
        u = self._unit(y @ self.differences)
        return torch.log(_SIGMA + u.square()).mean(1)

    def slope(self, y: Tensor) -> Tensor:
        """Half the gradient (k, r) on the sphere."""
        g = y @ self.differences
        size = g.square().mean(1, keepdim=True).sqrt().clamp_min(torch.finfo(g.dtype).tiny ** 0.25)
        u = g / size
        pull = u / (_SIGMA + u.square())
        pull = (pull - u * (pull * u).mean(1, keepdim=True)) / (size * g.shape[1])
        slope: Tensor = pull @ self.differences.T
        return slope - y * (slope * y).sum(1, keepdim=True)

    @staticmethod
    def _unit(g: Tensor) -> Tensor:
        return g / g.square().mean(1, keepdim=True).sqrt().clamp_min(torch.finfo(g.dtype).tiny ** 0.25)


def basis_differences(basis: Tensor, shape: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Differences between horizontal and between vertical neighbours of the images in a basis (d, r), (r, N) each."""
    images = basis.T.reshape(-1, *shape)
    across = images[..., 1:] - images[..., :-1]
    down = images[..., 1:, :] - images[..., :-1, :]
    return across.flatten(1), down.flatten(1)


class Unmixing:
    """Rounds of descent. State: directions y (starts, r) under way, their memories, components found (k, r)."""

    def __init__(self, basis: Tensor, shape: Sequence[int], *, starts: int, rounds: int, steps: int, seed: int) -> None:
        self.across, self.down = basis_differences(basis, shape)
        self.sparsity = EdgeSparsity(torch.cat([self.across, self.down], 1))
        self.starts, self.seed = starts, seed
        self.round_steps = max(2, steps // rounds)
        self.steps = steps
        self.iteration = 0
        self.found = basis.new_zeros(0, basis.shape[1])
        self._begin_round()

    @property
    def done(self) -> bool:
        return self.iteration >= self.steps

    @property
    def _round(self) -> int:
        return self.iteration // self.round_steps

    def _begin_round(self) -> None:
        rank = self.found.shape[1]
        generator = torch.Generator().manual_seed(self.seed + 1_000_003 * self._round)
        y = torch.randn(self.starts, rank, generator=generator).to(self.found)
        self._confine()
        self.y = normalize(self._outside(y))
        self.descent = _Descent(self.y)

    def _confine(self) -> None:
        """An orthonormal basis of what was found; None where nothing would be left."""
        count, rank = self.found.shape
        self.walls = torch.linalg.qr(self.found.T).Q.T if 0 < count < rank - 1 else None

    def _outside(self, y: Tensor) -> Tensor:
        return y if self.walls is None else y - y @ self.walls.T @ self.walls

    def step(self) -> None:
        """One step of all starts; what they found is gathered where a round ends."""
        into = self.iteration % self.round_steps
        half = self.round_steps // 2
        slope = self.sparsity.slope(self.y)
        length, rate = self.round_steps, _RATE
        if self.walls is not None and into < half:
            slope, length = self._outside(slope), half
        elif self.walls is not None:
            into, length, rate = into - half, self.round_steps - half, _RATE_LET_GO
        if into == 0:
            self.descent = _Descent(self.y)
        self.y = self.descent.advance(self.y, slope, rate, into, length)
        self.iteration += 1
        if self.iteration % self.round_steps == 0 or self.done:
            self._gather()
            if not self.done:
                self._begin_round()

    def _gather(self) -> None:
        """Add what the starts have come to, sparsest first, each direction once."""
        order = self.sparsity.value(self.y).argsort(stable=True)
        ended = self.y[order]
        known = torch.cat([self.found, ended])
        near = ((known @ known.T).abs() > _SAME).cpu().numpy()
        kept = list(range(len(self.found)))
        for index in range(len(self.found), len(known)):
            if not near[index, kept].any():
                kept.append(index)
        self.found = known[kept]

    def components(self) -> Tensor:
        """What was found, (k, r), as unit coordinates in the basis."""
        return normalize(self.found @ self.sparsity.whiten)

    def under_way(self) -> Tensor:
        """Where the starts are now, (starts, r), as unit coordinates in the basis."""
        return normalize(self.y @ self.sparsity.whiten)

    def stability(self, z: Tensor) -> Tensor:
        """(k,) in [0, 1]: do horizontal and vertical differences, each by itself, say the same of coordinates z (k, r)?

        From z the sparsest direction is looked for twice, once with either half of the differences; this is the
        absolute cosine of the two. An image is found by both, a direction that is sparse by chance by one.
        """
        ends = []
        for differences in (self.across, self.down):
            half = EdgeSparsity(differences)
            y = normalize(z @ half.unwhiten)
            descent = _Descent(y)
            for step in range(_HALF_STEPS):
                y = descent.advance(y, half.slope(y), _HALF_RATE, step, _HALF_STEPS)
            ends.append(normalize(y @ half.whiten))
        return (ends[0] * ends[1]).sum(1).abs()

    def state(self) -> dict[str, Tensor]:
        memory = {"mean": self.descent.mean, "square": self.descent.square}
        return {"iteration": torch.tensor([self.iteration]), "y": self.y, "found": self.found, **memory}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        self.iteration = int(tensors["iteration"])
        self.y, self.found = tensors["y"].to(self.y), tensors["found"].to(self.y)
        self.descent.mean, self.descent.square = tensors["mean"].to(self.y), tensors["square"].to(self.y)
        self._confine()
