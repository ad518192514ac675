"""Training runs side by side: the settings in which they differ, and their results."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from recon_core.analysis.training_text import percent
from recon_core.units import log10_loss

RATES = ("train_error", "test_accuracy", "explained_layer1")
"""Results that are fractions of 1, shown as percentages."""


@dataclass(frozen=True)
class TrainedRun:
    """One line: a run's settings, nested as stored, and the newest numbers it left."""

    id: str
    name: str
    state: str
    created: str
    seconds: float
    config: Mapping[str, Any]
    numbers: Mapping[str, Any]


@dataclass(frozen=True)
class TrainingTable:
    """Runs with the settings in which they differ."""

    runs: tuple[TrainedRun, ...]
    settings: tuple[str, ...]
    """Paths like data.n."""

    @property
    def setting_names(self) -> dict[str, str]:
        """A column's name for each setting: without its group where that leaves no doubt."""
        short = [path.rpartition(".")[2] for path in self.settings]
        return {path: name if short.count(name) == 1 else path for path, name in zip(self.settings, short, strict=True)}

    def to_frame(self) -> pd.DataFrame:
        """A row for each run: name and state, results, the settings that differ, creation and id."""
        runs, names = self.runs, self.setting_names
        outcomes = [results(run.numbers) for run in runs]
        columns: dict[str, list[Any]] = {"name": [run.name for run in runs], "state": [run.state for run in runs]}
        columns |= {name: [outcome[name] for outcome in outcomes] for name in results({})}
        columns["seconds"] = [run.seconds or None for run in runs]
        columns |= {names[path]: _column([lookup(run.config, path) for run in runs]) for path in self.settings}
        columns |= {"created": [run.created for run in runs], "id": [run.id for run in runs]}
        return pd.DataFrame(columns).astype(dict.fromkeys((*results({}), "seconds"), float))

    def differences(self) -> pd.DataFrame:
        """The transposed table: a row for each setting that differs and for each result, a column for each run."""
        names = self.setting_names
        columns = {}
        for run in self.runs:
            settings = {names[path]: shown(lookup(run.config, path)) for path in self.settings}
            outcome = {name: _outcome_text(name, value) for name, value in results(run.numbers).items()}
            columns[run.id] = {**settings, **outcome, "seconds": f"{run.seconds:.4g}"}
        return pd.DataFrame(columns).fillna("")


def _outcome_text(name: str, value: float | None) -> str:
    return percent(value) if name in RATES or value is None else f"{value:.4g}"


def training_table(runs: Sequence[TrainedRun]) -> TrainingTable:
    return TrainingTable(tuple(runs), tuple(differing([run.config for run in runs])))


def differing(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Paths of the settings that are not the same in all of `configs`, in the order of the configs."""
    paths = dict.fromkeys(path for config in configs for path in _paths(config))
    return [path for path in paths if len({shown(lookup(config, path)) for config in configs}) > 1]


def results(numbers: Mapping[str, Any]) -> dict[str, float | None]:
    """What a viewer compares; None where it is not known. Rates are in [0, 1]."""
    test_error, log_loss, residual = (_number(numbers.get(key)) for key in ("test_error", "log_loss", "kkt_layer1"))
    return {
        "train_error": _number(numbers.get("train_error")),
        "test_accuracy": None if test_error is None else 1.0 - test_error,
        "log10_loss": None if log_loss is None else log10_loss(log_loss),
        "explained_layer1": None if residual is None else 1.0 - residual**2,
        "on_margin": _number(numbers.get("on_margin")),
    }


def lookup(config: Mapping[str, Any], path: str) -> Any:
    """The value at data.n; None where there is none."""
    node: Any = config
    for part in path.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node


def shown(value: Any) -> str:
    """A setting in the form in which it is typed."""
    if value is None:
        return ""
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _column(values: Sequence[Any]) -> list[Any]:
    """Numbers stay numbers, so that a table sorts by them; where one value is none, all are texts."""
    if all(value is None or _number(value) is not None for value in values):
        return list(values)
    return [shown(value) or None for value in values]


def _paths(config: Mapping[str, Any], prefix: str = "") -> list[str]:
    found = []
    for key, value in config.items():
        found += _paths(value, f"{prefix}{key}.") if isinstance(value, Mapping) else [f"{prefix}{key}"]
    return found


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        return None
    return float(value)
