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
    """What the backward pass needs: every layer's input, every hidden layer's gate, the output phi (n, outputs)."""

    inputs: list[Tensor]
    gates: list[Tensor]
    outputs: Tensor


def forward_pass(layers: Sequence[DenseLayer], x: Tensor, sharpness: Sequence[Tensor] | None = None) -> ForwardPass:
    """Run the network on x (n, d).

    Given `sharpness`, one beta per hidden layer, the ReLU is softplus(beta z) / beta and its gate
    sigmoid(beta z): the smooth network that optimisers use near kinks.
    """
    inputs, gates = [x], []
    for index, (weight, bias) in enumerate(layers):
        z = inputs[-1] @ weight.T if bias is None else torch.addmm(bias, inputs[-1], weight.T)
        if index + 1 < len(layers):
            activation, gate = rectify(z, None if sharpness is None else sharpness[index])
            inputs.append(activation)
            gates.append(gate)
    return ForwardPass(inputs, gates, z)


def rectify(z: Tensor, sharpness: Tensor | None) -> tuple[Tensor, Tensor]:
    """Activation and gate of z, which is overwritten where the ReLU is exact."""
    if sharpness is None:
        return z.relu_(), z > 0
    scaled = z * sharpness
    return functional.softplus(scaled) / sharpness, scaled.sigmoid_()


def backward_deltas(layers: Sequence[DenseLayer], gates: Sequence[Tensor], output_grad: Tensor) -> list[Tensor]:
    """dLoss/dz_l for every layer, first to last, given dLoss/dphi (n, outputs)."""
    deltas = [output_grad]
    for layer, gate in zip(reversed(layers[1:]), reversed(gates), strict=True):
        deltas.append((deltas[-1] @ layer.weight).mul_(gate))
    return deltas[::-1]


def parameter_gradients(
    layers: Sequence[DenseLayer], inputs: Sequence[Tensor], deltas: Sequence[Tensor]
) -> list[DenseLayer]:
    """Sum over samples of each layer's gradient."""
    return [
        DenseLayer(delta.T @ a, None if layer.bias is None else delta.sum(0))
        for layer, a, delta in zip(layers, inputs, deltas, strict=True)
    ]


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
