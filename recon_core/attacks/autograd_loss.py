"""The stationarity loss of any network through autograd's double backward, as the authors of both papers run it."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from recon_core.attacks.labels import output_directions
from recon_core.attacks.smoothing import SmoothRelu
from recon_core.attacks.stationarity import (
    Evaluation,
    StationarityGradients,
    StationarityLoss,
    checked_layer_weights,
)
from recon_core.attacks.target import Target
from recon_core.errors import InputError
from recon_core.models.modules import twice_differentiable

# Candidates worked on at once where only the loss is wanted and no block size is set.
_BLOCK = 256
# What the per-sample gradients of two blocks of candidates may take.
_GRADIENT_BYTES = 256 * 2**20


class _Fitted(NamedTuple):
    """sum_i c_i grad_theta (e_i . phi(x_i)), one tensor per parameter; phi (m, C); u (m, h) at the anchor's output."""

    parts: tuple[Tensor, ...]
    phi: Tensor
    deltas: Tensor | None


class AutogradStationarity:
    """The loss on one target, whatever its layers; see `DenseStationarity` for the letters.

    The network is called with its parameters as arguments, every ReLU in it smoothed (`SmoothRelu`). The gradients'
    sum gives the residuals R; the loss's own gradient is that of -2 <R, sum> with R held fixed. More than
    `block_size` candidates are worked on in blocks, the residuals first, without a graph.

    Where the first layer is dense (`dense_first`), `basis` and `metric` mean what they do in `DenseStationarity`.
    """

    def __init__(
        self,
        target: Target,
        *,
        dtype: torch.dtype,
        device: torch.device,
        basis: Tensor | None = None,
        layer_weights: Sequence[float] | None = None,
        block_size: int | None = None,
    ) -> None:
        self.objective = target.objective
        self.block_size = block_size
        self.network = copy.deepcopy(target.network).to(device, dtype).requires_grad_(False)
        trained = self.network.trained_parameters()
        groups = target.groups()
        self.names = [name for group in groups for name in group]
        self.parameters = {name: trained[name].detach().clone().requires_grad_() for name in self.names}
        self.aims = [tensor.to(device, dtype) for group in groups for tensor in group.values()]
        # All parameters of a layer count as one.
        self.layer_of = [index for index, group in enumerate(groups) for _ in group]
        self.loss_weights = torch.tensor(checked_layer_weights(layer_weights, target), dtype=dtype, device=device)
        self.basis = basis
        self.metric: Tensor | None = None
        self._anchor = self.network.anchor()
        self._dense = [name for name in self.network.dense_names() if f"{name}.weight" in self.names]
        if basis is not None:
            if not target.architecture.dense_first or self._anchor is None:
                raise InputError(f"a basis needs a first layer that is dense, got {target.architecture}")
            d = math.prod(target.architecture.input_shape)
            if basis.shape[0] != d:
                raise InputError(f"the basis spans inputs of {basis.shape[0]} values, the model takes {d}")

    @property
    def inputs(self) -> int:
        """Columns of the candidates as they are given here: d, or the basis's r."""
        d = math.prod(self.network.architecture.input_shape)
        return d if self.basis is None else self.basis.shape[1]

    @property
    def first_aim(self) -> Tensor:
        """What is to be explained of the first layer's weight, in coordinates of the basis (h, r)."""
        weight = self.aims[self._place("weight")]
        return weight if self.basis is None else weight @ self.basis

    def evaluate(self, x: Tensor, coefficients: Tensor, labels: Tensor, alpha: float) -> Evaluation:
        """Loss and gradients at candidates x (m, d or r) with coefficients c (m,)."""
        if x.shape[1] != self.inputs:
            raise InputError(f"candidates have {x.shape[1]} values each, the model takes {self.inputs}")
        size = self.block_size or len(x)
        blocks = [slice(start, start + size) for start in range(0, len(x), size)]
        residuals = [aim.clone() for aim in self.aims]
        outputs, deltas = [], []
        kept: list[tuple[Tensor, Tensor, tuple[Tensor, ...]]] = []
        single = len(blocks) == 1
        with twice_differentiable(), SmoothRelu(alpha):
            for block in blocks:
                xb, cb = x[block].detach().requires_grad_(), coefficients[block].detach().requires_grad_()
                fitted = self._fitted(xb, cb, labels[block], differentiable=single)
                outputs.append(fitted.phi.detach())
                if fitted.deltas is not None:
                    deltas.append(fitted.deltas)
                for residual, part in zip(residuals, fitted.parts, strict=True):
                    residual.sub_(part.detach())
                if single:
                    kept.append((xb, cb, fitted.parts))
            seen = self._weigh(residuals)
            x_gradient, c_gradient = torch.empty_like(x), torch.empty_like(coefficients)
            for block in blocks:
                if single:
                    xb, cb, parts = kept[0]
                else:
                    xb, cb = x[block].detach().requires_grad_(), coefficients[block].detach().requires_grad_()
                    parts = self._fitted(xb, cb, labels[block], differentiable=True).parts
                inner = torch.stack([(R * part).sum() for R, part in zip(seen.weighted, parts, strict=True)]).sum()
                x_gradient[block], c_gradient[block] = torch.autograd.grad(-2.0 * inner, (xb, cb))
        gradients = StationarityGradients(x_gradient, c_gradient)
        first_deltas = torch.cat(deltas) if deltas else None
        return Evaluation(seen.loss, gradients, torch.cat(outputs), first_deltas, seen.first_residual)

    def residual(self, x: Tensor, coefficients: Tensor, labels: Tensor, alpha: float) -> StationarityLoss:
        """The loss alone, in blocks, without the second backward."""
        residuals = [aim.clone() for aim in self.aims]
        size = self.block_size or _BLOCK
        with twice_differentiable(), SmoothRelu(alpha):
            for start in range(0, len(x), size):
                block = slice(start, start + size)
                fitted = self._fitted(x[block], coefficients[block], labels[block], differentiable=False)
                for residual, part in zip(residuals, fitted.parts, strict=True):
                    residual.sub_(part)
        return self._weigh(residuals).loss

    def gradient_gram(self, x: Tensor, labels: Tensor, alpha: float) -> Tensor:
        """Inner products (m, m) of the candidates' parameter gradients, layers weighted: the curvature in c, halved.

        A dense layer's gradient is u a^T, so its part is (u . u')(a . a'), plus (u . u') for a bias. Those of other
        layers are formed, as many at a time as memory allows.
        """
        gram = x.new_zeros(len(x), len(x))
        for name, (a, u) in self._dense_signals(x, labels, alpha).items():
            weight = self.loss_weights[self.layer_of[self.names.index(f"{name}.weight")]]
            data = a @ a.T
            gram.add_((u @ u.T) * (data + 1.0 if f"{name}.bias" in self.names else data) * weight)
        formed = [name for name in self.names if name.rpartition(".")[0] not in self._dense]
        if not formed:
            return gram
        weights = [self.loss_weights[self.layer_of[self.names.index(name)]] for name in formed]
        numbers = sum(self.parameters[name].numel() for name in formed) * x.element_size()
        size = max(1, min(self.block_size or len(x), _GRADIENT_BYTES // (2 * numbers)))
        blocks = [slice(start, start + size) for start in range(0, len(x), size)]
        for index, block in enumerate(blocks):
            rows = self.sample_gradients(x[block], labels[block], alpha, formed)
            for other in blocks[index:]:
                columns = rows if other is block else self.sample_gradients(x[other], labels[other], alpha, formed)
                part = torch.stack(
                    [
                        w * (mine.reshape(len(mine), -1) @ theirs.reshape(len(theirs), -1).T)
                        for w, mine, theirs in zip(weights, rows, columns, strict=True)
                    ]
                ).sum(0)
                gram[block, other] += part
                if other is not block:
                    gram[other, block] += part.T
        return gram

    def sample_gradients(
        self, x: Tensor, labels: Tensor, alpha: float, names: Sequence[str] | None = None
    ) -> list[Tensor]:
        """grad_theta (e_i . phi(x_i)) of each candidate, (m, *shape) for each parameter, or for those named."""
        inputs = x if self.basis is None else x @ self.basis.T
        values = {name: parameter.detach() for name, parameter in self.parameters.items()}
        wanted = {name: values.pop(name) for name in names or self.names}

        def output(theta: dict[str, Tensor], point: Tensor, direction: Tensor) -> Tensor:
            phi: Tensor = functional_call(self.network, {**values, **theta}, (point[None],))
            return (phi[0] * direction).sum()

        with twice_differentiable(), SmoothRelu(alpha):
            with torch.no_grad():
                e = output_directions(self._call(inputs), labels, self.objective)
            try:
                found = vmap(grad(output), in_dims=(None, 0, 0))(wanted, inputs, e)
            except (RuntimeError, NotImplementedError):  # a layer that vmap does not know, or a choice by value
                each = [grad(output)(wanted, point, direction) for point, direction in zip(inputs, e, strict=True)]
                found = {name: torch.stack([one[name] for one in each]) for name in wanted}
        return [found[name].detach() for name in wanted]

    def _dense_signals(self, x: Tensor, labels: Tensor, alpha: float) -> dict[str, tuple[Tensor, Tensor]]:
        """For every dense layer, what it is fed a (m, F) and the signal u (m, h) that comes back to its output."""
        size = self.block_size or len(x)
        found: dict[str, list[tuple[Tensor, Tensor]]] = {name: [] for name in self._dense}
        with twice_differentiable(), SmoothRelu(alpha):
            for start in range(0, len(x), size):
                inputs = x[start : start + size] if self.basis is None else x[start : start + size] @ self.basis.T
                with self._offsets(self._dense) as passages:
                    phi = self._call(inputs)
                e = output_directions(phi.detach(), labels[start : start + size], self.objective)
                offsets = [passages[name].offset for name in self._dense]
                signals = torch.autograd.grad((e * phi).sum(), offsets) if offsets else ()
                for name, u in zip(self._dense, signals, strict=True):
                    found[name].append((passages[name].fed.detach(), u))
        return {
            name: (torch.cat([a for a, _ in parts]), torch.cat([u for _, u in parts])) for name, parts in found.items()
        }

    def features(self, x: Tensor) -> Tensor:
        """What the anchor is fed (m, F) at inputs x (m, d), with ReLU as it is."""
        return self._through_anchor(x).passage.fed

    def deltas(self, x: Tensor, labels: Callable[[Tensor], Tensor]) -> AnchorSignals:
        """What passes the anchor at inputs x (m, d), forward and back, gates as they are; labels follow from phi."""
        with twice_differentiable():
            seen = self._through_anchor(x.detach())
            e = output_directions(seen.phi.detach(), labels(seen.phi.detach()), self.objective)
            (u,) = torch.autograd.grad((e * seen.phi).sum(), seen.passage.offset)
        return AnchorSignals(u, seen.phi.detach(), seen.passage.fed.detach())

    def _through_anchor(self, x: Tensor) -> _Seen:
        assert self._anchor is not None
        with self._offsets([self._anchor]) as passages:
            phi = self._call(x)
        return _Seen(phi, passages[self._anchor])

    def _call(self, x: Tensor) -> Tensor:
        # A copy, because a module may work on its input in place.
        found: Tensor = functional_call(self.network, self.parameters, (x.clone(),))
        return found

    @contextmanager
    def _offsets(self, names: Sequence[str]) -> Iterator[dict[str, _Passage]]:
        """Zeros added to the outputs of these dense layers, by which to differentiate there."""
        passages: dict[str, _Passage] = {}

        def at(name: str) -> Callable[[nn.Module, tuple[Any, ...], Tensor], Tensor]:
            def hook(_: nn.Module, given: tuple[Any, ...], output: Tensor) -> Tensor:
                passages[name] = _Passage(given[0], torch.zeros_like(output, requires_grad=True))
                return output + passages[name].offset

            return hook

        handles = [self.network.get_submodule(name).register_forward_hook(at(name)) for name in names]
        try:
            yield passages
        finally:
            for handle in handles:
                handle.remove()

    def _fitted(self, x: Tensor, c: Tensor, labels: Tensor, *, differentiable: bool) -> _Fitted:
        inputs = x if self.basis is None else x @ self.basis.T
        anchors = [self._anchor] if self._anchor is not None and self.basis is not None else []
        with self._offsets(anchors) as passages:
            phi = self._call(inputs)
        e = output_directions(phi.detach(), labels, self.objective)
        directed = e * phi
        deltas: Tensor | None = None
        for name in anchors:
            (deltas,) = torch.autograd.grad(directed.sum(), passages[name].offset, retain_graph=True)
        weighted = (c[:, None] * directed).sum()
        found = torch.autograd.grad(
            weighted, list(self.parameters.values()), create_graph=differentiable, allow_unused=True
        )
        parts = tuple(
            torch.zeros_like(parameter) if part is None else part
            for part, parameter in zip(found, self.parameters.values(), strict=True)
        )
        return _Fitted(parts, phi, deltas)

    def _place(self, part: str) -> int:
        return self.names.index(f"{self._anchor}.{part}")

    def _weigh(self, residuals: Sequence[Tensor]) -> _Weighed:
        """The loss of residuals, and the residuals as its gradient sees them: weighted, the first one in its metric."""
        seen = list(residuals)
        squares = [residual.square().sum() for residual in residuals]
        first_residual: Tensor | None = None
        if self.metric is not None and self.basis is not None:
            place = self._place("weight")
            inside = residuals[place] @ self.basis
            outside = (squares[place] - inside.square().sum()).clamp_min(0.0)
            biased = f"{self._anchor}.bias" in self.names
            bias = self._place("bias") if biased else None
            first_residual = inside if bias is None else torch.cat([inside, residuals[bias][:, None]], 1)
            metered = first_residual @ self.metric
            squares[place] = (first_residual * metered).sum() + outside
            seen[place] = metered[:, : inside.shape[1]] @ self.basis.T
            if bias is not None:
                squares[bias] = torch.zeros_like(squares[bias])  # counted with the weight
                seen[bias] = metered[:, -1]
        per_layer = torch.stack(
            [
                torch.stack([square for square, own in zip(squares, self.layer_of, strict=True) if own == layer]).sum()
                for layer in range(len(self.loss_weights))
            ]
        )
        weighted = [self.loss_weights[layer] * part for layer, part in zip(self.layer_of, seen, strict=True)]
        loss = StationarityLoss(per_layer, per_layer @ self.loss_weights)
        return _Weighed(loss, weighted, first_residual)


class AnchorSignals(NamedTuple):
    """u (m, h) at the output of the anchor, phi (m, C), and what the anchor was fed (m, F)."""

    deltas: Tensor
    outputs: Tensor
    fed: Tensor


class _Passage(NamedTuple):
    """What a dense layer was fed in a forward pass, and the zeros added to its output."""

    fed: Tensor
    offset: Tensor


class _Seen(NamedTuple):
    phi: Tensor
    passage: _Passage


class _Weighed(NamedTuple):
    loss: StationarityLoss
    weighted: list[Tensor]
    first_residual: Tensor | None
