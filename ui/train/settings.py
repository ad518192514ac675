"""What the training form starts from, and how what is filled in is laid over it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from recon_core.analysis.training_table import differing, lookup
from recon_core.config import Recipe, Source, Task, TrainConfig, parse_config
from recon_core.errors import AfterimageError
from recon_core.presets import FAR, PRESETS, Preset, Size
from ui.shared.forms import merged

Values = dict[str, Any]

OWN = "own"
"""Stands in the list of presets for the user's own images."""
_OWN_VALUES: Values = {
    "data": {"source": str(Source.FOLDER)},
    "training": {"recipe": str(Recipe.FLOW), "target_log_loss": FAR},
}
# Two ways to say one thing: whoever fills in the first does not mean what the preset says of the second.
_INSTEAD_OF = (
    ("data.per_class", "data.n"),
    ("data.n", "data.per_class"),
    ("training.target_loss", "training.target_log_loss"),
    ("training.target_log_loss", "training.target_loss"),
)
# These decide which recipe fits, so flow, which fits classifiers without decay only, is then chosen anew.
_DECIDE_RECIPE = ("training.weight_decay", "training.loss", "data.task")


class Start(NamedTuple):
    """A preset in a size; `preset` may be OWN."""

    preset: str
    size: Size

    @property
    def known(self) -> Preset | None:
        return PRESETS.get(self.preset)

    def values(self) -> Values:
        """What it sets, and nothing else."""
        return merged(_OWN_VALUES, {}) if self.known is None else self.known.values(self.size)

    def usual(self) -> Values:
        """Every setting as it is where nothing is filled in."""
        if self.known is not None:
            return self.known.config(self.size).model_dump(mode="json")
        config = parse_config(TrainConfig, merged(_OWN_VALUES, {"data": {"path": "."}}))
        return merged(config.model_dump(mode="json"), {"data": {"path": None}})


def settled(start: Start, given: Mapping[str, Any]) -> Values:
    """What was filled in, laid over the preset, ready to be checked."""
    values = start.values()
    for filled, displaced in _INSTEAD_OF:
        if lookup(given, filled) is not None:
            _remove(values, displaced)
    if lookup(values, "training.recipe") == Recipe.FLOW and any(lookup(given, path) for path in _DECIDE_RECIPE):
        _remove(values, "training.recipe")
    values = merged(values, given)
    if path := lookup(values, "data.path"):
        # A worker may be started in another folder.
        values["data"]["path"] = str(Path(os.path.expanduser(path)).absolute())
    return values


DECIDING = ("data.source", "data.task", "training.recipe", "training.loss", "training.weight_decay")
"""Settings that decide which others apply."""


def applies(path: str, config: Mapping[str, Any]) -> bool:
    """Whether the setting `path` has any effect beside the DECIDING settings in `config`."""
    found = _APPLIES.get(path)
    return found is None or found(_Choice(*(str(lookup(config, decides)) for decides in DECIDING[:4])))


def effective(start: Start, given: Mapping[str, Any]) -> Values:
    """Every setting as it is with `given` filled in; what cannot be checked yet stands as it was typed."""
    try:
        return parse_config(TrainConfig, settled(start, given)).model_dump(mode="json")
    except AfterimageError:
        return merged(start.usual(), given)


class _Choice(NamedTuple):
    """The choices that decide which settings apply, as text."""

    source: str
    task: str
    recipe: str
    loss: str

    @property
    def planar(self) -> bool:
        return self.source in Source.names() and Source(self.source).planar

    @property
    def needs_path(self) -> bool:
        return self.source in Source.names() and Source(self.source).needs_path


_DESCENT = (Recipe.PAPER, Recipe.SGD)
_APPLIES: dict[str, Callable[[_Choice], bool]] = {
    "data.path": lambda chosen: chosen.needs_path,
    "data.partition": lambda chosen: not chosen.planar and chosen.task != Task.MULTICLASS,
    "data.classes": lambda chosen: not chosen.planar and chosen.task == Task.MULTICLASS,
    "data.selection": lambda chosen: not chosen.planar,
    "data.labels": lambda chosen: chosen.planar,
    "data.radius_noise": lambda chosen: chosen.planar,
    "model.conv_kernel": lambda chosen: not chosen.planar,
    "model.conv_channels": lambda chosen: not chosen.planar,
    "training.huber_delta": lambda chosen: chosen.loss == "huber",
    "training.learning_rate": lambda chosen: chosen.recipe in (Recipe.PAPER, Recipe.SGD, Recipe.DPSGD),
    "training.batch_size": lambda chosen: chosen.recipe in (Recipe.SGD, Recipe.DPSGD),
    "training.label_smoothing": lambda chosen: chosen.recipe in _DESCENT and chosen.task != Task.REGRESSION,
    "training.dropout": lambda chosen: chosen.recipe in _DESCENT,
    "training.augmentation": lambda chosen: chosen.recipe in _DESCENT and not chosen.planar,
    "training.epsilon": lambda chosen: chosen.recipe == Recipe.DPSGD,
    "training.delta": lambda chosen: chosen.recipe == Recipe.DPSGD,
    "training.clip_norm": lambda chosen: chosen.recipe == Recipe.DPSGD,
    "training.target_loss": lambda chosen: chosen.recipe != Recipe.DPSGD,
    "training.target_log_loss": lambda chosen: chosen.recipe != Recipe.DPSGD,
    "training.target_residual": lambda chosen: chosen.recipe != Recipe.DPSGD,
    "training.max_change": lambda chosen: chosen.recipe in (Recipe.FLOW, Recipe.STATIONARY),
    "training.record_every": lambda chosen: chosen.planar,
}


def own_source(path: str) -> Values:
    """A path to the user's images, as settings."""
    source = Source.NPZ if path.lower().endswith(".npz") else Source.FOLDER
    return {"data": {"source": str(source), "path": path or None}}


def nearest_start(config: Mapping[str, Any]) -> Start:
    """The preset from which the fewest settings have to be changed."""
    if lookup(config, "data.source") in (Source.FOLDER, Source.NPZ):
        return Start(OWN, Size.QUICK)
    starts = [Start(name, size) for name in PRESETS for size in Size]
    return min(starts, key=lambda start: len(differing([config, start.usual()])))


def _remove(values: Values, path: str) -> None:
    group, _, name = path.rpartition(".")
    values.get(group, {}).pop(name, None)
