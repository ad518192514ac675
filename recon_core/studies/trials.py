"""A search over the hyper-parameters of an attack, judged without the truth: by the residual it ends with.

Haim et al. 2022, App. B.2, and Buzaglo et al. 2023, App. B, run 100 attacks each with numbers drawn from
`SEARCH_RANGES` and pool what all of them find. Trials stand in an Optuna storage, a journal or a database, so that a
search that was killed goes on: trials that ended are not repeated, those under way are taken up.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, SerializeAsAny

from recon_core.analysis.trials import DIVERGED_VALUE, TrialRecord, TrialState
from recon_core.attacks.settings import SEARCH_RANGES, AttackSettings
from recon_core.config import Frozen, parse_config
from recon_core.errors import InputError

if TYPE_CHECKING:
    import optuna

# Successive halving keeps the better quarter at 1/16 and at 1/4 of the iterations.
_KEEP_ONE_IN = 4
_FIRST_RUNG = 16
# To open a database, which another search may be setting up at this moment.
_TRIES, _PAUSE_SECONDS = 4, 0.5
_OWNER, _RUN, _SECONDS, _DIVERGED, _WORKERS = "owner", "run", "seconds", "diverged", "workers"
_IDENTITY = "identity"


class Sampler(StrEnum):
    """How hyper-parameters are drawn: at random, by TPE, or at random with successive halving."""

    RANDOM = "random"
    TPE = "tpe"
    HALVING = "halving"


class SearchSettings(Frozen):
    """One search, whole; `attack` says all that is not searched over."""

    trials: int = Field(100, ge=1, le=100_000, description="number of attacks to make")
    sampler: Sampler = Field(Sampler.TPE, description="random draws, TPE, or successive halving of random draws")
    ranges: Literal["haim2022", "buzaglo2023"] = Field("haim2022", description="whose ranges numbers are drawn from")
    seed: int = Field(0, ge=0, description="seed of the sampler; the seeds of the attacks start at attack.seed")
    attack: SerializeAsAny[AttackSettings] = AttackSettings()

    def trial_attack(self, number: int, params: Mapping[str, float]) -> AttackSettings:
        """The attack of one trial; every trial starts from candidates of its own."""
        seed = self.attack.seed + number * self.attack.seeds
        return parse_config(AttackSettings, {**self.attack.model_dump(), **params, "seed": seed})

    @property
    def rungs(self) -> tuple[int, ...]:
        """Iterations after which halving compares trials; empty for the other samplers."""
        if self.sampler is not Sampler.HALVING:
            return ()
        found = []
        rung = max(1, self.attack.iterations // _FIRST_RUNG)
        while rung < self.attack.iterations:
            found.append(rung)
            rung *= _KEEP_ONE_IN
        return tuple(found)


@dataclass(frozen=True)
class Trial:
    """One attack to be made."""

    number: int
    params: dict[str, float]
    attack: AttackSettings
    limits: dict[int, float]
    """By rung, the residual above which it is not worth going on."""
    run_id: str | None
    """Whatever its owner noted, e.g. where it is being made."""


@dataclass(frozen=True)
class TrialEnd:
    """The outcome of a trial."""

    state: Literal["complete", "diverged", "pruned", "failed"]
    residual: float | None
    seconds: float
    rungs: Mapping[int, float]


class TrialBook:
    """All trials of a search, kept in an Optuna storage.

    What a trial's numbers are follows from its own number and from the trials up to `workers` before it, not from
    who asked when: a search with as many workers as before makes the same trials, killed or not. Several owners may
    share a book in a database; then it also depends on which trials had ended by then.
    """

    def __init__(
        self,
        settings: SearchSettings,
        owner: str,
        workers: int,
        *,
        journal: Path | None = None,
        url: str | None = None,
        name: str = "search",
        shared: bool = False,
        identity: str = "",
    ) -> None:
        """`identity` says what is searched: those who share a book must mean the same."""
        import optuna

        self._settings, self._owner, self._shared = settings, owner, shared
        storage = _database(url) if url is not None else _journal(journal)
        self._study = optuna.create_study(
            storage=storage, study_name=name, direction="minimize", load_if_exists=True, sampler=None
        )
        if _WORKERS not in self._study.user_attrs:
            self._study.set_user_attr(_WORKERS, workers)
        if _IDENTITY not in self._study.user_attrs:
            self._study.set_user_attr(_IDENTITY, identity)
        if self._study.user_attrs[_IDENTITY] != identity:  # read again: another may have been faster
            raise InputError(
                f"the searches that share {name!r} attack another model, or with other settings; choose another name"
            )
        self.workers = int(self._study.user_attrs[_WORKERS])
        self._study.sampler = _ByNumber(settings, self.workers)

    def records(self) -> tuple[TrialRecord, ...]:
        """Every trial as a plain value, in order of their numbers."""
        return tuple(_record(trial) for trial in self._trials())

    def own(self) -> tuple[int, ...]:
        """Numbers of the trials this owner began. One killed before it had said so is ours if nobody else is there."""
        usual = None if self._shared else self._owner
        return tuple(trial.number for trial in self._trials() if trial.user_attrs.get(_OWNER, usual) == self._owner)

    def under_way(self) -> list[Trial]:
        """Trials this owner began that have not ended."""
        mine = set(self.own())
        return [self._plan(trial) for trial in self._trials() if trial.number in mine and _open(trial)]

    def begin(self) -> Trial | None:
        """The next trial; None where all have begun, or where its numbers depend on one that has not ended."""
        import optuna

        known = self._trials()
        if len(known) >= self._settings.trials:
            return None
        waits_for = known[: max(0, len(known) - self.workers + 1)]
        mine = set(self.own())
        if self._settings.sampler is not Sampler.RANDOM and any(_open(t) and t.number in mine for t in waits_for):
            return None
        trial = self._study.ask()
        if trial.number >= self._settings.trials:  # another owner was faster
            self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
            return None
        trial.set_user_attr(_OWNER, self._owner)
        return self._plan(self._study.get_trials(deepcopy=False)[trial.number])

    def note_run(self, number: int, run_id: str) -> None:
        """Remember where a trial is being made."""
        self._handle(number).set_user_attr(_RUN, run_id)

    def run_of(self, number: int) -> str | None:
        found: str | None = self._study.get_trials(deepcopy=False)[number].user_attrs.get(_RUN)
        return found

    def end(self, number: int, end: TrialEnd) -> TrialRecord:
        """Store the result of a trial; of two results the first is kept."""
        import optuna

        frozen = self._study.get_trials(deepcopy=False)[number]
        if _open(frozen):
            trial = self._handle(number)
            trial.set_user_attr(_SECONDS, end.seconds)
            trial.set_user_attr(_DIVERGED, end.state == "diverged")
            for rung, residual in end.rungs.items():
                if rung not in frozen.intermediate_values:
                    trial.report(residual, rung)
            states = {"pruned": optuna.trial.TrialState.PRUNED, "failed": optuna.trial.TrialState.FAIL}
            if end.state in states:
                self._study.tell(trial, state=states[end.state])
            else:
                lost = end.state == "diverged" or end.residual is None
                self._study.tell(trial, DIVERGED_VALUE if lost else end.residual)
        return _record(self._study.get_trials(deepcopy=False)[number])

    def _trials(self) -> list[optuna.trial.FrozenTrial]:
        return self._study.get_trials(deepcopy=False)[: self._settings.trials]

    def _handle(self, number: int) -> optuna.Trial:
        import optuna

        return optuna.trial.Trial(self._study, self._study.get_trials(deepcopy=False)[number]._trial_id)

    def _plan(self, frozen: optuna.trial.FrozenTrial) -> Trial:
        """A trial that was killed while its numbers were drawn gets the same ones now."""
        params = _suggest(self._handle(frozen.number), self._settings)
        return Trial(
            frozen.number,
            params,
            self._settings.trial_attack(frozen.number, params),
            self._limits(frozen.number),
            frozen.user_attrs.get(_RUN),
        )

    def _limits(self, number: int) -> dict[int, float]:
        """Successive halving: what a trial must not exceed to be in the better quarter of those that came so far.

        The first few must beat the best so far, as in Optuna's own pruner.
        """
        before = _history(self._trials(), number, self.workers)
        limits = {}
        for rung in self._settings.rungs:
            others = sorted(trial.intermediate_values[rung] for trial in before if rung in trial.intermediate_values)
            place = max(0, (len(others) + 1) // _KEEP_ONE_IN - 1)
            if place < len(others):
                limits[rung] = others[place]
        return limits


def _journal(path: Path | None) -> optuna.storages.BaseStorage:
    import optuna
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    class Unlocked(JournalFileOpenLock):
        """The journal has one process at a time by contract; a lock file would outlive a killed one."""

        def acquire(self) -> bool:
            return True

        def release(self) -> None:
            pass

    return optuna.storages.JournalStorage(JournalFileBackend(str(path), lock_obj=Unlocked(str(path))))


def check_database(url: str) -> None:
    """Raise where a database's address cannot be used, before anything is written."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise InputError(
            f"{url!r} is no address of a database; write e.g. postgresql+psycopg://user@host/name or sqlite:////path/file.db"
        ) from None
    if parsed.password is not None:
        raise InputError(
            "the database's address holds a password, which would be stored with the run; leave it out and give it by "
            "PGPASSWORD, ~/.pgpass or the like"
        )
    try:
        parsed.get_dialect().import_dbapi()
    except ImportError as error:
        raise InputError(
            f"the database of {url!r} needs the package {error.name!r}, which is not installed; for PostgreSQL: "
            'pip install "psycopg[binary]"'
        ) from None
    except Exception as error:  # a dialect SQLAlchemy does not know is an error of its own
        raise InputError(f"the database of {url!r} is of a kind that cannot be used here: {error}") from None


def _database(url: str) -> optuna.storages.BaseStorage:
    import optuna

    check_database(url)
    reason = ""
    for _ in range(_TRIES):
        try:
            return optuna.storages.RDBStorage(url)
        except Exception as error:  # of whatever driver it is; two searches that both make the tables get in their way
            reason = " ".join(str(error).partition("(Background on")[0].split())[:300]
            time.sleep(_PAUSE_SECONDS)
    raise InputError(f"the database {url} does not answer: {reason}; see that it runs and lets you in")


class _ByNumber:
    """Draws all numbers of a trial at once, from its own number and the trials before it.

    What Optuna calls of a sampler, without its base class: Optuna takes a second to import and is so left for later.
    """

    def __init__(self, settings: SearchSettings, workers: int) -> None:
        self._settings, self._workers = settings, workers
        self._drawn: tuple[int, dict[str, float]] = (-1, {})

    def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, Any]:
        return {}

    def sample_relative(self, study: Any, trial: Any, search_space: Any) -> dict[str, Any]:
        return {}

    def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: Any) -> float:
        if self._drawn[0] != trial.number:
            before = _history(study.get_trials(deepcopy=False), trial.number, self._workers)
            self._drawn = trial.number, _draw(before, self._settings, trial.number)
        return self._drawn[1][param_name]

    def before_trial(self, study: Any, trial: Any) -> None:
        pass

    def after_trial(self, study: Any, trial: Any, state: Any, values: Any) -> None:
        pass

    def reseed_rng(self) -> None:
        pass


def _history(trials: Sequence[optuna.trial.FrozenTrial], number: int, workers: int) -> list[optuna.trial.FrozenTrial]:
    """The earlier trials that may influence this one."""
    return [trial for trial in trials if trial.number <= number - workers and trial.state.is_finished()]


def _open(trial: optuna.trial.FrozenTrial) -> bool:
    return not trial.state.is_finished()


def _record(trial: optuna.trial.FrozenTrial) -> TrialRecord:
    names: Mapping[str, TrialState] = {"COMPLETE": "complete", "PRUNED": "pruned", "RUNNING": "running"}
    diverged = bool(trial.user_attrs.get(_DIVERGED, False))
    return TrialRecord(
        number=trial.number,
        params=dict(trial.params),
        value=None if diverged else trial.value,
        state="diverged" if diverged else names.get(trial.state.name, "failed"),
        seconds=trial.user_attrs.get(_SECONDS),
    )


def _draw(known: Sequence[optuna.trial.FrozenTrial], settings: SearchSettings, number: int) -> dict[str, float]:
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
