"""A network in the form training works on: no autograd, and the first layer in the span of the data.

The gradient of a dense first layer is a combination of the n inputs, so only its part inside their
span ever moves; with X^T = Q R the columns shrink from d to at most n and nothing is lost. The part
outside only shrinks under weight decay, by a known factor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from recon_core.models import DenseLayer, Network, backward_deltas, forward_pass, gated, gradient_gram, soften


class Pass(NamedTuple):
    """One forward pass: outputs phi (n, C), the dense layers' inputs, the convolution's patches, gates if soft."""

    outputs: Tensor
    inputs: list[Tensor]
    patches: Tensor | None
    soft_gates: list[Tensor] | None
    soft_patch_gate: Tensor | None


class SampleGradients(NamedTuple):
    """Per-row gradients of the parameters, held as factors.

    `deltas`: dense layers' dq/dz (n * G, width); `kernels`: the convolution's gradients written out
    (n * G, C_out * (K + 1)) or None; `grams`: per layer (n * G, n * G).
    """

    deltas: list[Tensor]
    kernels: Tensor | None
    grams: list[Tensor]


class Trainable:
    """Parameters being trained, the data they are trained on, and the passes between the two.

    `span`: keep the first layer in the span of `x`; without, any inputs can be trained on.
    """

    def __init__(self, network: Network, x: Tensor, *, span: bool = True) -> None:
        self.architecture = network.architecture
        layers = [DenseLayer(w.clone(), None if b is None else b.clone()) for w, b in network.dense_layers()]
        self.kernel: DenseLayer | None = None
        self.basis: Tensor | None = None
        if self.architecture.dense:
            flat = x.flatten(1)
            # In double precision and on the CPU: once per run, and MPS has no float64.
            narrow = span and flat.shape[0] < flat.shape[1]
            basis = torch.linalg.qr(flat.T.cpu().double()).Q if narrow else None
            if basis is not None:
                self.basis = basis.to(flat)
                first = layers[0]
                inside = first.weight @ self.basis
                self.outside = first.weight - inside @ self.basis.T
                layers[0] = DenseLayer(inside, first.bias)
            self.data = flat if self.basis is None else flat @ self.basis
        else:
            conv = network.layers[0]
            assert isinstance(conv, nn.Conv2d)
            weight = conv.weight.detach().flatten(1).clone()
            self.kernel = DenseLayer(weight, None if conv.bias is None else conv.bias.detach().clone())
            self.data = self._patches(x)
        self.dense = layers
        # One beta per hidden layer while an optimiser works on the smoothed network; None is the ReLU itself.
        self.sharpness: list[Tensor] | None = None
        self.shrink = torch.ones((), dtype=x.dtype, device=x.device)

    def _patches(self, x: Tensor) -> Tensor:
        """Input patches (n, K, positions) the convolution multiplies; K = channels * k * k."""
        assert self.architecture.conv_kernel is not None
        return F.unfold(x.reshape(len(x), *self.architecture.input_shape), self.architecture.conv_kernel)

    @property
    def layers(self) -> list[DenseLayer]:
        """All layers, first to last."""
        return self.dense if self.kernel is None else [self.kernel, *self.dense]

    def prepare(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Inputs other than the training ones: their form here, and the part outside the span."""
        if self.kernel is not None:
            return self._patches(x), None
        flat = x.flatten(1)
        if self.basis is None:
            return flat, None
        return flat @ self.basis, flat @ self.outside.T

    def forward(self, data: Tensor | None = None) -> Pass:
        """Run the network on the training data, or on rows of it."""
        data = self.data if data is None else data
        if self.kernel is None:
            result = forward_pass(self.dense, data, self.sharpness)
            return Pass(result.outputs, result.inputs, None, result.soft_gates, None)
        z = self.kernel.weight @ data
        if self.kernel.bias is not None:
            z = z + self.kernel.bias[:, None]
        if self.sharpness is None:
            result = forward_pass(self.dense, z.relu_().flatten(1))
            return Pass(result.outputs, result.inputs, data, None, None)
        soft = soften(z.flatten(1), self.sharpness[0])
        result = forward_pass(self.dense, soft.activation, self.sharpness[1:])
        return Pass(result.outputs, result.inputs, data, result.soft_gates, soft.gate)

    def drop(self, data: Tensor, share: float, generator: torch.Generator) -> Pass:
        """As `forward`, each hidden neuron left out with probability `share` and the others scaled up (dropout)."""
        patches, patch_gate, gates = None, None, []
        if self.kernel is not None:
            z = self.kernel.weight @ data
            z = z if self.kernel.bias is None else z + self.kernel.bias[:, None]
            patches, (data, patch_gate) = data, _dropped(z.flatten(1), share, generator)
        inputs = [data]
        for weight, bias in self.dense:
            z = inputs[-1] @ weight.T if bias is None else torch.addmm(bias, inputs[-1], weight.T)
            if len(inputs) < len(self.dense):
                activation, gate = _dropped(z, share, generator)
                inputs.append(activation)
                gates.append(gate)
        return Pass(z, inputs, patches, gates, patch_gate)

    def outputs(self, prepared: tuple[Tensor, Tensor | None]) -> Tensor:
        """phi of inputs made ready by `prepare`."""
        data, outside = prepared
        if outside is None:
            return self.forward(data).outputs
        weight, bias = self.dense[0]
        z = data @ weight.T + self.shrink * outside
        return forward_pass(self.dense[1:], (z if bias is None else z + bias).relu_()).outputs

    def gradients(self, run: Pass, directions: Tensor) -> SampleGradients:
        """Gradients of the rows q with dq/dphi = directions (n, G, C)."""
        n, groups, outputs = directions.shape
        inputs = _per_row(run.inputs, groups)
        soft_gates = None if run.soft_gates is None else _per_row(run.soft_gates, groups)
        deltas = backward_deltas(self.dense, inputs, directions.reshape(n * groups, outputs), soft_gates)
        grams = gradient_gram(self.dense, inputs, deltas)
        if self.kernel is None:
            return SampleGradients(deltas, None, grams)
        assert run.patches is not None
        patch_gate = None if run.soft_patch_gate is None else _per_row([run.soft_patch_gate], groups)[0]
        open_delta = gated(deltas[0] @ self.dense[0].weight, inputs[0], patch_gate)
        delta = open_delta.reshape(n * groups, self.kernel.weight.shape[0], -1)
        kernels = (delta @ _per_row([run.patches], groups)[0].transpose(1, 2)).flatten(1)
        if self.kernel.bias is not None:
            kernels = torch.cat([kernels, delta.sum(2)], 1)
        return SampleGradients(deltas, kernels, [kernels @ kernels.T, *grams])

    def inner_products(self, run: Pass, gradients: SampleGradients) -> list[Tensor]:
        """Per layer, <parameters, gradient of each row> (n * G,)."""
        groups = len(gradients.deltas[0]) // len(run.outputs)
        products = []
        for layer, a, delta in zip(self.dense, _per_row(run.inputs, groups), gradients.deltas, strict=True):
            product = ((delta @ layer.weight) * a).sum(1)
            products.append(product if layer.bias is None else product + delta @ layer.bias)
        if self.kernel is None or gradients.kernels is None:
            return products
        flat = self.kernel.weight.flatten()
        flat = flat if self.kernel.bias is None else torch.cat([flat, self.kernel.bias])
        return [gradients.kernels @ flat, *products]

    def add_(self, run: Pass, gradients: SampleGradients, coefficients: Tensor, upper: float = 1.0) -> None:
        """theta += sum over rows of coefficient times gradient; coefficients (n, G).

        `upper` multiplies what the layers above the first get.
        """
        n, groups = coefficients.shape
        for index, (layer, a, delta) in enumerate(zip(self.dense, run.inputs, gradients.deltas, strict=True)):
            first = index == 0 and self.kernel is None
            combined = delta * (coefficients if first else upper * coefficients).reshape(-1, 1)
            if groups > 1:
                combined = combined.reshape(n, groups, -1).sum(1)
            torch.addmm(layer.weight, combined.T, a, out=layer.weight)
            if layer.bias is not None:
                layer.bias.add_(combined.sum(0))
        if self.kernel is not None and gradients.kernels is not None:
            step = coefficients.reshape(-1) @ gradients.kernels
            weights = self.kernel.weight.numel()
            self.kernel.weight.add_(step[:weights].view_as(self.kernel.weight))
            if self.kernel.bias is not None:
                self.kernel.bias.add_(step[weights:])

    def descend_(
        self, run: Pass, output_grad: Tensor, rate: float, *, keep: float = 1.0, first_only: bool = False
    ) -> None:
        """theta = keep * theta - rate * gradient, for dLoss/dphi = output_grad (n, C): plain gradient descent.

        `first_only` leaves the layers above the first as they are.
        """
        deltas = backward_deltas(self.dense, run.inputs, output_grad * -rate, run.soft_gates)
        if self.kernel is not None and run.patches is not None:
            open_delta = gated(deltas[0] @ self.dense[0].weight, run.inputs[0], run.soft_patch_gate)
            delta = open_delta.reshape(len(open_delta), self.kernel.weight.shape[0], -1)
            self.kernel.weight.mul_(keep).add_((delta @ run.patches.transpose(1, 2)).sum(0))
            if self.kernel.bias is not None:
                self.kernel.bias.mul_(keep).add_(delta.sum((0, 2)))
        moving = len(self.dense) if not first_only else 1 if self.kernel is None else 0
        for layer, a, delta in zip(self.dense[:moving], run.inputs, deltas, strict=False):
            torch.addmm(layer.weight, delta.T, a, beta=keep, out=layer.weight)
            if layer.bias is not None:
                layer.bias.mul_(keep).add_(delta.sum(0))
        self.shrink.mul_(keep)

    def scale_(self, factor: Tensor | float) -> None:
        """theta *= factor, the part outside the span included."""
        for layer in self.layers:
            layer.weight.mul_(factor)
            if layer.bias is not None:
                layer.bias.mul_(factor)
        self.shrink.mul_(factor)

    def squared_norms(self) -> list[Tensor]:
        """Per layer, inside the span: the part that training can move."""
        # A dot product is one pass over the weights; square().sum() writes the squares first.
        return [
            torch.dot(layer.weight.view(-1), layer.weight.view(-1))
            + (0.0 if layer.bias is None else torch.dot(layer.bias, layer.bias))
            for layer in self.layers
        ]

    def outside_squared_norm(self) -> Tensor:
        """Squared norm of the first layer outside the span of the data."""
        if self.basis is None:
            return torch.zeros_like(self.shrink)
        return self.shrink.square() * self.outside.square().sum()

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint keeps; the rest follows from config and data."""
        tensors = {"shrink": self.shrink}
        for index, layer in enumerate(self.layers):
            tensors[f"layer{index}.weight"] = layer.weight
            if layer.bias is not None:
                tensors[f"layer{index}.bias"] = layer.bias
        return tensors

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        for name, tensor in self.state().items():
            tensor.copy_(tensors[name])

    def load(self, network: Network) -> None:
        """Take over a network's parameters; only without a span, which would not hold them."""
        assert self.basis is None
        values = [value.detach() for value in network.parameters()]
        own = [value for layer in self.layers for value in layer if value is not None]
        for mine, value in zip(own, values, strict=True):
            mine.copy_(value.reshape(mine.shape))

    def full_layers(self) -> list[DenseLayer]:
        """All layers in the space of the inputs, the convolution as a matrix (C_out, K)."""
        layers = list(self.layers)
        if self.basis is not None:
            first = layers[0]
            layers[0] = DenseLayer(self.shrink * self.outside + first.weight @ self.basis.T, first.bias)
        return layers

    def to_network(self) -> Network:
        """The network these parameters make."""
        network = Network(self.architecture).to(self.shrink)
        with torch.no_grad():
            for module, (weight, bias) in zip(network.layers, self.full_layers(), strict=True):
                for name, value in (("weight", weight), ("bias", bias)):
                    if value is not None:
                        parameter = module.get_parameter(name)
                        parameter.copy_(value.reshape(parameter.shape))
        return network


def _dropped(z: Tensor, share: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """relu(z) with some neurons left out, and its derivative."""
    kept = (torch.rand(z.shape, generator=generator) >= share).to(z) / (1 - share)
    gate = (z > 0) * kept
    return z * gate, gate


def _per_row(tensors: list[Tensor], groups: int) -> list[Tensor]:
    """Repeat what samples share for each of their rows."""
    return tensors if groups == 1 else [tensor.repeat_interleave(groups, 0) for tensor in tensors]
