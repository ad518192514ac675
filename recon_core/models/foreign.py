"""Somebody else's checkpoint: the network is inferred from the weights, and what was inferred is said."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from recon_core.config import BiasMode
from recon_core.errors import InputError
from recon_core.models.foreign_files import read_state_dict, shown
from recon_core.models.foreign_layers import SUPPORTED, ForeignLayer, LayerChain, find_layers
from recon_core.models.network import ACTIVATIONS, Architecture, Network
from recon_core.models.stages import (
    POOLING,
    Stage,
    Word,
    layout_text,
    output_shape,
    parse_layout,
    pooling,
    usual_stacks,
)

MAX_BYTES = 2**31
MAX_PARAMETERS = 10**9
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
    activation: str | None = None,
    layout: str | None = None,
    max_bytes: int = MAX_BYTES,
    max_parameters: int = MAX_PARAMETERS,
) -> ForeignModel:
    """Read a `.safetensors` file or a state dict of `torch.save`; nothing in it is run, whatever it holds.

    `input_shape` is (C, H, W) or (d,); without it 2 inputs are points and squares of one or three
    channels are images. `activation` is one of `ACTIVATIONS`, ReLU where it is left out. `layout` says how convolutions
    stride, pad and pool (`recon_core.models.stages`), which a file does not. Whatever cannot be read or inferred is an
    `InputError` that says what to do.
    """
    source = repr(str(path))
    if activation is not None and activation not in ACTIVATIONS:
        raise InputError(
            f"activation {activation!r} is not supported; networks with {', '.join(ACTIVATIONS)} are read, "
            "others can be given as a module in Python"
        )
    if input_shape is not None and (len(input_shape) not in (1, 3) or min(input_shape) < 1):
        raise InputError(f"input_shape must be (C, H, W) or (d,) of positive sizes, got {input_shape}")
    words = None if layout is None else parse_layout(layout)
    state = read_state_dict(path, max_bytes=max_bytes, max_parameters=max_parameters)
    chain = find_layers(state, source, words)
    chosen = _activation(activation, words)
    front = _front(chain, words, input_shape, source)
    layers = chain.layers
    biases = _biases(layers)
    plain = _plain(front.stages, chain)
    architecture = Architecture(
        input_shape=front.shape,
        widths=tuple(layer.gives for layer in chain.dense[:-1]),
        outputs=chain.dense[-1].gives,
        bias=biases.mode,
        biases=biases.layers,
        conv_kernel=front.stages[0].kernel[0] if plain else None,
        conv_channels=front.stages[0].channels if plain else None,
        activation=chosen or "relu",
        stages=() if plain else front.stages,
    )
    notes = [
        f"The network is {architecture}, from the layers {', '.join(shown(layer.name) for layer in layers[:12])}.",
        *chain.notes,
        *front.notes,
        *biases.notes,
        *state.notes,
    ]
    needs = list(front.needs)
    if chosen is None:
        needs.append("activation")
        notes.append("Hidden layers are taken to be ReLU and the output to have no activation; the file does not say.")
    if input_shape is None:
        needs.append("input_shape")
        notes.append(f"An input of {math.prod(front.shape)} numbers is taken to be of shape {front.shape}.")
    kinds = sorted({str(layer.weight.dtype).removeprefix("torch.") for layer in layers})
    if kinds not in (["float32"], ["float64"]):
        notes.append(f"Weights of type {' and '.join(kinds)} were widened.")
    return ForeignModel(_assemble(architecture, layers), architecture, tuple(notes), tuple(needs))


def _activation(asked: str | None, words: Sequence[Word] | None) -> str | None:
    """The one that the layout or the caller names; None where neither does."""
    named = sorted({word.kind for word in words or () if word.kind in ACTIVATIONS})
    if len(named) > 1 or (asked is not None and named not in ([], [asked])):
        told = " and ".join(named)
        raise InputError(f"one activation is supported, got {told} in the layout and activation={asked}; leave one out")
    return asked or next(iter(named), None)


@dataclass(frozen=True)
class _Front:
    """The shape of an input, and what stands before the dense layers."""

    shape: tuple[int, ...]
    stages: tuple[Stage, ...] = ()
    notes: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


def _front(chain: LayerChain, words: Sequence[Word] | None, wish: tuple[int, ...] | None, source: str) -> _Front:
    if not chain.convs:
        if words is not None:
            _stages(words, chain.convs, source)  # refuses what is not dense
        return _Front(_dense_input(chain.dense[0], wish, source))
    first = chain.convs[0]
    kernel, channels = first.weight.shape[2:], first.takes
    if wish is not None and (len(wish) != 3 or wish[0] % channels):
        raise InputError(
            f"{source} starts with a {kernel[0]}x{kernel[1]} convolution of {channels} channels, "
            f"which does not fit input_shape {wish}; pass ({channels}, H, W)"
        )
    shapes: list[tuple[int, ...]]
    shapes = [wish] if wish is not None else [(channels, side, side) for side in _USUAL_SIDES]
    bare = _convolutions(chain.convs, shapes[0][0], source)
    if words is not None:
        stages = _stages(words, bare, source)
        fitting = [shape for shape in shapes if _gives(stages, shape) == chain.dense[0].takes]
        if len(fitting) == 1:
            return _Front(fitting[0], stages)
        raise _no_fit(chain, stages, shapes, len(fitting), source)
    options: dict[tuple[tuple[int, ...], tuple[Stage, ...]], None] = {}
    for hints in dict.fromkeys([_pool_hints(chain), (None,) * len(bare)]):
        for shape in shapes:
            for stages in usual_stacks(bare, hints):
                if _gives(stages, shape) == chain.dense[0].takes:
                    options[shape, stages] = None
        if options:
            break
    if len(options) == 1:
        ((shape, stages),) = options
        text = layout_text(stages, len(chain.dense), "relu")
        if _plain(stages, chain):
            return _Front(shape, stages)
        note = f"The sizes fit the layout {text}, which was taken; pooling may as well be average."
        return _Front(shape, stages, (note,), ("layout",))
    if not options:
        raise _no_fit(chain, None, shapes, 0, source)
    told = "; or ".join(layout_text(stages, len(chain.dense), "relu") for _, stages in list(options)[:2])
    raise InputError(
        f"{source} has {len(chain.convs)} convolutions, and {len(options)} layouts fit the {chain.dense[0].takes} "
        f"numbers that {shown(chain.dense[0].name)} takes; pass input_shape=({channels}, H, W) and layout, e.g. {told}"
    )


def _no_fit(
    chain: LayerChain, stages: tuple[Stage, ...] | None, shapes: Sequence[tuple[int, ...]], fits: int, source: str
) -> InputError:
    takes, name = chain.dense[0].takes, shown(chain.dense[0].name)
    if stages is not None and len(shapes) == 1:
        gives = _gives(stages, shapes[0])
        what = "nothing is left" if gives is None else f"{gives} come out"
        return InputError(
            f"{source} has {name}, which takes {takes} numbers, but of input_shape {shapes[0]} {what} with this "
            "layout; correct one of them"
        )
    if stages is not None:
        sizes = "several usual image sizes give" if fits else "no usual image size gives"
        return InputError(
            f"{source} has {name}, which takes {takes} numbers, and {sizes} that with this layout; "
            f"pass input_shape=({shapes[0][0]}, H, W)"
        )
    inputs = f"input_shape {shapes[0]}" if len(shapes) == 1 else "a usual image size"
    return InputError(
        f"{source} has {shown(chain.convs[-1].name)} followed by {name}, which takes {takes} numbers, and {inputs} "
        f"gives that neither with nor without padding and pooling by 2; pass input_shape=({shapes[0][0]}, H, W) and "
        "layout='conv(padding=1), relu, max(2), ...'"
    )


def _gives(stages: Sequence[Stage], shape: tuple[int, ...]) -> int | None:
    """Number of outputs of these stages; None where nothing is left of an image."""
    try:
        return math.prod(output_shape(stages, shape))
    except InputError:
        return None


def _convolutions(convs: Sequence[ForeignLayer], channels: int, source: str) -> list[Stage]:
    """As stages without padding; groups follow from the channels that come in."""
    stages = []
    for layer in convs:
        within = layer.takes
        if channels % within or layer.gives % (channels // within):
            raise InputError(
                f"{source} has the convolution {shown(layer.name)} of {within} channels behind {channels} channels; "
                "only layers that follow one another can be read"
            )
        height, width = layer.weight.shape[2:]
        stages.append(Stage("conv", layer.gives, (height, width), groups=channels // within))
        channels = layer.gives
    return stages


def _stages(words: Sequence[Word], convs: Sequence[Any], source: str) -> tuple[Stage, ...]:
    """What the layout has in front of its first dense layer; behind it only dense layers with activations between."""
    stages: list[Stage] = []
    waiting = iter(convs)
    flat = bent = False
    dense = sum(word.kind == "dense" for word in words)
    seen = 0
    for word in words:
        if word.kind in ("bn", "dropout", "flatten"):
            flat = flat or word.kind == "flatten"
        elif word.kind == "dense":
            if seen and not bent:
                raise InputError("the layout has two dense layers with no activation between them; add one, e.g. relu")
            seen, flat, bent = seen + 1, True, False
        elif word.kind in POOLING or word.kind == "conv":
            if flat:
                raise InputError(
                    f"the layout has {word.kind} behind flatten or dense, which cannot be read; {SUPPORTED}"
                )
            if word.kind == "conv":
                stages.append(replace(next(waiting), **dict(word.options)))
            else:
                stages.append(pooling(word))
        else:
            if seen == dense:
                raise InputError(
                    f"the layout has {word.kind} behind the last dense layer; leave it out, it is not attacked"
                )
            bent = True
            if not seen:
                if not stages:
                    raise InputError(f"the layout has {word.kind} before any layer; leave it out")
                stages.append(Stage("activation"))
    return tuple(stages)


def _plain(stages: tuple[Stage, ...], chain: LayerChain) -> bool:
    """CONV(k, C) of Buzaglo et al. 2023 with dense layers behind it."""
    if len(stages) != 2 or stages[1].kind != "activation" or len(chain.dense) < 2:
        return False
    conv = stages[0]
    return conv == Stage("conv", conv.channels, (conv.kernel[0],) * 2)


def _pool_hints(chain: LayerChain) -> tuple[bool | None, ...]:
    """For each convolution, whether the numbers of nn.Sequential leave room for pooling behind it."""
    hints: list[bool | None] = []
    for before, after in pairwise([layer.name for layer in (*chain.convs, chain.dense[0])]):
        ends = [name.rpartition(".") for name in (before, after)]
        if ends[0][0] != ends[1][0] or not (ends[0][2].isdecimal() and ends[1][2].isdecimal()):
            hints.append(None)
            continue
        numbers = [int(end[2][:9]) for end in ends]
        inside = chain.names.index(after) - chain.names.index(before) - 1
        between = numbers[1] - numbers[0] - 1 - inside
        spare = between - (2 if after == chain.dense[0].name else 1)  # the activation, and flatten
        hints.append(spare > 0)
    return tuple(hints)


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
