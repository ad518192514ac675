"""Forward and backward passes of a dense ReLU network, written out.

Autograd builds a graph and keeps whatever it may need; here only what the next line needs exists.
Letters follow the papers: a_0 = x, z_l = W_l a_{l-1} + b_l, a_l = relu(z_l), phi = z_L.
Rows are samples everywhere: a_l is (n, width_l).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional


class DenseLayer(NamedTuple):
    """One layer's weight (out, in) and bias (out,), or a tangent of the same shape."""

    weight: Tensor
    bias: Tensor | None


class ForwardPass(NamedTuple):
    """What the backward pass needs: every layer's input, the output phi (n, outputs), and gates if they are soft.

    An exact ReLU's gate is open where its activation is positive, so there the inputs are gates enough.
    """

    inputs: list[Tensor]
    soft_gates: list[Tensor] | None
    outputs: Tensor


def forward_pass(layers: Sequence[DenseLayer], x: Tensor, sharpness: Sequence[Tensor] | None = None) -> ForwardPass:
    """Run the network on x (n, d).

    Given `sharpness`, one beta per hidden layer, the ReLU is softplus(beta z) / beta and its gate
    sigmoid(beta z): the smooth network that optimisers use near kinks.
    """
    inputs, soft_gates = [x], []
    for index, (weight, bias) in enumerate(layers):
        z = inputs[-1] @ weight.T if bias is None else torch.addmm(bias, inputs[-1], weight.T)
        if index + 1 < len(layers):
            if sharpness is None:
                inputs.append(z.relu_())
            else:
                soft = soften(z, sharpness[index])
                inputs.append(soft.activation)
                soft_gates.append(soft.gate)
    return ForwardPass(inputs, None if sharpness is None else soft_gates, z)


class Softened(NamedTuple):
    """softplus(beta z) / beta and its derivative sigmoid(beta z)."""

    activation: Tensor
    gate: Tensor


def soften(z: Tensor, sharpness: Tensor) -> Softened:
    """A smooth ReLU; z may be overwritten."""
    scaled = z.mul_(sharpness)
    return Softened(functional.softplus(scaled) / sharpness, scaled.sigmoid_())


def gated(delta: Tensor, activation: Tensor, soft_gate: Tensor | None) -> Tensor:
    """delta where the unit is open: one fused pass for the exact ReLU, a product for a soft gate."""
    if soft_gate is None:
        return torch.ops.aten.threshold_backward(delta, activation, 0)  # type: ignore[no-any-return]
    return delta.mul_(soft_gate)


def backward_deltas(
    layers: Sequence[DenseLayer],
    inputs: Sequence[Tensor],
    output_grad: Tensor,
    soft_gates: Sequence[Tensor] | None = None,
) -> list[Tensor]:
    """dLoss/dz_l for every layer, first to last, given dLoss/dphi (n, outputs) and what `forward_pass` kept."""
    deltas = [output_grad]
    for index in range(len(layers) - 1, 0, -1):
        soft_gate = None if soft_gates is None else soft_gates[index - 1]
        deltas.append(gated(deltas[-1] @ layers[index].weight, inputs[index], soft_gate))
    return deltas[::-1]


def gradient_gram(layers: Sequence[DenseLayer], inputs: Sequence[Tensor], deltas: Sequence[Tensor]) -> list[Tensor]:
    """Per layer, the (n, n) inner products of the per-sample gradients, which are never formed.

    The gradient of sample i in layer l is delta_i a_i^T, so its inner product with sample j's is
    (delta_i . delta_j)(a_i . a_j), plus (delta_i . delta_j) where the layer has a bias.
    """
    grams = []
    for layer, a, delta in zip(layers, inputs, deltas, strict=True):
        data = a @ a.T
        grams.append((delta @ delta.T) * (data if layer.bias is None else data + 1.0))
    return grams
