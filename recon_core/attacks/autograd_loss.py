"""The stationarity loss of any network through autograd's double backward, as the authors of both papers run it."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from recon_core.attacks.labels import output_directions
from recon_core.attacks.stationarity import (
    Evaluation,
    StationarityGradients,
    StationarityLoss,
    checked_layer_weights,
)
from recon_core.attacks.target import Target
from recon_core.errors import InputError

# Candidates worked on at once where only the loss is wanted and no block size is set.
_BLOCK = 256


class _GatedRelu(torch.autograd.Function):
    """relu(z) forward, times sigmoid(alpha z) backward (Haim et al. 2022, App. B.2).

    The backward is made of differentiable operations on z, so a second derivative sees
    alpha s (1 - s), while the forward stays the ReLU that the network was trained with.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, alpha: float) -> Tensor:
        ctx.save_for_backward(z)
        ctx.alpha = alpha
        return z.relu()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (z,) = ctx.saved_tensors
        return grads[0] * torch.sigmoid(ctx.alpha * z), None


def gated_relu(alpha: float) -> Callable[[Tensor], Tensor]:
    """The activation whose forward is relu(z) and whose derivative is sigmoid(alpha z)."""

    def activation(z: Tensor) -> Tensor:
        result: Tensor = _GatedRelu.apply(z, alpha)  # type: ignore[no-untyped-call]
        return result

    return activation


class AutogradStationarity:
    """The loss on one target, whatever its layers; see `DenseStationarity` for the letters.

    Up to `block_size` candidates share one graph. More are worked on in blocks: the gradients' sum first,
    without a graph, then -2 <R, gradient of the block> with R held fixed, which has the same derivatives.
    """

    def __init__(
        self,
        target: Target,
        *,
        dtype: torch.dtype,
        device: torch.device,
        layer_weights: Sequence[float] | None = None,
        block_size: int | None = None,
    ) -> None:
        self.objective = target.objective
        self.block_size = block_size
        self.network = copy.deepcopy(target.network).to(device, dtype).requires_grad_(True)
        self.parameters = list(self.network.parameters())
        self.aims = [tensor.to(device, dtype) for layer in target.explained() for tensor in layer if tensor is not None]
        # Weight and bias of a layer count as one; parameter names read layers.<index>.<weight or bias>.
        self.layer_of = [int(name.split(".")[1]) for name, _ in self.network.named_parameters()]
        self.loss_weights = torch.tensor(checked_layer_weights(layer_weights, target), dtype=dtype, device=device)

    def evaluate(self, x: Tensor, coefficients: Tensor, labels: Tensor, alpha: float) -> Evaluation:
        """Loss and gradients at candidates x (m, d) with coefficients c (m,)."""
        d = math.prod(self.network.architecture.input_shape)
        if x.shape[1] != d:
            raise InputError(f"candidates have {x.shape[1]} values each, the model takes {d}")
        with torch.enable_grad():
            if self.block_size is not None and len(x) > self.block_size:
                return self._evaluate_blocks(x, coefficients, labels, alpha, self.block_size)
            x, c = x.detach().requires_grad_(), coefficients.detach().requires_grad_()
            fitted, phi = self._fitted(x, c, labels, alpha, differentiable=True)
            loss = self._loss([aim - part for aim, part in zip(self.aims, fitted, strict=True)])
            gradients = torch.autograd.grad(loss.total, (x, c))
        detached = StationarityLoss(loss.per_layer.detach(), loss.total.detach())
        return Evaluation(detached, StationarityGradients(*gradients), phi.detach(), None)

    def residual(self, x: Tensor, coefficients: Tensor, labels: Tensor, alpha: float) -> StationarityLoss:
        """The loss alone, in blocks, without the second backward."""
        residuals = [aim.clone() for aim in self.aims]
        size = self.block_size or _BLOCK
        with torch.enable_grad():
            for start in range(0, len(x), size):
                block = slice(start, start + size)
                fitted, _ = self._fitted(x[block], coefficients[block], labels[block], alpha, differentiable=False)
                for residual, part in zip(residuals, fitted, strict=True):
                    residual.sub_(part)
        return self._loss(residuals)

    def _evaluate_blocks(self, x: Tensor, c: Tensor, labels: Tensor, alpha: float, size: int) -> Evaluation:
        residuals = [aim.clone() for aim in self.aims]
        blocks = [slice(start, start + size) for start in range(0, len(x), size)]
        outputs = []
        for block in blocks:
            fitted, phi = self._fitted(x[block], c[block], labels[block], alpha, differentiable=False)
            outputs.append(phi.detach())
            for residual, part in zip(residuals, fitted, strict=True):
                residual.sub_(part)
        loss = self._loss(residuals)
        weighted = [self.loss_weights[layer] * R for layer, R in zip(self.layer_of, residuals, strict=True)]
        x_gradient, c_gradient = torch.empty_like(x), torch.empty_like(c)
        for block in blocks:
            xb, cb = x[block].detach().requires_grad_(), c[block].detach().requires_grad_()
            fitted, _ = self._fitted(xb, cb, labels[block], alpha, differentiable=True)
            inner = torch.stack([(R * part).sum() for R, part in zip(weighted, fitted, strict=True)]).sum()
            x_gradient[block], c_gradient[block] = torch.autograd.grad(-2.0 * inner, (xb, cb))
        return Evaluation(loss, StationarityGradients(x_gradient, c_gradient), torch.cat(outputs), None)

    def _fitted(
        self, x: Tensor, c: Tensor, labels: Tensor, alpha: float, *, differentiable: bool
    ) -> tuple[tuple[Tensor, ...], Tensor]:
        """sum_i c_i grad_theta (e_i . phi(x_i)), one tensor per parameter, and phi (m, C)."""
        phi = self.network(x, activation=gated_relu(alpha))
        e = output_directions(phi.detach(), labels, self.objective)
        weighted = (c[:, None] * e * phi).sum()
        return torch.autograd.grad(weighted, self.parameters, create_graph=differentiable), phi

    def _loss(self, residuals: Sequence[Tensor]) -> StationarityLoss:
        squares: list[list[Tensor]] = [[] for _ in self.loss_weights]
        for layer, residual in zip(self.layer_of, residuals, strict=True):
            squares[layer].append(residual.square().sum())
        per_layer = torch.stack([torch.stack(parts).sum() for parts in squares])
        return StationarityLoss(per_layer, per_layer @ self.loss_weights)
