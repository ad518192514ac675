"""Which layers a state dict describes, and in which order they follow one another."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from recon_core.errors import InputError
from recon_core.models.foreign_files import StateDict, shown
from recon_core.models.stages import Word

SUPPORTED = "dense networks, with convolutions and pooling in front, can be read; give others as a module in Python"
_PREFIXES = ("module.", "_orig_mod.")
_KINDS = {
    "a BatchNorm layer without running statistics": r"bn\d*|batch_?norm\d*",
    "a normalisation layer": r"ln\d*|\w*norm\d*",
    "attention": r"\w*attn\d*|\w*attention\d*|qkv|[qkv]_proj\w*|in_proj\w*",
    "an embedding": r"\w*emb(ed|edding)?s?\d*|cls_token",
    "a recurrent layer": r"(weight|bias)_[ih]h_l\d+\w*|lstm\d*|gru\d*|rnn\d*",
    "a residual connection": r"downsample|shortcut|skip\w*|resid\w*",
    "a reparametrised layer": r"parametrizations|weight_(g|v|orig|u)|lora_\w*",
}
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
# torch's own; the file does not hold it.
_EPSILON = 1e-5
_MOST_LAYERS = 1000


@dataclass(frozen=True, eq=False)
class ForeignLayer:
    """One layer under the name it has in the file; weight (out, in) or, of a convolution, (out, in, height, width)."""

    name: str
    weight: Tensor
    bias: Tensor | None

    @property
    def takes(self) -> int:
        return self.weight.shape[1]

    @property
    def gives(self) -> int:
        return self.weight.shape[0]


@dataclass(frozen=True, eq=False)
class ForeignNorm:
    """Batch normalisation in evaluation form: (z - mean) scale + shift, one number for each channel."""

    name: str
    mean: Tensor
    scale: Tensor
    shift: Tensor | None

    @property
    def size(self) -> int:
        return len(self.mean)


@dataclass(frozen=True)
class LayerChain:
    """The layers from input to output, batch normalisation folded into those it follows."""

    convs: tuple[ForeignLayer, ...]
    dense: tuple[ForeignLayer, ...]
    notes: tuple[str, ...]
    names: tuple[str, ...]
    """Of everything with numbers in the file, first to last."""

    @property
    def layers(self) -> tuple[ForeignLayer, ...]:
        return (*self.convs, *self.dense)


def find_layers(state: StateDict, source: str, layout: Sequence[Word] | None = None) -> LayerChain:
    """The chain of layers in `state`; what is neither a convolution nor dense is refused by name.

    With a `layout` batch normalisation stands where that says, else behind the layer whose name or place it shares.
    """
    parts = _group(state, source)
    if not state.ordered:
        parts = sorted(parts, key=lambda part: _natural(part.name))
    if len(parts) > _MOST_LAYERS:
        raise InputError(f"{source} has {len(parts)} layers, at most {_MOST_LAYERS} are read; use a smaller model")
    norms = [part for part in parts if isinstance(part, ForeignNorm)]
    layers = [part for part in parts if isinstance(part, ForeignLayer)]
    convs = [layer for layer in layers if layer.weight.ndim == 4]
    dense = [layer for layer in layers if layer.weight.ndim == 2]
    if convs and state.ordered and any(layer in dense for layer in layers[: len(convs)]):
        late = next(layer for layer in convs if any(other in dense for other in layers[: layers.index(layer)]))
        raise InputError(
            f"{source} has the convolution {shown(late.name)} behind the dense layer {shown(dense[0].name)}; "
            f"{SUPPORTED}"
        )
    if len(dense) < 2 - bool(convs):
        raise InputError(
            f"{source} has {len(dense)} dense layers and so no dense hidden layer to attack; "
            "give a network with at least two"
        )
    notes = []
    order = dense
    if not _chains(order):
        order = _follow(order, source)
        notes.append("The layers were put in the order in which their sizes fit.")
    elif not state.ordered:
        notes.append("The layers were put in the order of their names.")
    followed = _placed(norms, layout, convs, order, source) if layout else _paired(norms, parts, source)
    folded = {layer.name: _fold(layer, followed[layer.name]) for layer in layers if layer.name in followed}
    if norms:
        told = ", ".join(f"{shown(norm.name)} into {shown(name)}" for name, norm in list(followed.items())[:8])
        notes.append(
            f"Batch normalisation was folded, with its running statistics and eps = {_EPSILON:g}: {told}. "
            "Candidates explain the folded weights, which training did not move as one, so expect fewer."
        )
    return LayerChain(
        tuple(folded.get(layer.name, layer) for layer in convs),
        tuple(folded.get(layer.name, layer) for layer in order),
        tuple(notes),
        tuple(part.name for part in parts),
    )


def _paired(
    norms: Sequence[ForeignNorm], parts: Sequence[ForeignLayer | ForeignNorm], source: str
) -> dict[str, ForeignNorm]:
    """By layer: the one of the same number (conv1 and bn1), else the one that stands right before it."""
    layers = {part.name: part for part in parts if isinstance(part, ForeignLayer)}
    found: dict[str, ForeignNorm] = {}
    for norm in norms:
        head, _, last = norm.name.rpartition(".")
        number = re.sub(r"^[a-z_]*", "", last.lower())
        namesakes = [
            name
            for name, layer in layers.items()
            if name.rpartition(".")[0] == head
            and layer.gives == norm.size
            and number
            and not last.isdigit()
            and re.fullmatch(rf"[a-z_]+{re.escape(number)}", name.rpartition(".")[2].lower())
        ]
        before = [part for part in parts[: parts.index(norm)] if isinstance(part, ForeignLayer)][-1:]
        chosen = namesakes[0] if len(namesakes) == 1 else before[0].name if before else None
        if chosen is None or chosen in found or layers[chosen].gives != norm.size:
            raise InputError(
                f"{source} has a BatchNorm layer {shown(norm.name)} of {norm.size} channels that follows no layer with "
                "as many; pass layout=..., with bn behind the layer it belongs to"
            )
        found[chosen] = norm
    return found


def _placed(
    norms: Sequence[ForeignNorm],
    layout: Sequence[Word],
    convs: Sequence[ForeignLayer],
    dense: Sequence[ForeignLayer],
    source: str,
) -> dict[str, ForeignNorm]:
    """By layer: where the layout has bn, those of the file in their order."""
    there = {"conv": iter(convs), "dense": iter(dense), "bn": iter(norms)}
    names = {"conv": "convolutions", "dense": "dense layers", "bn": "BatchNorm layers"}
    counts = {"conv": len(convs), "dense": len(dense), "bn": len(norms)}
    for kind, count in counts.items():
        said = sum(word.kind == kind for word in layout)
        if said != count:
            raise InputError(f"{source} has {count} {names[kind]} and the layout {said}; correct the layout")
    found: dict[str, ForeignNorm] = {}
    before: ForeignLayer | None = None
    for word in layout:
        if word.kind == "bn":
            norm = next(there["bn"])
            assert isinstance(norm, ForeignNorm)
            if before is None:
                raise InputError(
                    f"the layout has bn ({shown(norm.name)}) behind something else than conv or dense, where it cannot "
                    "be folded; give the model as a module in Python"
                )
            if before.gives != norm.size:
                raise InputError(
                    f"{source} has {norm.size} channels in {shown(norm.name)}, which the layout puts behind "
                    f"{shown(before.name)} with {before.gives}; correct the layout"
                )
            found[before.name] = norm
            before = None
        else:
            layer = next(there[word.kind]) if word.kind in there else None
            before = layer if isinstance(layer, ForeignLayer) else None
    return found


def _fold(layer: ForeignLayer, norm: ForeignNorm) -> ForeignLayer:
    """The layer that gives what the two give one after the other."""
    scale = norm.scale.to(layer.weight.dtype)
    weight = layer.weight * scale.reshape(-1, *[1] * (layer.weight.ndim - 1))
    start = -norm.mean if layer.bias is None else layer.bias - norm.mean
    bias = start * norm.scale
    return replace(layer, weight=weight, bias=(bias if norm.shift is None else bias + norm.shift).to(weight.dtype))


def _group(state: StateDict, source: str) -> list[ForeignLayer | ForeignNorm]:
    parts: dict[str, dict[str, Tensor]] = {}
    for full_name, tensor in state.tensors.items():
        name = full_name
        while name.startswith(_PREFIXES):
            name = name.partition(".")[2]
        layer, _, part = name.rpartition(".")
        group = parts.setdefault(layer, {})
        if part in group:
            raise InputError(f"{source} has {shown(name)} twice, with and without a prefix; save one of them")
        group[part] = tensor
    found: list[ForeignLayer | ForeignNorm] = []
    for layer, group in parts.items():
        if group.keys() & set(_STATISTICS):
            found.append(_norm(layer, group, source))
            continue
        for part, tensor in group.items():
            name = f"{layer}.{part}" if layer else part
            if kind := _kind(name):
                raise InputError(f"{source} has {kind} ({shown(name)}), which is not supported; {SUPPORTED}")
            if part not in ("weight", "bias"):
                raise InputError(f"{source} has the tensor {shown(name)}, which belongs to no known layer; {SUPPORTED}")
            _check_floats(tensor, name, source)
        found.append(_layer(layer, group, source))
    return found


def _check_floats(tensor: Tensor, name: str, source: str) -> None:
    if not tensor.is_floating_point():
        raise InputError(
            f"{source} has {shown(name)} as {str(tensor.dtype).removeprefix('torch.')}; "
            "convert the weights to float32 before saving"
        )


def _norm(name: str, group: Mapping[str, Tensor], source: str) -> ForeignNorm:
    """Batch normalisation out of its tensors, all of which must have one number for each channel."""
    for part in ("running_mean", "running_var"):
        if part not in group:
            raise InputError(
                f"{source} has a BatchNorm layer ({shown(name)}) without {part}, so its evaluation form is not known; "
                "save the whole state dict"
            )
    known = {part: group[part] for part in ("running_mean", "running_var", "weight", "bias") if part in group}
    for part in group:
        if part not in known and part != "num_batches_tracked":
            raise InputError(f"{source} has the tensor {shown(f'{name}.{part}')}, which belongs to no BatchNorm layer")
    for part, tensor in known.items():
        _check_floats(tensor, f"{name}.{part}", source)
        if tensor.ndim != 1 or tensor.shape != known["running_mean"].shape:
            raise InputError(
                f"{source} has {shown(f'{name}.{part}')} of shape {'x'.join(map(str, tensor.shape)) or '()'} in a "
                "BatchNorm layer; it must have one number per channel"
            )
    variance = known["running_var"]
    if bool((variance < 0).any()):
        raise InputError(f"{source} has a negative variance in {shown(f'{name}.running_var')}; save the model again")
    precise = torch.float64 if variance.dtype == torch.float64 else torch.float32
    scale = (variance.to(precise) + _EPSILON).rsqrt()
    scale = scale * known["weight"].to(precise) if "weight" in known else scale
    shift = known["bias"].to(precise) if "bias" in known else None
    return ForeignNorm(name, known["running_mean"].to(precise), scale, shift)


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
