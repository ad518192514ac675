"""What used to be a trace on the command line is a sentence."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from recon_core.config import DataConfig
from recon_core.data import load_task
from recon_core.errors import AfterimageError, InputError
from recon_core.runs import stopping_on_signals
from recon_core.runs.contents import fault_in
from recon_core.settings_text import read_values
from recon_core.store import RunState, RunStore, ZipLimits

Cli = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize("key", ["9" * 9_000, f"0x{'f' * 9_000}", f"-{'9' * 30}"])
def test_a_huge_whole_number_as_a_name_in_yaml(cli: Cli, tmp_path: Path, key: str) -> None:
    (tmp_path / "mine.yaml").write_text(f"? {key}\n: 1\n")
    code, _, said = cli("train", "--config", "mine.yaml", "--quiet")
    assert (code, said.count("\n")) == (2, 1), said
    with pytest.raises(InputError):
        read_values(f"a: {{? {key} : 1}}", "it")


@pytest.mark.parametrize(
    "command",
    [("runs", "list"), ("runs", "show", "train-1"), ("runs", "check"), ("runs", "import", "x.zip"), ("train", "-q")],
    ids=lambda words: words[1],
)
def test_a_store_with_a_name_too_long(cli: Cli, tmp_path: Path, command: tuple[str, ...]) -> None:
    other = RunStore(tmp_path / "other")
    other.export(other.create("train", {}).id, tmp_path / "x.zip")
    code, _, said = cli("--store", str(tmp_path / ("x" * 300)), *command)
    assert (code, said.count("\n")) == (2, 1), said


@pytest.mark.parametrize("command", [("runs", "list"), ("runs", "list", "--json"), ("presets",), ("--version",)])
def test_standard_output_on_a_full_device(own_store: Path, command: tuple[str, ...]) -> None:
    RunStore(own_store).create("train", {})
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "recon_core", *command], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert done.stderr == "error: standard output could not be written (No space left on device); send it elsewhere\n"


def test_less_memory_than_the_libraries_take() -> None:
    """Not a trace of Python's or the loader's, whichever of them comes to the limit first."""
    for megabytes in (300, 700):
        shell = f"ulimit -v {1024 * megabytes} && exec {sys.executable} -m recon_core train -s data.n=4 -s epochs=2"
        done = subprocess.run(["sh", "-c", shell], capture_output=True, check=False, text=True)
        assert done.returncode == 1
        assert done.stderr == (
            "error: not enough memory to load what this command needs; free some, or raise its limit (ulimit -v)\n"
        )


def test_a_run_folder_removed_under_its_worker(store: RunStore) -> None:
    run = store.create("train", {})
    with contextlib.suppress(AfterimageError), run.writer() as writer:
        writer.start(2)
        shutil.rmtree(run.dir)
        for write in (
            lambda: writer.checkpoint(1, {"w": torch.zeros(1)}, {}),
            lambda: writer.progress(1, force=True),
            lambda: writer.save_json("part", {}),
        ):
            with pytest.raises(AfterimageError, match="is gone"):
                write()
    assert not run.dir.exists()


# The tests themselves may have been started by nohup.
@pytest.mark.parametrize(("found", "heard"), [(signal.SIG_DFL, True), (signal.SIG_IGN, False)], ids=["shell", "nohup"])
def test_the_end_of_the_terminal_is_a_request_to_stop_except_under_nohup(found: signal.Handlers, heard: bool) -> None:
    before = signal.signal(signal.SIGHUP, found)
    try:
        with stopping_on_signals() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert stop.raised is heard
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_finished_run_has_nothing_to_stop(cli: Cli, store: RunStore) -> None:
    run = store.create("train", {})
    with run.writer() as writer:
        writer.start(1)
        writer.finish(RunState.DONE, {})
    assert cli("runs", "cancel", run.id)[:2] == (0, f"{run.id} is done already; there was nothing to stop\n")
    waiting = store.create("train", {})
    assert cli("runs", "cancel", waiting.id)[1] == f"asked {waiting.id} to stop\n"


def test_nobody_is_advised_to_load_pickles(tmp_path: Path) -> None:
    labels = np.array([{"a": 1}, None], dtype=object)
    np.savez(tmp_path / "x.npz", images=np.zeros((2, 8, 8, 3), np.uint8), labels=labels)
    with pytest.raises(InputError) as refused:
        load_task(DataConfig(source="npz", path=str(tmp_path / "x.npz"), n=2))
    assert "pickle" not in str(refused.value)


def test_metrics_may_be_larger_than_other_texts(store: RunStore, tmp_path: Path) -> None:
    """Two million rows are some 200 MB, and are read line by line."""
    assert ZipLimits().metrics_bytes >= 2_000_000 * 200
    run = store.create("train", {"data": {"source": "circle", "n": 8}, "training": {"epochs": 2}})
    with run.writer() as writer:
        writer.start(1)
        for step in range(1000):
            writer.metrics({"step": step, "loss": 1 / (step + 1)})
        writer.finish(RunState.CANCELLED, None)
    archive = store.export(run.id, tmp_path)
    [arrived] = RunStore(tmp_path / "other").import_zip(archive, limits=ZipLimits(text_bytes=4_000), judge=fault_in)
    assert arrived.imported is not None
    assert arrived.imported.fault == ""
    assert len(arrived.metrics()) == 1000
    with pytest.raises(InputError, match="more than 20000"):
        RunStore(tmp_path / "third").import_zip(archive, limits=ZipLimits(metrics_bytes=20_000))
