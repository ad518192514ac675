"""Times said beforehand: right order of magnitude, from finished runs where there are any, nothing measured twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recon_core.attacks import AttackSettings
from recon_core.config import TrainConfig, parse_config
from recon_core.kinds import perform
from recon_core.presets import PRESETS, Size
from recon_core.runs import StopFlag
from recon_core.runs.requests import create_training
from recon_core.scheduling import estimates
from recon_core.scheduling.estimates import Estimator, estimate_reconstruction, estimate_training, matmul_rate
from recon_core.scheduling.slots import Slot
from recon_core.store import RunState, RunStore


def config(**changes: Any) -> TrainConfig:
    values: dict[str, Any] = {
        "data": {"n": 50},
        "model": {"widths": [300, 300]},
        "training": {"recipe": "flow", "target_log_loss": -100.0},
    }
    return parse_config(TrainConfig, {key: {**values[key], **changes.get(key, {})} for key in values})


@pytest.fixture
def rated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of 50 GFLOP/s, so that arithmetic can be checked."""
    monkeypatch.setattr(estimates, "matmul_rate", lambda store: 50e9)


def test_the_rate_is_measured_once_and_kept(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.root.mkdir()
    rate = matmul_rate(store)
    assert 0 < rate < float("inf")
    monkeypatch.setattr(estimates, "_measure_rate", lambda: pytest.fail("measured twice"))
    assert matmul_rate(store) == rate
    assert (store.root / ".cache" / "machine.json").is_file()
    (store.root / ".cache" / "machine.json").write_text("{")
    monkeypatch.setattr(estimates, "_measure_rate", lambda: 7.0)
    assert matmul_rate(store) == 7.0


def test_asking_makes_no_store(store: RunStore) -> None:
    assert estimate_training(config(), store) is not None
    assert not store.root.exists()


@pytest.mark.usefixtures("rated")
def test_more_work_takes_longer(store: RunStore) -> None:
    base = estimate_training(config(), store, threads=1)
    assert base is not None
    harder = (
        {"data": {"n": 200}},
        {"model": {"widths": [1000, 1000]}},
        {"training": {"target_log_loss": -1000.0}},
        {"training": {"recipe": "stationary", "weight_decay": 1e-3, "target_log_loss": None}},
        {"training": {"recipe": "paper", "epochs": 10**5, "target_log_loss": None}},
        {"model": {"widths": [300], "conv_kernel": 3, "conv_channels": 32}},
    )
    for changes in harder:
        more = estimate_training(config(**changes), store, threads=1)
        assert more is not None
        assert more > base, changes
    settings = parse_config(AttackSettings, {"m": 100, "objective": "binary"})
    attack = estimate_reconstruction(config(), settings, store, threads=1)
    twice = estimate_reconstruction(config(), settings.model_copy(update={"seeds": 2}), store, threads=1)
    assert attack is not None
    assert twice == pytest.approx(2 * attack, rel=0.1)


@pytest.mark.usefixtures("rated")
def test_a_paper_sized_run_is_a_matter_of_hours(store: RunStore) -> None:
    """NUMERICS of this project: a plain step of 3072-1000-1000-1 on 50 images takes some milliseconds."""
    paper = parse_config(TrainConfig, PRESETS["cifar10-50"].values(Size.PAPER) | {"device": "cpu"})
    seconds = estimate_training(paper, store, threads=1)
    assert seconds is not None
    assert 1 < seconds / 3600 < 20


@pytest.mark.usefixtures("rated")
def test_every_preset_can_be_estimated(store: RunStore) -> None:
    for preset in PRESETS.values():
        assert Estimator(store, threads=1).training(preset.config()) is not None


@pytest.mark.usefixtures("rated")
def test_what_nobody_can_know_is_not_said(store: RunStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    open_ended = config(training={"recipe": "paper", "target_log_loss": -5.0})
    assert estimate_training(open_ended, store) is None
    limited = config(training={"recipe": "paper", "target_log_loss": -5.0, "max_seconds": 12.0})
    assert estimate_training(limited, store) == 12.0
    absent = config(data={"source": "folder", "path": str(tmp_path / "nowhere")})
    assert estimate_training(absent, store) is None
    monkeypatch.setattr(estimates, "slots", lambda: [Slot(0, 2, gpu=0)])
    assert estimate_training(config(), store) is None  # nothing was measured on a GPU
    assert estimate_training(parse_config(TrainConfig, {**config().model_dump(), "device": "cpu"}), store) is not None


def test_finished_runs_of_the_same_shape_are_the_answer(store: RunStore) -> None:
    tiny = config(data={"n": 10, "test_n": 20}, model={"widths": [20]}, training={"target_log_loss": -3.0})
    run = create_training(store, tiny)
    assert perform(run, StopFlag()) is RunState.DONE
    other_seed = config(
        data={"n": 10, "test_n": 20}, model={"widths": [20], "seed": 5}, training={"target_log_loss": -3.0}
    )
    assert estimate_training(other_seed, store) == run.status().seconds
    wider = config(data={"n": 10, "test_n": 20}, model={"widths": [40]}, training={"target_log_loss": -3.0})
    assert estimate_training(wider, store) != run.status().seconds


def test_once_the_machine_is_known_an_estimate_is_arithmetic(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages ask for one at every change of a form."""
    store.root.mkdir()
    known = estimate_training(config(), store)

    def refuse(*given: Any, **options: Any) -> None:
        pytest.fail("an estimate needed more than what is known")

    monkeypatch.setattr(estimates.subprocess, "run", refuse)  # nothing is measured
    for reader in ("numpy.load", "torch.load", "PIL.Image.open"):  # and no image is read
        monkeypatch.setattr(reader, refuse)
    assert estimate_training(config(), store) == known
