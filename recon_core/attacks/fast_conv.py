"""The fast recipe for layers in front of dense ones: images whose activations lie in the first dense layer's rows.

Written for one convolution, h = relu(conv(x)), whose gradient is written out; any other layers in front, of a stack of
convolutions or of somebody's own module, are differentiated by autograd.

With weight decay the first dense layer ends as W = sum_i c_i u_i h_i^T, h_i = relu(conv(x_i)), plus what decay has left
of its initialisation. So the activations of every sample lie in the row space of W, as far as that stands above the
initialisation's noise (`rowspace`), while those of other images do not: on 25+25 CIFAR images, 33 directions standing
out, the median of |h - P h| / |h| was 0.31 for samples (0.11 at best) and 0.50 for images never seen (0.33 at best), P
being the projection on the row space. The convolution ties an h in that space to an image, so images are searched for
directly: every candidate minimises

  log |h - P h|^2 - log (g . P h)^2,   h = relu(conv(x)),

by Adam. Without the second term a short trial ended with much the same small residual everywhere and 2 images; g
is random, so different candidates prefer different samples. They come in rounds: activations found in one round are
removed from the directions of the next (deflation), which leaves room for samples that weigh less in W.

This solves the equation of one layer without its multipliers, for each candidate alone. Labels then follow from the
network's output, whose sign is right on its own samples, and multipliers from least squares on the dense layer.
Only the row space is used, so a network whose neurons all follow a few directions shows a few mixtures and no samples.

What limits it (draw 101 of 50 CIFAR-10 images, CONV(3,32)-1000-1, decay 1e-3). From the standard start the neurons fall
into two groups, W is nearly of rank 2 and 23 weak directions stand out of its noise; by the time decay has brought the
noise down it has collapsed the kernels too, to two of 27 (singular values 1.29, 0.65, 0.08, ...), so that even true
activations tell little of the image: 7 good, with the edge prior on x or without it. A dense layer with a small start
shows its weak directions before the kernels collapse (preset cifar10-conv-small-start): 25 to 29 good over three attack
seeds. Directions of W where h is sparse and not negative, found by descent as in `unmixing`, agree with samples up to a
cosine of 0.99 where the space is exact, but inverting the convolution there gave fewer images than this search.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from recon_core.attacks.adam import adam_direction
from recon_core.attacks.autograd_loss import AutogradStationarity
from recon_core.attacks.rowspace import row_space
from recon_core.attacks.settings import StationaritySettings
from recon_core.attacks.stationarity import StationarityLoss
from recon_core.attacks.stepper import Candidates, Measurement, attack_device
from recon_core.attacks.target import Target
from recon_core.config import Task
from recon_core.devices import DTYPES
from recon_core.errors import InputError

_LR_X = 0.03
# Standard deviation of the pixels at the start: less than an image's, enough to open different gates.
_START = 0.1
_ROUNDS = 4
# A candidate counts as found with this part of |h| outside the row space at most, and this part of P h new at least.
_FOUND_OUTSIDE = 0.25
_FOUND_NEW = 0.3
# Candidates are independent, so this only bounds memory: (block, activations) a few times over.
_BLOCK = 256
# Multipliers and the papers' residual cost as much as several steps, so they are looked at this many times a round.
_LOOKS = 2
_FIT_STEPS = 300


class _Activations(NamedTuple):
    """z = conv(x) (m, C, H, W), h = relu(z) (m, F), and h's coordinates a (m, r) in the row space."""

    z: Tensor
    h: Tensor
    a: Tensor


class ConvSearch:
    """The loss above and its gradient. `basis` (F, r) has orthonormal columns."""

    def __init__(self, kernel: Tensor, bias: Tensor | None, basis: Tensor, input_shape: tuple[int, ...]) -> None:
        self.kernel, self.bias, self.basis = kernel, bias, basis
        self.input_shape = input_shape

    def activations(self, x: Tensor) -> _Activations:
        z = F.conv2d(x.view(-1, *self.input_shape), self.kernel, self.bias)
        h = z.relu().flatten(1)
        return _Activations(z, h, h @ self.basis)

    def outside(self, x: Tensor) -> Tensor:
        """|h - P h| / |h| of each candidate (m,)."""
        _, h, a = self.activations(x)
        whole = h.square().sum(1).clamp_min(_tiny(h))
        return ((whole - a.square().sum(1)).clamp_min(0) / whole).sqrt()

    def value(self, x: Tensor, g: Tensor) -> Tensor:
        """The loss of each candidate (m,) for directions g (m, r)."""
        _, h, a = self.activations(x)
        return _left(h, a).log() - _towards(a, g).square().clamp_min(_tiny(h)).log()

    def gradient(self, x: Tensor, g: Tensor) -> Tensor:
        """Its gradient (m, d): 2 (h - P h) / |h - P h|^2 - 2 P g / (g . P h), back through the gates."""
        z, h, a = self.activations(x)
        left, along = _left(h, a), _towards(a, g)
        pull = a * (2 / left)[:, None] + g * (2 / along)[:, None]
        slope = h.mul_((2 / left)[:, None]).addmm_(pull, self.basis.T, alpha=-1)
        slope = slope.view_as(z).mul_(z > 0)
        return F.conv_transpose2d(slope, self.kernel).flatten(1)


class FeatureSearch:
    """The same with h = features(x) (m, F) of whatever stands in front of the dense layer, by autograd."""

    def __init__(self, features: Callable[[Tensor], Tensor], basis: Tensor) -> None:
        self.features, self.basis = features, basis

    def activations(self, x: Tensor) -> _Activations:
        h = self.features(x).detach()
        return _Activations(h, h, h @ self.basis)

    def outside(self, x: Tensor) -> Tensor:
        """|h - P h| / |h| of each candidate (m,)."""
        _, h, a = self.activations(x)
        return (_left(h, a) / h.square().sum(1).clamp_min(_tiny(h))).sqrt()

    def gradient(self, x: Tensor, g: Tensor) -> Tensor:
        """As in `ConvSearch`."""
        with torch.enable_grad():
            point = x.detach().requires_grad_()
            h = self.features(point)
            a = h.detach() @ self.basis
            left, along = _left(h.detach(), a), _towards(a, g)
            pull = a * (2 / left)[:, None] + g * (2 / along)[:, None]
            slope = h.detach() * (2 / left)[:, None] - pull @ self.basis.T
            (found,) = torch.autograd.grad(h, point, slope)
        return found


def _left(h: Tensor, a: Tensor) -> Tensor:
    """|h - P h|^2, kept off zero by the rounding of the two terms it is the difference of."""
    whole = h.square().sum(1)
    return torch.maximum(whole - a.square().sum(1), whole * torch.finfo(h.dtype).eps).clamp_min(_tiny(h))


def _towards(a: Tensor, g: Tensor) -> Tensor:
    """g . a (m,), kept off zero with its sign."""
    along = (a * g).sum(1)
    return torch.where(along < 0, along.clamp_max(-_tiny(a)), along.clamp_min(_tiny(a)))


def _tiny(like: Tensor) -> float:
    return 1e-12 if like.dtype == torch.float32 else 1e-30


class FastConvRecipe:
    """State: candidates x (m, d), their directions g (m, r), Adam's memory of x, and what was found.

    The m candidates are split into rounds of consecutive rows; one round moves at a time.
    """

    def __init__(self, target: Target, settings: StationaritySettings, seed: int) -> None:
        architecture = target.architecture
        if architecture.dense_first or target.network.anchor() is None:
            raise InputError(f"this recipe needs layers in front of two dense ones, got {architecture}")
        self.settings, self.objective = settings, target.objective
        device, dtype = attack_device(settings), DTYPES[settings.dtype]
        dense = target.anchored().weight
        space = row_space(dense, getattr(settings, "rank", None))
        basis = space.basis.to(device, dtype)
        self.engine = AutogradStationarity(
            target, dtype=dtype, device=device, layer_weights=settings.layer_weights, block_size=settings.block_size
        )
        self.search: ConvSearch | FeatureSearch = FeatureSearch(self.engine.features, basis)
        if architecture.conv_kernel is not None and architecture.activation == "relu":
            conv = target.network.layers[0]
            assert isinstance(conv, nn.Conv2d)
            bias = None if conv.bias is None else conv.bias.detach().to(device, dtype)
            self.search = ConvSearch(conv.weight.detach().to(device, dtype), bias, basis, architecture.input_shape)
        self.dense = dense.to(device, dtype)
        m, rank, d = settings.m, basis.shape[1], math.prod(architecture.input_shape)
        generator = torch.Generator().manual_seed(seed)
        self.x = (torch.randn(m, d, generator=generator) * _START).to(device, dtype)
        self.g = torch.randn(m, rank, generator=generator).to(device, dtype)
        self.memory, self.square = torch.zeros_like(self.x), torch.zeros_like(self.x)
        # Orthonormal rows, as many as candidates may be found; those not in use are zero.
        self.known = torch.zeros(rank, rank, device=device, dtype=dtype)
        self.known_count = 0
        rounds = min(_ROUNDS, m, settings.iterations)
        self.rounds = [(m * k // rounds, m * (k + 1) // rounds) for k in range(rounds)]
        self.starts = [settings.iterations * k // rounds for k in range(rounds + 1)]
        self.q = torch.zeros(m, device=device, dtype=dtype)
        self.labels = torch.zeros(m, device=device, dtype=torch.long)
        self.per_layer = torch.zeros(architecture.depth, device=device, dtype=dtype)
        self.looked_at = -1
        self.iteration = 0
        self.notes: list[str] = [
            f"{rank} directions of the first dense layer stand above the noise of its initialisation"
        ]

    def step(self) -> None:
        """Adam on the candidates of the round this iteration belongs to, cosine rate."""
        current = self._round()
        start, end = self.starts[current], self.starts[current + 1]
        if self.iteration == start and current:
            self._deflate(current)
        done = self.iteration - start + 1
        rate = (self.settings.lr_x or _LR_X) * 0.5 * (1 + math.cos(math.pi * (done - 1) / (end - start)))
        for rows in self._blocks(*self.rounds[current]):
            slope = self.search.gradient(self.x[rows], self.g[rows])
            turn = adam_direction(self.memory[rows], self.square[rows], slope, done)
            self.x[rows].sub_(turn, alpha=rate)
        self.iteration += 1

    def _round(self) -> int:
        return next(k for k in range(len(self.rounds)) if self.iteration < self.starts[k + 1])

    def _blocks(self, first: int, last: int) -> Iterator[slice]:
        size = min(_BLOCK, self.settings.block_size or _BLOCK)
        for start in range(first, last, size):
            yield slice(start, min(start + size, last))

    def _deflate(self, current: int) -> None:
        """Add what the last round found to the known directions, and keep the directions to come off them."""
        first, last = self.rounds[current - 1]
        blocks = [self.x[rows] for rows in self._blocks(first, last)]
        outside = torch.cat([self.search.outside(x) for x in blocks])
        coordinates = torch.cat([self.search.activations(x).a for x in blocks])
        before = self.known_count
        for row in outside.argsort().tolist():
            if float(outside[row]) > _FOUND_OUTSIDE or self.known_count >= len(self.known) - 1:
                break
            a = coordinates[row] / coordinates[row].norm().clamp_min(_tiny(coordinates))
            # Twice is enough for Gram-Schmidt to be exact to rounding.
            new = a - self.known.T @ (self.known @ a)
            size = float(new.norm())
            if size > _FOUND_NEW:
                new = new - self.known.T @ (self.known @ new)
                self.known[self.known_count] = new / new.norm()
                self.known_count += 1
        rows = slice(last, None)
        self.g[rows] -= (self.g[rows] @ self.known.T) @ self.known
        self.notes.append(
            f"round {current} found {self.known_count - before} activations in the row space; "
            f"round {current + 1} looks elsewhere"
        )

    def _look(self) -> None:
        """Labels, multipliers and the papers' residual, where they are due; a matter of the iteration alone."""
        every = max(1, self.starts[1] // _LOOKS)
        due = self.iteration - self.iteration % every if self.iteration < self.settings.iterations else self.iteration
        if self.looked_at == due:
            return
        self.looked_at = due
        activations, deltas = [], []
        for rows in self._blocks(0, len(self.x)):
            signals = self.engine.deltas(self.x[rows], self._labels)
            self.labels[rows] = self._labels(signals.outputs)
            activations.append(signals.fed)
            deltas.append(signals.deltas)
        h, u = torch.cat(activations), torch.cat(deltas)
        signs = self._signs()
        self.q.copy_(_fit((u @ u.T) * (h @ h.T), signs, ((u @ self.dense) * h).sum(1)))
        loss = self.engine.residual(self.x, signs * self.q, self.labels, self._alpha())
        self.per_layer.copy_(loss.per_layer)

    def _labels(self, phi: Tensor) -> Tensor:
        """Class indices (m,) as the network gives them."""
        return phi.argmax(1) if self.objective is Task.MULTICLASS else (phi[:, 0] > 0).long()

    def _signs(self) -> Tensor:
        return torch.ones_like(self.q) if self.objective is Task.MULTICLASS else self.labels.to(self.q) * 2 - 1

    def _alpha(self) -> float:
        return self.settings.alpha_end or self.settings.alpha

    def measure(self) -> Measurement:
        """The papers' residual with fitted multipliers, as of the last look; see `_LOOKS`."""
        self._look()
        zero = torch.zeros_like(self.per_layer[0])
        total = self.per_layer @ self.engine.loss_weights
        return Measurement(StationarityLoss(self.per_layer.clone(), total), zero, zero, self._alpha())

    def candidates(self) -> Candidates:
        self._look()
        return Candidates(self.x, self.q * self.settings.m, self.labels)

    def take_notes(self) -> list[str]:
        notes, self.notes = self.notes, []
        return notes

    def _tensors(self) -> dict[str, Tensor]:
        names = ("x", "g", "memory", "square", "known", "q", "labels", "per_layer")
        return {name: getattr(self, name) for name in names}

    def state(self) -> dict[str, Tensor]:
        return {**self._tensors(), "progress": torch.tensor([self.iteration, self.known_count, self.looked_at])}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        for name, tensor in self._tensors().items():
            tensor.copy_(tensors[name])
        self.iteration, self.known_count, self.looked_at = tensors["progress"].tolist()
        self.notes = []


def _fit(gram: Tensor, signs: Tensor, inner: Tensor) -> Tensor:
    """Non-negative q (m,) that bring sum_i signs_i q_i G_i nearest to the layer: accelerated projected gradient.

    In a few cautious steps, since it is done at every look: where candidates are alike it stops short of the fit that
    `copies` solves to the end, so the two are not one function.
    """
    gram, inner = gram * signs[:, None] * signs, inner * signs
    # Unit gradients, so that no candidate's size sets the step of the others.
    size = gram.diagonal().clamp_min(_tiny(gram)).sqrt()
    gram, inner = gram / (size[:, None] * size), inner / size
    rate = 1 / gram.abs().sum(1).amax()
    q = torch.zeros_like(inner)
    ahead, momentum = q, 1.0
    for _ in range(_FIT_STEPS):
        following = (ahead - rate * (gram @ ahead - inner)).clamp_min(0)
        after = 0.5 * (1 + math.sqrt(1 + 4 * momentum * momentum))
        ahead = following + ((momentum - 1) / after) * (following - q)
        q, momentum = following, after
    return q / size
