"""From a shell: import, reconstruct, baselines, search; what is printed, what repeats it, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from recon_core.config import BiasMode
from recon_core.models import Architecture, build_network
from recon_core.presets import Size, find_preset
from recon_core.store import Run, RunState, RunStore

QUICK = ["--recipe", "paper", "--set", "engine=closed", "--set", "dtype=float32", "--set", "iterations=20",
         "--set", "device=cpu", "--m", "6"]  # fmt: skip


@pytest.fixture
def model(cli) -> str:
    code, out, _ = cli("train", "--preset", "circle", "--set", "widths=20,12", "--set", "epochs=20", "--quiet")
    assert code == 0
    return out.strip()


def weights(shape: tuple[int, ...] = (3, 8, 8), outputs: int = 1, conv: bool = False) -> dict[str, torch.Tensor]:
    kernel = (3, 4) if conv else (None, None)
    return build_network(
        Architecture(shape, (10, 6), outputs, BiasMode.FIRST, *kernel), init_scale="kaiming", seed=1
    ).state_dict()


def same_candidates(one: Run, other: Run) -> None:
    theirs = other.tensors("candidates")
    for name, tensor in one.tensors("candidates").items():
        assert tensor.equal(theirs[name]), name


def test_reconstruct_says_what_it_found_and_can_be_repeated(cli, model: str, store: RunStore) -> None:
    code, out, _ = cli("reconstruct", "--model", model, *QUICK, "--seeds", "2", "--known-init", "--name", "back")
    assert code == 0
    (summary,) = store.list("reconstruct")
    run = store.open(summary.id)
    assert (run.name, run.parents) == ("back", (model,))
    result = run.result() or {}
    assert f"{run.id}: finished all iterations" in out
    assert f"relative KKT residual {result['residual']:.4f}; layer by layer {result['residual_layer1']:.4f}, " in out
    assert f"python -m recon_core match {run.id}" in out
    assert "12 candidates" in out
    assert run.config["known_init"] is True
    assert run.config["settings"]["seeds"] == 2

    code, out, _ = cli(*run.command[3:], "--quiet")
    again = store.open(out.strip())
    assert again.config == run.config
    same_candidates(run, again)
    repeated = store.open(cli("runs", "repeat", run.id, "-q")[1].strip())
    same_candidates(run, repeated)
    assert cli("runs", "show", run.id)[0] == 0
    assert store.check() == []


def test_fast_is_the_default(cli, model: str, store: RunStore) -> None:
    code, out, _ = cli("reconstruct", "--model", model, "--m", "8", "--set", "iterations=5", "-q")
    assert code == 0
    run = store.open(out.strip())
    assert run.config["settings"]["recipe"] == "fast"
    assert run.tensors("candidates")["candidates"].shape == (8, 2)


def test_options_win_over_the_preset(cli, model: str, store: RunStore) -> None:
    arguments = ["--preset", "mnist-a", "--set", "iterations=3", "--m", "4", "--set", "lam_min=0.2", "-q"]
    settings = store.open(cli("reconstruct", "--model", model, *arguments)[1].strip()).config["settings"]
    assert (settings["recipe"], settings["alpha"], settings["lr_x"]) == ("paper", 150.0, 0.0305)
    assert (settings["lam_min"], settings["m"], settings["iterations"]) == (0.2, 4, 3)


@pytest.mark.parametrize("name", ["theirs.pth", "theirs.safetensors"])
def test_file_is_taken_in_once_and_explained(cli, store: RunStore, name: str) -> None:
    if name.endswith("pth"):
        torch.save({f"module.{key}": value.double() for key, value in weights().items()}, name)
    else:
        save_file(weights(), name)
    code, out, err = cli("reconstruct", "--model", name, *QUICK)
    assert code == 0
    assert "match" not in out  # its training images are not known
    assert "3x8x8-10-6-1" in err
    assert "taken to be of shape (3, 8, 8)" in err
    assert "One output is taken to be a binary classifier" in err
    assert cli("reconstruct", "--model", name, *QUICK, "-q")[0] == 0
    (taken,) = store.list("model")
    first, second = (store.open(summary.id) for summary in store.list("reconstruct"))
    assert first.parents == second.parents == (taken.id,)
    same_candidates(first, second)


def test_import_model(cli, store: RunStore) -> None:
    torch.save(weights((1, 4, 12)), "odd.pth")
    code, out, err = cli("import-model", "odd.pth", "--input-shape", "1,4,12", "--name", "theirs")
    assert code == 0, err
    (summary,) = store.list("model")
    run = store.open(summary.id)
    assert run.name == "theirs"
    assert (run.result() or {})["architecture"]["input_shape"] == [1, 4, 12]
    assert "1x4x12-10-6-1" in out
    assert f"next: python -m recon_core reconstruct --model {run.id}" in out
    assert cli("reconstruct", "--model", run.id, *QUICK, "-q")[0] == 0
    assert cli("runs", "repeat", run.id, "-q")[0] == 0


@pytest.mark.parametrize(
    ("kind", "options", "count"),
    [
        ("inversion", ["--m", "6", "--set", "iterations=10", "--ranges", "reconstruction"], 6),
        ("weights", [], 20),
        ("untrained", QUICK, 6),
    ],
)
def test_baselines(cli, model: str, store: RunStore, kind: str, options: list[str], count: int) -> None:
    code, out, _ = cli("baseline", model, "--kind", kind, *options)
    assert code == 0
    (summary,) = store.list("reconstruct")
    run = store.open(summary.id)
    assert run.config["baseline"] == kind
    assert f"{count} candidates of {kind}" in out
    assert len(run.tensors("candidates")["candidates"]) == count
    again = store.open(cli(*run.command[3:], "-q")[1].strip())
    assert again.config == run.config
    same_candidates(run, again)


def test_kernels_of_a_convolution(cli, store: RunStore) -> None:
    torch.save(weights((3, 28, 28), conv=True), "conv.pth")
    code, out, _ = cli("baseline", "conv.pth", "--kind", "kernels", "-q")
    assert code == 0
    assert store.open(out.strip()).tensors("candidates")["candidates"].shape == (4, 3, 3, 3)
    code, _, err = cli("reconstruct", "--model", "conv.pth", *QUICK)
    assert code == 2
    assert "engine closed needs a dense network" in err


def test_search_is_one_command(cli, model: str, store: RunStore) -> None:
    options = ["--trials", "3", "--sampler", "halving", "--iterations", "16", "--m", "4", "--set", "device=cpu"]
    code, out, _ = cli("search", "--model", model, *options)
    assert code == 0
    (summary,) = store.list("search")
    run = store.open(summary.id)
    settings = run.config["settings"]
    assert (settings["attack"]["recipe"], settings["attack"]["engine"], settings["sampler"]) == (
        "paper",
        "closed",
        "halving",
    )
    assert "finished all 3 trials" in out
    assert "best: trial" in out
    again = store.open(cli(*run.command[3:], "-q")[1].strip())
    assert again.config == run.config
    same_candidates(run, again)
    assert json.loads(cli("runs", "show", run.id, "--json")[1])["result"]["trials"] == 3


def test_regression_without_decay_is_warned_about(cli, store: RunStore) -> None:
    values = ["--set", "task=regression", "--set", "widths=20,12", "--set", "epochs=5"]
    model = cli("train", "--preset", "circle", "--set", "recipe=paper", *values, "-q")[1].strip()
    code, _, err = cli("reconstruct", "--model", model, *QUICK)
    assert code == 0
    assert "warning: " in err
    assert "without weight decay" in err
    (summary,) = store.list("reconstruct")
    assert any("without weight decay" in line for line in store.open(summary.id).log_tail(50))


def _broken_files() -> None:
    torch.save(weights(), "good.pth")
    torch.save(weights(outputs=3), "three.pth")
    hurt = weights()
    hurt["layers.1.weight"][2, 3] = torch.nan
    torch.save(hurt, "nan.pth")
    Path("empty.pth").write_bytes(b"")
    Path("cut.pth").write_bytes(Path("good.pth").read_bytes()[:900])
    save_file(weights(), "whole.safetensors")
    Path("cut.safetensors").write_bytes(Path("whole.safetensors").read_bytes()[:-40])
    Path("folder.pth").mkdir()


PAPER = ["--recipe", "paper"]
BAD_INPUT: dict[str, tuple[list[str], str]] = {
    "nan weights": (["reconstruct", "--model", "nan.pth"], "layers.1.weight"),
    "nan weights, import": (["import-model", "nan.pth"], "NaN"),
    "m odd": (["reconstruct", "--model", "good.pth", "--m", "7"], "even"),
    "m 0": (["reconstruct", "--model", "good.pth", "--m", "0"], "m must be greater than or equal to 1, got 0"),
    "m below classes": (["reconstruct", "--model", "three.pth", "--m", "2"], "number of classes 3"),
    "alpha 0": (["reconstruct", "--model", "good.pth", "-s", "alpha=0"], "alpha must be greater than 0"),
    "alpha negative": (["reconstruct", "--model", "good.pth", "-s", "alpha=-3"], "'-3'"),
    "shape": (["reconstruct", "--model", "good.pth", "--input-shape", "3,9,9"], "192"),
    "shape is a word": (["import-model", "good.pth", "--input-shape", "3x8x8"], "3x8x8"),
    "shape of a run": (["reconstruct", "--model", "RUN", "--input-shape", "2"], "--input-shape goes with a file"),
    "multiclass on one": (["reconstruct", "--model", "good.pth", "-s", "objective=multiclass"], "2 or more outputs"),
    "binary on three": (["reconstruct", "--model", "three.pth", "-s", "objective=binary"], "one output, got 3"),
    "empty file": (["reconstruct", "--model", "empty.pth"], "empty"),
    "truncated": (["reconstruct", "--model", "cut.pth"], "cut.pth"),
    "truncated safetensors": (["import-model", "cut.safetensors"], "cut.safetensors"),
    "no such file": (["reconstruct", "--model", "nowhere.pth"], "nowhere.pth"),
    "folder": (["reconstruct", "--model", "folder.pth"], "folder.pth"),
    "no such run": (["reconstruct", "--model", "train-20000101-aaaaaa"], "train-20000101-aaaaaa"),
    "not done": (["reconstruct", "--model", "WAITING"], "queued"),
    "wrong kind": (["reconstruct", "--model", "MATCH"], "of kind 'match'"),
    "recipe": (
        ["reconstruct", "--model", "good.pth", "--recipe", "slow"],
        "recipe must be 'fast', 'copies' or 'paper'",
    ),
    "preset": (["reconstruct", "--model", "good.pth", "--preset", "mnist"], "mnist-a"),
    "preset and recipe": (["reconstruct", "--model", "good.pth", "-p", "mnist-a", "--recipe", "fast"], "leave one"),
    "key": (["reconstruct", "--model", "good.pth", "-s", "alfa=3"], "alfa"),
    "not a setting": (["reconstruct", "--model", "good.pth", "-s", "alpha"], "key=value"),
    "layer weights": (["reconstruct", "--model", "good.pth", *PAPER, "-s", "layer_weights=1,2"], "3 values"),
    "known init of a file": (["reconstruct", "--model", "good.pth", "--known-init"], "--known-init"),
    "baseline kind": (["baseline", "good.pth", "--kind", "magic"], "'magic'"),
    "baseline ranges": (["baseline", "good.pth", "--kind", "inversion", "--ranges", "mine"], "'mine'"),
    "inversion m": (["baseline", "good.pth", "--kind", "inversion", "--m", "5", "-s", "objective=regression"], "even"),
    "kernels": (["baseline", "good.pth", "--kind", "kernels"], "needs a convolution"),
    "search sampler": (["search", "--model", "good.pth", "--sampler", "grid"], "'grid'"),
    "search trials": (["search", "--model", "good.pth", "--trials", "0"], "trials"),
    "search m": (["search", "--model", "good.pth", "--m", "5"], "even"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_one_sentence_and_writes_nothing(cli, store: RunStore, case: str) -> None:
    _broken_files()
    arguments, named = BAD_INPUT[case]
    made: dict[str, Any] = {}
    if "WAITING" in arguments:
        made["WAITING"] = store.create("train", find_preset("circle").config(Size.QUICK).model_dump(mode="json")).id
    if "MATCH" in arguments:
        made["MATCH"] = store.create("match", {}).id
    if "RUN" in arguments:
        made["RUN"] = cli("import-model", "good.pth", "-q")[1].strip()
    code, _, err = cli(*(made.get(word, word) for word in arguments))
    assert code == 2
    assert named in err
    assert len(err.strip().splitlines()) == 1
    assert {summary.id for summary in store.list()} == set(made.values())
    assert all(summary.status.state is not RunState.RUNNING for summary in store.list())
