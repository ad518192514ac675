"""The model under attack, checked: its weights are all the attacker sees."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from recon_core.config import Task
from recon_core.errors import InputError
from recon_core.models import Architecture, DenseLayer, Network


@dataclass(frozen=True)
class Target:
    """A network and what explains its weights.

    With `initial`, the weights before training, only the change theta - theta_0 is to be explained: that is
    what the samples' gradients were added up to, so a large initialisation no longer stands in the way.
    """

    network: Network
    objective: Task
    initial: Network | None = None

    def __post_init__(self) -> None:
        _check_finite(self.network, "the model")
        outputs = self.architecture.outputs
        if self.objective is Task.MULTICLASS and outputs < 2:
            raise InputError(
                "objective multiclass needs a model with 2 or more outputs, got 1; use binary or regression"
            )
        if self.objective is not Task.MULTICLASS and outputs != 1:
            raise InputError(
                f"objective {self.objective} needs a model with one output, got {outputs}; use objective multiclass"
            )
        if self.initial is not None:
            _check_finite(self.initial, "the initial model")
            if self.initial.architecture != self.architecture:
                raise InputError(
                    f"the initial weights are of {self.initial.architecture}, the model is {self.architecture}; "
                    "give the weights this very model started from"
                )
        if not any(bool(tensor.any()) for group in self.groups() for tensor in group.values()):
            raise InputError("all weights to explain are zero; give a trained model")

    @classmethod
    def of(cls, network: Network, objective: Task | None = None, initial: Network | None = None) -> Target:
        """One output means binary and more mean multiclass, unless `objective` says otherwise."""
        if objective is None:
            objective = Task.BINARY if network.architecture.outputs == 1 else Task.MULTICLASS
        return cls(network, objective, initial)

    @property
    def architecture(self) -> Architecture:
        return self.network.architecture

    def groups(self) -> list[dict[str, Tensor]]:
        """Per layer, by parameter, what the candidates' gradients should add up to, whatever the layer is."""
        theta = self.network.trained_parameters()
        start = {} if self.initial is None else self.initial.trained_parameters()
        return [
            {name: theta[name].detach() - start[name].detach() if start else theta[name].detach() for name in names}
            for names in self.network.parameter_groups()
        ]

    def anchored(self) -> DenseLayer:
        """What is to be explained of the anchor, the first dense layer (`Network.anchor`)."""
        name = self.network.anchor()
        if name is None:
            raise InputError(f"{self.architecture} has no hidden dense layer")
        found = {key: tensor for group in self.groups() for key, tensor in group.items()}
        return DenseLayer(found[f"{name}.weight"], found.get(f"{name}.bias"))

    def output_scale(self) -> float:
        """|W_L|, the size of the last layer's largest parameter."""
        return max(float(tensor.norm()) for tensor in self.groups()[-1].values() if tensor.ndim == self._output_ndim())

    def _output_ndim(self) -> int:
        return max(tensor.ndim for tensor in self.groups()[-1].values())

    def explained(self) -> list[DenseLayer]:
        """Per layer, what the candidates' gradients should add up to; kernels keep their shape."""
        theta = _tensors(self.network)
        if self.initial is None:
            return theta
        return [
            DenseLayer(
                now.weight - start.weight, None if now.bias is None or start.bias is None else now.bias - start.bias
            )
            for now, start in zip(theta, _tensors(self.initial), strict=True)
        ]

    def squared_norms(self) -> Tensor:
        """|theta_l|^2 of what is to be explained, float64 on the CPU, (layers,)."""
        return torch.stack(
            [
                torch.stack([tensor.cpu().double().square().sum() for tensor in group.values()]).sum()
                for group in self.groups()
            ]
        )


def squared_norm(layer: DenseLayer) -> Tensor:
    """Sum of squares of weight and bias in float64 on the CPU: once per attack, and MPS has no float64."""
    total = layer.weight.cpu().double().square().sum()
    return total if layer.bias is None else total + layer.bias.cpu().double().square().sum()


def regression_warning(objective: Task, weight_decay: float | None) -> str | None:
    """A sentence for whoever knows how the model was trained, where the attack cannot work."""
    if objective is not Task.REGRESSION or weight_decay is None or weight_decay > 0:
        return None
    return (
        "this model was trained on a regression loss without weight decay: at its minimum the samples' gradients add "
        "up to zero instead of to the weights, so nothing will be reconstructed; train with weight_decay > 0"
    )


def _tensors(network: Network) -> list[DenseLayer]:
    layers = []
    for layer in network.layers:
        assert isinstance(layer, nn.Linear | nn.Conv2d)
        layers.append(DenseLayer(layer.weight.detach(), None if layer.bias is None else layer.bias.detach()))
    return layers


def _check_finite(network: Network, name: str) -> None:
    for key, parameter in network.named_parameters():
        broken = int((~torch.isfinite(parameter.detach())).sum())
        if broken:
            raise InputError(
                f"{key} of {name} has {broken} of {parameter.numel()} values that are not finite numbers; "
                "train the model again or give another file"
            )
