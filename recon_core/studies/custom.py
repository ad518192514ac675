"""Studies people write themselves, in a small YAML or JSON file or in the dashboard's form.

name: my-study
preset: cifar10-50                  # where to start; optional
set: {attack.iterations: 600}       # for all models; optional
vary: {data.n: [10, 20, 50]}        # the first key is the axis, further ones make panels
seeds: 3                            # or a list
references: {small start: {model.init_scale: 0.001}}   # dashed lines; optional
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from pydantic import Field, model_validator

from recon_core.config import Frozen, parse_config
from recon_core.errors import InputError
from recon_core.presets import Size, find_preset
from recon_core.runs.stored_names import with_current_settings
from recon_core.settings_text import read_settings, settings_of
from recon_core.studies.plan import MOST_CELLS, MOST_SEEDS, Scale, StudyPlan, Variant
from recon_core.studies.settings import Settings, checked, full_key

_LOG_RATIO = 20.0
"""Numbers whose largest is this many times the smallest are laid out by their logarithm."""
_TITLES = {
    "training.weight_decay": "weight decay λ",
    "data.n": "training images",
    "data.per_class": "training images per class",
    "model.widths": "widths of the hidden layers",
    "model.init_scale": "scale of the first layer at the start",
    "model.conv_kernel": "kernel size",
    "model.conv_channels": "channels",
    "attack.seeds": "attacks pooled",
    "attack.iterations": "iterations of the attack",
    "attack.m": "candidates",
}
_STUDY_FILE = "study file"


class OwnStudy(Frozen):
    """The file's content, key by key."""

    name: str = "own-study"
    title: str | None = None
    about: str = ""
    preset: str | None = None
    set: dict[str, Any] = Field(default_factory=dict)
    vary: dict[str, list[Any]] = Field(default_factory=dict)
    points: dict[str, dict[str, Any]] = Field(default_factory=dict)
    references: dict[str, dict[str, Any]] = Field(default_factory=dict)
    scale: Scale | None = None
    seeds: int | list[int] = 1
    untrained_control: bool = True

    _read_old_names = model_validator(mode="before")(with_current_settings)

    def plan(self) -> StudyPlan:
        """The study, checked."""
        base = {**_preset_settings(self.preset, self._touched()), **checked(self.set)}
        points, panels = self._variants()
        scale = self.scale or guess_scale(points)
        name = slug(self.name)
        axis = axis_title(next(iter(self.vary))) if self.vary else "value"
        return parse_config(
            StudyPlan,
            {
                "name": name,
                "title": self.title or name.replace("-", " ").capitalize(),
                "about": self.about,
                "axis": axis,
                "scale": scale,
                "points": points,
                "panels": panels,
                "overlay": len(panels) > 1,
                "references": [_variant(label, values) for label, values in self.references.items()],
                "base": base,
                "seeds": _seeds(self.seeds),
                "untrained_control": self.untrained_control,
            },
        )

    def _touched(self) -> frozenset[str]:
        """All keys that this study sets or varies."""
        groups: list[Mapping[str, Any]] = [self.set, self.vary, *self.points.values(), *self.references.values()]
        return frozenset(full_key(key) for group in groups for key in group)

    def _variants(self) -> tuple[list[Variant], list[Variant]]:
        if bool(self.vary) == bool(self.points):
            raise InputError(
                "a study varies something: give either vary, e.g. vary: {data.n: [10, 50]}, or points by name"
            )
        if self.points:
            return [_variant(label, values) for label, values in self.points.items()], [Variant(label="")]
        (key, values), *others = self.vary.items()
        for name, listed in self.vary.items():
            if not listed:
                raise InputError(f"vary {name!r} lists no values; give at least one")
        models = math.prod(map(len, self.vary.values()))
        if models > MOST_CELLS:  # before all of them are written down
            raise InputError(f"that is {models} models; a study has at most {MOST_CELLS}, vary less at once")
        choices = [value_variants(other, listed) for other, listed in others]
        panels = [_joined(choice) for choice in itertools.product(*choices)] if choices else [Variant(label="")]
        return value_variants(key, values), panels


def read_own(file: Path) -> StudyPlan:
    """A study from a file; the file's name is the study's unless it says another."""
    return _named_after(file, read_settings(file, _STUDY_FILE))


def plan_from_text(file_name: str, content: bytes) -> StudyPlan:
    """A study from a file's content; the file's name is the study's unless it says another."""
    return _named_after(PurePath(file_name), settings_of(content, f"{_STUDY_FILE} {file_name!r}"))


def _named_after(file: PurePath, values: Mapping[str, Any]) -> StudyPlan:
    return own_plan({"name": file.stem or "own-study", **values})


def own_plan(values: Mapping[str, Any]) -> StudyPlan:
    """A study from values as a file or a form gives them."""
    return parse_config(OwnStudy, values).plan()


def value_variants(key: str, values: Sequence[Any]) -> list[Variant]:
    """One variant for each value of a setting; None takes the setting back and is called none."""
    whole = full_key(key)
    return [_variant(value_label(value), {whole: value}, _number(value)) for value in values]


def value_label(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool) or not isinstance(value, int | float | list | tuple):
        return str(value)
    return "-".join(map(value_label, value)) if isinstance(value, list | tuple) else f"{value:g}"


def axis_title(key: str) -> str:
    whole = full_key(key)
    return _TITLES.get(whole, whole.rpartition(".")[2].replace("_", " "))


def guess_scale(points: Sequence[Variant]) -> Scale:
    numbers = [point.position for point in points if point.position is not None]
    if len(numbers) < 2 or len(set(numbers)) < len(numbers) or len(numbers) < len(points) - 1:
        return Scale.CATEGORY
    return Scale.LOG if min(numbers) > 0 and max(numbers) / min(numbers) >= _LOG_RATIO else Scale.LINEAR


def slug(text: str) -> str:
    """A name that is fit for files and addresses."""
    made = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60].strip("-")
    if not made:
        raise InputError(f"a study's name needs letters or digits, got {text!r}")
    return made


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _joined(choice: Sequence[Variant]) -> Variant:
    settings: Settings = {}
    for part in choice:
        settings |= part.settings
    names = [next(iter(part.settings)).rpartition(".")[2].replace("_", " ") for part in choice]
    label = ", ".join(f"{name} {part.label}" for name, part in zip(names, choice, strict=True))
    return _variant(label[:80], settings)


def _variant(label: str, settings: Mapping[str, Any], position: float | None = None) -> Variant:
    """A variant from user input; raises an `InputError` where that is invalid."""
    return parse_config(Variant, {"label": label, "settings": settings, "position": position})


def _seeds(asked: int | list[int]) -> list[int]:
    if isinstance(asked, list):
        return asked
    if not 1 <= asked <= MOST_SEEDS:
        raise InputError(f"seeds must be 1 to {MOST_SEEDS}, or a list of numbers, got {asked}")
    return list(range(asked))


def _preset_settings(name: str | None, touched: frozenset[str]) -> Settings:
    """A preset as settings. Its recipe is left to the decay, and its n to per_class, where the study sets those."""
    if name is None:
        return {}
    values = find_preset(name).values(Size.QUICK)
    found = {f"{group}.{key}": value for group, part in values.items() for key, value in part.items()}
    if "training.weight_decay" in touched or "data.task" in touched:
        found.pop("training.recipe", None)
    for key, rival in (("data.n", "data.per_class"), ("data.per_class", "data.n")):
        if rival in touched and key not in touched:
            found.pop(key, None)
    return found
