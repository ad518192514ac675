"""One small experiment that the tests of the library look at."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

import recon_core as rc

TRAIN: dict[str, Any] = {"widths": (60, 60), "target_loss": 1e-4, "progress": False}
ATTACK: dict[str, Any] = {"recipe": "fast", "m": 16, "iterations": 60, "progress": False}


class Experiment(NamedTuple):
    """Eight CIFAR-10 images, learnt and attacked."""

    data: rc.Data
    model: rc.TrainedModel
    found: rc.Reconstruction
    score: rc.Score


@pytest.fixture(scope="package")
def experiment() -> Experiment:
    data = rc.load_data("cifar10", n=8, test_n=16)
    model = rc.train(data, **TRAIN)
    found = rc.reconstruct(model, **ATTACK)
    return Experiment(data, model, found, rc.match(found, data))
