"""Somebody else's checkpoint: the network is inferred from the weights, and what was inferred is said."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch

from recon_core.config import BiasMode
from recon_core.errors import InputError
from recon_core.models.foreign_files import read_state_dict, shown
from recon_core.models.foreign_layers import ForeignLayer, find_layers
from recon_core.models.network import Architecture, Network

MAX_BYTES = 2**31
MAX_PARAMETERS = 10**9
ACTIVATIONS = ("relu",)
_USUAL_SIDES = (28, 32, 64, 96, 128, 224)
_SMALLEST_SIDE = 8


@dataclass(frozen=True)
class ForeignModel:
    """A network read from a file, in float32 or, if the file has that, float64."""

    network: Network
    architecture: Architecture
    notes: tuple[str, ...]
    """Sentences: what was inferred and what was left out."""
    needs: tuple[str, ...]
    """Arguments of `read_checkpoint` that the file cannot tell and that were therefore assumed; a screen should ask."""


def read_checkpoint(
    path: Path,
    *,
    input_shape: tuple[int, ...] | None = None,
    activation: str = "relu",
    max_bytes: int = MAX_BYTES,
    max_parameters: int = MAX_PARAMETERS,
) -> ForeignModel:
    """Read a `.safetensors` file or a state dict of `torch.save`; nothing in it is run, whatever it holds.

    `input_shape` is (C, H, W) or (d,); without it 2 inputs are points and squares of one or three
    channels are images. Whatever cannot be read or inferred is an `InputError` that says what to do.
    """
    source = repr(str(path))
    if activation not in ACTIVATIONS:
        raise InputError(
            f"activation {activation!r} is not supported; only networks with {' or '.join(ACTIVATIONS)} are attacked"
        )
    if input_shape is not None and (len(input_shape) not in (1, 3) or min(input_shape) < 1):
        raise InputError(f"input_shape must be (C, H, W) or (d,) of positive sizes, got {input_shape}")
    state = read_state_dict(path, max_bytes=max_bytes, max_parameters=max_parameters)
    chain = find_layers(state, source)
    first = chain.dense[0]
    if chain.conv:
        shape = _conv_input(chain.conv, first, input_shape, source)
    else:
        shape = _dense_input(first, input_shape, source)
    layers = (*([chain.conv] if chain.conv else []), *chain.dense)
    biases = _biases(layers)
    architecture = Architecture(
        input_shape=shape,
        widths=tuple(layer.gives for layer in chain.dense[:-1]),
        outputs=chain.dense[-1].gives,
        bias=biases.mode,
        biases=biases.layers,
        conv_kernel=chain.conv.weight.shape[2] if chain.conv else None,
        conv_channels=chain.conv.gives if chain.conv else None,
    )
    notes = [
        f"The network is {architecture}, from the layers {', '.join(shown(layer.name) for layer in layers[:12])}.",
        *chain.notes,
        *biases.notes,
        *state.notes,
        "Hidden layers are taken to be ReLU and the output to have no activation; the file does not say.",
    ]
    needs = ["activation"]
    if input_shape is None:
        needs.append("input_shape")
        notes.append(f"An input of {math.prod(shape)} numbers is taken to be of shape {shape}.")
    kinds = sorted({str(layer.weight.dtype).removeprefix("torch.") for layer in layers})
    if kinds not in (["float32"], ["float64"]):
        notes.append(f"Weights of type {' and '.join(kinds)} were widened.")
    return ForeignModel(_assemble(architecture, layers), architecture, tuple(notes), tuple(needs))


def _dense_input(first: ForeignLayer, wish: tuple[int, ...] | None, source: str) -> tuple[int, ...]:
    size = first.takes
    if wish is not None:
        if math.prod(wish) != size:
            raise InputError(
                f"{source} takes inputs of {size} numbers but input_shape {wish} has {math.prod(wish)}; "
                f"pass one with {size}"
            )
        return wish
    if size == 2:
        return (2,)
    for channels in (1, 3):
        side = math.isqrt(size // channels)
        if channels * side * side == size and side >= _SMALLEST_SIDE:
            return (channels, side, side)
    raise InputError(
        f"{source} takes inputs of {size} numbers, which is not a square image of one or three channels; "
        f"pass input_shape=({size},) or (C, H, W)"
    )


def _conv_input(conv: ForeignLayer, head: ForeignLayer, wish: tuple[int, ...] | None, source: str) -> tuple[int, ...]:
    """The image size at which a convolution without padding gives as many numbers as the next layer takes."""
    channels, kernel = conv.weight.shape[1:3]
    if wish is not None:
        if len(wish) != 3 or wish[0] != channels or min(wish[1:]) < kernel:
            raise InputError(
                f"{source} starts with a {kernel}x{kernel} convolution of {channels} channels, "
                f"which does not fit input_shape {wish}; pass ({channels}, H, W)"
            )
        gives = conv.gives * (wish[1] - kernel + 1) * (wish[2] - kernel + 1)
        if gives != head.takes:
            raise InputError(
                f"{source} has {shown(conv.name)} followed by {shown(head.name)}, which takes {head.takes} numbers, "
                f"but without padding, stride and pooling (none is supported) input_shape {wish} gives {gives}; "
                "pass another input_shape"
            )
        return wish
    side = math.isqrt(head.takes // conv.gives) + kernel - 1
    if conv.gives * (side - kernel + 1) ** 2 != head.takes or side not in _USUAL_SIDES:
        raise InputError(
            f"{source} has {shown(conv.name)} followed by {shown(head.name)}, which takes {head.takes} numbers, "
            f"and no usual image size gives that without padding; pass input_shape=({channels}, H, W)"
        )
    return (channels, side, side)


@dataclass(frozen=True)
class _Biases:
    mode: BiasMode
    layers: tuple[bool, ...] | None
    notes: tuple[str, ...]


def _biases(layers: tuple[ForeignLayer, ...]) -> _Biases:
    """Which layers have a bias; zero ones are left out where the rest is a network of the papers."""
    *hidden, last = layers
    there = [layer for layer in layers if layer.bias is not None]
    used = [layer for layer in there if layer.bias is not None and layer.bias.any()]
    mode, explicit = BiasMode.HIDDEN, None
    if not used:
        mode, kept, said = BiasMode.NONE, [], "No layer has"
    elif used == hidden[:1]:
        mode, kept, said = BiasMode.FIRST, used, "The first layer has"
    elif last not in used and all(layer.bias is not None for layer in hidden):
        kept, said = list(hidden), "Hidden layers have"
    else:
        kept = there
        explicit = tuple(layer.bias is not None for layer in layers)
        named = ", ".join(shown(layer.name) for layer in kept[:12])
        said = "All layers have" if all(explicit) else f"The layers {named} have"
    notes = [f"{said} a bias."]
    if last in kept:
        notes.append("The output layer's bias has an equation of its own: it is the sum of the signed multipliers.")
    if dropped := [shown(layer.name) for layer in there if layer not in kept]:
        notes.append(f"Biases that are zero throughout were left out: {', '.join(dropped[:12])}.")
    return _Biases(mode, explicit, tuple(notes))


def _assemble(architecture: Architecture, layers: tuple[ForeignLayer, ...]) -> Network:
    with torch.device("meta"):  # no memory, no random numbers: all parameters are replaced
        network = Network(architecture)
    precise = any(layer.weight.dtype == torch.float64 for layer in layers)
    tensors = {}
    for index, layer in enumerate(layers):
        tensors[f"layers.{index}.weight"] = layer.weight
        if layer.bias is not None:
            tensors[f"layers.{index}.bias"] = layer.bias
    wanted = network.state_dict()
    # Copies, because tensors of a file may be views of one another.
    own = {
        name: tensors[name].to(
            torch.float64 if precise else torch.float32, copy=True, memory_format=torch.contiguous_format
        )
        for name in wanted
    }
    network.load_state_dict(own, assign=True)
    return network
