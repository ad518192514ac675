"""The contents of each kind of run, as types. Results are checked against them when written and on import."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from recon_core.attacks.registry import FIRST_VERSION
from recon_core.auditing.report import AuditReport
from recon_core.config import BiasMode, TrainConfig, parse_config
from recon_core.errors import InputError
from recon_core.runs.audit import CANDIDATES, PICTURES, UNTRAINED, AuditConfig
from recon_core.runs.match_source import MatchConfig
from recon_core.runs.models import ImportConfig
from recon_core.runs.reconstruction import ReconstructConfig
from recon_core.store import layout
from recon_core.store.files import read_json, read_object
from recon_core.store.metrics import parse_row
from recon_core.store.private import open_to_read
from recon_core.store.record import read_record
from recon_core.store.tensors import tensor_shapes

_DEEPEST = 40
_MOST_TEXT = 100_000
Count = Annotated[int, Field(ge=0, lt=2**53)]
Size = Annotated[int, Field(ge=1, lt=2**31)]
Text = Annotated[str, Field(max_length=_MOST_TEXT)]
Number = float | int | None
Shape = Annotated[list[Size], Field(min_length=1, max_length=8)]


class Facts(BaseModel):
    """A result. Facts that other versions wrote are kept beside those named here."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)


class ArchitectureFacts(Facts):
    input_shape: Shape
    widths: Annotated[list[Size], Field(max_length=1000)]
    outputs: Size
    bias: Annotated[BiasMode, Field(strict=False)]
    conv_kernel: Size | None
    conv_channels: Size | None


class DataFacts(Facts):
    fingerprint: Text
    class_names: list[Text]
    input_shape: Shape
    train_ids: list[int]


class TrainResult(Facts):
    """Of a network trained here."""

    architecture: ArchitectureFacts
    data: DataFacts
    n: Size
    on_margin: Count
    seconds: Number = None
    steps: Count = 0
    parameters: Count = 0
    reason: Text = ""
    device: Text = ""
    log_loss: Number = None
    loss: Number = None
    train_error: Number = None
    test_error: Number = None
    test_loss: Number = None
    margin_min: Number = None
    margin_median: Number = None
    margin_max: Number = None
    log10_epochs: Number = None
    kkt: Number = None
    epsilon: Number = None
    delta: Number = None
    noise_multiplier: Number = None


class ModelResult(Facts):
    """Of somebody else's checkpoint."""

    architecture: ArchitectureFacts
    parameters: Count
    objective: Text
    notes: list[Text]
    needs: list[Any]
    file: Text
    sha256: Text


class ReconstructResult(Facts):
    candidates: Count
    architecture: ArchitectureFacts
    model: Text
    baseline: Text | None = None
    attack_version: Count = FIRST_VERSION
    warning: Text | None = None
    residual: Number = None
    seconds: Number = None
    alpha: Number = None
    prior: Text | Number = None
    seeds: list[dict[str, float | int | str | None]] = []
    circle: dict[str, float | int] | None = None


class MatchResult(Facts):
    kind: Text
    model: Text
    fingerprint: Text
    count: dict[str, float | int | str | None] | None = None
    auc: Number = None
    settings: dict[str, float | int | str | None] = {}
    seeds: dict[str, Any] | None = None


Rows = Mapping[str, tuple[str, ...]]
"""By file of tensors: those that have one row for each sample, candidate or image."""


class Content(BaseModel):
    """The config, result and tensors of one kind of run."""

    model_config = ConfigDict(arbitrary_types_allowed=True, frozen=True)

    config: type[BaseModel]
    result: type[BaseModel] | None = None
    rows: dict[str, tuple[str, ...]] = {}
    also: Callable[[Path], object] | None = None
    """Reads what else there is; raises where it makes no sense."""


_CANDIDATES = ("candidates", "multipliers", "labels", "seeds")
CONTENTS: dict[str, Content] = {
    "train": Content(
        config=TrainConfig,
        result=TrainResult,
        rows={"samples": ("outputs", "losses", "margins", "multipliers", "on_margin")},
    ),
    "model": Content(config=ImportConfig, result=ModelResult),
    "reconstruct": Content(config=ReconstructConfig, result=ReconstructResult, rows={"candidates": _CANDIDATES}),
    "match": Content(config=MatchConfig, result=MatchResult),
    "audit": Content(
        config=AuditConfig,
        result=AuditReport,
        rows={CANDIDATES: _CANDIDATES, UNTRAINED: _CANDIDATES, PICTURES: ("images", "reconstructions")},
    ),
}
"""A kind above this package adds its own."""


def checked_result(kind: str, result: Mapping[str, Any]) -> dict[str, Any]:
    """`result`, checked to be one of this kind."""
    content = CONTENTS[kind]
    if content.result is not None:
        _parse(content.result, json.loads(json.dumps(result, default=str)), layout.RESULT)
    return dict(result)


def fault_in(folder: Path) -> str:
    """What is wrong with an imported run, in a sentence; empty where nothing is."""
    try:
        _look_at(folder)
    except InputError as fault:
        return str(fault)
    except RecursionError:
        return "it is nested too deeply"
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        return f"what it found cannot be read ({type(error).__name__})"
    return ""


def _look_at(folder: Path) -> None:
    kind = read_record(folder).kind
    if kind not in CONTENTS:
        raise InputError(f"it is of kind {kind!r}, which this version does not know")
    content = CONTENTS[kind]
    for path in sorted(folder.glob("*.json")):
        if _depth(read_json(path)) > _DEEPEST:
            raise InputError(f"{path.name} is nested more than {_DEEPEST} deep")
    config = read_object(folder / layout.CONFIG)
    try:
        parse_config(content.config, config)
    except InputError as fault:
        raise InputError(f"{layout.CONFIG}: {fault}") from None
    if (folder / layout.METRICS).exists():
        _look_at_rows(folder / layout.METRICS)
    if not (folder / layout.RESULT).exists():
        return
    if content.result is not None:
        _parse(content.result, read_object(folder / layout.RESULT), layout.RESULT)
    for name, parts in content.rows.items():
        _look_at_tensors(folder / layout.tensors_file(name), parts)
    if content.also is not None:
        content.also(folder)


def _look_at_tensors(path: Path, parts: tuple[str, ...]) -> None:
    """One row in each part for each row of the first; a file may lack parts that its kind does not always write."""
    shapes = tensor_shapes(path)
    if parts[0] not in shapes:
        raise InputError(f"{path.name} has no {parts[0]!r}")
    for name in parts:
        shape = shapes.get(name)
        if shape is not None and shape[:1] != shapes[parts[0]][:1]:
            raise InputError(f"{path.name} has {name!r} of shape {shape} beside {parts[0]!r} of {shapes[parts[0]]}")


_NOT_NUMBERS = ("state", "reason", "stage", "cell")
_LARGEST = 2**63  # of whole numbers: what arrays of them hold


def _look_at_rows(path: Path) -> None:
    with open_to_read(path) as file:
        for number, line in enumerate(file, 1):
            row = parse_row(line)
            if row is None:
                continue  # a torn line; whatever else is no row was refused before
            for key, value in row.items():
                parts = value if isinstance(value, list) else [value]
                named = key in _NOT_NUMBERS and isinstance(value, str)
                if not named and not all(_is_number(part) for part in parts):
                    raise InputError(f"line {number} of {path.name} has an impossible {key[:40]!r}")


def _is_number(value: Any) -> bool:
    """One that a curve can be drawn of, or none."""
    return value is None or isinstance(value, float) or (isinstance(value, int) and abs(value) < _LARGEST)


def _parse(kind: type[BaseModel], values: Mapping[str, Any], file_name: str) -> None:
    try:
        kind.model_validate(values)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part)[:40] for part in fault["loc"][:4])
        raise InputError(f"{file_name}: {where}: {' '.join(fault['msg'].split())[:200]}") from None


def _depth(value: Any) -> int:
    """Of objects and lists within each other, without recursion: a stranger chose it."""
    depth, level = 0, [value]
    while level := [part for part in level if isinstance(part, dict | list)]:
        depth += 1
        level = [inner for part in level for inner in (part.values() if isinstance(part, dict) else part)]
    return depth
