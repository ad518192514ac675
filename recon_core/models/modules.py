"""Any `nn.Module` as a network under attack: what it computes, its parameters by layer, and whether it can be attacked.

Nothing is assumed of the module but what a few random inputs show: that it maps each sample by itself, the same way
every time, and can be differentiated twice. Where it cannot, the layer is named.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from recon_core.errors import InputError
from recon_core.models.network import Architecture, Network

_PROBES = 3
_POINTS = 5
# Layers that are refused with a reason of our own, clearer than torch's message.
_UNSUPPORTED: dict[type[nn.Module], str] = {
    nn.Embedding: "it takes whole numbers, which have no gradient; attack the part of the model behind it",
    nn.EmbeddingBag: "it takes whole numbers, which have no gradient; attack the part of the model behind it",
    nn.RNNBase: "recurrent layers have no second derivative on every device; write it out with Linear layers",
    torch.jit.ScriptModule: "its ReLUs cannot be reached inside a compiled program; give the module it was made from",
}


class ModuleNetwork(Network):
    """A module with the interface of `Network`: forward takes (n, *input_shape) or (n, d) and gives (n, outputs).

    A copy in evaluation form, so that dropout is inert and batch normalisation uses its running statistics; the
    module given is left as it is.
    """

    def __init__(self, module: nn.Module, input_shape: tuple[int, ...], *, flat: bool, outputs: int) -> None:
        nn.Module.__init__(self)  # no layers of the papers are made
        own = copy.deepcopy(module).eval()
        trained = [name for name, parameter in own.named_parameters() if parameter.requires_grad]
        self.module, self.flat = own, flat
        # A module that was frozen as a whole was frozen after training, not before.
        self.trained = [f"module.{name}" for name in trained or dict(own.named_parameters())]
        self.architecture = Architecture(input_shape, (), outputs)  # to be completed
        called = self._called()
        counts = Counter(name for name, _, _ in called)
        # Weights that are used twice, by a second call or under a second name, have no gradient of the form u a^T.
        owners = Counter(id(layer.weight) for layer in own.modules() if isinstance(layer, nn.Linear))
        self.dense = [name for name, layer, _ in called if counts[name] == 1 and owners[id(layer.weight)] == 1]
        anchor = self._find_anchor(called)
        self.anchor_name = anchor.name
        self.architecture = Architecture(
            input_shape,
            (),
            outputs,
            module=type(module).__name__,
            module_layers=len(self.parameter_groups()),
            on_inputs=anchor.on_inputs,
        )

    def forward(self, x: Tensor, activation: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """phi (n, outputs); the module has activations of its own."""
        shape = (math.prod(self.architecture.input_shape),) if self.flat else self.architecture.input_shape
        found: Tensor = self.module(x.reshape(len(x), *shape))
        return found.reshape(len(x), -1)

    def trained_parameters(self) -> dict[str, Tensor]:
        every = dict(self.named_parameters())
        return {name: every[name] for name in self.trained}

    def anchor(self) -> str | None:
        return self.anchor_name

    def dense_names(self) -> list[str]:
        return self.dense

    def untrained(self, seed: int) -> ModuleNetwork:
        """The same module with every layer started anew, by its own reset_parameters."""
        fresh = copy.deepcopy(self)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            for name, layer in fresh.module.named_modules():
                if not any(True for _ in layer.parameters(recurse=False)):
                    continue
                reset = getattr(layer, "reset_parameters", None) or getattr(layer, "_reset_parameters", None)
                if reset is None:
                    raise InputError(
                        f"layer {name or 'module'!r} ({type(layer).__name__}) has no reset_parameters, so the module "
                        "cannot be started anew for the untrained control; add one, or leave baseline out"
                    )
                reset()
        return fresh

    def _called(self) -> list[tuple[str, nn.Linear, Tensor]]:
        """Linear layers in the order in which they are called on (n, F), and what they were fed."""
        x = _inputs(self.architecture.input_shape, self.module)
        called: list[tuple[str, nn.Linear, Tensor]] = []

        def note(name: str) -> Callable[[nn.Module, tuple[Any, ...]], None]:
            def hook(layer: nn.Module, given: tuple[Any, ...]) -> None:
                if isinstance(layer, nn.Linear) and given and isinstance(given[0], Tensor) and given[0].ndim == 2:
                    called.append((name, layer, given[0].detach().clone()))

            return hook

        handles = [
            layer.register_forward_pre_hook(note(f"module.{name}" if name else "module"))
            for name, layer in self.module.named_modules()
            if isinstance(layer, nn.Linear)
        ]
        try:
            with torch.no_grad():
                self.forward(x)
        finally:
            for handle in handles:
                handle.remove()
        return called

    def _find_anchor(self, called: list[tuple[str, nn.Linear, Tensor]]) -> _Anchor:
        """The first dense layer that has another one behind it, and whether it is fed the inputs."""
        x = _inputs(self.architecture.input_shape, self.module).flatten(1)
        for name, _, given in called[:-1]:
            if name in self.dense and f"{name}.weight" in self.trained:
                return _Anchor(name, given.shape == x.shape and torch.equal(given, x))
        return _Anchor(None, False)


class _Anchor(NamedTuple):
    name: str | None
    on_inputs: bool


def module_network(module: nn.Module, input_shape: tuple[int, ...]) -> ModuleNetwork:
    """The module as a network on inputs of this shape, or an `InputError` that names the layer, why, and what to do."""
    module = getattr(module, "_orig_mod", module)  # of torch.compile
    if not isinstance(module, nn.Module):
        raise InputError(f"a module must be an nn.Module, got {type(module).__name__}")
    for name, layer in module.named_modules():
        _refuse_kind(name, layer)
    if not any(True for _ in module.parameters()):
        raise InputError(f"{type(module).__name__} has no parameters, and weights are all an attack has; give a model")
    training = module.training
    modes = {part: part.training for part in module.modules()}
    module.eval()
    try:
        flat, outputs = _try_inputs(module, input_shape)
    finally:
        module.train(training)
        for part, mode in modes.items():
            part.training = mode
    network = ModuleNetwork(module, input_shape, flat=flat, outputs=outputs)
    _check_twice_differentiable(network)
    return network


def _refuse_kind(name: str, layer: nn.Module) -> None:
    for kind, reason in _UNSUPPORTED.items():
        if isinstance(layer, kind):
            raise _unsupported(name, layer, reason)
    if isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.running_mean is None:
        raise _unsupported(
            name, layer, "without running statistics a sample's output depends on its batch; use track_running_stats"
        )
    for key, parameter in layer.named_parameters(recurse=False):
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise _unsupported(name, layer, "it has not seen an input yet; run the module once")
        if not parameter.is_floating_point():
            raise _unsupported(name, layer, f"its {key} is {parameter.dtype}; convert it to float32")


def _unsupported(name: str, layer: nn.Module, reason: str) -> InputError:
    return InputError(f"layer {name or 'module'!r} ({type(layer).__name__}) is not supported: {reason}")


def _inputs(shape: tuple[int, ...], module: nn.Module, seed: int = 0) -> Tensor:
    drawn = torch.randn(_PROBES, *shape, generator=torch.Generator().manual_seed(seed)) * 0.3
    return drawn.to(next(module.parameters()))


class _Taken(NamedTuple):
    flat: bool
    outputs: int


def _try_inputs(module: nn.Module, shape: tuple[int, ...]) -> _Taken:
    """The form in which the module takes its inputs, and its number of outputs."""
    x, problem = _inputs(shape, module), ""
    for flat in (False, True):
        given = x.flatten(1) if flat else x
        try:
            with torch.no_grad():
                found, again, alone = module(given.clone()), module(given.clone()), module(given[:1].clone())
        except Exception as error:  # whatever the user's own code raises
            problem = problem or f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:160]}"
            continue
        if not isinstance(found, Tensor) or found.ndim not in (1, 2) or len(found) != _PROBES:
            what = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise InputError(
                f"{type(module).__name__} gives {what} for {_PROBES} inputs; wrap it in a module that gives one tensor "
                "(n, outputs)"
            )
        if not found.isfinite().all():
            raise InputError(f"{type(module).__name__} gives outputs that are not finite; give a trained model")
        if not torch.equal(found, again):
            raise InputError(
                f"{type(module).__name__} gives different outputs for the same input in evaluation form; remove the "
                "randomness from its forward"
            )
        if not torch.allclose(found[:1], alone.reshape(found[:1].shape), rtol=1e-3, atol=1e-5):
            raise InputError(
                f"{type(module).__name__} gives a sample another output alone than in a batch; every sample has to be "
                "mapped by itself"
            )
        return _Taken(flat, found.reshape(_PROBES, -1).shape[1])
    raise InputError(f"{type(module).__name__} does not take inputs of shape {shape} ({problem}); pass input_shape=...")


@contextmanager
def twice_differentiable() -> Iterator[None]:
    """Attention by plain matrix products: the fused kernels have no second derivative."""
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
        yield


def _check_twice_differentiable(network: ModuleNetwork) -> None:
    """Try one double backward, as every step of an attack takes it, and check its result."""
    module = network.module
    points = [_inputs(network.architecture.input_shape, module, seed) for seed in range(_POINTS)]
    problem = _double_backward(network, points, list(network.trained_parameters().values()))
    if problem is None:
        return
    for name, layer in module.named_modules():
        if any(True for _ in layer.children()):
            continue
        given = [x for x in (_given(layer, network, point) for point in points) if x is not None]
        if given:
            own = _double_backward(layer, given, list(layer.parameters()))
            if own is not None:
                raise _unsupported(name, layer, f"{own}; replace it with a layer that torch differentiates twice")
    raise InputError(f"{type(module).__name__} cannot be attacked: {problem}; change its forward")


def _given(layer: nn.Module, network: ModuleNetwork, x: Tensor) -> Tensor | None:
    """What the layer is given first when the network is given x, if it can be differentiated."""
    seen: list[Any] = []
    handle = layer.register_forward_pre_hook(lambda _, given: seen.extend(given[:1]))
    try:
        with torch.no_grad():
            network(x)
    finally:
        handle.remove()
    return seen[0] if seen and isinstance(seen[0], Tensor) and seen[0].is_floating_point() else None


def _double_backward(function: nn.Module, points: Sequence[Tensor], parameters: Sequence[Tensor]) -> str | None:
    """Why the second derivative cannot be computed, or is wrong; None where it is right."""
    held = [parameter.requires_grad for parameter in parameters]
    for parameter in parameters:
        parameter.requires_grad_(True)
    try:
        with twice_differentiable():
            if all(_slope(function, x, parameters) is None for x in points):
                return "its output does not change with its input"
    except (RuntimeError, NotImplementedError, ValueError, TypeError) as error:
        return f"it cannot be differentiated twice ({(str(error).splitlines() or [''])[0][:160].rstrip('.')})"
    finally:
        for parameter, before in zip(parameters, held, strict=True):
            parameter.requires_grad_(before)
    if _differs_from_differences(function, points):
        return "it cannot be differentiated twice (its second derivative is wrong or left out)"
    return None


class _Slope(NamedTuple):
    """|d |phi|^2 / d theta|^2, or without parameters |d |phi|^2 / dx|^2, and its gradient in x."""

    value: Tensor
    gradient: Tensor


def _slope(function: nn.Module, x: Tensor, parameters: Sequence[Tensor]) -> _Slope | None:
    """None where the output does not depend on x, or is no tensor."""
    point = x.detach().clone().requires_grad_()
    found = function(point.clone())
    if not isinstance(found, Tensor):
        return None
    first = torch.autograd.grad(found.square().sum(), [*parameters, point], create_graph=True, allow_unused=True)
    if first[-1] is None or not first[-1].any():
        return None
    used = [part for part in first[:-1] if part is not None] or list(first[-1:])
    value = torch.stack([part.square().sum() for part in used if part is not None]).sum()
    (gradient,) = torch.autograd.grad(value, point, allow_unused=True)
    return _Slope(value.detach(), torch.zeros_like(point) if gradient is None else gradient)


def _differs_from_differences(function: nn.Module, points: Sequence[Tensor]) -> bool:
    """Some operations leave their second derivative out without a word; differences of the gradient tell.

    At most points: a kink may spoil one where it is right, and chance may hide one where it is wrong.
    """
    precise = copy.deepcopy(function).double()
    parameters = list(precise.parameters())
    for parameter in parameters:
        parameter.requires_grad_(True)
    generator = torch.Generator().manual_seed(1)
    agree = differ = 0
    try:
        with twice_differentiable():
            for x in points:
                at = x.detach().double()
                step = 1e-6 * float(at.abs().amax().clamp_min(1e-3))
                way = torch.randn(at.shape, generator=generator, dtype=torch.float64).to(at)
                here, ahead, behind = (_slope(precise, at + k * step * way, parameters) for k in (0, 1, -1))
                if here is None or ahead is None or behind is None:
                    continue
                expected = float(ahead.value - behind.value) / (2 * step)
                found = float((here.gradient * way).sum())
                rounding = 1e-14 / step * float(here.value)
                if abs(expected - found) <= 1e-3 * max(abs(expected), abs(found)) + rounding:
                    agree += 1
                else:
                    differ += 1
                if 2 * max(agree, differ) > len(points):
                    break
    except (RuntimeError, TypeError, ValueError):  # a forward that insists on float32 cannot be checked like this
        return False
    return differ > agree
