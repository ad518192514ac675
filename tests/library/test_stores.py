"""With `store=` every step is a run, equal to one that was not kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import recon_core as rc
from recon_core.kinds import perform
from recon_core.runs import StopFlag
from recon_core.store import RunState, RunStore
from tests.library.conftest import ATTACK, TRAIN, Experiment


def test_the_whole_experiment_is_kept_and_equal(experiment: Experiment, tmp_path: Path) -> None:
    folder = str(tmp_path / "kept")
    data = experiment.data
    model = rc.train(data, **TRAIN, store=folder, name="eight images")
    found = rc.reconstruct(model, **ATTACK, store=folder)
    untrained = rc.reconstruct(model, **ATTACK, store=folder, baseline="untrained")
    score = rc.match(found, data, untrained=untrained, store=folder)

    assert torch.equal(found.candidates, experiment.found.candidates)
    assert found.summary["residual"] == experiment.found.summary["residual"]
    assert torch.equal(score.ssim, experiment.score.ssim)
    kept = RunStore(tmp_path / "kept")
    assert sorted(run.kind for run in kept.list()) == ["match", "reconstruct", "reconstruct", "train"]
    assert {run.status.state for run in kept.list()} == {RunState.DONE}
    assert model.run is not None
    assert kept.open(model.run.id).name == "eight images"
    assert score.run is not None
    result = score.run.result() or {}
    assert result["count"]["good"] == score.good(0.4)
    assert result["count"]["control_untrained"] == score.count(0.4).control_untrained
    assert model.history()["step"].tolist() == experiment.model.history()["step"].tolist()
    assert model.summary["log_loss"] == experiment.model.summary["log_loss"]
    assert torch.equal(model.samples["margins"], experiment.model.samples["margins"])


def test_points_are_kept_and_equal(store: RunStore) -> None:
    data = rc.load_data("circle", n=6)
    in_memory = rc.train(data, widths=50, epochs=20, progress=False)
    kept = rc.train(data, widths=50, epochs=20, progress=False, store=store)
    found = [rc.reconstruct(model, m=10, iterations=30, progress=False) for model in (in_memory, kept)]
    found.append(rc.reconstruct(kept, m=10, iterations=30, progress=False, store=store))
    scores = [rc.match(one, data) for one in found] + [rc.match(found[2], data, store=store)]
    assert all(torch.equal(one.candidates, found[0].candidates) for one in found)
    for one in found:
        assert one.kept is not None
        assert found[0].kept is not None
        assert torch.equal(one.kept, found[0].kept)
    assert len({score.good(0.1) for score in scores}) == 1


def test_arrays_are_kept_with_their_run(store: RunStore) -> None:
    images = np.random.default_rng(1).random((8, 12, 12), dtype=np.float32)
    data = rc.load_data(images, [0, 1] * 4, n=4)
    model = rc.train(data, widths=20, epochs=5, progress=False, store=store)
    assert model.run is not None
    again = store.create("train", model.run.config)
    assert perform(again, StopFlag()) is RunState.DONE  # reads the file, not the arrays
    for name, tensor in model.run.tensors("weights").items():
        assert torch.equal(tensor, again.tensors("weights")[name])
    found = rc.reconstruct(model, m=4, iterations=3, progress=False, store=store)
    assert rc.match(found, data, store=store).run is not None


def test_regression_finds_its_data_again(store: RunStore, experiment: Experiment) -> None:
    model = rc.train(experiment.data, loss="l2", widths=20, epochs=5, progress=False, store=store)
    found = rc.reconstruct(model, m=8, iterations=3, progress=False, store=store)
    assert rc.match(found, experiment.data, store=store).run is not None


def test_a_model_from_elsewhere_is_imported_once(store: RunStore, experiment: Experiment) -> None:
    for _ in range(2):
        found = rc.reconstruct(experiment.model, m=8, iterations=3, progress=False, store=store)
    assert sorted(run.kind for run in store.list()) == ["model", "reconstruct", "reconstruct"]
    before = len(store.list())
    with pytest.raises(rc.errors.InputError, match="training images are unknown"):
        rc.match(found, experiment.data, store=store)
    assert len(store.list()) == before
    assert rc.match(found, experiment.data).run is None  # in memory the data at hand will do


def test_a_match_in_a_store_needs_its_candidates_there(store: RunStore, experiment: Experiment) -> None:
    with pytest.raises(rc.errors.InputError, match="the same store"):
        rc.match(experiment.found, experiment.data, store=store)
