"""A store is its owner's alone, and nothing in it leads elsewhere."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import recon_core as rc
from recon_core.errors import InputError
from recon_core.runs.match_cache import MatchCache
from recon_core.scheduling import queue
from recon_core.scheduling.queue import submit, tickets
from recon_core.store import Run, RunState, RunStore
from recon_core.store.files import write_json
from ui.shared.uploads import keep as keep_upload

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def open_umask() -> Iterator[None]:
    """As careless as a machine can be."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(root: Path) -> dict[str, int]:
    paths = [root, *root.rglob("*")]
    return {str(path.relative_to(root.parent)): stat.S_IMODE(path.lstat().st_mode) for path in paths}


def assert_private(root: Path) -> None:
    for path in [root, *root.rglob("*")]:
        mode = stat.S_IMODE(path.lstat().st_mode)
        assert mode in ((0o700,) if path.is_dir() else (0o600, 0o400)), f"{path}: {mode:o}"


class TestRights:
    @pytest.mark.usefixtures("open_umask")
    def test_nobody_else_reads_any_file_of_a_store(
        self, store: RunStore, done_run: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = done_run()
        begun = store.create("train", {}, name="mine")
        with begun.writer() as writer:
            writer.start(2)
            writer.metrics({"step": 1})
            writer.checkpoint(1, {"w": torch.zeros(3)}, {})
            begun.request_cancel()
            assert_private(store.root)
            writer.finish(RunState.CANCELLED, None)
        RunStore(store.root).import_zip(store.export(model.id, tmp_path))
        other = RunStore(tmp_path / "other")
        other.import_zip(store.export(begun.id, tmp_path))
        monkeypatch.setattr(queue, "ensure_scheduler", lambda root: None)
        submit(store.create("train", {}))
        MatchCache.of_store(store.root).tensors("large", lambda: {"x": torch.zeros(100_000)})
        for root in (store.root, other.root):
            assert len(modes(root)) > 8
            assert_private(root)
        assert len(tickets(store.root)) == 1

    @pytest.mark.usefixtures("open_umask")
    def test_nor_what_the_library_and_uploads_put_there(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Images and weights from memory, into a store that is not there yet."""
        monkeypatch.setenv("AFTERIMAGE_STORE", str(tmp_path / "third"))
        keep_upload(b"some bytes", "npz")
        data, others = (rc.load_data(torch.rand(8, 1, 12, 12), torch.arange(8) % 2, n=4, progress=False) for _ in "ab")
        data.config_in(RunStore(tmp_path / "first"))
        quick: dict[str, Any] = {"m": 4, "iterations": 2, "progress": False, "anyway": True}
        module = nn.Sequential(nn.Flatten(), nn.Linear(144, 5), nn.ReLU(), nn.Linear(5, 1))
        rc.audit(module, data, held_out=others, input_shape=(1, 12, 12), store=tmp_path / "second", **quick)
        for name in ("first", "second", "third"):
            assert_private(tmp_path / name)
        assert {path.name for path in (tmp_path / "second").glob(".[am]*")} == {".arrays", ".models"}

    def test_an_old_store_is_closed_by_the_next_change(self, store: RunStore, done_run: Callable[..., Run]) -> None:
        run = done_run()
        for path in store.root.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o444 if path.parent == run.dir else 0o644)
        store.create("train", {})
        assert_private(store.root)

    def test_the_users_own_folder_keeps_its_rights(self, tmp_path: Path) -> None:
        (tmp_path / "shared").mkdir()
        (tmp_path / "shared").chmod(0o755)
        run = RunStore(tmp_path / "shared").create("train", {})
        assert stat.S_IMODE((tmp_path / "shared").stat().st_mode) == 0o755
        assert_private(run.dir)


COMMANDS = {
    "list": ("runs", "list"),
    "show": ("runs", "show", "RUN"),
    "rename": ("runs", "rename", "RUN", "other"),
    "cancel": ("runs", "cancel", "RUN"),
    "resume": ("runs", "resume", "RUN", "--quiet"),
    "repeat": ("runs", "repeat", "RUN", "--quiet"),
    "export": ("runs", "export", "RUN"),
    "delete": ("runs", "delete", "RUN"),
    "import": ("runs", "import", "one.zip"),
    "reconstruct": ("reconstruct", "--model", "RUN", "--quiet"),
    "match": ("match", "RUN", "--quiet"),
}
IN_ROOT = (".lock", ".queue", ".cache", ".uploads", ".arrays", ".models")
IN_RUN = (".name.json.tmp", "name.json", "config.json", "log.txt", "metrics.jsonl", "lock", "cancel", "checkpoints")


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A folder of somebody's, with a file that has been there for long."""
    folder = tmp_path / "victim"
    folder.mkdir()
    folder.chmod(0o755)
    (folder / "precious").write_text("precious")
    os.utime(folder / "precious", (0, 0))
    return folder


def untouched(victim: Path) -> bool:
    entries = [entry.name for entry in victim.iterdir()]
    return (
        entries == ["precious"]
        and (victim / "precious").read_text() == "precious"
        and stat.S_IMODE(victim.stat().st_mode) == 0o755
    )


class TestLinks:
    @pytest.mark.parametrize("name", [*IN_ROOT, *(f"RUN/{name}" for name in IN_RUN), "RUN"])
    @pytest.mark.parametrize("command", COMMANDS)
    def test_every_command_refuses_them_with_a_sentence(
        self, cli: Cli, store: RunStore, tmp_path: Path, victim: Path, command: str, name: str
    ) -> None:
        run = store.create("train", {})
        store.export(run.id, tmp_path / "one.zip")
        link = store.root / name.replace("RUN", run.id)
        if link.is_dir():
            os.rename(link, tmp_path / "aside")
        link.unlink(missing_ok=True)
        link.symlink_to(victim if name in (*IN_ROOT[1:], "RUN") else victim / "precious")
        code, out, said = cli(*(word.replace("RUN", run.id) for word in COMMANDS[command]))
        assert untouched(victim)
        assert "precious" not in out
        in_run = name.startswith("RUN/")
        if command == "list" and in_run:  # one row, which says so where the list reads the file
            assert code == 0
        else:
            assert code == 2, (out, said)
            assert said.count("\n") == 1
            assert f"{link} is a link" in said
        problems = [problem.sentence for problem in store.check()]
        assert any("is a link" in sentence for sentence in problems) or name == "RUN/.name.json.tmp"

    def test_a_linked_status_is_a_row_that_says_so(self, cli: Cli, store: RunStore, victim: Path) -> None:
        run, other = store.create("train", {}), store.create("train", {})
        (run.dir / "status.json").unlink()
        (run.dir / "status.json").symlink_to(other.dir / "status.json")
        rows = {summary.id: summary.status for summary in RunStore(store.root).list()}
        assert rows[other.id].state is RunState.QUEUED
        assert rows[run.id].state is RunState.FAILED
        assert "status.json is a link" in rows[run.id].message

    def test_a_temporary_that_leads_elsewhere_is_not_written_through(self, tmp_path: Path, victim: Path) -> None:
        (tmp_path / ".name.json.tmp").symlink_to(victim / "precious")
        with pytest.raises(InputError, match="is a link"):
            write_json(tmp_path / "name.json", {})
        assert untouched(victim)

    def test_a_temporary_that_is_a_second_name_is_not_written_through(self, tmp_path: Path, victim: Path) -> None:
        os.link(victim / "precious", tmp_path / ".name.json.tmp")
        write_json(tmp_path / "name.json", {})
        assert untouched(victim)

    def test_a_pipe_in_a_run_is_not_waited_for(self, store: RunStore) -> None:
        run = store.create("train", {})
        (run.dir / "config.json").unlink()
        os.mkfifo(run.dir / "config.json")
        with pytest.raises(InputError, match=r"config\.json cannot be read \(not a plain file\)"):
            _ = store.open(run.id).config

    def test_the_cache_leaves_the_rights_of_others_alone(self, store: RunStore, victim: Path) -> None:
        store.create("train", {})
        (store.root / ".cache").symlink_to(victim)
        with pytest.raises(InputError, match="is a link"):
            MatchCache.of_store(store.root).tensors("x", lambda: {"x": torch.zeros(1)})
        assert untouched(victim)
