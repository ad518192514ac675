"""Whether the time left that runs show is right: runs of several kinds and sizes, replayed by their own measurements.

At a quarter, half and three quarters of each finished run, by what had finished before it; a run counts as right if all
that it would have said there was within a factor of two of what was true. The runs are made here, in a store of their
own; with AFTERIMAGE_STORE set, those of that store are replayed instead.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from recon_core.config import TrainConfig, parse_config
from recon_core.kinds import perform
from recon_core.runs import StopFlag
from recon_core.runs.models import model_of
from recon_core.runs.reconstruction import Baseline, ReconstructConfig, attack_settings
from recon_core.runs.requests import create_reconstruction, create_training
from recon_core.scheduling.slots import slots
from recon_core.scheduling.time_left import replay
from recon_core.store import Run, RunState, RunStore
from recon_core.store.store import STORE_VARIABLE

REPEATS = 5
# Each takes some seconds: below two nothing is said, and nobody would read it.
DESCENTS: tuple[Mapping[str, Any], ...] = (
    {"recipe": "paper", "epochs": 500},
    {"recipe": "paper", "epochs": 800},
    {"recipe": "sgd", "epochs": 300},
)
# Networks, and the attacks on each.
NETWORKS: tuple[tuple[Mapping[str, Any], Mapping[str, int]], ...] = (
    (
        {"data": {"source": "cifar10", "n": 20}, "training": {"target_log_loss": -100.0}},
        {"copies": 300, "fast": 500, "paper": 40},
    ),
    (
        {
            "data": {"source": "mnist", "n": 20},
            "model": {"widths": [300, 300]},
            "training": {"target_log_loss": -100.0},
        },
        {"copies": 900, "fast": 2500, "paper": 500},
    ),
)
"""With the iterations of each recipe."""


def measure() -> dict[str, float]:
    """Of the store that AFTERIMAGE_STORE names, else of runs made for it, which takes about five minutes."""
    if STORE_VARIABLE in os.environ:
        return replay(RunStore(Path(os.environ[STORE_VARIABLE]))).figures()
    return of_made_runs()


def of_made_runs() -> dict[str, float]:
    """Dozens of short runs, made and replayed."""
    torch.set_num_threads(slots()[0].threads)  # as the scheduler has it
    with tempfile.TemporaryDirectory(prefix="afterimage-") as folder:
        store = RunStore(Path(folder) / "runs")
        for run in _requested(store):
            if perform(run, StopFlag()) is not RunState.DONE:
                raise RuntimeError(f"run {run.id} is {run.status().state}: {run.status().message}")
        return replay(store).figures()


def _requested(store: RunStore) -> Iterator[Run]:
    """In the order a person might ask for them: repeats of one kind are not neighbours."""
    attacked = []
    for values, attacks in NETWORKS:
        network = create_training(store, parse_config(TrainConfig, dict(values)))
        attacked += [(network, recipe, iterations) for recipe, iterations in attacks.items()]
        yield network
    for repeat in range(REPEATS):
        for settings in DESCENTS:
            values = {"data": {"source": "cifar10", "n": 50}, "model": {"seed": repeat}, "training": dict(settings)}
            yield create_training(store, parse_config(TrainConfig, values))
        for network, recipe, iterations in attacked:
            asked = {"recipe": recipe, "iterations": iterations, "seed": repeat}
            # Every second one is a control, which takes as long.
            request = ReconstructConfig(
                model=network.id,
                settings=attack_settings(model_of(network), asked),
                baseline=Baseline.UNTRAINED if repeat % 2 else None,
            )
            yield create_reconstruction(store, request)
