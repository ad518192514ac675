"""Run zips made to hurt: each is refused with a sentence or costs one row, and nothing outside the store changes."""

from __future__ import annotations

import csv
import io
import json
import os
import random
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from recon_core.analysis.frames import csv_text
from recon_core.errors import InputError
from recon_core.kinds import import_zip, perform
from recon_core.runs import StopFlag
from recon_core.runs.keys import RunIndex
from recon_core.runs.terminal import one_line, visible
from recon_core.store import RunState, RunStore, layout
from recon_core.views.leak_view import analysed_runs, model_index

SEED = 20261118
PER_KIND = 40
CONFIG = {"data": {"source": "circle", "n": 8}, "model": {"widths": [6]}, "training": {"epochs": 2}}
FILES = (layout.CONFIG, layout.RESULT, layout.STATUS, layout.RUN, layout.METRICS, layout.NAME, layout.LOG)
ESCAPES = [
    "\x1b[2J",
    "\x1b]0;x\x07",
    "\x9b31m",
    "\r",
    "\x08",
    "\u202e",
    "\u2028",
    "\x00",
    "\x7f",
    "\ud800",
    "\x1bP+q\x1b\\",
]
ODD: list[Any] = [
    None, True, -1, 0, 2**70, 1e308, float("nan"), float("inf"), "", "x" * 5000, "../../etc", "=1+1", "<script>", [],
    {}, [[]], [1, "a"], {"a": {"b": []}}, "ray://203.0.113.7:1", "sqlite:////tmp/x", *ESCAPES,
]  # fmt: skip


@pytest.fixture(autouse=True)
def no_syncing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of the time of a small import; no test here is about power cuts."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a sound run, by name in its zip."""
    store = RunStore(tmp_path_factory.mktemp("theirs") / "runs")
    run = store.create("train", CONFIG, name="theirs")
    assert perform(run, StopFlag()) is RunState.DONE
    with zipfile.ZipFile(store.export(run.id, store.root.parent)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a JSON value, as its holder and key."""
    waiting = [value]
    for holder in waiting:  # grows while it is walked
        for key, part in list(holder.items() if isinstance(holder, dict) else enumerate(holder)):
            yield holder, key
            if isinstance(part, dict | list) and len(waiting) < 200:
                waiting.append(part)


def mutated(content: bytes, chance: random.Random) -> bytes:
    """One to three values of a JSON file (or of its first line) replaced, removed or added."""
    first, _, rest = content.partition(b"\n")
    lines = not content.startswith(b"{\n")
    value = json.loads(first if lines else content)
    for _ in range(chance.randint(1, 3)):
        holder, key = chance.choice(list(places(value)) or [(value, "x")])
        if isinstance(holder, dict) and chance.random() < 0.2:
            holder.pop(key, None)
        elif isinstance(holder, dict) and chance.random() < 0.2:
            holder[chance.choice(["x", "cluster", "__proto__", "\x1b[2J", "a" * 300])] = chance.choice(ODD)
        else:
            holder[key] = chance.choice(ODD)
    written = json.dumps(value).encode()
    return written + b"\n" + rest if lines else written


def assert_harmless(store: RunStore, folder: Path, archive: Path) -> None:
    before = {path.name for path in folder.iterdir()}
    refusal = ""
    try:
        arrived = import_zip(store, archive)
    except InputError as error:
        refusal, arrived = str(error), []
    assert len(refusal) < 2000
    assert {path.name for path in folder.iterdir()} - before <= {store.root.name}
    for row in store.list():
        assert not set("\x1b\x9b\x07\x00") & set(one_line(row.status.message))
    analysed_runs(store)
    model_index(store)
    RunIndex(store)
    for run in arrived:
        assert run.imported is not None
        assert run.config.get("cluster") is None
        assert run.command == ()
        store.delete(run.id)


@pytest.mark.parametrize("name", FILES)
def test_files_of_a_run_with_anything_in_them(tmp_path: Path, parts: dict[str, bytes], name: str) -> None:
    chance, store = random.Random(f"{SEED}{name}"), RunStore(tmp_path / "store")
    for number in range(PER_KIND):
        archive = tmp_path / f"{number}.zip"
        with zipfile.ZipFile(archive, "w") as written:
            for entry, content in parts.items():
                if entry.endswith(f"/{name}"):
                    plain = name == layout.LOG
                    content = (
                        "".join(chance.choices(ESCAPES, k=9)).encode(errors="replace")
                        if plain
                        else mutated(content, chance)
                    )
                written.writestr(entry, content)
        assert_harmless(store, tmp_path, archive)
        archive.unlink()


def test_names_in_zips(tmp_path: Path, parts: dict[str, bytes]) -> None:
    chance, store = random.Random(SEED), RunStore(tmp_path / "store")
    for number in range(PER_KIND):
        archive = tmp_path / f"{number}.zip"
        with zipfile.ZipFile(archive, "w") as written:
            for entry, content in parts.items():
                bad = chance.choice(
                    ["../", "/", "..\\", "a/../../", "\x1b[2J", "C:", "~/", ".queue/", ".cache/", "x" * 300]
                )
                turned = zipfile.ZipInfo(f"{bad}{entry}" if chance.random() < 0.2 else entry)
                if chance.random() < 0.1:
                    turned.external_attr = chance.choice([0o120777, 0o020666, 0o010644, 0o140777]) << 16
                written.writestr(turned, content)
        assert_harmless(store, tmp_path, archive)
        archive.unlink()


def test_no_sequence_reaches_a_terminal() -> None:
    chance = random.Random(SEED)
    for _ in range(200):
        text = "".join(chance.choice([*ESCAPES, "a", " ", "\n", chr(chance.randrange(0x300))]) for _ in range(40))
        for shown in (visible(text), one_line(text)):
            assert all(
                letter in "\n\t" or letter.isprintable() or letter in "\ufffd\u00a0\u00ad" for letter in shown
            ), repr(shown)
        assert "\n" not in one_line(text)


def test_no_table_holds_a_formula() -> None:
    chance = random.Random(SEED)
    for _ in range(100):
        cells = ["".join(chance.choice("=+-@\t\r\n \"',;a1") for _ in range(chance.randint(1, 8))) for _ in range(6)]
        frame = pd.DataFrame({"a": cells[:3], "b": cells[3:], "n": [-1, 2.5, 3]})
        for row in csv.reader(io.StringIO(csv_text(frame), newline="")):
            for cell in row[:2]:
                assert not cell.lstrip().startswith(("=", "+", "-", "@")), (cells, row)
