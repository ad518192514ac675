"""A search run: many attacks on one model, each a run of its own, all their candidates pooled into one."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from pydantic import Field
from torch import Tensor

from recon_core.analysis.trials import TrialRecord, best_of, quiet_optuna
from recon_core.attacks import SEARCH_RANGES, AttackSettings, Engine, StopReason, Target, attack, find_attack
from recon_core.config import Frozen, parse_config
from recon_core.errors import AfterimageError, InputError
from recon_core.observing import Listener, ignore
from recon_core.runs.match_cache import content_digest
from recon_core.runs.models import AttackModel, model_of
from recon_core.runs.observer import StoreObserver, last_checkpoint
from recon_core.runs.reconstruction import (
    ReconstructConfig,
    attack_settings,
    candidate_tensors,
    check_request,
    target_of,
    warning_for,
)
from recon_core.runs.signals import StopFlag
from recon_core.scheduling import Ended, Executor, Places, executor_for
from recon_core.scheduling.killed import lacked_memory
from recon_core.scheduling.slots import thread_limit
from recon_core.store import Run, RunState, RunStore, RunWriter, Status, layout, lock
from recon_core.store.files import explaining, was_full
from recon_core.store.metrics import drop_torn_line
from recon_core.store.nested import home_store, trial_store
from recon_core.store.private import private_folder, touch_private
from recon_core.studies.trials import Sampler, SearchSettings, Trial, TrialBook, TrialEnd, check_database

if TYPE_CHECKING:
    from recon_core.data import TaskData

SEARCHED_ATTACK = "paper"
"""Of the trials, unless somebody says otherwise: the papers search for its numbers."""
# A search is many short attacks rather than one long one.
_ITERATIONS = 5000
_POLL_SECONDS = 0.3
# A trial whose process dies this often is given up.
_MOST_TRIES = 3


class SearchConfig(Places):
    """One search run, whole."""

    model: str
    """Id of the run that holds the model."""
    settings: SearchSettings = SearchSettings()
    known_init: bool = False
    storage: str | None = Field(None, max_length=500, description="a database for the trials; a journal if unset")
    share: str | None = Field(None, max_length=100, description="searches of one name in one database share trials")

    def attack_config(self) -> ReconstructConfig:
        """What a single trial would be as a run of its own, but for the numbers that are searched over."""
        return ReconstructConfig(model=self.model, settings=self.settings.attack, known_init=self.known_init)


class TrialConfig(Frozen):
    """One trial: an attack, and by iteration the residual above which it is not worth going on."""

    attack: ReconstructConfig
    rungs: tuple[int, ...] = ()
    limits: dict[int, float] = Field(default_factory=dict)


def trial_settings(model: AttackModel, given: Mapping[str, Any]) -> AttackSettings:
    """What trials have in common: the papers' recipe, in closed form and float32 where `given` does not say."""
    chosen = find_attack(given.get("recipe") or SEARCHED_ATTACK)
    engine = Engine.CLOSED if model.architecture.dense else Engine.AUTOGRAD
    usual = {"recipe": chosen.name, "engine": engine, "dtype": "float32", "iterations": _ITERATIONS}
    own = {name: value for name, value in usual.items() if name in chosen.setting_names}
    return attack_settings(model, {**own, **given})


def check_search(model: AttackModel, config: SearchConfig) -> None:
    """Raise an `InputError` for what would end the search, or its first trial, at the start."""
    chosen = find_attack(config.settings.attack.recipe)
    absent = [name for name in SEARCH_RANGES[config.settings.ranges] if name not in chosen.setting_names]
    if absent:
        raise InputError(
            f"a search draws {', '.join(absent)}, which recipe {chosen.name} lacks; use recipe {SEARCHED_ATTACK}"
        )
    check_request(model, config.attack_config())
    check_storage(config.storage, config.share)


def check_storage(storage: str | None, share: str | None) -> None:
    if storage is not None:
        check_database(storage)
    elif share is not None:
        raise InputError(f"searches share trials in a database, got the name {share!r} alone; name one by --storage")


# -- one trial -----------------------------------------------------------------------------------------------------


class _TrialObserver(StoreObserver):
    """Ends a trial that does worse at a rung than its limit there."""

    def __init__(self, writer: RunWriter, stop: StopFlag, listener: Listener, config: TrialConfig) -> None:
        super().__init__(writer, stop, listener)
        self._config = config
        self.rungs: dict[int, float] = {}
        self.pruned = False

    def look(self, row: Mapping[str, Any]) -> None:
        """A row counts for every rung it is the first to reach; halving goes by the first seed."""
        step, residual = row["step"], row["residual"]
        if residual is None or step >= self._config.attack.settings.iterations:
            return
        for rung in self._config.rungs:
            if rung <= step and rung not in self.rungs:
                self.rungs[rung] = residual
                self.pruned |= residual > self._config.limits.get(rung, float("inf"))

    def metrics(self, row: Mapping[str, Any]) -> None:
        super().metrics(row)
        self.look(row)

    def checkpoint(self, step: int, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        if not self.pruned:  # it will be pruned
            super().checkpoint(step, tensors, meta)

    def stop_requested(self) -> bool:
        return self.pruned or super().stop_requested()


def perform_trial(run: Run, writer: RunWriter, stop: StopFlag, listener: Listener) -> None:
    """One attack of a search. It is done whether it was complete, pruned or diverged: its result says which."""
    config = parse_config(TrialConfig, run.config)
    settings = config.attack.settings
    target = target_of(model_of(home_store(run).open(config.attack.model)), config.attack)
    observer = _TrialObserver(writer, stop, listener, config)
    writer.start(settings.total_steps)
    resume = last_checkpoint(writer)
    for row in run.metrics():
        if resume is not None and row["step"] <= resume.step:
            observer.look(row)
    outcome = attack(target, settings, observer, resume)
    if outcome.reason is StopReason.CANCELLED and not observer.pruned:
        writer.finish(RunState.CANCELLED, None, f"{outcome.reason}")
        return
    state = "pruned" if observer.pruned else "diverged" if outcome.reason is StopReason.DIVERGED else "complete"
    if state == "complete":
        writer.save_tensors("candidates", candidate_tensors(outcome))
    result = {
        "state": state,
        "residual": outcome.summary["residual"],
        "seconds": outcome.summary["seconds"],
        "rungs": observer.rungs,
    }
    writer.finish(RunState.DONE, result, state)


def _perform_trial_in(folder: Path, stop: StopFlag) -> str | None:
    """One trial in this very process; a sentence where it could not be performed at all."""
    try:
        run = RunStore(folder.parent).open(folder.name)
        with run.writer() as writer:
            perform_trial(run, writer, stop, ignore)
    except AfterimageError as error:
        return str(error)
    except Exception as error:  # the trial's log has the traceback; the next one may do well
        return f"{type(error).__name__}: {error}"
    return None


# -- all of them ---------------------------------------------------------------------------------------------------


def perform_search(
    run: Run,
    writer: RunWriter,
    stop: StopFlag,
    listener: Listener,
    data: TaskData | None,
    make_executor: Callable[[Run, SearchConfig], Executor] | None = None,
) -> None:
    """Search, or go on searching, and finish the run.

    The journal and the trials stand beside the checkpoints: like those they are there to go on from, and what is
    left of them when the run is done is trials.json and candidates.safetensors.
    """
    config = parse_config(SearchConfig, run.config)
    model = model_of(RunStore(run.dir.parent).open(config.model))
    target = target_of(model, config.attack_config())
    writer.start(config.settings.trials * (config.settings.attack.total_steps + 1))
    if (warning := warning_for(model, config.settings.attack)) is not None:
        writer.log(warning)

    def stopping() -> bool:
        return stop.raised or writer.cancel_requested()

    with quiet_optuna(), _naming_the_storage(run, config):
        executor = (make_executor or _usual_executor)(run, config)
        try:
            search = _Search(run, writer, listener, config, _identity(config, target), executor.places())
            finished = search.work(executor, stopping)
        finally:
            executor.close()
        records = search.book.records()
        writer.save_json("trials", [asdict(trial) for trial in records])
        if not finished:
            message = f"{StopReason.CANCELLED}: python -m recon_core runs resume {run.id}"
            writer.finish(RunState.CANCELLED, None, message)
            return
        if search.lost:
            ended = f"{len(records) - len(search.lost)} of {config.settings.trials} trials ended"
            parts = "; ".join(search.lost[:3]) + (f" and {len(search.lost) - 3} more" if len(search.lost) > 3 else "")
            again = f"python -m recon_core runs resume {run.id}"
            writer.finish(RunState.FAILED, None, f"incomplete, {ended}; lost: {parts}; go on with: {again}")
            return
        pooled = search.pool()
    best = best_of(records)
    if best is None or pooled is None:
        writer.finish(RunState.FAILED, None, search.why_nothing(records))
        return
    writer.save_tensors("candidates", pooled)
    states = [trial.state for trial in records]
    result = {
        "trials": len(states),
        "complete": states.count("complete"),
        "pruned": states.count("pruned"),
        "diverged": states.count("diverged"),
        "failed": states.count("failed"),
        "best": asdict(best),
        "residual": best.value,
        "candidates": len(pooled["candidates"]),
        "sampler": config.settings.sampler,
        "ranges": config.settings.ranges,
        "workers": search.book.workers,
        "architecture": model.architecture.to_json(),
        "objective": target.objective,
        "model": config.model,
        "warning": warning,
    }
    writer.finish(RunState.DONE, result, f"finished all {len(states)} trials")


def _usual_executor(run: Run, config: SearchConfig) -> Executor:
    """On this machine a search has as many places as the process that makes it has threads."""
    wish = config.workers or (thread_limit() if config.cluster is None else None)
    return executor_for(run, config.model_copy(update={"workers": wish}), inline=_perform_trial_in)


def _identity(config: SearchConfig, target: Target) -> str:
    """What identifies a search: the weights, and all settings but the number of trials."""
    settings = config.settings.model_dump_json(exclude={"trials"})
    weights = [(name, content_digest(tensor)) for name, tensor in sorted(target.network.state_dict().items())]
    return hashlib.sha256(repr((settings, config.known_init, weights)).encode()).hexdigest()


@contextlib.contextmanager
def _naming_the_storage(run: Run, config: SearchConfig) -> Iterator[None]:
    """Where the trials' journal or database fails in the middle."""
    import optuna

    try:
        with explaining(run.dir / layout.CHECKPOINTS):
            yield
    except optuna.exceptions.StorageInternalError as error:
        reason = " ".join(str(error).split())[:200]
        raise AfterimageError(
            f"the database {config.storage} failed ({reason}); see to it, then go on with: runs resume {run.id}"
        ) from error


class _Search:
    """The loop around a book of trials."""

    def __init__(
        self, run: Run, writer: RunWriter, listener: Listener, config: SearchConfig, identity: str, workers: int
    ) -> None:
        self._writer, self._listener, self._config = writer, listener, config
        self._store = trial_store(run)
        folder = run.dir / layout.CHECKPOINTS
        journal = folder / "trials.journal"
        with explaining(folder):
            private_folder(folder)
            touch_private(journal)
            if drop_torn_line(journal):
                writer.log("the last line of the trials' journal was torn and has been dropped")
        self.book = TrialBook(
            config.settings,
            run.id,
            workers,
            journal=journal,
            url=config.storage,
            name=config.share or run.id,
            shared=config.share is not None,
            identity=identity,
        )
        if workers > self.book.workers and config.settings.sampler is not Sampler.RANDOM:
            writer.log(
                f"there are {workers} places, but this search began with {self.book.workers} and draws no more at "
                "once: its numbers would be others"
            )
        self._open: dict[str, Trial] = {}
        self._tries: dict[int, int] = {}
        self._troubles: list[str] = []
        self.lost: list[str] = []
        """Trials whose process was killed again and again, and what is known of that."""
        self._lacked_memory = False
        self._picture = ""
        self._ended: dict[int, TrialRecord] = {}

    def work(self, executor: Executor, stopping: Callable[[], bool]) -> bool:
        """Whether all trials came to an end."""
        again = self.book.under_way()
        self._ended = {trial.number: trial for trial in self.book.records() if trial.state != "running"}
        while True:
            if stopping():
                for run_id in self._open:
                    self._store.open(run_id).request_cancel()
                return False
            while executor.free() and (trial := again.pop(0) if again else self.book.begin()) is not None:
                self._begin(trial, executor, again)
            self._tell()
            if not self._open and not again:
                return True
            for ended in executor.wait(_POLL_SECONDS):
                self._end(ended, again)
            if self._lacked_memory and executor.reduce():
                self._writer.log(f"goes on with {executor.places()} at a time: there was not enough memory")
            self._lacked_memory = False

    def _begin(self, trial: Trial, executor: Executor, again: list[Trial]) -> None:
        run = self._run_of(trial)
        self._open[run.id] = trial
        if run.status().state is RunState.DONE:  # whoever searched before was killed in the moment before it was told
            self._end(Ended(run.id, None), again)
        else:
            executor.submit(run)

    def _run_of(self, trial: Trial) -> Run:
        known = None if trial.run_id is None else self._store.root / trial.run_id
        if known is not None and known.is_dir():
            return self._store.open(known.name)
        config = TrialConfig(
            attack=ReconstructConfig(
                model=self._config.model, settings=trial.attack, known_init=self._config.known_init
            ),
            rungs=self._config.settings.rungs,
            limits=trial.limits,
        )
        with explaining(self._store.root):
            private_folder(self._store.root)
        run = self._store.create("trial", config.model_dump(mode="json"))
        self.book.note_run(trial.number, run.id)
        return run

    def _end(self, ended: Ended, again: list[Trial]) -> None:
        trial = self._open.pop(ended.run_id)
        run = self._store.open(ended.run_id)
        status, result = run.status(), run.result()
        if status.state is RunState.DONE and result is not None:
            rungs = {int(rung): value for rung, value in result["rungs"].items()}
            end = TrialEnd(result["state"], result["residual"], result["seconds"], rungs)
        elif self._still_held(run) or (trouble := self._trouble_of(trial, status, ended)) is None:
            again.append(self._noted(trial, run))
            return
        elif status.state is not RunState.FAILED or lacked_memory(trouble):
            # Killed again and again, which is no fault of its own: it stays under way, for a search that goes on.
            self.lost.append(f"trial {trial.number + 1} (given up after {_MOST_TRIES} tries: {trouble})")
            return
        else:
            self._troubles.append(trouble)
            end = TrialEnd("failed", None, status.seconds, {})
        record = self._ended[trial.number] = self.book.end(trial.number, end)
        best = best_of(self._ended.values())
        first = trial.number * (self._config.settings.attack.total_steps + 1)
        row: dict[str, Any] = {
            "step": first + self._config.settings.attack.total_steps,
            "trial": trial.number,
            "residual": record.value,
            "state": record.state,
            "best": None if best is None else best.value,
        }
        self._writer.metrics({**row, **trial.params})

    @staticmethod
    def _still_held(run: Run) -> bool:
        """Whether the trial is still held by a worker from before this search was killed; that worker will stop."""
        return lock.is_held(run.dir / layout.LOCK)

    def _trouble_of(self, trial: Trial, status: Status, ended: Ended) -> str | None:
        """Why a trial is given up; None where it is tried again. Raises for faults that would end every trial."""
        trouble = status.message if status.state is RunState.FAILED else ended.trouble or status.message
        tries = self._tries[trial.number] = self._tries.get(trial.number, 0) + 1
        self._writer.log(f"trial {trial.number + 1}: {trouble}")
        if was_full(trouble):
            raise AfterimageError(trouble)
        short = lacked_memory(trouble)
        self._lacked_memory |= short
        if status.state is RunState.FAILED and not short:
            return trouble
        if tries < _MOST_TRIES:
            return None
        if status.state is RunState.QUEUED:
            raise AfterimageError(
                f"trial {trial.number + 1} could not be started, {tries} times: {trouble}; fix that, then resume"
            )
        return trouble

    @staticmethod
    def _noted(trial: Trial, run: Run) -> Trial:
        return Trial(trial.number, trial.params, trial.attack, trial.limits, run.id)

    def _tell(self) -> None:
        each = self._config.settings.attack.total_steps + 1
        total = self._config.settings.trials
        steps, doing = len(self._ended) * each, []
        for run_id, trial in self._open.items():
            status = self._store.open(run_id).status()
            steps += min(status.step, each - 1)
            doing.append(f"trial {trial.number + 1}{': ' + status.message if status.message else ''}")
        best = best_of(self._ended.values())
        message = f"{len(self._ended)} of {total} trials ended"
        if best is not None and best.value is not None:
            message += f", best {best.value:.4f}"
        self._writer.progress(steps, "; ".join([message, *doing[:3]]))
        self._listener(steps / (total * each), message)
        self._show_newest(each)

    def _show_newest(self, each: int) -> None:
        """The newest picture of the trial that has been at work the longest."""
        if not self._open:
            return
        run_id, trial = min(self._open.items(), key=lambda item: item[1].number)
        run = self._store.open(run_id)
        try:
            found = (run.dir / layout.tensors_file("snapshots")).stat()
            version = f"{run_id} {found.st_ino} {found.st_mtime_ns}"
            if version == self._picture:
                return
            picture = run.tensors("snapshots")
        except (InputError, FileNotFoundError):  # not there yet, or half there: the next one will do
            return
        self._picture = version
        self._writer.save_tensors("snapshots", {**picture, "steps": picture["steps"] + trial.number * each})

    def pool(self) -> dict[str, Tensor] | None:
        """All complete trials' candidates, the best trial first; `trials` (M,) says whose each is."""
        mine = set(self.book.own())
        complete = [trial for trial in self.book.records() if trial.state == "complete" and trial.number in mine]
        complete.sort(key=lambda trial: (trial.value is None, trial.value))
        parts = []
        for trial in complete:
            part = self._store.open(self.book.run_of(trial.number) or "").tensors("candidates")
            parts.append({**part, "trials": torch.full_like(part["seeds"], trial.number)})
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]} if parts else None

    def why_nothing(self, records: tuple[TrialRecord, ...]) -> str:
        if self._troubles:
            return f"none of {len(records)} trials could be made; the first: {self._troubles[0]}"
        if best_of(records) is not None:
            return f"all {len(records)} trials were made by other searches that share {self._config.share!r}"
        return f"none of {len(records)} trials came to an end that could be kept; try other ranges"
