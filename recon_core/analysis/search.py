"""The trials of a search: which did best, and which hyper-parameters mattered."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from recon_core.analysis.trials import DIVERGED_VALUE, TrialRecord, quiet_optuna
from recon_core.attacks.settings import Range

LEAST_TRIALS = 10
"""Fewer finished trials than this say nothing about importance."""
# The best tenth is compared with all, but never fewer than these.
_TOP_SHARE, _TOP_TRIALS = 0.1, 5


@dataclass(frozen=True)
class TrialTable:
    """Trials in the order they were made, and the ranges their hyper-parameters were drawn from."""

    records: tuple[TrialRecord, ...]
    ranges: Mapping[str, Range]

    @property
    def complete(self) -> tuple[TrialRecord, ...]:
        return tuple(trial for trial in self.records if trial.state == "complete" and trial.value is not None)

    @property
    def best(self) -> TrialRecord | None:
        """The complete trial of the smallest residual."""
        return min(self.complete, key=lambda trial: math.inf if trial.value is None else trial.value, default=None)

    def to_frame(self) -> pd.DataFrame:
        columns = {
            "trial": [trial.number for trial in self.records],
            "residual": [math.nan if trial.value is None else trial.value for trial in self.records],
            "state": [trial.state for trial in self.records],
        }
        for name in self.ranges:
            columns[name] = [trial.params.get(name, math.nan) for trial in self.records]
        if any(trial.seconds is not None for trial in self.records):
            columns["seconds"] = [math.nan if trial.seconds is None else trial.seconds for trial in self.records]
        return pd.DataFrame(columns)


def trial_table(
    rows: Sequence[Mapping[str, Any]], stored: Sequence[Mapping[str, Any]], ranges: Mapping[str, Range]
) -> TrialTable:
    """From the rows a search writes at the end of every trial, and from the trials it stored when it last ended.

    Stored trials know how long they took; rows know of trials since then.
    """
    found = {record.number: record for record in map(_stored_record, stored) if record.state != "running"}
    for row in rows:
        if "trial" not in row:
            continue
        number, value = int(row["trial"]), row.get("residual")
        params = {name: float(row[name]) for name in ranges if row.get(name) is not None}
        seen = found.get(number, TrialRecord(number, params, None, "complete", None))
        found[number] = replace(seen, params=params, value=value, state=row.get("state", "complete"))
    return TrialTable(tuple(found[number] for number in sorted(found)), ranges)


def _stored_record(values: Mapping[str, Any]) -> TrialRecord:
    return TrialRecord(values["number"], values["params"], values["value"], values["state"], values["seconds"])


@dataclass(frozen=True)
class ParameterImportance:
    """How much each hyper-parameter separates the best trials from all of them; shares add up to 1, largest first."""

    shares: Mapping[str, float]
    top: int
    """Trials taken for the best."""
    of: int
    """Trials compared, diverged ones included."""

    def to_frame(self) -> pd.DataFrame:
        return pd.DataFrame({"parameter": list(self.shares), "importance": list(self.shares.values())})


def parameter_importance(table: TrialTable) -> ParameterImportance | None:
    """PED-ANOVA (Watanabe et al. 2023): how far the best trials' numbers lie apart from those of all trials.

    It goes by the order of residuals alone, so their scale does not matter. None before `LEAST_TRIALS` have ended,
    and where all ended alike.
    """
    import optuna

    ended = [trial for trial in table.records if trial.state == "diverged" or trial.value is not None]
    ended = [trial for trial in ended if trial.params.keys() >= table.ranges.keys()]
    values = [DIVERGED_VALUE if trial.value is None else trial.value for trial in ended]
    if len(ended) < LEAST_TRIALS or min(values) == max(values):
        return None
    share = max(_TOP_SHARE, _TOP_TRIALS / len(ended))
    with quiet_optuna():
        study = optuna.create_study(direction="minimize")
        distributions: dict[str, optuna.distributions.BaseDistribution] = {
            name: optuna.distributions.FloatDistribution(span.low, span.high, log=span.log)
            for name, span in table.ranges.items()
        }
        study.add_trials(
            [
                optuna.trial.create_trial(
                    params={name: trial.params[name] for name in table.ranges}, distributions=distributions, value=value
                )
                for trial, value in zip(ended, values, strict=True)
            ]
        )
        evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=share)
        raw = optuna.importance.get_param_importances(study, evaluator=evaluator)
    total = sum(raw.values())
    if not total > 0:
        return None
    shares = {name: value / total for name, value in sorted(raw.items(), key=lambda item: -item[1])}
    return ParameterImportance(shares, top=math.ceil(share * len(ended)), of=len(ended))
