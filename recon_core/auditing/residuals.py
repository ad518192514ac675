"""How far training images explain a network's weights, layer by layer, whatever the network is made of."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from recon_core.training.kkt import fit_multipliers
from recon_core.training.losses import Loss

_BLOCK_BYTES = 1 << 28
_MAX_BYTES = 1 << 31


class LayerResiduals(NamedTuple):
    """By the names of the layers that were used, and with one set of multipliers for all of them."""

    by_layer: dict[str, float]
    overall: float


def layer_residuals(network: nn.Module, x: Tensor, loss: Loss) -> LayerResiduals | None:
    """|theta - sum_i lam_i grad q_i| / |theta| of each Linear and Conv2d layer that is used, and of all of them.

    As `training.kkt.kkt_residual`, from one forward and one backward pass: a sample's gradient of a layer is the outer
    product of what came in and what comes back, so the n x n products of gradients need none of them written out.
    None where a layer is used twice or has groups, where kernels are too many, or nothing is there to measure.
    """
    layers = {part: name for name, part in network.named_modules() if isinstance(part, nn.Linear | nn.Conv2d)}
    seen: dict[nn.Linear | nn.Conv2d, tuple[Tensor, Tensor]] = {}
    twice = []

    def remember(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        assert isinstance(layer, nn.Linear | nn.Conv2d)
        if layer in seen:
            twice.append(layer)
        seen[layer] = (inputs[0].detach(), output)
        return output.clone()  # an activation may work in place

    hooks = [layer.register_forward_hook(remember) for layer in layers]
    try:
        with torch.enable_grad():
            outputs = network(x.detach().requires_grad_())
            if twice or not seen or not all(_measurable(layer, len(x)) for layer in seen):
                return None
            margins = (outputs * loss.margin_directions(outputs.detach())).sum()
            backs = torch.autograd.grad(margins, [output for _, output in seen.values()])
    finally:
        for hook in hooks:
            hook.remove()
    grams, inner, norms = [], [], []
    for (layer, (taken, given)), back in zip(seen.items(), backs, strict=True):
        grams.append(_gram(layer, taken, back).double().cpu().numpy())
        inner.append((back * given.detach()).flatten(1).sum(1).double().cpu().numpy())
        norms.append(float(sum(parameter.detach().double().square().sum() for parameter in layer.parameters())))
    signed = loss.function.classifies
    fits = [fit_multipliers(gram, b, norm, signed) for gram, b, norm in zip(grams, inner, norms, strict=True)]
    whole = fit_multipliers(np.sum(grams, axis=0), np.sum(inner, axis=0), sum(norms), signed)
    by_layer = {layers[layer]: fit.residual for layer, fit in zip(seen, fits, strict=True)}
    return LayerResiduals(by_layer, whole.residual)


def _measurable(layer: nn.Module, samples: int) -> bool:
    """Of convolutions the gradients are written out."""
    if isinstance(layer, nn.Linear):
        return True
    assert isinstance(layer, nn.Conv2d)
    plain = layer.groups == 1 and not isinstance(layer.padding, str) and layer.padding_mode == "zeros"
    return plain and 4 * samples * layer.weight.numel() <= _MAX_BYTES


def _gram(layer: nn.Module, taken: Tensor, back: Tensor) -> Tensor:
    """Inner products (n, n) of the samples' gradients of one layer, bias included."""
    if isinstance(layer, nn.Linear):
        a, delta = taken.flatten(1), back.flatten(1)
        products = a @ a.T
        return (delta @ delta.T) * (products + 1 if layer.bias is not None else products)
    assert isinstance(layer, nn.Conv2d)
    assert not isinstance(layer.padding, str)
    gradients = []
    rows = max(1, _BLOCK_BYTES // (4 * layer.weight[0].numel() * max(1, back[0, 0].numel())))
    for start in range(0, len(taken), rows):
        part = slice(start, start + rows)
        patches = F.unfold(taken[part], layer.kernel_size, layer.dilation, layer.padding, layer.stride)
        delta = back[part].flatten(2)
        kernel = torch.einsum("nop,nkp->nok", delta, patches).flatten(1)
        gradients.append(kernel if layer.bias is None else torch.cat([kernel, delta.sum(2)], 1))
    whole = torch.cat(gradients)
    return whole @ whole.T
