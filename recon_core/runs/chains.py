"""A whole experiment queued at once: training, attack, baselines and matching, each waiting for its parents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from recon_core.config import TrainConfig
from recon_core.data import load_task
from recon_core.models import Network, architecture_of
from recon_core.runs.match_request import create_match
from recon_core.runs.match_source import MatchConfig
from recon_core.runs.models import AttackModel
from recon_core.runs.reconstruction import INVERSION_STEPS, Baseline, ReconstructConfig, attack_settings
from recon_core.runs.requests import create_reconstruction, create_training
from recon_core.store import Run, RunStore


@dataclass(frozen=True)
class Chain:
    """Runs that wait for one another, in the order in which they can be done."""

    train: Run
    attack: Run
    baselines: Mapping[Baseline, Run]
    match: Run | None

    @property
    def runs(self) -> tuple[Run, ...]:
        return (self.train, self.attack, *self.baselines.values(), *([self.match] if self.match else []))


def create_attack_chain(
    store: RunStore,
    config: TrainConfig,
    *,
    name: str | None = None,
    attack: Mapping[str, Any] | None = None,
    baselines: Sequence[Baseline] = (Baseline.UNTRAINED,),
    match: bool = True,
) -> Chain:
    """Train as `config` says, reconstruct with the settings that follow from it and from `attack`, compare.

    All runs are only made, queued; whoever calls queues them. What cannot be met raises before any is made.
    """
    model = planned_model(config)
    requests = attack_requests(model, attack or {}, baselines)
    train = create_training(store, config, name)
    found, *others = create_attacks(store, train, requests)
    controls = dict(zip(baselines, others, strict=True))
    untrained = controls.get(Baseline.UNTRAINED)
    asked = MatchConfig(runs=(found.id,), untrained=None if untrained is None else untrained.id)
    return Chain(train, found, controls, create_match(store, asked) if match else None)


def create_attacks(store: RunStore, train: Run, requests: Sequence[ReconstructConfig]) -> list[Run]:
    """The same requests, of the model that run `train` has made or will make."""
    return [create_reconstruction(store, request.model_copy(update={"model": train.id})) for request in requests]


def attack_requests(
    model: AttackModel, attack: Mapping[str, Any], baselines: Sequence[Baseline]
) -> list[ReconstructConfig]:
    """The attack and then each baseline on this model, whose run is yet to be named."""
    requests = [ReconstructConfig(model="", settings=attack_settings(model, attack))]
    for baseline in baselines:
        steps = {"iterations": INVERSION_STEPS} if baseline is Baseline.INVERSION else {}
        settings = attack_settings(model, {**attack, **steps})
        requests.append(ReconstructConfig(model="", settings=settings, baseline=baseline))
    return requests


def planned_model(config: TrainConfig) -> AttackModel:
    """The model that training will give, without its weights: enough to choose the settings of an attack."""
    data = load_task(config.data)
    with torch.device("meta"):
        network = Network(architecture_of(config.model, data.input_shape, data.outputs))
    # What a trained network's first layer comes to, as far as its size and the noise allow.
    return AttackModel(network, config, expected_rank=min(data.n, *next(network.parameters()).flatten(1).shape))
