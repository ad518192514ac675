"""Every kind of data and every kind of model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

import recon_core as rc
from recon_core.store import RunStore
from tests.library.conftest import ATTACK, TRAIN, Experiment

PIXELS = np.random.default_rng(0).integers(0, 256, (12, 12, 13, 3), dtype=np.uint8)
LABELS = np.array([0, 1] * 6)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "pets"
    for index, (image, label) in enumerate(zip(PIXELS, LABELS, strict=True)):
        file = root / ("cats", "dogs")[label] / f"{index:02d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(file)
    return root


@pytest.fixture
def file(tmp_path: Path) -> Path:
    np.savez(tmp_path / "pets.npz", images=PIXELS, labels=LABELS)
    return tmp_path / "pets.npz"


def test_a_folder_a_file_and_arrays_are_the_same_images(folder: Path, file: Path) -> None:
    loaded = [
        rc.load_data(str(folder), n=8),
        rc.load_data(folder, n=8),
        rc.load_data(file, n=8),
        rc.load_data("npz", path=str(file), n=8),
        rc.load_data(PIXELS, LABELS, n=8),
        rc.load_data((PIXELS.transpose(0, 3, 1, 2), list(LABELS)), n=8),
        rc.load_data(torch.from_numpy(PIXELS), torch.from_numpy(LABELS), n=8),
        rc.load_data(PIXELS.astype(np.float64) / 255, LABELS, n=8),
    ]
    expected = torch.from_numpy(PIXELS[:8].transpose(0, 3, 1, 2) / 255).float()
    for data in loaded:
        order = data.labels.argsort(stable=True)
        wanted = torch.from_numpy(LABELS[:8]).argsort(stable=True)
        torch.testing.assert_close(data.images[order], expected[wanted])
        assert data.samples.test_x.shape[0] == 4


def test_settings_of_the_data_reach_it() -> None:
    data = rc.load_data("mnist", task="multiclass", classes=(3, 7, 8), per_class=2, test_n=6)
    assert data.samples.class_names == ("3", "7", "8")
    assert data.n == 6
    assert rc.load_data("circle", "random", n=6).labels.tolist() != rc.load_data("circle", n=6).labels.tolist()


def test_arrays_are_kept_as_given(tmp_path: Path) -> None:
    images = PIXELS.copy()
    data = rc.load_data(images, LABELS, n=8)
    before = data.images.clone()
    images[:] = 0
    assert torch.equal(data.images, before)


def test_a_run_a_file_and_a_module_of_the_same_weights_give_the_same(tmp_path: Path, experiment: Experiment) -> None:
    network, wanted = experiment.model.network, experiment.found.candidates
    state = network.state_dict()
    torch.save(state, tmp_path / "weights.pth")
    save_file(state, tmp_path / "weights.safetensors")
    assert network.architecture.widths == (60, 60)
    module = nn.Sequential(
        nn.Flatten(),
        nn.Linear(3072, 60),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(60, 60, bias=False),
        nn.ReLU(),
        nn.Linear(60, 1, bias=False),
    )
    module.load_state_dict(dict(zip(module.state_dict(), state.values(), strict=True)))
    for model in (network, module, tmp_path / "weights.pth", str(tmp_path / "weights.safetensors")):
        assert torch.equal(rc.reconstruct(model, **ATTACK).candidates, wanted)
    assert module.training


def test_a_run_by_itself_or_by_its_id(store: RunStore) -> None:
    data = rc.load_data("circle", n=6)
    model = rc.train(data, widths=40, epochs=20, store=store, progress=False)
    assert model.run is not None
    wanted = rc.reconstruct(model, m=8, iterations=5, progress=False).candidates
    for given in (model.run, model.run.id):  # the id: in the store of AFTERIMAGE_STORE
        assert torch.equal(rc.reconstruct(given, m=8, iterations=5, progress=False).candidates, wanted)
    assert torch.equal(
        rc.reconstruct(model.run.id, m=8, iterations=5, store=str(store.root), progress=False).candidates, wanted
    )


@pytest.fixture(autouse=True)
def same_weights_each_time() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        yield


class Flat(nn.Module):
    """Takes vectors, and calls its activation as a function."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 20)
        self.last = nn.Linear(20, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.first(x)))


class Bent(Flat):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.first(x)))


def test_a_module_is_taken_by_what_it_computes() -> None:
    assert rc.reconstruct(Flat(), m=4, iterations=2, progress=False).candidates.shape == (4, 1, 8, 8)
    shaped = rc.reconstruct(Flat(), input_shape=(64,), m=4, iterations=2, progress=False)
    assert shaped.candidates.shape == (4, 64)
    with pytest.raises(rc.errors.InputError, match="Bent does not tell what inputs it takes; pass input_shape"):
        rc.reconstruct(Bent(), m=4, progress=False)
    bent = rc.reconstruct(Bent(), input_shape=(1, 8, 8), m=4, iterations=2, progress=False)
    assert str(bent.network.architecture) == "1x8x8-Bent(2 layers)-1"
    assert torch.equal(bent.network(torch.ones(1, 64)), bent.network(torch.ones(1, 1, 8, 8)))


class Residual(nn.Module):
    """Nothing of it is in any closed form."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = (
            nn.Conv2d(1, 3, 3, padding=1),
            nn.Conv2d(3, 3, 3, padding=1),
            nn.Linear(3, 4),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x).relu()
        return self.last((x + torch.relu(self.second(x))).mean((2, 3)))


def test_any_module_with_its_input_shape(tmp_path: Path) -> None:
    module = Residual()
    quick = {"input_shape": (1, 8, 8), "m": 8, "iterations": 3, "progress": False}
    found = rc.reconstruct(module, **quick)
    assert found.candidates.shape == (8, 1, 8, 8)
    assert found.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert torch.equal(found.candidates, rc.reconstruct(module, **quick).candidates)
    assert len(rc.reconstruct(module, baseline="untrained", **quick)) == 8
    with pytest.raises(rc.errors.InputError, match="a store does not keep"):
        rc.reconstruct(module, store=tmp_path / "runs", **quick)


def test_a_convolution_in_front() -> None:
    module = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 36, 10), nn.ReLU(), nn.Linear(10, 1, bias=False)
    )
    found = rc.reconstruct(module, input_shape=(1, 8, 8), m=4, iterations=2, progress=False)
    assert found.candidates.shape == (4, 1, 8, 8)


def test_losses_follow_from_the_data_and_the_keyword(experiment: Experiment) -> None:
    small = {"widths": 30, "epochs": 5, "progress": False}
    assert rc.train(experiment.data, **small).config.training.loss == "logistic"
    assert rc.train(experiment.data, loss="huber", **small).config.training.loss == "huber"
    decayed = rc.train(experiment.data, weight_decay=1e-3, **small)
    assert decayed.config.training.recipe == "stationary"
    classes = rc.load_data("cifar10", task="multiclass", classes=("cat", "dog", "frog"), per_class=2, test_n=6)
    assert rc.train(classes, **small).config.training.loss == "cross-entropy"


def test_a_preset_brings_its_data() -> None:
    model = rc.train(preset="circle", epochs=5, progress=False)
    assert model.config.data.source == "circle"
    assert model.config.model.init_scale == 0.01


def test_convolutional_networks_merge_with_a_larger_factor(experiment: Experiment) -> None:
    model = rc.train(
        experiment.data, conv_kernel=3, conv_channels=2, widths=20, weight_decay=1e-3, epochs=3, progress=False
    )
    found = rc.reconstruct(model, m=4, iterations=2, progress=False)
    assert rc.match(found, experiment.data).count().merge_factor == 1.5
    assert rc.match(found, experiment.data, merge_factor=1.2).count().merge_factor == 1.2
    assert experiment.score.count().merge_factor == 1.1


def test_an_experiment_on_images_of_ones_own() -> None:
    data = rc.load_data(PIXELS, LABELS, n=8)
    found = rc.reconstruct(rc.train(data, **TRAIN), **ATTACK)
    assert 0 <= rc.match(found, data).good(0.4) <= 8
