"""Which layers a state dict describes, and in which order they follow one another."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor

from recon_core.errors import InputError
from recon_core.models.foreign_files import StateDict, shown

SUPPORTED = "dense ReLU networks and CONV(k, C) followed by dense layers can be read"
_PREFIXES = ("module.", "_orig_mod.")
_KINDS = {
    "a BatchNorm layer": r"running_(mean|var)|num_batches_tracked|bn\d*|batch_?norm\d*",
    "a normalisation layer": r"ln\d*|\w*norm\d*",
    "attention": r"\w*attn\d*|\w*attention\d*|qkv|[qkv]_proj\w*|in_proj\w*",
    "an embedding": r"\w*emb(ed|edding)?s?\d*|cls_token",
    "a recurrent layer": r"(weight|bias)_[ih]h_l\d+\w*|lstm\d*|gru\d*|rnn\d*",
    "a residual connection": r"downsample|shortcut|skip\w*|resid\w*",
    "a reparametrised layer": r"parametrizations|weight_(g|v|orig|u)|lora_\w*",
}


@dataclass(frozen=True, eq=False)
class ForeignLayer:
    """One layer under the name it has in the file; weight (out, in) or, of a convolution, (out, in, k, k)."""

    name: str
    weight: Tensor
    bias: Tensor | None

    @property
    def takes(self) -> int:
        return self.weight.shape[1]

    @property
    def gives(self) -> int:
        return self.weight.shape[0]


@dataclass(frozen=True)
class LayerChain:
    """The layers from input to output."""

    conv: ForeignLayer | None
    dense: tuple[ForeignLayer, ...]
    notes: tuple[str, ...]


def find_layers(state: StateDict, source: str) -> LayerChain:
    """The chain of layers in `state`; what is neither dense nor a leading convolution is refused by name."""
    layers = _group(state, source)
    convs = [layer for layer in layers if layer.weight.ndim == 4]
    dense = [layer for layer in layers if layer.weight.ndim == 2]
    if len(convs) > 1:
        names = ", ".join(shown(layer.name) for layer in convs[:8])
        raise InputError(
            f"{source} has {len(convs)} convolutions ({names}) but one at the most is supported; {SUPPORTED}"
        )
    if convs and state.ordered and layers[0] is not convs[0]:
        raise InputError(
            f"{source} has the convolution {shown(convs[0].name)} behind the dense layer {shown(layers[0].name)}; "
            f"{SUPPORTED}"
        )
    if len(dense) < 2:
        raise InputError(
            f"{source} has {len(dense)} dense layers and so no dense hidden layer to attack; "
            "give a network with at least two"
        )
    notes = []
    order = dense if state.ordered else sorted(dense, key=lambda layer: _natural(layer.name))
    if not _chains(order):
        order = _follow(order, source)
        notes.append("The layers were put in the order in which their sizes fit.")
    elif not state.ordered:
        notes.append("The layers were put in the order of their names.")
    return LayerChain(convs[0] if convs else None, tuple(order), tuple(notes))


def _group(state: StateDict, source: str) -> list[ForeignLayer]:
    parts: dict[str, dict[str, Tensor]] = {}
    for full_name, tensor in state.tensors.items():
        name = full_name
        while name.startswith(_PREFIXES):
            name = name.partition(".")[2]
        layer, _, part = name.rpartition(".")
        if kind := _kind(name):
            raise InputError(f"{source} has {kind} ({shown(full_name)}), which is not supported; {SUPPORTED}")
        group = parts.setdefault(layer, {})
        if part not in ("weight", "bias"):
            raise InputError(
                f"{source} has the tensor {shown(full_name)}, which belongs to no known layer; {SUPPORTED}"
            )
        if part in group:
            raise InputError(f"{source} has {shown(name)} twice, with and without a prefix; save one of them")
        if not tensor.is_floating_point():
            raise InputError(
                f"{source} has {shown(full_name)} as {str(tensor.dtype).removeprefix('torch.')}; "
                "convert the weights to float32 before saving"
            )
        group[part] = tensor
    return [_layer(name, group, source) for name, group in parts.items()]


def _kind(name: str) -> str | None:
    words = name.lower().split(".")
    return next(
        (kind for kind, words_of in _KINDS.items() if any(re.fullmatch(words_of, word) for word in words)), None
    )


def _layer(name: str, group: dict[str, Tensor], source: str) -> ForeignLayer:
    weight, bias = group.get("weight"), group.get("bias")
    if weight is None:
        raise InputError(f"{source} has a bias but no weight for layer {shown(name)}; save the whole state dict")
    shape = "x".join(map(str, weight.shape))
    if weight.ndim not in (2, 4):
        kinds = {1: "a normalisation or PReLU layer", 3: "a 1-D convolution", 5: "a 3-D convolution"}
        kind = kinds.get(weight.ndim, "an unknown layer")
        raise InputError(f"{source} has {kind} ({shown(name)}, weight {shape}), which is not supported; {SUPPORTED}")
    if weight.ndim == 4 and weight.shape[2] != weight.shape[3]:
        raise InputError(
            f"{source} has a convolution {shown(name)} with a kernel of {weight.shape[2]}x{weight.shape[3]}; "
            "only square kernels are supported"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise InputError(
            f"{source} has layer {shown(name)} with weight {shape} and a bias of {'x'.join(map(str, bias.shape))}; "
            "the bias must have one number per output"
        )
    return ForeignLayer(name, weight, bias)


def _natural(name: str) -> list[tuple[int, str]]:
    """Sorts layers.2 before layers.10."""
    return [(len(part), part) if part.isdigit() else (0, part) for part in re.split("([0-9]+)", name)]


def _chains(layers: Sequence[ForeignLayer]) -> bool:
    return all(before.gives == after.takes for before, after in pairwise(layers))


def _follow(layers: Sequence[ForeignLayer], source: str) -> list[ForeignLayer]:
    """Order layers by their sizes where that leaves no choice; square ones come before the one that leads on."""
    given = {layer.gives for layer in layers if layer.gives != layer.takes}
    starts = [layer for layer in layers if layer.takes not in given and layer.gives != layer.takes]
    order: list[ForeignLayer] = []
    left = list(layers)
    fits = starts
    while len(fits) == 1:
        order.append(fits[0])
        left.remove(fits[0])
        fits = [layer for layer in left if layer.takes == order[-1].gives]
        fits = [layer for layer in fits if layer.gives == layer.takes] or fits
    if left:
        names = ", ".join(f"{shown(layer.name)} {layer.takes} to {layer.gives}" for layer in layers[:8])
        raise InputError(
            f"{source} has dense layers that do not follow one another by size ({names}); "
            "number them in order, as in layers.0.weight, and leave out branches"
        )
    return order
