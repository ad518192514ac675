"""A search run: many attacks on one model, every trial's candidates pooled into one run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from recon_core.attack import AttackOutcome, AttackRecipe, AttackSettings, Engine, Resume, StopReason
from recon_core.attack.search import SearchOutcome, SearchSettings, search
from recon_core.config import Frozen, parse_config
from recon_core.jobs.models import AttackModel, model_of
from recon_core.jobs.observer import StoreObserver
from recon_core.jobs.reconstruction import (
    ReconstructConfig,
    attack_settings,
    candidate_tensors,
    check_request,
    target_of,
    warning_for,
)
from recon_core.jobs.signals import StopFlag
from recon_core.store import Run, RunState, RunStore, RunWriter
from recon_core.store.files import explaining
from recon_core.store.layout import CHECKPOINTS
from recon_core.store.metrics import drop_torn_line
from recon_core.store.tensors import read_tensors, write_tensors

if TYPE_CHECKING:
    from recon_core.data import TaskData


# A search is many short attacks rather than one long one.
_ITERATIONS = 5000


class SearchConfig(Frozen):
    """One search run, whole."""

    model: str
    """Id of the run that holds the model."""
    settings: SearchSettings = SearchSettings()
    known_init: bool = False

    def attack_config(self) -> ReconstructConfig:
        """What a single trial would be as a run of its own, but for the numbers that are searched over."""
        return ReconstructConfig(model=self.model, settings=self.settings.attack, known_init=self.known_init)


def trial_settings(model: AttackModel, given: Mapping[str, Any]) -> AttackSettings:
    """What trials have in common: the papers' recipe, in closed form and float32 where `given` does not say."""
    engine = Engine.CLOSED if model.architecture.dense else Engine.AUTOGRAD
    usual = {"recipe": AttackRecipe.PAPER, "engine": engine, "dtype": "float32", "iterations": _ITERATIONS}
    return attack_settings(model, {**usual, **given})


def check_search(model: AttackModel, config: SearchConfig) -> None:
    """Raise now what would end the first trial at its start."""
    check_request(model, config.attack_config())


class _Observer(StoreObserver):
    """Keeps every trial's candidates in a file of its own until the search is done."""

    def __init__(
        self, writer: RunWriter, stop: StopFlag, listener: Callable[[float | None, str], None], folder: Path
    ) -> None:
        super().__init__(writer, stop, listener)
        self._folder = folder

    def keep(self, number: int, outcome: AttackOutcome) -> None:
        write_tensors(_trial_file(self._folder, number), candidate_tensors(outcome), {})


def perform_search(
    run: Run, writer: RunWriter, stop: StopFlag, listener: Callable[[float | None, str], None], data: TaskData | None
) -> None:
    """Search, or go on searching, and finish the run.

    The journal and the trials' candidates stand beside the checkpoints: like those they are there to go on
    from, and what is left of them when the run is done is trials.json and candidates.safetensors.
    """
    config = parse_config(SearchConfig, run.config)
    settings = config.settings
    model = model_of(RunStore(run.dir.parent).open(config.model))
    target = target_of(model, config.attack_config())
    writer.start(settings.trials * (settings.attack.total_steps + 1))
    if (warning := warning_for(model, settings.attack)) is not None:
        writer.log(warning)
    folder = run.dir / CHECKPOINTS
    journal = folder / "trials.journal"
    with explaining(folder):
        folder.mkdir(exist_ok=True)
        if journal.exists() and drop_torn_line(journal):
            writer.log("the last line of the trials' journal was torn and has been dropped")
    found = writer.latest_checkpoint()
    resume = None if found is None else Resume(found.step, found.tensors, found.meta)
    outcome = search(target, settings, _Observer(writer, stop, listener, folder), journal, resume)
    writer.save_json("trials", [asdict(trial) for trial in outcome.trials])
    if outcome.cancelled:
        writer.finish(RunState.CANCELLED, None, f"{StopReason.CANCELLED}: python -m recon_core runs resume {run.id}")
        return
    states = [trial.state for trial in outcome.trials]
    best = outcome.best
    if best is None:
        message = f"none of {len(states)} trials came to an end that could be kept; try other ranges"
        writer.finish(RunState.FAILED, None, message)
        return
    pooled = _pool(folder, outcome)
    writer.save_tensors("candidates", pooled)
    result = {
        "trials": len(states),
        "complete": states.count("complete"),
        "pruned": states.count("pruned"),
        "diverged": states.count("diverged"),
        "best": asdict(best),
        "residual": best.value,
        "candidates": len(pooled["candidates"]),
        "sampler": settings.sampler,
        "ranges": settings.ranges,
        "architecture": model.architecture.to_json(),
        "objective": target.objective,
        "model": config.model,
        "warning": warning,
    }
    writer.finish(RunState.DONE, result, f"did all its {len(states)} trials")


def _pool(folder: Path, outcome: SearchOutcome) -> dict[str, Tensor]:
    """All complete trials' candidates, the best trial first; `trials` (M,) says whose each is."""
    complete = [trial for trial in outcome.trials if trial.state == "complete"]
    complete.sort(key=lambda trial: (trial.value is None, trial.value))
    parts = []
    for trial in complete:
        part = read_tensors(_trial_file(folder, trial.number))
        parts.append({**part, "trials": torch.full_like(part["seeds"], trial.number)})
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _trial_file(folder: Path, number: int) -> Path:
    return folder / f"trial-{number:05d}.safetensors"
