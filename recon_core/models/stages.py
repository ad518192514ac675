"""What stands in front of the dense layers: convolutions, activations and pooling, as values and as one line of text.

A state dict holds the weights of such layers, not how they stride, pad, dilate and pool. That is said by a layout:

  conv(padding=1), relu, max(2), conv(padding=1, stride=2), relu, average(2), flatten, dense, relu, dense

Weights are taken from the file in order. `bn` is batch normalisation, `dropout` and `flatten` may stand where they do.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from recon_core.errors import InputError

POOLING = ("max", "average")
KINDS = ("conv", "activation", *POOLING)
_ACTIVATIONS = ("relu", "leaky_relu", "gelu", "activation")
_WORDS = ("conv", "bn", *_ACTIVATIONS, *POOLING, "dropout", "flatten", "dense")
_ALIASES = {"avg": "average", "maxpool": "max", "avgpool": "average", "linear": "dense", "batchnorm": "bn"}
_LONGEST = 4000
_MOST_LAYERS = 200
# A padding or a kernel beyond this is no image layer, and would only take memory.
_LARGEST = 1024
_MOST_ACTIVATIONS = 2**27
# Usual paddings and poolings are tried for this many convolutions; every further one doubles the work.
_MOST_GUESSED = 8

Pair = tuple[int, int]


@dataclass(frozen=True)
class Stage:
    """One step on images (C, H, W): `kind` is one of `KINDS`; sizes are (down, across)."""

    kind: str
    channels: int = 0
    kernel: Pair = (1, 1)
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"a stage must be {', '.join(KINDS)}, got {str(self.kind)[:40]!r}")
        for name, least in (("kernel", 1), ("stride", 1), ("padding", 0), ("dilation", 1)):
            for size in getattr(self, name):
                if not least <= size <= _LARGEST:
                    raise InputError(f"{name} of {self.kind} must be between {least} and {_LARGEST}, got {size}")
        if self.kind in POOLING and any(2 * pad > size for pad, size in zip(self.padding, self.kernel, strict=True)):
            raise InputError(
                f"padding of {self.kind} must be at most half its kernel {self.kernel}, got {self.padding}"
            )

    def output(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape it makes of (C, H, W); an `InputError` where nothing is left."""
        if self.kind == "activation":
            return shape
        sides = [
            (side + 2 * pad - step * (size - 1) - 1) // stride + 1
            for side, size, stride, pad, step in zip(
                shape[1:], self.kernel, self.stride, self.padding, self.dilation, strict=True
            )
        ]
        made = (self.channels if self.kind == "conv" else shape[0], *sides)
        if min(sides) < 1:
            raise InputError(f"{self} leaves nothing of an image of {shape[1]}x{shape[2]}; pass a larger input_shape")
        if math.prod(made) > _MOST_ACTIVATIONS:
            raise InputError(
                f"{self} makes {math.prod(made)} numbers of an image, at most {_MOST_ACTIVATIONS} are taken"
            )
        return made

    def __str__(self) -> str:
        if self.kind == "activation":
            return "activation"
        extras = [
            f"{name}={_sides(getattr(self, name))}"
            for name, usual in (("stride", (1, 1)), ("padding", (0, 0)), ("dilation", (1, 1)))
            if getattr(self, name) != (self.kernel if name == "stride" and self.kind in POOLING else usual)
        ]
        first = [] if self.kind == "conv" else [_sides(self.kernel)]
        inside = ", ".join([*first, *extras])
        return f"{self.kind}({inside})" if inside else self.kind

    @property
    def short(self) -> str:
        """As in the name of an architecture."""
        size = _sides(self.kernel)
        return f"CONV({size},{self.channels})" if self.kind == "conv" else f"{self.kind.upper()}({size})"

    def to_json(self) -> dict[str, Any]:
        usual = asdict(Stage(self.kind))
        return {name: value for name, value in asdict(self).items() if name == "kind" or value != usual[name]}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Stage:
        pairs = {name: (int(values[name][0]), int(values[name][1])) for name in _PAIRS if name in values}
        counts = {name: int(values[name]) for name in ("channels", "groups") if name in values}
        return cls(str(values["kind"]), **pairs, **counts)  # type: ignore[arg-type]


_PAIRS = ("kernel", "stride", "padding", "dilation")


def _sides(pair: Pair) -> str:
    return str(pair[0]) if pair[0] == pair[1] else f"{pair[0]}x{pair[1]}"


def output_shape(stages: Iterable[Stage], shape: tuple[int, ...]) -> tuple[int, ...]:
    """(C, H, W) behind all stages."""
    for stage in stages:
        shape = stage.output(shape)
    return shape


class Word(NamedTuple):
    """One layer of a layout: its kind, the sizes given without a name, and those given with one."""

    kind: str
    kernel: Pair | None
    options: Mapping[str, Pair]


def parse_layout(text: str) -> tuple[Word, ...]:
    """The layers of a layout, first to last, or an `InputError` that names the one that is not known."""
    if len(text) > _LONGEST:
        raise InputError(f"a layout has at most {_LONGEST} characters, got {len(text)}")
    words = tuple(_word(part) for part in _split(text))
    if not words or len(words) > _MOST_LAYERS:
        raise InputError(f"a layout has 1 to {_MOST_LAYERS} layers, got {len(words)}; e.g. conv, relu, max(2), dense")
    return words


def _split(text: str) -> Iterator[str]:
    """At commas outside brackets."""
    depth, start = 0, 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            yield text[start:place].strip()
            start = place + 1
    if text[start:].strip() or start:
        yield text[start:].strip()


def _word(part: str) -> Word:
    found = re.fullmatch(r"([a-z_]+)\s*(?:\(([^()]*)\))?", part.lower())
    name = _ALIASES.get(found[1], found[1]) if found else ""
    if found is None or name not in _WORDS:
        raise InputError(f"unknown layer {part[:40]!r} in the layout; there are {', '.join(_WORDS)}")
    kernel: Pair | None = None
    options: dict[str, Pair] = {}
    for given in filter(None, (piece.strip() for piece in (found[2] or "").split(","))):
        key, equals, value = (piece.strip() for piece in given.partition("="))
        if not equals and name in POOLING and kernel is None and not options:
            kernel = _pair(key, part)
        elif equals and key in _options_of(name) and key not in options:
            options[key] = _pair(value, part)
        else:
            raise InputError(
                f"unknown {given[:40]!r} in {part[:40]!r} of the layout; {name} takes "
                f"{', '.join(_options_of(name)) or 'nothing'}"
            )
    if name in POOLING and kernel is None:
        kernel = options.pop("kernel", None)
        if kernel is None:
            raise InputError(f"{part[:40]!r} in the layout does not say how much it pools; write {name}(2)")
    return Word(name, kernel, options)


def _options_of(name: str) -> tuple[str, ...]:
    return {"conv": ("stride", "padding", "dilation"), "max": _PAIRS, "average": _PAIRS[:3]}.get(name, ())


def _pair(text: str, part: str) -> Pair:
    sizes = re.fullmatch(r"(\d{1,5})(?:x(\d{1,5}))?", text)
    if sizes is None:
        raise InputError(f"{text[:40]!r} in {part[:40]!r} of the layout is no size; write 2 or 2x3")
    return int(sizes[1]), int(sizes[2] or sizes[1])


def pooling(word: Word) -> Stage:
    """The stage of a max(...) or average(...)."""
    assert word.kernel is not None
    return replace(Stage(word.kind, kernel=word.kernel, stride=word.kernel), **word.options)  # type: ignore[arg-type]


def usual_stacks(convolutions: Sequence[Stage], pooled: Sequence[bool | None]) -> Iterator[tuple[Stage, ...]]:
    """Layouts that people use for these convolutions: padded or not, pooled by max(2) or not.

    `pooled` says for each whether something beside the activation follows it; None where that is not known.
    """
    if pooled.count(None) > _MOST_GUESSED:
        return
    same = [tuple((size - 1) // 2 for size in stage.kernel) for stage in convolutions]
    choices = itertools.product(*[(False, True) if known is None else (known,) for known in pooled])
    for pools in choices:
        for paddings in dict.fromkeys([((0, 0),) * len(same), tuple(same)]):
            stack: list[Stage] = []
            for stage, pool, padding in zip(convolutions, pools, paddings, strict=True):
                padded = Stage(
                    "conv", stage.channels, stage.kernel, padding=(padding[0], padding[1]), groups=stage.groups
                )
                stack += [padded, Stage("activation")]
                if pool:
                    stack.append(Stage("max", kernel=(2, 2), stride=(2, 2)))
            yield tuple(stack)


def layout_text(stages: Iterable[Stage], dense: int, activation: str) -> str:
    """The layout of these stages and so many dense layers, as `parse_layout` reads it."""
    names = [activation if stage.kind == "activation" else str(stage) for stage in stages]
    return ", ".join([*names, "flatten", *f", {activation}, ".join(["dense"] * dense).split(", ")])
