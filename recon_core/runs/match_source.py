"""What a match run is asked for, and everything it reads: candidates, and the data their model saw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from recon_core.config import Listed, TrainConfig, parse_config
from recon_core.data import TaskData, load_task
from recon_core.devices import pick_device
from recon_core.errors import InputError
from recon_core.matching.neighbours import find_neighbours
from recon_core.matching.pool import Pool, pool
from recon_core.matching.protocol import (
    GOOD_SSIM,
    MatchChoices,
    MatchSettings,
    check_merge_factor,
    check_threshold,
)
from recon_core.matching.ssim import ssim
from recon_core.observing import Listener
from recon_core.store import Run, RunState, RunStore

CANDIDATE_KINDS = ("reconstruct", "search")
DENSE_FACTOR, CONVOLUTION_FACTOR = 1.1, 1.5


class MatchConfig(MatchChoices):
    """One match run, whole."""

    runs: Listed[str] = Field(description="reconstruct or search runs of one model; their candidates are pooled")
    untrained: str | None = Field(None, description="a run on an untrained network, for the chance level")
    threshold: float = Field(GOOD_SSIM, description="SSIM above which a reconstruction counts as good")
    merge_factor: float | None = Field(None, description="B; 1.1 for dense networks, 1.5 for convolutional if unset")
    multiplier_share: float = Field(
        0.05, ge=0.0, le=1.0, description="planar: candidates with less than this part of the largest multiplier go"
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_threshold(self.threshold)
        if self.merge_factor is not None:
            check_merge_factor(self.merge_factor)
        if not self.runs:
            raise ValueError("runs must name at least one reconstruct run, got none")
        twice = [run for run in self.runs if self.runs.count(run) > 1]
        if twice:
            raise ValueError(f"run {twice[0]} is named twice; its candidates count once")
        return self

    def settings(self, default_factor: float) -> MatchSettings:
        chosen = {name: getattr(self, name) for name in MatchChoices.model_fields}
        return MatchSettings(**chosen, merge_factor=default_factor if self.merge_factor is None else self.merge_factor)


@dataclass(frozen=True, eq=False)
class MatchInput:
    """Candidates and the data to score them against, wherever both came from."""

    data: TaskData
    pool: Pool
    multipliers: Tensor
    """(M,), like labels (class indices) and seeds in the pool's order."""
    labels: Tensor
    seeds: Tensor
    stages: Mapping[str, Tensor]
    """Planar runs that cleaned up after themselves: by run (m,) bool, the candidates that are left."""
    untrained: Tensor | None
    """Candidates (U, ...) of the untrained network."""
    untrained_labels: Tensor | None

    @property
    def planar(self) -> bool:
        return len(self.data.input_shape) == 1

    @property
    def default_factor(self) -> float:
        """B where none is asked for."""
        return DENSE_FACTOR


@dataclass(frozen=True, eq=False)
class MatchSource(MatchInput):
    """Candidates of one model in the store, with the data it was trained on."""

    model_run: Run
    model: TrainConfig
    confidence: Tensor | None = None
    """(M,) in [0, 1], how sure the attacks are of each candidate, 0 where one does not say; None if none does."""

    @property
    def default_factor(self) -> float:
        return usual_factor(self.model)


def usual_factor(model: TrainConfig) -> float:
    """Buzaglo et al. 2023, App. A: B by kind of network."""
    return DENSE_FACTOR if model.model.conv_kernel is None else CONVOLUTION_FACTOR


def load_source(
    store: RunStore, config: MatchConfig, data: TaskData | None = None, progress: Listener | None = None
) -> MatchSource:
    """Read what `config` names, or say in one sentence why it cannot be matched. Writes nothing."""
    runs = [candidate_run(store, run_id) for run_id in config.runs]
    model_run = common_model(store, runs)
    untrained = None if config.untrained is None else _untrained_run(store, config.untrained)
    model = parse_config(TrainConfig, model_run.config)
    data = load_task(model.data, progress=progress) if data is None else data
    check_fingerprint(model_run, data)

    found = {run.id: _candidates(run) for run in runs}
    pooled = pool({run_id: part["candidates"] for run_id, part in found.items()})
    _check_shape("the pooled candidates have", pooled.candidates, data)
    filled = [found[run_id] for run_id in pooled.runs]
    control = None if untrained is None else _candidates(untrained)
    if control is not None:
        _check_shape(f"run {config.untrained} has candidates of", control["candidates"], data)
    source = MatchSource(
        model_run=model_run,
        model=model,
        data=data,
        pool=pooled,
        multipliers=torch.cat([part["multipliers"] for part in filled]),
        labels=torch.cat([part["labels"] for part in filled]),
        seeds=torch.cat([part["seeds"] for part in filled]),
        stages={run.id: run.tensors("stages")["deduplicated"] for run in runs if run.has_tensors("stages")},
        untrained=None if control is None else control["candidates"],
        untrained_labels=None if control is None else control["labels"],
        confidence=_confidence(filled),
    )
    _try_out(source, config)
    return source


def _try_out(source: MatchSource, config: MatchConfig) -> None:
    """Check early what would fail later: a missing device, constant images, images that are too small."""
    pick_device(config.device)
    if not source.planar:
        one = source.data.train_x[:1]
        find_neighbours(source.data.train_x, one, 1, config.search_size)
        ssim(one, one, config.ssim)


def model_run_of(store: RunStore, run: Run) -> Run:
    """The training run a reconstruction started from."""
    parents = [store.open(parent) for parent in run.parents]
    trained = [parent for parent in parents if parent.kind == "train"]
    if not trained:
        raise InputError(
            f"run {run.id} was not made from a training run in this store, so its training images are unknown; "
            "choose a reconstruction of a network trained here"
        )
    return trained[0]


def candidate_run(store: RunStore, run_id: str) -> Run:
    """A run whose candidates can be matched, or a sentence why not."""
    return done_run(store, run_id, CANDIDATE_KINDS, lacks="has no candidates", then="match")


def done_run(store: RunStore, run_id: str, kinds: Sequence[str], *, lacks: str, then: str) -> Run:
    """A finished run of one of these kinds, or a sentence why it is none."""
    run = store.open(run_id)
    if run.kind not in kinds:
        raise InputError(f"run {run_id} is a {run.kind} run and {lacks}; choose a {' or '.join(kinds)} run")
    state = run.status().state
    if state is not RunState.DONE:
        raise InputError(f"run {run_id} is {state}, not done; wait for it or resume it, then {then}")
    return run


def _untrained_run(store: RunStore, run_id: str) -> Run:
    run = candidate_run(store, run_id)
    if run.config.get("baseline") != "untrained":
        raise InputError(
            f"run {run_id} attacked a trained network and gives no chance level; "
            "choose a run of `baseline --kind untrained`"
        )
    return run


def common_model(store: RunStore, runs: list[Run]) -> Run:
    """The training run that all of `runs` attacked."""
    models = {run.id: model_run_of(store, run) for run in runs}
    first_id, first = next(iter(models.items()))
    for run_id, model in models.items():
        if model.id != first.id:
            raise InputError(
                f"run {run_id} attacked model {model.id} and run {first_id} attacked {first.id}; "
                "match runs of one model together"
            )
    return first


def check_fingerprint(model_run: Run, data: TaskData) -> None:
    about: Any = (model_run.result() or {}).get("data")
    stated = about.get("fingerprint") if isinstance(about, Mapping) else None
    if stated is None:
        raise InputError(f"run {model_run.id} does not say which data its model saw; train it again")
    if stated != data.fingerprint:
        raise InputError(
            f"the model of run {model_run.id} saw other data than its config gives now "
            f"(fingerprint {str(stated)[:12]}, now {data.fingerprint[:12]}); restore the images or train again"
        )


def _candidates(run: Run) -> dict[str, Tensor]:
    found = run.tensors("candidates")
    missing = {"candidates", "multipliers", "labels", "seeds"} - found.keys()
    if missing:
        raise InputError(
            f"run {run.id} has no {', '.join(sorted(missing))} in candidates.safetensors; run the reconstruction again"
        )
    count = len(found["candidates"])
    for name in ("multipliers", "labels", "seeds", *({"confidence"} & found.keys())):
        if found[name].shape != (count,):
            raise InputError(
                f"run {run.id} has {count} candidates and {name} of shape {tuple(found[name].shape)}; "
                "run the reconstruction again"
            )
    return found


def _confidence(parts: Sequence[Mapping[str, Tensor]]) -> Tensor | None:
    if not any("confidence" in part for part in parts):
        return None
    return torch.cat([part.get("confidence", torch.zeros(len(part["candidates"]))).float() for part in parts])


def _check_shape(whose: str, candidates: Tensor, data: TaskData) -> None:
    if tuple(candidates.shape[1:]) != data.input_shape:
        raise InputError(
            f"{whose} shape {tuple(candidates.shape[1:])} and the training images {data.input_shape}; "
            "choose runs on the same data"
        )
