"""What cannot be done is said in one sentence that names the value and the fix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import recon_core as rc
from tests.library.conftest import Experiment

Call = Callable[[Experiment], Any]

CASES: dict[str, tuple[Call, str]] = {
    "misspelt data": (lambda e: rc.load_data("cifar"), "'cifar'; did you mean cifar10"),
    "no such file": (lambda e: rc.load_data("no/such.npz"), "no file or folder 'no/such.npz'"),
    "images without labels": (lambda e: rc.load_data(np.zeros((4, 8, 8))), "need labels"),
    "labels too few": (lambda e: rc.load_data(np.zeros((4, 8, 8)), [0, 1], n=2), "2 entries for 4 images"),
    "ragged images": (lambda e: rc.load_data([[1, 2], [3]], [0, 1]), "arrays of numbers, got an array of object"),
    "pixels out of range": (
        lambda e: rc.load_data(np.full((4, 8, 8), 300.0), [0, 1, 0, 1], n=2),
        "the arrays given has pixels from 300",
    ),
    "misspelt data setting": (
        lambda e: rc.load_data("mnist", per_clas=2),
        "'per_clas' of load_data; did you mean",
    ),
    "data setting of train": (lambda e: rc.train(e.data, n=20), "n is a setting of the data; give it to load_data"),
    "misspelt train setting": (lambda e: rc.train(e.data, epoch=3), "'epoch' of train; did you mean epochs"),
    "bad width": (lambda e: rc.train(e.data, widths=0), "at least 1, got 0"),
    "unknown preset": (lambda e: rc.train(preset="cifar10-5"), "unknown preset 'cifar10-5'"),
    "wrong loss": (lambda e: rc.train(e.data, loss="cross-entropy"), "task binary goes with loss logistic"),
    "no model": (lambda e: rc.reconstruct(5), "a TrainedModel, a run, a file or an nn.Module, got int"),
    "no file": (lambda e: rc.reconstruct("weights.pth"), "'weights.pth'"),
    "no run": (lambda e: rc.reconstruct("abc123"), "no run abc123"),
    "misspelt attack setting": (lambda e: rc.reconstruct(e.model, iteration=5), "did you mean iterations"),
    "odd m": (lambda e: rc.reconstruct(e.model, m=7), "m must be even"),
    "unknown authors' preset": (lambda e: rc.reconstruct(e.model, preset="mine"), "unknown preset 'mine'"),
    "two recipes": (
        lambda e: rc.reconstruct(e.model, preset="cifar10-a", recipe="fast"),
        "preset cifar10-a is of recipe paper, got recipe fast",
    ),
    "other baseline": (lambda e: rc.reconstruct(e.model, baseline="weights"), "got 'weights'"),  # type: ignore[arg-type]
    "shape of a known model": (lambda e: rc.reconstruct(e.model, input_shape=(3, 32, 32)), "goes with a file"),
    "another shape": (
        lambda e: rc.match(e.found, rc.load_data("mnist", n=4)),
        "shape (3, 32, 32) and the data (1, 28, 28)",
    ),
    "misspelt match setting": (lambda e: rc.match(e.found, e.data, treshold=0.2), "did you mean threshold"),
    "threshold out of range": (lambda e: e.score.good(3), "[-1, 1], got 3"),
}


@pytest.mark.parametrize("case", CASES)
def test_refusal(case: str, experiment: Experiment) -> None:
    call, part = CASES[case]
    with pytest.raises(rc.errors.InputError) as refusal:
        call(experiment)
    assert part in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_divergence_is_a_sentence(experiment: Experiment) -> None:
    with pytest.raises(rc.errors.AfterimageError, match="training diverged"):
        rc.train(experiment.data, recipe="paper", widths=20, epochs=200, learning_rate=1e30, progress=False)
