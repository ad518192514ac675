"""Imported runs against the types that write them: one that makes no sense costs one row, which says so."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from recon_core.kinds import KINDS, import_zip, perform
from recon_core.runs import StopFlag
from recon_core.runs.contents import CONTENTS, checked_result, fault_in
from recon_core.runs.keys import RunIndex
from recon_core.store import Run, RunState, RunStore
from recon_core.store.tensors import write_tensors
from recon_core.views.leak_view import model_index

CONFIG = {"data": {"source": "circle", "n": 8}, "model": {"widths": [6]}, "training": {"epochs": 2}}
Change = Callable[[dict[str, Any]], Any]


@pytest.fixture(scope="module")
def sender(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunStore, Run]:
    store = RunStore(tmp_path_factory.mktemp("theirs") / "runs")
    run = store.create("train", CONFIG)
    assert perform(run, StopFlag()) is RunState.DONE
    return store, run


def zipped(sender: tuple[RunStore, Run], target: Path, **files: bytes) -> Path:
    """The run with some of its files exchanged."""
    store, run = sender
    whole = store.export(run.id, target.with_suffix(".whole"))
    changed = {f"{run.id}/{name.replace('__', '.')}": content for name, content in files.items()}
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in source.namelist():
            archive.writestr(name, changed.pop(name) if name in changed else source.read(name))
        for name, content in changed.items():
            archive.writestr(name, content)
    return target


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


WRONG: dict[str, Change] = {
    "architecture is a number": lambda result: result.update(architecture=7),
    "architecture is empty": lambda result: result.update(architecture={}),
    "widths are text": lambda result: result["architecture"].update(widths="wide"),
    "a width of 2**80": lambda result: result["architecture"].update(widths=[2**80]),
    "a bias nobody knows": lambda result: result["architecture"].update(bias="sideways"),
    "no data": lambda result: result.pop("data"),
    "data is a list": lambda result: result.update(data=[]),
    "class names are numbers": lambda result: result["data"].update(class_names=[1, 2]),
    "input shape is deep": lambda result: result["data"].update(input_shape=[[2]]),
    "n is text": lambda result: result.update(n="many"),
    "no count on the margin": lambda result: result.pop("on_margin"),
    "n is negative": lambda result: result.update(n=-1),
    "an error that is an object": lambda result: result.update(train_error={"x": 1}),
    "a loss that is text": lambda result: result.update(log_loss="low"),
    "a reason of a megabyte": lambda result: result.update(reason="x" * 2**20),
    "nested": lambda result: result.update(extra=nested(200)),
}


def assert_one_row(store: RunStore, run_id: str, about: str) -> None:
    sound = store.create("train", CONFIG)
    perform(sound, StopFlag())
    rows = {summary.id: summary.status for summary in RunStore(store.root).list()}
    assert rows[run_id].state is RunState.FAILED
    assert "makes no sense" in rows[run_id].message
    assert about in rows[run_id].message
    assert [entry.run for entry in model_index(store)] == [sound.id]
    RunIndex(store)


@pytest.mark.parametrize("wrong", WRONG)
def test_a_result_that_makes_no_sense(
    sender: tuple[RunStore, Run], store: RunStore, tmp_path: Path, wrong: str
) -> None:
    result = sender[1].result() or {}
    WRONG[wrong](result)
    [run] = import_zip(store, zipped(sender, tmp_path / "x.zip", result__json=json.dumps(result).encode()))
    assert_one_row(store, run.id, "result.json")


@pytest.mark.parametrize(
    "config",
    [
        {"model": 7},
        {"data": nested(60)},
        {**CONFIG, "training": {"epochs": nested(500)}},
        {f"section{number}": {"a": 1} for number in range(3000)},
        {**CONFIG, "device": ["cpu"]},
    ],
    ids=["number", "nested", "nested deeply", "3000 sections", "list"],
)
def test_a_config_that_makes_no_sense(
    sender: tuple[RunStore, Run], store: RunStore, tmp_path: Path, config: dict[str, Any]
) -> None:
    [run] = import_zip(store, zipped(sender, tmp_path / "x.zip", config__json=json.dumps(config).encode()))
    assert_one_row(store, run.id, "")


@pytest.mark.parametrize(
    "row",
    [
        '{"step": 1, "margin_levels": [1180591620717411303424]}',
        '{"step": "x"}',
        '{"step": 1, "log_loss": {}}',
        '{"step": 1, "loss": "low"}',
    ],
)
def test_metrics_that_make_no_sense(sender: tuple[RunStore, Run], store: RunStore, tmp_path: Path, row: str) -> None:
    [run] = import_zip(store, zipped(sender, tmp_path / "x.zip", metrics__jsonl=f"{row}\n".encode()))
    assert_one_row(store, run.id, "line 1 of metrics.jsonl")


@pytest.mark.parametrize(
    "samples", [{"margins": torch.zeros(8)}, {"outputs": torch.zeros(8, 1), "on_margin": torch.zeros(3)}, {}]
)
def test_samples_that_make_no_sense(
    sender: tuple[RunStore, Run], store: RunStore, tmp_path: Path, samples: dict[str, torch.Tensor]
) -> None:
    write_tensors(tmp_path / "samples.safetensors", samples, {})
    content = (tmp_path / "samples.safetensors").read_bytes()
    [run] = import_zip(store, zipped(sender, tmp_path / "x.zip", samples__safetensors=content))
    assert_one_row(store, run.id, "samples.safetensors")


def test_the_command_line_says_so_at_once(
    cli: Callable[..., tuple[int, str, str]], sender: tuple[RunStore, Run], tmp_path: Path
) -> None:
    result = {**(sender[1].result() or {}), "architecture": 7}
    archive = zipped(sender, tmp_path / "x.zip", result__json=json.dumps(result).encode())
    code, out, said = cli("runs", "import", str(archive))
    assert code == 0
    assert f"{out.strip()}: it was imported and makes no sense: result.json: architecture" in said
    assert "failed (imported)" in cli("runs", "list")[1]


def test_what_is_sound_stays_what_it_is(sender: tuple[RunStore, Run], store: RunStore, tmp_path: Path) -> None:
    [run] = import_zip(store, zipped(sender, tmp_path / "x.zip"))
    assert run.status().state is RunState.DONE
    assert fault_in(run.dir) == ""
    assert checked_result("train", run.result() or {}) == run.result()


def test_every_kind_says_what_it_writes() -> None:
    from recon_core.studies import contents  # noqa: F401 - says what searches and studies write

    assert CONTENTS.keys() == KINDS.keys()


def test_runs_of_version_0_1_0_make_sense(tmp_path: Path) -> None:
    from recon_core.studies import contents  # noqa: F401 - says what searches write

    with zipfile.ZipFile(Path(__file__).parents[1] / "store" / "store_0_1_0.zip") as archive:
        archive.extractall(tmp_path)
    folders = [path.parent for path in tmp_path.glob("*/run.json")]
    assert len(folders) > 3
    assert [fault_in(folder) for folder in folders] == [""] * len(folders)
