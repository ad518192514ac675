"""A search over the hyper-parameters of an attack, judged without the truth: by the residual it ends with.

Haim et al. 2022, App. B.2, and Buzaglo et al. 2023, App. B, run 100 attacks each with numbers drawn from
`SEARCH_RANGES` and pool what all of them find. Trials stand in an Optuna journal, a line for every change, so
that a search that was killed goes on: trials that ended are not repeated, the one under way is taken up.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pydantic import Field
from torch import Tensor

from recon_core.attack.session import AttackOutcome, Observer, Resume, StopReason, attack
from recon_core.attack.settings import SEARCH_RANGES, AttackSettings
from recon_core.attack.target import Target
from recon_core.config import Frozen, parse_config

if TYPE_CHECKING:
    import optuna

# Value of a trial that diverged: worse than any that did not, so that a sampler learns from it.
DIVERGED_VALUE = 1e6
# Successive halving keeps the better quarter at 1/16 and at 1/4 of the iterations.
_KEEP_ONE_IN = 4
_FIRST_RUNG = 16


class Sampler(StrEnum):
    """How numbers are drawn: independently, by a model of what did well, or independently with early ends."""

    RANDOM = "random"
    TPE = "tpe"
    HALVING = "halving"


class SearchSettings(Frozen):
    """One search, whole; `attack` says all that is not searched over."""

    trials: int = Field(100, ge=1, le=100_000)
    sampler: Sampler = Sampler.TPE
    ranges: Literal["haim2022", "buzaglo2023"] = "haim2022"
    seed: int = Field(0, ge=0, description="of what is drawn; starts are numbered by attack.seed")
    attack: AttackSettings = AttackSettings()

    def trial_attack(self, number: int, params: Mapping[str, float]) -> AttackSettings:
        """The attack of one trial; every trial starts from candidates of its own."""
        seed = self.attack.seed + number * self.attack.seeds
        return parse_config(AttackSettings, {**self.attack.model_dump(), **params, "seed": seed})


@dataclass(frozen=True)
class TrialRecord:
    """One attack of a search. `value` is its relative residual, None where it is not known."""

    number: int
    params: dict[str, float]
    value: float | None
    state: Literal["complete", "diverged", "pruned", "running", "failed"]
    seconds: float | None


class SearchObserver(Observer, Protocol):
    """Who listens to a search: as to one attack, steps counted through all trials, and to every trial's end."""

    def keep(self, number: int, outcome: AttackOutcome) -> None:
        """Store what a trial found, whole or not at all; only then is the trial written down as ended."""
        ...


@dataclass(frozen=True)
class SearchOutcome:
    """All trials in the order they were made, and whether the search was stopped before its end."""

    cancelled: bool
    trials: tuple[TrialRecord, ...]

    @property
    def best(self) -> TrialRecord | None:
        """The complete trial of the smallest residual."""
        complete = [trial for trial in self.trials if trial.state == "complete"]
        return min(complete, key=lambda trial: math.inf if trial.value is None else trial.value, default=None)


def search(
    target: Target, settings: SearchSettings, observer: SearchObserver, journal: Path, resume: Resume | None = None
) -> SearchOutcome:
    """Attack `trials` times. `journal` belongs to one process at a time; `resume` is the last checkpoint, if any."""
    import optuna

    with quiet_optuna():
        study = _open_study(journal, settings)
        for number in range(settings.trials):
            known = study.get_trials(deepcopy=False)
            if number < len(known) and known[number].state.is_finished():
                continue
            if number == len(known):
                # One line in the journal, so that a trial has all its numbers or is not there.
                study.enqueue_trial(_draw(known, settings, number))
                known = study.get_trials(deepcopy=False)
            waiting = known[number].state is optuna.trial.TrialState.WAITING
            trial = study.ask() if waiting else optuna.trial.Trial(study, known[number]._trial_id)
            if not _perform_trial(target, settings, observer, study, trial, resume):
                return SearchOutcome(True, trial_records(study))
        return SearchOutcome(False, trial_records(study))


def _perform_trial(
    target: Target,
    settings: SearchSettings,
    observer: SearchObserver,
    study: optuna.Study,
    trial: optuna.Trial,
    resume: Resume | None,
) -> bool:
    """Whether the trial came to its end: complete, diverged or pruned."""
    import optuna

    params = _suggest(trial, settings)
    chosen = settings.trial_attack(trial.number, params)
    watching = _TrialObserver(observer, settings, study, trial, params)
    outcome = attack(target, chosen, watching, watching.own_part(resume))
    if outcome.reason is StopReason.CANCELLED and not watching.pruned:
        return False
    diverged = outcome.reason is StopReason.DIVERGED
    trial.set_user_attr("seconds", outcome.summary["seconds"])
    trial.set_user_attr("diverged", diverged)
    if not (diverged or watching.pruned):
        observer.keep(trial.number, outcome)
    if watching.pruned:
        study.tell(trial, state=optuna.trial.TrialState.PRUNED)
    else:
        residual = outcome.summary["residual"]
        study.tell(trial, DIVERGED_VALUE if diverged or residual is None else residual)
    records = trial_records(study)
    own, best = records[trial.number], SearchOutcome(False, records).best
    row = {"step": watching.first_step + chosen.total_steps, "trial": own.number, "residual": own.value}
    observer.metrics({**row, "state": own.state, "best": None if best is None else best.value, **params})
    return True


class _TrialObserver:
    """One trial's ear at the search: shifts its steps, tells Optuna how it goes, ends it when it is pruned."""

    def __init__(
        self,
        outer: SearchObserver,
        settings: SearchSettings,
        study: optuna.Study,
        trial: optuna.Trial,
        params: Mapping[str, float],
    ) -> None:
        self._outer, self._settings, self._study, self._trial = outer, settings, study, trial
        self._params = dict(params)
        self.pruned = False
        self.first_step = trial.number * (settings.attack.total_steps + 1)
        best = SearchOutcome(False, trial_records(study)).best
        self._best = "" if best is None or best.value is None else f", best {best.value:.4f}"
        self._reported = set(study.get_trials(deepcopy=False)[trial.number].intermediate_values)

    def own_part(self, resume: Resume | None) -> Resume | None:
        """The checkpoint, if it is this trial's."""
        if resume is None or resume.meta.get("trial") != self._trial.number or resume.meta["params"] != self._params:
            return None
        return Resume(resume.step - self.first_step, resume.tensors, resume.meta)

    def metrics(self, row: Mapping[str, Any]) -> None:
        """Rows of single attacks are not kept; halving compares trials by them, on their first seed."""
        halving = self._settings.sampler is Sampler.HALVING
        step, residual = row["step"], row["residual"]
        if not halving or residual is None or not 0 < step < self._settings.attack.iterations:
            return
        if step not in self._reported:
            self._trial.report(residual, step)
            self._reported.add(step)
        self.pruned = self.pruned or self._trial.should_prune()

    def progress(self, step: int, fraction: float, message: str) -> None:
        number, trials = self._trial.number, self._settings.trials
        said = f"trial {number + 1} of {trials}, {message}{self._best}"
        self._outer.progress(self.first_step + step, (number + fraction) / trials, said)

    def snapshot(self, step: int, tensors: Mapping[str, Tensor]) -> None:
        self._outer.snapshot(self.first_step + step, tensors)

    def log(self, sentence: str) -> None:
        self._outer.log(f"trial {self._trial.number}: {sentence}")

    def checkpoint(self, step: int, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        if not self.pruned:
            marked = {**meta, "trial": self._trial.number, "params": self._params}
            self._outer.checkpoint(self.first_step + step, tensors, marked)

    def checkpoint_due(self) -> bool:
        return self._outer.checkpoint_due()

    def stop_requested(self) -> bool:
        return self.pruned or self._outer.stop_requested()


def trial_records(study: optuna.Study) -> tuple[TrialRecord, ...]:
    """Every trial of a study as a plain value."""
    return tuple(_record(trial) for trial in study.get_trials(deepcopy=False))


def _record(trial: optuna.trial.FrozenTrial) -> TrialRecord:
    names: Mapping[str, Literal["complete", "pruned", "running", "failed"]] = {
        "COMPLETE": "complete",
        "PRUNED": "pruned",
        "RUNNING": "running",
    }
    diverged = bool(trial.user_attrs.get("diverged", False))
    return TrialRecord(
        number=trial.number,
        params=dict(trial.params),
        value=None if diverged else trial.value,
        state="diverged" if diverged else names.get(trial.state.name, "failed"),
        seconds=trial.user_attrs.get("seconds"),
    )


@contextlib.contextmanager
def quiet_optuna() -> Iterator[None]:
    """Optuna announces experimental parts and logs every trial; neither is news to whoever runs a search."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)


def _open_study(journal: Path, settings: SearchSettings) -> optuna.Study:
    import optuna
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    class Unlocked(JournalFileOpenLock):
        """The journal has one process at a time by contract; a lock file would outlive a killed one."""

        def acquire(self) -> bool:
            return True

        def release(self) -> None:
            pass

    storage = optuna.storages.JournalStorage(JournalFileBackend(str(journal), lock_obj=Unlocked(str(journal))))
    rung = max(1, settings.attack.iterations // _FIRST_RUNG)
    halving = settings.sampler is Sampler.HALVING
    pruner = (
        optuna.pruners.SuccessiveHalvingPruner(min_resource=rung, reduction_factor=_KEEP_ONE_IN)
        if halving
        else optuna.pruners.NopPruner()
    )
    return optuna.create_study(
        storage=storage, study_name="search", direction="minimize", pruner=pruner, load_if_exists=True
    )


def _draw(known: Sequence[optuna.trial.FrozenTrial], settings: SearchSettings, number: int) -> dict[str, float]:
    """The numbers of a trial. They follow from its own number and the trials before it, not from who asks when."""
    import optuna

    seed = settings.seed + number
    sampler = (
        optuna.samplers.TPESampler(seed=seed)
        if settings.sampler is Sampler.TPE
        else optuna.samplers.RandomSampler(seed=seed)
    )
    aside = optuna.create_study(sampler=sampler, direction="minimize")
    aside.add_trials(known)
    return _suggest(aside.ask(), settings)


def _suggest(trial: optuna.Trial, settings: SearchSettings) -> dict[str, float]:
    ranges = SEARCH_RANGES[settings.ranges]
    return {name: trial.suggest_float(name, span.low, span.high, log=span.log) for name, span in ranges.items()}
