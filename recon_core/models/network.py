"""The networks of both papers: dense ones such as d-1000-1000-1, and CONV(k, C)-1000-1."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from recon_core.config import BiasMode, ModelConfig
from recon_core.errors import InputError
from recon_core.models.dense import DenseLayer
from recon_core.models.stages import Stage, output_shape

ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "leaky_relu": functional.leaky_relu,
    "gelu": functional.gelu,
}
"""Between layers, by name; leaky ReLU has torch's slope of 0.01."""


@dataclass(frozen=True)
class Architecture:
    """Everything needed to rebuild a network around its weights."""

    input_shape: tuple[int, ...]
    widths: tuple[int, ...]
    outputs: int
    bias: BiasMode = BiasMode.FIRST
    conv_kernel: int | None = None
    conv_channels: int | None = None
    biases: tuple[bool, ...] | None = None
    """Which layers carry a bias, first to last, of a network that `bias` has no word for: somebody else's."""
    activation: str = "relu"
    """One of `ACTIVATIONS`."""
    stages: tuple[Stage, ...] = ()
    """What stands in front of the dense layers, where that is more than one plain convolution."""
    module: str | None = None
    """The class of somebody's own module, which only Python code describes."""
    module_layers: int = 0
    """How many of its layers have parameters."""
    on_inputs: bool = False
    """Whether its first dense layer takes the inputs themselves."""

    def __post_init__(self) -> None:
        if self.biases is not None and len(self.biases) != self.depth:
            raise InputError(f"biases needs {self.depth} values, one per layer of {self}, got {len(self.biases)}")
        if self.activation not in ACTIVATIONS:
            raise InputError(f"activation must be {' or '.join(ACTIVATIONS)}, got {self.activation!r}")

    @property
    def layer_biases(self) -> tuple[bool, ...]:
        """For each layer with weights, first to last, whether it has a bias."""
        if self.biases is not None:
            return self.biases
        first, hidden = self.bias is not BiasMode.NONE, self.bias is BiasMode.HIDDEN
        return (first, *[hidden] * (self.depth - 2), False) if self.depth > 1 else (False,)

    @property
    def dense(self) -> bool:
        """No convolution and plain ReLU, so the closed forms apply."""
        return self.module is None and self.dense_first and self.activation == "relu"

    @property
    def dense_first(self) -> bool:
        """The first layer is dense and takes the inputs, so its row space holds the training samples."""
        return self.on_inputs if self.module is not None else self.conv_kernel is None and not self.stages

    @property
    def homogeneous(self) -> bool:
        """Scaling all parameters scales the output: what Theorem 3.1 of Haim et al. asks for."""
        return self.module is None and self.activation != "gelu" and not any(self.layer_biases[1:])

    @property
    def depth(self) -> int:
        """Layers with weights, the degree of homogeneity of the weight matrices."""
        if self.module is not None:
            return self.module_layers
        convolutions = sum(stage.kind == "conv" for stage in self.stages)
        return len(self.widths) + 1 + convolutions + (0 if self.conv_kernel is None else 1)

    def __str__(self) -> str:
        start = "x".join(map(str, self.input_shape))
        if self.module is not None:
            return f"{start}-{self.module}({self.module_layers} layers)-{self.outputs}"
        conv = "" if self.conv_kernel is None else f"-CONV({self.conv_kernel},{self.conv_channels})"
        conv += "".join(f"-{stage.short}" for stage in self.stages if stage.kind != "activation")
        bent = "" if self.activation == "relu" else f" with {self.activation}"
        return f"{start}{conv}-{'-'.join(map(str, (*self.widths, self.outputs)))}{bent}"

    def to_json(self) -> dict[str, Any]:
        return {
            "input_shape": list(self.input_shape),
            "widths": list(self.widths),
            "outputs": self.outputs,
            "bias": str(self.bias),
            "conv_kernel": self.conv_kernel,
            "conv_channels": self.conv_channels,
            **({} if self.biases is None else {"biases": list(self.biases)}),
            **({} if self.activation == "relu" else {"activation": self.activation}),
            **({} if self.module is None else {"module": self.module}),
            **({"stages": [stage.to_json() for stage in self.stages]} if self.stages else {}),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Architecture:
        return cls(
            input_shape=tuple(values["input_shape"]),
            widths=tuple(values["widths"]),
            outputs=values["outputs"],
            bias=BiasMode(values["bias"]),
            conv_kernel=values["conv_kernel"],
            conv_channels=values["conv_channels"],
            biases=None if values.get("biases") is None else tuple(map(bool, values["biases"])),
            activation=values.get("activation", "relu"),
            stages=tuple(Stage.from_json(stage) for stage in values.get("stages", ())),
        )


def architecture_of(config: ModelConfig, input_shape: tuple[int, ...], outputs: int) -> Architecture:
    """The network `config` asks for on inputs of this shape."""
    if config.conv_kernel is not None:
        side = min(input_shape[-2:])
        if config.conv_kernel > side:
            raise InputError(f"model.conv_kernel must be at most the image side {side}, got {config.conv_kernel}")
    return Architecture(input_shape, config.widths, outputs, config.bias, config.conv_kernel, config.conv_channels)


class Network(nn.Module):
    """ReLU network on centred inputs; `layers.0` may be a convolution without padding.

    Without padding, because a kernel as large as the image then makes the network dense, which is
    how Buzaglo et al. (App. F) read their kernel-size ablation.
    """

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.architecture = architecture
        biases = architecture.layer_biases
        layers: list[nn.Module] = []
        width = math.prod(architecture.input_shape)
        if architecture.conv_kernel is not None and architecture.conv_channels is not None:
            channels, height, breadth = architecture.input_shape
            kernel = architecture.conv_kernel
            layers.append(nn.Conv2d(channels, architecture.conv_channels, kernel, bias=biases[0]))
            width = architecture.conv_channels * (height - kernel + 1) * (breadth - kernel + 1)
        if architecture.stages:
            channels = architecture.input_shape[0]
            for stage in architecture.stages:
                if stage.kind == "conv":
                    layers.append(
                        nn.Conv2d(
                            channels,
                            stage.channels,
                            stage.kernel,
                            stage.stride,
                            stage.padding,
                            stage.dilation,
                            stage.groups,
                            bias=biases[len(layers)],
                        )
                    )
                    channels = stage.channels
            width = math.prod(output_shape(architecture.stages, architecture.input_shape))
        for out in (*architecture.widths, architecture.outputs):
            layers.append(nn.Linear(width, out, bias=biases[len(layers)]))
            width = out
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor, activation: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """phi (n, outputs) of x (n, *input_shape) or (n, d)."""
        activation = activation or ACTIVATIONS[self.architecture.activation]
        a = x.reshape(len(x), *self.architecture.input_shape)
        start = 0
        for stage in self.architecture.stages:
            if stage.kind == "activation":
                a = activation(a)
            elif stage.kind == "conv":
                a = self.layers[start](a)
                start += 1
            elif stage.kind == "max":
                a = functional.max_pool2d(a, stage.kernel, stage.stride, stage.padding, stage.dilation)
            else:
                a = functional.avg_pool2d(a, stage.kernel, stage.stride, stage.padding)
        for index, layer in enumerate(self.layers[start:]):
            if index:
                a = activation(a)
            if isinstance(layer, nn.Linear):
                a = a.flatten(1)
            a = layer(a)
        return a

    def trained_parameters(self) -> dict[str, Tensor]:
        """The trained parameters by name, which the candidates' gradients have to explain."""
        return dict(self.named_parameters())

    def parameter_groups(self) -> list[list[str]]:
        """The names of the trained parameters, those of one layer together, first to last."""
        groups: dict[str, list[str]] = {}
        for name in self.trained_parameters():
            groups.setdefault(name.rpartition(".")[0], []).append(name)
        return list(groups.values())

    def anchor(self) -> str | None:
        """The name of the first dense layer, if another one stands behind it: its rows hold what it was fed."""
        dense = self.dense_names()
        return dense[0] if len(dense) > 1 else None

    def dense_names(self) -> list[str]:
        """Dense layers that are called once, on (n, F)."""
        return [f"layers.{index}" for index, layer in enumerate(self.layers) if isinstance(layer, nn.Linear)]

    def dense_layers(self) -> list[DenseLayer]:
        """The dense layers as plain tensors sharing the parameters' memory."""
        return [
            DenseLayer(layer.weight.detach(), None if layer.bias is None else layer.bias.detach())
            for layer in self.layers
            if isinstance(layer, nn.Linear)
        ]


def build_network(
    architecture: Architecture,
    *,
    init_scale: float | str,
    seed: int,
    dense_init_scale: float | str = "kaiming",
    dtype: torch.dtype = torch.float32,
) -> Network:
    """A network at its initialisation.

    Every layer starts as torch starts it, U(-1/sqrt(fan_in), 1/sqrt(fan_in)), save the first, whose
    weights and bias are N(0, init_scale^2) unless `init_scale` is "kaiming" (Haim et al. 2022, 5.1).
    `dense_init_scale` says the same of the first dense layer behind a convolution.
    Drawn in float32 on the CPU whatever the run's type and device, so that a seed means one network.
    """
    generator = torch.Generator().manual_seed(seed)
    network = Network(architecture)
    behind = architecture.conv_kernel is not None
    with torch.no_grad():
        for index, layer in enumerate(network.layers):
            weight = layer.weight
            assert isinstance(weight, Tensor)
            bound = 1.0 / math.sqrt(weight[0].numel())
            for parameter in layer.parameters():
                scale = init_scale if index == 0 else dense_init_scale if index == 1 and behind else "kaiming"
                if not isinstance(scale, str):
                    parameter.normal_(0.0, scale, generator=generator)
                else:
                    parameter.uniform_(-bound, bound, generator=generator)
    return network.to(dtype)
