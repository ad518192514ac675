"""ReLU as both papers differentiate it: relu(z) forward, sigmoid(alpha z) backward, wherever a network calls it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode


class _GatedRelu(torch.autograd.Function):
    """relu(z) forward, times sigmoid(alpha z) backward (Haim et al. 2022, App. B.2).

    The backward is made of differentiable operations on z, so a second derivative sees
    alpha s (1 - s), while the forward stays the ReLU that the network was trained with.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(z: Tensor, alpha: float) -> Tensor:
        return z.relu()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.alpha = inputs[1]

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


class SmoothRelu(TorchFunctionMode):
    """Inside, every ReLU has a smooth backward, whether it is a layer, a function or a method, in place or not.

    So have those made of it: leaky ReLU, PReLU, ReLU6 and clamp(min=0). What is smooth already (GELU, SiLU, ELU, tanh)
    has nothing to replace, and max pooling keeps its choice.
    """

    def __init__(self, alpha: float) -> None:
        super().__init__()
        self.alpha = alpha

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        smooth = _SMOOTH.get(func)
        if smooth is None:
            return func(*args, **named)
        z = args[0] if args else named["input"]
        inplace = func in _IN_PLACE or bool(named.pop("inplace", False))
        # What an in-place call is about to overwrite is still needed for the gate.
        found = smooth(gated_relu(self.alpha), z.clone() if inplace else z, *args[1:], **_without(named, "input"))
        if found is None:
            return func(*args, **(kwargs or {}))
        return z.copy_(found) if inplace else found


def _without(named: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in named.items() if key != name}


Relu = Callable[[Tensor], Tensor]


def _relu(relu: Relu, z: Tensor, *_: Any) -> Tensor:
    return relu(z)


def _leaky(relu: Relu, z: Tensor, negative_slope: float = 0.01, *_: Any) -> Tensor:
    return negative_slope * z + (1 - negative_slope) * relu(z)


def _hardtanh(relu: Relu, z: Tensor, min_val: float = -1.0, max_val: float = 1.0, *_: Any) -> Tensor | None:
    """ReLU6 and other clamps whose lower bound is 0."""
    return relu(z) - relu(z - max_val) if min_val == 0 else None


def _relu6(relu: Relu, z: Tensor, *_: Any) -> Tensor:
    return relu(z) - relu(z - 6.0)


def _prelu(relu: Relu, z: Tensor, weight: Tensor) -> Tensor:
    slopes = weight.reshape(-1, *[1] * (z.ndim - 2)) if weight.numel() > 1 else weight
    return relu(z) - slopes * relu(-z)


def _clamp(relu: Relu, z: Tensor, min: Any = None, max: Any = None) -> Tensor | None:
    """`clamp(min=0)`, which is a ReLU."""
    scalar = isinstance(min, int | float) and not isinstance(min, bool)
    return relu(z) if scalar and min == 0 and max is None else None


_SMOOTH: dict[Any, Callable[..., Tensor | None]] = {
    **dict.fromkeys((torch.relu, torch.relu_, Tensor.relu, Tensor.relu_, F.relu, F.relu_), _relu),
    **dict.fromkeys((F.leaky_relu, F.leaky_relu_), _leaky),
    F.relu6: _relu6,
    F.hardtanh: _hardtanh,
    **dict.fromkeys((F.prelu, torch.prelu, Tensor.prelu), _prelu),
    **dict.fromkeys((torch.clamp, torch.clamp_min, torch.clip, Tensor.clamp, Tensor.clamp_min, Tensor.clip), _clamp),
    **dict.fromkeys((Tensor.clamp_, Tensor.clamp_min_), _clamp),
}
_IN_PLACE = {torch.relu_, Tensor.relu_, F.relu_, F.leaky_relu_, Tensor.clamp_, Tensor.clamp_min_}
