"""One trial of a search as a record, and which of several is best."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

# Value of a trial that diverged: worse than any that did not, so that a sampler learns from it.
DIVERGED_VALUE = 1e6

TrialState = Literal["complete", "diverged", "pruned", "running", "failed"]


@dataclass(frozen=True)
class TrialRecord:
    """One attack of a search. `value` is its relative residual, None where it is not known."""

    number: int
    params: dict[str, float]
    value: float | None
    state: TrialState
    seconds: float | None


def best_of(records: Iterable[TrialRecord]) -> TrialRecord | None:
    """The complete trial of the smallest residual."""
    complete = [trial for trial in records if trial.state == "complete"]
    return min(complete, key=lambda trial: math.inf if trial.value is None else trial.value, default=None)


@contextlib.contextmanager
def quiet_optuna() -> Iterator[None]:
    """Silence Optuna, which warns of experimental features and logs every trial."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)
