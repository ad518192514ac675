"""The index of a large store spares reading, and is never believed against the folders."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from recon_core.store import RunState, RunStore, index, summaries

RUNS = 12


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunStore:
    """A store that has been listed once, and so few runs that it needs no index are enough for one."""
    monkeypatch.setattr(summaries, "_WORTH_KEEPING", RUNS)
    monkeypatch.setattr(index, "_SETTLED_SECONDS", 0.0)
    store = RunStore(tmp_path / "runs")
    for _ in range(RUNS):
        store.create("train", {})
    store.list()
    assert (store.root / index.FILE).exists()
    return store


_OPENED: list[str] = []


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open":
        _OPENED.append(str(arguments[0]))


@pytest.fixture(scope="module", autouse=True)
def _listening() -> None:
    sys.addaudithook(_hear)


def _read_by_a_new_process(store: RunStore) -> list[str]:
    """Files of runs that somebody who has seen nothing yet opens to list them."""
    before = len(_OPENED)
    RunStore(store.root).list()
    return [path for path in _OPENED[before:] if path.startswith(str(store.root)) and "index" not in path]


def test_the_next_process_reads_no_run(large: RunStore) -> None:
    assert _read_by_a_new_process(large) == []
    assert RunStore(large.root).list() == large.list()


def test_only_what_changed_is_read(large: RunStore) -> None:
    changed = large.list()[3].id
    large.rename(changed, "renamed")
    assert {Path(path).parent.name for path in _read_by_a_new_process(large)} == {changed}
    assert RunStore(large.root).summary(changed).name == "renamed"


def test_a_file_changed_in_place_with_its_old_time_counts(large: RunStore) -> None:
    run = large.list()[0]
    path = large.root / run.id / "status.json"
    before = path.stat()
    path.chmod(0o600)
    text = path.read_text()
    path.write_text(text.replace('"queued"', '"failed"'))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    found = {summary.id: summary for summary in RunStore(large.root).list()}
    assert found[run.id].status.state is RunState.FAILED


def test_folders_that_came_or_went_behind_its_back(large: RunStore) -> None:
    gone, kept = (summary.id for summary in large.list()[:2])
    shutil.rmtree(large.root / gone)
    new = large.create("match", {})
    ids = [summary.id for summary in RunStore(large.root).list()]
    assert {kept, new.id} <= set(ids)
    assert gone not in ids
    assert len(ids) == RUNS


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 100, b"afterimage index 1 0\n[]", b"[" * 100_000, None],
    ids=["empty", "zeros", "wrong sum", "nested", "cut"],
)
def test_one_that_does_not_read_is_made_anew(large: RunStore, content: bytes | None) -> None:
    path, expected = large.root / index.FILE, large.list()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if content is None else content)
    assert RunStore(large.root).list() == expected
    assert path.read_bytes() == whole


def test_lines_of_the_wrong_shape_are_no_lines(large: RunStore) -> None:
    body = json.dumps([["train-1", [1, 2], 7]]).encode()
    (large.root / index.FILE).write_bytes(index._head(body) + body)
    assert len(RunStore(large.root).list()) == RUNS


def test_a_link_in_its_place_is_not_followed(large: RunStore, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes((large.root / index.FILE).read_bytes())
    (large.root / index.FILE).unlink()
    (large.root / index.FILE).symlink_to(elsewhere)
    before = elsewhere.read_bytes()
    assert index.read_index(large.root) == {}
    assert elsewhere.read_bytes() == before


def test_a_small_store_has_none(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    store.create("train", {})
    store.list()
    assert not (store.root / index.FILE).exists()
