"""Settings of a cell by dotted key: where each belongs, and how they become the configs of its runs."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from recon_core.attacks.registry import all_setting_names, describe_setting
from recon_core.config import DataConfig, ModelConfig, ReleaseConfig, TrainingConfig
from recon_core.errors import InputError
from recon_core.runs.match_source import MatchConfig

ATTACK, MATCH = "attack", "match"
BASELINE = "baseline"
"""Of the attack: what is done in its place."""
# What belongs together under one word; settings of an attack are those of any.
_CONFIGS: Mapping[str, type[BaseModel]] = {
    "data": DataConfig,
    "model": ModelConfig,
    "training": TrainingConfig,
    "release": ReleaseConfig,
    MATCH: MatchConfig,
}
GROUPS = ("data", "model", "training", "release", ATTACK, MATCH)
# Whose keys may go without it where they are unique.
_SHORT = ("data", "model", "training", "release")
# Runs of a study are matched with each other's, never with others.
_NOT_MATCH_KEYS = ("runs", "untrained")

Settings = dict[str, Any]
"""By dotted key, e.g. training.weight_decay."""


def full_key(key: str) -> str:
    """`group.name` for a key as people write it, or a sentence that lists the nearest ones."""
    group, _, name = key.strip().rpartition(".")
    if not group:
        homes = [home for home in _SHORT if name in _names(home)]
        if len(homes) > 1:
            raise InputError(f"{key!r} could be {' or '.join(f'{home}.{name}' for home in homes)}; write one of them")
        if homes:
            return f"{homes[0]}.{name}"
    elif group in GROUPS and name in _names(group):
        return f"{group}.{name}"
    known = known_keys()
    near = difflib.get_close_matches(key, known, n=3, cutoff=0.4) or known[:5]
    raise InputError(f"a study cannot set {key!r}; did you mean {', '.join(near)}?")


def known_keys() -> list[str]:
    """Everything a study can set or vary."""
    return [f"{group}.{name}" for group in GROUPS for name in _names(group)]


def describe_key(key: str) -> str:
    """What a key means, from its own field."""
    group, _, name = full_key(key).rpartition(".")
    if (group, name) == (ATTACK, BASELINE):
        return "what the papers compare with, in place of the attack: inversion, weights or kernels"
    return describe_setting(name) if group == ATTACK else _CONFIGS[group].model_fields[name].description or ""


def _names(group: str) -> list[str]:
    if group == ATTACK:
        return [*all_setting_names(), BASELINE]
    return [name for name in _CONFIGS[group].model_fields if group != MATCH or name not in _NOT_MATCH_KEYS]


def checked(settings: Mapping[str, Any]) -> Settings:
    """The same with full keys; a key named twice is an error."""
    found: Settings = {}
    for key, value in settings.items():
        whole = full_key(str(key))
        if whole in found:
            raise InputError(f"{whole} is set twice; once is enough")
        found[whole] = value
    return found


def nested(*layers: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Layers of settings as groups of values; later layers win. None takes a setting back."""
    values: dict[str, dict[str, Any]] = {group: {} for group in GROUPS}
    for layer in layers:
        for key, value in layer.items():
            group, _, name = key.rpartition(".")
            if value is None:
                values[group].pop(name, None)
            else:
                values[group][name] = value
    return values
