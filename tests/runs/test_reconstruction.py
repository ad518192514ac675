"""Reconstruction as runs: what they leave, that they resume where they were, and that they never see data."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from recon_core.attacks import AttackOutcome, Target, attack, find_attack
from recon_core.attacks.baselines import invert, untrained_network
from recon_core.config import BiasMode, Task
from recon_core.errors import InputError
from recon_core.kinds import perform
from recon_core.models import Architecture, build_network
from recon_core.presets import Size, find_preset
from recon_core.runs import StopFlag
from recon_core.runs.models import AttackModel, imported_before, model_of
from recon_core.runs.reconstruction import (
    Baseline,
    ReconstructConfig,
    attack_settings,
    check_request,
    perform_reconstruction,
    warning_for,
)
from recon_core.store import Run, RunState, RunStore
from recon_core.studies.search import perform_trial

PROJECT = Path(__file__).parents[2]
QUICK = {"recipe": "paper", "m": 8, "iterations": 40, "lr_x": 0.05, "engine": "closed", "dtype": "float32",
         "measure_every": 5, "snapshots": 6, "x_init_scale": 0.1, "device": "cpu"}  # fmt: skip


@pytest.mark.parametrize("job", [perform_reconstruction, perform_trial])
def test_a_job_that_attacks_cannot_be_handed_data(job: Callable[..., None]) -> None:
    assert list(inspect.signature(job).parameters) == ["run", "writer", "stop", "listener"]


class Silent:
    """Hears an attack and says nothing."""

    def metrics(self, row: Any) -> None: ...
    def progress(self, step: int, fraction: float, message: str) -> None: ...
    def snapshot(self, step: int, tensors: Any) -> None: ...
    def log(self, sentence: str) -> None: ...
    def checkpoint(self, step: int, tensors: Any, meta: Any) -> None: ...
    def checkpoint_due(self) -> bool:
        return False

    def stop_requested(self) -> bool:
        return False


def trained(store: RunStore, **data: Any) -> Run:
    values = find_preset("circle").values(Size.QUICK)
    values["model"] |= {"widths": (20, 12), "seed": 5}
    values["training"] = {"epochs": 30}
    values["data"] |= data
    run = store.create("train", values)
    assert perform(run, StopFlag()) is RunState.DONE
    return run


def imported(store: RunStore, tmp_path: Path, *, shape: tuple[int, ...] = (1, 8, 8), outputs: int = 1) -> Run:
    network = build_network(Architecture(shape, (10, 6), outputs), init_scale="kaiming", seed=1)
    file = tmp_path / "theirs.pth"
    torch.save(network.state_dict(), file)
    run = store.create("model", {"path": str(file), "input_shape": None})
    assert perform(run, StopFlag()) is RunState.DONE
    return run


def asked(store: RunStore, model: Run, *, values: dict[str, Any] | None = None, **config: Any) -> Run:
    given = {**QUICK, **(values or {})}
    known = find_attack(given["recipe"]).setting_names
    settings = attack_settings(model_of(model), {name: value for name, value in given.items() if name in known})
    whole = ReconstructConfig(model=model.id, settings=settings, **config)
    return store.create("reconstruct", whole.model_dump(mode="json"), parents=[model.id])


def directly(model: Run, run: Run, target: Target | None = None) -> AttackOutcome:
    """The same attack without a store."""
    settings = ReconstructConfig.model_validate(run.config).settings
    return attack(target or Target.of(model_of(model).network, settings.objective), settings, Silent())


def stop_after(calls: int) -> tuple[StopFlag, Callable[[float | None, str], None]]:
    flag, heard = StopFlag(), []

    def listen(fraction: float | None, message: str) -> None:
        heard.append(fraction)
        flag.raised = len(heard) >= calls

    return flag, listen


def test_run_leaves_what_the_attack_finds(store: RunStore, tmp_path: Path) -> None:
    model = imported(store, tmp_path)
    run = asked(store, model, values={"seeds": 2})
    assert perform(run, StopFlag()) is RunState.DONE
    outcome = directly(model, run)
    found = run.tensors("candidates")
    assert found.keys() == {"candidates", "multipliers", "labels", "seeds"}
    for name, tensor in found.items():
        assert tensor.equal(getattr(outcome, name)), name
    assert found["candidates"].shape == (16, 1, 8, 8)
    for name, tensor in run.tensors("snapshots").items():
        assert tensor.equal(outcome.snapshots[name]), name
    result = run.result()
    assert result is not None
    assert result["residual"] == outcome.summary["residual"]
    assert (result["model"], result["baseline"], result["warning"]) == (model.id, None, None)
    rows = run.metrics()
    assert rows[0]["residual"] > rows[8]["residual"] > 0
    assert {"residual_layer1", "residual_layer2", "residual_layer3", "multiplier_median"} <= rows[0].keys()
    assert run.status().step == run.status().total == 81
    assert store.check() == []


@pytest.mark.parametrize("recipe", ["fast", "paper"])
@pytest.mark.parametrize("calls", [1, 4, 9, 13])
def test_stopped_and_resumed_run_ends_alike(store: RunStore, tmp_path: Path, calls: int, recipe: str) -> None:
    model = imported(store, tmp_path)
    run = asked(store, model, values={"seeds": 2, "recipe": recipe})
    stop, listener = stop_after(calls)
    assert perform(run, stop, listener) is RunState.CANCELLED
    assert "runs resume" in run.status().message
    assert run.result() is None
    live = run.tensors("snapshots")
    assert live["candidates"].shape == (1, 8, 1, 8, 8)
    assert perform(run, StopFlag()) is RunState.DONE
    outcome = directly(model, run)
    for name, tensor in run.tensors("candidates").items():
        assert tensor.equal(getattr(outcome, name)), name
    assert [row["step"] for row in run.metrics()] == [*range(0, 41, 5), *range(41, 82, 5)]


def test_crashed_run_goes_on_from_its_last_checkpoint(
    store: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recon_core.runs.observer.CHECKPOINT_SECONDS", 0.0)
    model = imported(store, tmp_path)
    run = asked(store, model, values={"seeds": 2})
    heard: list[str] = []

    def crash(fraction: float | None, message: str) -> None:
        heard.append(message)
        if len(heard) == 12:
            raise OSError("the machine caught fire")

    with pytest.raises(OSError, match="fire"):
        perform(run, StopFlag(), crash)
    assert run.status().state is RunState.FAILED
    again: list[str] = []
    assert perform(run, StopFlag(), lambda fraction, message: again.append(message)) is RunState.DONE
    assert again[0] == heard[10]  # the checkpoint before the crash, not the start
    assert run.tensors("candidates")["candidates"].equal(directly(model, run).candidates)


def test_asked_to_stop_from_outside(store: RunStore, tmp_path: Path) -> None:
    run = asked(store, imported(store, tmp_path), values={"iterations": 10**6, "measure_every": 20})
    said: list[str] = []

    def listen(fraction: float | None, message: str) -> None:
        said.append(message)
        if len(said) == 3:
            assert run.request_cancel()

    assert perform(run, StopFlag(), listen) is RunState.CANCELLED
    assert said[0].startswith("residual ")


def test_known_start_is_drawn_again(store: RunStore) -> None:
    model = trained(store)
    facts = model_of(model)
    assert facts.training is not None
    start = facts.initial()
    same = build_network(facts.architecture, init_scale=facts.training.model.init_scale, seed=5)
    for one, other in zip(start.parameters(), same.parameters(), strict=True):
        assert one.equal(other)
    run = asked(store, model, known_init=True)
    perform(run, StopFlag())
    assert run.tensors("candidates")["candidates"].equal(
        directly(model, run, Target.of(facts.network, Task.BINARY, start)).candidates
    )
    assert (run.result() or {})["known_init"] is True


def test_points_leave_their_path_and_the_stages(store: RunStore) -> None:
    model = trained(store)
    run = asked(store, model, values={"iterations": 30, "seeds": 2, "seed": 3})
    assert perform(run, StopFlag()) is RunState.DONE
    path, found, stages = run.tensors("snapshots"), run.tensors("candidates"), run.tensors("stages")
    assert path["candidates"].shape[1:] == (8, 2)
    assert stages["initial"].shape == (16, 2)
    assert stages["initial"][:8].equal(path["candidates"][0])
    assert stages["initial"][8:].equal(path["candidates"][path["steps"].tolist().index(31)])
    assert not stages["initial"][:8].equal(stages["initial"][8:])
    circle = (run.result() or {})["circle"]
    strong = found["multipliers"] >= circle["threshold"]
    assert stages["filtered"].equal(strong)
    assert circle["filtered"] == int(strong.sum()) > 0
    kept = found["candidates"][stages["deduplicated"]]
    assert circle["kept"] == len(kept)
    assert bool((torch.pdist(kept) >= 0.03).all())


def test_settings_follow_from_the_model(store: RunStore, tmp_path: Path) -> None:
    planar = model_of(trained(store))
    assert attack_settings(planar, {"recipe": "paper"}).prior == "off"
    assert attack_settings(planar, {"recipe": "paper", "prior": "linear"}).prior == "linear"
    assert attack_settings(planar, {"recipe": "copies"}).prior == "off"
    assert attack_settings(planar, {}).snapshots > 100
    images = model_of(imported(store, tmp_path, outputs=3))
    assert attack_settings(images, {"m": 7}).objective is Task.MULTICLASS
    assert attack_settings(images, {"alpha": 3}, preset={"recipe": "paper", "alpha": 150.0, "lam_min": 0.4}).alpha == 3
    assert attack_settings(images, {}, preset={"recipe": "paper", "lam_min": 0.4}).lam_min == 0.4


def test_several_classes_take_a_slower_pace_unless_told(store: RunStore, tmp_path: Path) -> None:
    several = model_of(imported(store, tmp_path, outputs=3))
    assert attack_settings(several, {}).pace == 0.05
    assert attack_settings(several, {"pace": 0.2}).pace == 0.2
    assert attack_settings(several, {"pace": None}).pace == 0.05
    assert not hasattr(attack_settings(several, {"recipe": "paper"}), "pace")  # which has no use for it
    with pytest.raises(InputError, match="pace is a setting of recipe fast and copies, got recipe paper; leave it out"):
        attack_settings(several, {"recipe": "paper", "pace": 0.1})
    assert attack_settings(model_of(trained(store)), {}).pace == 0.2


def test_regression_without_decay_is_warned_about_and_done(store: RunStore) -> None:
    model = trained(store, task="regression")
    run = asked(store, model, values={"m": 7})
    assert perform(run, StopFlag()) is RunState.DONE
    (said,) = [line for line in run.log_tail(50) if "without weight decay" in line]
    assert (run.result() or {})["warning"] in said
    facts = model_of(model)
    assert warning_for(facts, attack_settings(facts, {"objective": "binary"})) is None
    assert warning_for(AttackModel(facts.network), attack_settings(facts, {})) is None  # nobody knows


def test_divergence_fails_the_run_and_keeps_what_was_found(store: RunStore, tmp_path: Path) -> None:
    run = asked(store, imported(store, tmp_path), values={"lr_x": 1e8, "lr_lam": 1e8})
    assert perform(run, StopFlag()) is RunState.FAILED
    assert "diverged" in run.status().message
    assert torch.isfinite(run.tensors("candidates")["candidates"]).all()


def test_inversion_baseline(store: RunStore, tmp_path: Path) -> None:
    model = imported(store, tmp_path)
    run = asked(store, model, baseline="inversion", values={"seed": 4})
    stop, listener = stop_after(3)
    assert perform(run, stop, listener) is RunState.CANCELLED
    assert perform(run, StopFlag()) is RunState.DONE
    expected = invert(model_of(model).network, count=8, seed=4, steps=40)
    found = run.tensors("candidates")
    assert found["candidates"].equal(expected.candidates)
    assert found["outputs"].equal(expected.outputs)
    other = asked(store, model, baseline="inversion", inversion_ranges="reconstruction")
    perform(other, StopFlag())
    assert float(other.tensors("candidates")["sigmas"].min()) >= 1e-6


def test_weights_and_kernels_as_baselines(store: RunStore, tmp_path: Path) -> None:
    model = imported(store, tmp_path)
    run = asked(store, model, baseline="weights")
    assert perform(run, StopFlag()) is RunState.DONE
    first: Tensor = model_of(model).network.get_parameter("layers.0.weight")
    assert run.tensors("candidates")["candidates"].equal(first.reshape(10, 1, 8, 8))
    conv = AttackModel(build_network(Architecture((3, 8, 8), (5,), 1, BiasMode.FIRST, 3, 4), init_scale=0.1, seed=0))
    check_request(conv, ReconstructConfig(model="m", baseline=Baseline.KERNELS))
    with pytest.raises(InputError, match="dense first layer"):
        check_request(conv, ReconstructConfig(model="m", baseline=Baseline.WEIGHTS))
    with pytest.raises(InputError, match="needs a convolution"):
        check_request(model_of(model), ReconstructConfig(model="m", baseline=Baseline.KERNELS))


def test_untrained_baseline_attacks_the_start(store: RunStore) -> None:
    model = trained(store)
    run = asked(store, model, baseline="untrained")
    assert perform(run, StopFlag()) is RunState.DONE
    facts = model_of(model)
    network = untrained_network(facts.architecture, seed=5, init_scale=0.01)
    outcome = directly(model, run, Target.of(network, Task.BINARY))
    assert run.tensors("candidates")["candidates"].equal(outcome.candidates)


def test_import_says_what_it_inferred_and_is_found_again(store: RunStore, tmp_path: Path) -> None:
    model = imported(store, tmp_path)
    result = model.result() or {}
    assert Architecture.from_json(result["architecture"]) == Architecture((1, 8, 8), (10, 6), 1)
    assert any("(1, 8, 8)" in note for note in result["notes"])
    assert result["objective"] == "binary"
    assert "input_shape" in result["needs"]
    found = imported_before(store, tmp_path / "theirs.pth", None)
    assert found is not None
    assert found.id == model.id
    assert imported_before(store, tmp_path / "theirs.pth", (1, 8, 8)) is None
    with pytest.raises(InputError, match="initial weights of an imported checkpoint"):
        model_of(model).initial()


def test_model_must_be_there(store: RunStore, tmp_path: Path) -> None:
    model = imported(store, tmp_path)
    run = asked(store, model)
    with pytest.raises(InputError, match=r"is of kind 'reconstruct' and holds no model; give a run of kind train"):
        model_of(run)
    waiting = store.create("train", find_preset("circle").config().model_dump(mode="json"))
    with pytest.raises(InputError, match=r"is queued, so its model is not there yet"):
        model_of(waiting)
    with waiting.writer() as writer:
        writer.start(1)
        writer.finish(RunState.DONE, {"loss": 0.1})
    with pytest.raises(InputError, match=r"lacks its 'architecture', so its network is not known; train again"):
        model_of(waiting)


def test_broken_weights_of_a_run_are_said(store: RunStore) -> None:
    facts = model_of(trained(store))
    facts.network.get_parameter("layers.1.weight")[0, 0] = torch.inf
    with pytest.raises(InputError, match=r"layers\.1\.weight of the model has 1 of 240 values that are not finite"):
        check_request(facts, ReconstructConfig(model="m", settings=attack_settings(facts, QUICK)))


BLIND = """
import sys
class Blind:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[:2] in (["recon_core", "data"], ["recon_core", "matching"], ["recon_core", "training"]):
            raise ImportError(name + " is out of reach")
sys.meta_path.insert(0, Blind())
from recon_core.worker import main
codes = [main([folder]) for folder in sys.argv[1:]]
assert not [name for name in sys.modules if name.startswith(("recon_core.data", "torchvision"))]
sys.exit(max(codes))
"""


@pytest.mark.processes
def test_worker_attacks_without_the_code_that_reads_data(store: RunStore) -> None:
    model = trained(store)
    runs = [asked(store, model), asked(store, model, known_init=True), asked(store, model, baseline="inversion")]
    search = {"trials": 2, "attack": runs[0].config["settings"]}
    runs.append(store.create("search", {"model": model.id, "settings": search}, parents=[model.id]))
    refused = store.create("train", model.config)

    def blindly(*folders: Path) -> int:
        command = [sys.executable, "-c", BLIND, *map(str, folders)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, check=False).returncode

    assert blindly(*(run.dir for run in runs)) == 0
    assert {run.status().state for run in runs} == {RunState.DONE}
    assert blindly(refused.dir) != 0  # the blindfold works
    assert refused.status().state is not RunState.DONE
