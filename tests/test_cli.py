"""The command line as a person uses it: real processes where time matters, sentences where input is bad."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from recon_core.store import RunState, RunStore
from recon_core.studies.catalogue import CATALOGUE
from tests.processes import wait_for

PROJECT = Path(__file__).parents[1]
SMALL = ["--preset", "circle", "--set", "widths=40,30", "--set", "epochs=30"]


def test_a_run_is_trained_listed_shown_repeated_and_exported(cli, tmp_path: Path) -> None:
    code, out, _ = cli("train", *SMALL, "--name", "my circle", "--quiet")
    assert code == 0
    run_id = out.strip()
    assert "my circle" in cli("runs", "list")[1]
    shown = json.loads(cli("runs", "show", run_id, "--json")[1])
    assert shown["status"]["state"] == "done"
    assert shown["result"]["steps"] == 30
    assert shown["config"]["model"]["widths"] == [40, 30]
    assert {"on_margin", "kkt_layer1", "test_error", "margin_min", "device"} <= shown["result"].keys()

    store = RunStore(tmp_path / "runs")
    weights = store.open(run_id).tensors("weights")
    # The stored command and `runs repeat` both make the very same network.
    code, out, _ = cli(*shown["command"].split()[3:], "--quiet")
    again = store.open(out.strip()).tensors("weights")
    repeated = store.open(cli("runs", "repeat", run_id, "-q")[1].strip()).tensors("weights")
    for name, tensor in weights.items():
        assert tensor.equal(again[name])
        assert tensor.equal(repeated[name])

    code, out, _ = cli("runs", "export", run_id, "--to", "out.zip")
    assert code == 0
    assert Path("out.zip").is_file()
    assert cli("runs", "delete", run_id)[0] == 0
    assert cli("runs", "import", "out.zip")[1].strip() == run_id
    assert cli("runs", "rename", run_id, "renamed")[0] == 0
    assert "renamed" in cli("runs", "list")[1]
    assert cli("runs", "check")[0] == 0


def test_a_config_file_is_a_base_for_settings(cli, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("model: {widths: [20, 10]}\ntraining: {epochs: 5}\n")
    code, out, _ = cli("train", "-p", "circle", "--config", "mine.yaml", "--set", "epochs=7", "-q")
    assert code == 0
    config = RunStore(tmp_path / "runs").open(out.strip()).config
    assert config["model"]["widths"] == [20, 10]
    assert config["training"]["epochs"] == 7


def _mixed_folder(folder: Path) -> None:
    for name, side in (("a", 8), ("b", 9)):
        (folder / "mixed" / name).mkdir(parents=True)
        for index in range(2):
            Image.new("L", (side, side), index * 90).save(folder / "mixed" / name / f"{index}.png")


def _npz(folder: Path) -> None:
    images = np.random.default_rng(0).random((8, 6, 6))
    np.savez(folder / "bare.npz", pictures=images)
    images[3, 2, 2] = np.nan
    np.savez(folder / "nan.npz", images=images, labels=np.arange(8) % 2)


BAD_INPUT = {
    "odd n": (["--set", "data.n=7"], "7"),
    "too many": (["--set", "data.n=5000"], "5000"),
    "one class": (["--set", "partition=0|0"], "0"),
    "mixed sizes": (["--set", "source=folder", "--set", "path=mixed", "--set", "data.n=2"], "8x8"),
    "nan pixels": (["--set", "source=npz", "--set", "path=nan.npz", "--set", "data.n=4"], "NaN"),
    "no arrays": (["--set", "source=npz", "--set", "path=bare.npz", "--set", "data.n=4"], "images"),
    "unknown preset": (["--preset", "cifar10-51"], "cifar10-50"),
    "unknown key": (["--set", "data.m=4"], "data.m"),
    "unknown group": (["--set", "dota.n=4"], "dota"),
    "ambiguous key": (["--set", "seed=4"], "model.seed"),
    "not a setting": (["--set", "n"], "key=value"),
    "width 0": (["--set", "widths=100,0"], "got 0"),
    "negative decay": (["--set", "weight_decay=-1"], "-1"),
    "word for a number": (["--set", "epochs=many"], "many"),
    "kernel too large": (["--set", "conv_kernel=33", "--set", "conv_channels=4"], "32"),
    "device": (["--set", "device=tpu"], "tpu"),
    "missing file": (["--config", "nowhere.json"], "nowhere.json"),
    "loss of another task": (["--set", "loss=l2", "--set", "recipe=paper"], "logistic"),
    "flow with decay": (["--set", "recipe=flow", "--set", "weight_decay=0.1"], "stationary"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_one_sentence_and_writes_nothing(cli, tmp_path: Path, case: str) -> None:
    _mixed_folder(tmp_path)
    _npz(tmp_path)
    arguments, named = BAD_INPUT[case]
    code, _, err = cli("train", *arguments)
    assert code == 2
    assert named in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("run_id", ["train-20000101-aaaaaa", "../outside", "/etc", "a b", ""])
@pytest.mark.parametrize("verb", ["show", "resume", "export", "delete", "cancel", "repeat"])
def test_a_run_that_is_not_there(cli, tmp_path: Path, verb: str, run_id: str) -> None:
    code, _, err = cli("runs", verb, run_id)
    assert code == 2
    assert run_id in err
    assert not (tmp_path / "runs").exists()


def test_an_empty_store_says_what_to_do(cli) -> None:
    assert "train --preset" in cli("runs", "list")[1]


LONG = ["train", "--preset", "circle", "--set", "recipe=paper", "--set", "epochs=1000000000", "--set", "widths=60,60"]


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A training run that would take hours, in a process of its own; gone after the test, whatever happened."""
    environment = {**os.environ, "AFTERIMAGE_STORE": str(tmp_path / "runs"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "recon_core", *LONG]
    pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, cwd=PROJECT, text=True, **pipes) as started:
        try:
            yield started
        finally:
            started.kill()


def _wait_for_steps(store: RunStore, process: subprocess.Popen[str]) -> str:
    def is_training() -> bool:
        assert process.poll() is None, f"the run never got going: {process.communicate()}"
        return any(run.status.step > 0 for run in store.list())

    wait_for(is_training, what="a first step")
    return store.list()[0].id


@pytest.mark.processes
def test_ctrl_c_leaves_a_resumable_run(cli, process: subprocess.Popen[str], tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    run_id = _wait_for_steps(store, process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "runs resume" in err
    stopped = store.open(run_id).status()
    assert stopped.state is RunState.CANCELLED
    assert store.check() == []
    # Taken up again by the worker, it goes on from there; asked to stop, it does.
    run = store.open(run_id)
    with subprocess.Popen([sys.executable, "-m", "recon_core.worker", str(run.dir)], cwd=PROJECT) as worker:
        try:
            wait_for(lambda: run.status().step > stopped.step, what="another step")
            assert cli("runs", "cancel", run_id)[0] == 0
            assert worker.wait(timeout=120) == 1
        finally:
            worker.kill()
    assert run.status().state is RunState.CANCELLED


@pytest.mark.processes
def test_a_killed_run_shows_as_interrupted(process: subprocess.Popen[str], tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    run_id = _wait_for_steps(store, process)
    process.kill()
    process.communicate(timeout=120)
    assert store.open(run_id).status().state is RunState.INTERRUPTED
    assert [problem.run_id for problem in store.check()] == [run_id]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["train", "--size", "big"], "error: --size must be 'quick' or 'paper', got 'big'"),
        (["match", "match-1", "--threshold", "x"], "error: --threshold must be a valid number, got 'x'"),
        (["match", "match-1", "-B", "x"], "error: --merge-factor must be a valid number, got 'x'"),
        (["dashboard", "--port", "99999"], "error: --port must be less than or equal to 65535, got '99999'"),
        (["train", "--set", "n=abc"], "error: data.n must be a valid integer, got 'abc'"),
        (["reconstruct"], "error: missing option '--model'; see "),
        (["trian"], "error: no such command 'trian'; did you mean 'train'?"),
        (["train", "--nope"], "error: no such option: --nope (Possible options: --name); see "),
        (["runs", "show", "a", "b"], "error: too many arguments: (b); see "),
    ],
)
def test_a_fault_of_the_command_line_is_one_sentence_with_value_and_fix(
    cli, arguments: list[str], sentence: str
) -> None:
    code, out, err = cli(*arguments)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert err.startswith(sentence)


def test_no_command_shows_the_help(cli) -> None:
    code, out, err = cli()
    assert code == 2
    assert "Usage:" in out + err
    assert "error:" not in out + err


def test_studies_are_listed_whole_on_a_narrow_terminal(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    listed = cli("study", "--list")[1]
    assert "…" not in listed
    assert all(f"{name} " in listed for name in CATALOGUE)


def test_help_wraps_at_the_terminal_only(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    shown = cli("train", "--help")[1]
    assert "Ctrl-C leaves a run that `runs resume` continues." in shown
