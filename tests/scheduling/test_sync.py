"""Run folders sent in pieces: the copy is what the original is, and never says more than its files hold."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from recon_core.errors import AfterimageError
from recon_core.scheduling import sync
from recon_core.store import Run, RunState, RunStore, layout
from recon_core.store.writer import tidy
from tests.faults.apps import small_disk


@pytest.fixture
def run(store: RunStore) -> Run:
    return store.create("train", {"some": "settings"})


def contents(folder: Path) -> dict[str, bytes]:
    """Everything but the lock."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != layout.LOCK
    }


def test_a_copy_follows_a_run_to_its_end(run: Run, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    sync.apply(copy, sync.whole(run.dir))
    watch = sync.Watch(run.dir)
    assert contents(copy) == contents(run.dir)
    with run.writer() as writer:
        writer.start(3)
        for step in range(3):
            writer.metrics({"step": step, "loss": 1.0 / (step + 1)})
            writer.log(f"step {step}")
            writer.checkpoint(step, {"w": torch.full((4,), float(step))}, {})
            writer.save_tensors("weights", {"w": torch.full((4,), float(step))})
            pieces = watch.changes(last=True)
            grown = [piece for piece in pieces if piece.path == layout.METRICS]
            assert len(grown[0].data or b"") < 60  # a row, not the file
            sync.apply(copy, pieces)
            assert contents(copy) == contents(run.dir)
        writer.finish(RunState.DONE, {"loss": 0.3})
    sync.apply(copy, watch.changes(last=True))
    tidy(copy)
    assert contents(copy) == contents(run.dir)
    assert watch.changes(last=True) == []


def test_the_status_comes_last_and_is_looked_at_first(run: Run) -> None:
    watch = sync.Watch(run.dir)
    with run.writer() as writer:
        writer.start(1)
        writer.save_tensors("weights", {"w": torch.zeros(2)})
        writer.finish(RunState.DONE, {})
    pieces = watch.changes(last=True)
    assert [piece.path for piece in pieces].index(layout.STATUS) == len(pieces) - 1


def test_a_run_that_ends_while_it_is_looked_at_keeps_its_checkpoints_at_home(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its status still says running: with the node gone a moment later, it must be able to go on from somewhere."""
    copy, watch = tmp_path / "copy", sync.Watch(run.dir)
    sync.apply(copy, sync.whole(run.dir))
    with run.writer() as writer:
        writer.start(2)
        writer.checkpoint(1, {"w": torch.zeros(2)}, {})
        sync.apply(copy, watch.changes(last=True))
        look = watch._change

        def ends_now(name: str) -> sync.FileChange | None:
            found = look(name)
            if name == layout.STATUS and not (run.dir / layout.RESULT).exists():
                writer.finish(RunState.DONE, {})
            return found

        monkeypatch.setattr(watch, "_change", ends_now)
        sync.apply(copy, watch.changes(last=True))
    assert '"running"' in (copy / layout.STATUS).read_text()
    assert list((copy / layout.CHECKPOINTS).iterdir())
    sync.apply(copy, watch.changes(last=True))
    assert '"done"' in (copy / layout.STATUS).read_text()


def test_checkpoints_go_after_their_successors_have_come(run: Run) -> None:
    """However many rounds were not collected."""
    pending, watch = sync.Pending(), sync.Watch(run.dir)
    with run.writer() as writer:
        writer.start(12)
        for step in range(12):
            writer.checkpoint(step, {"w": torch.zeros(2)}, {})
            writer.progress(step, force=True)
            if step % 3 == 2:
                pending.add("a", watch.changes(last=True))
        _, news = pending.all()
    gone = [piece.data is None for piece in news["a"]]
    assert gone == sorted(gone)
    assert any(gone)
    assert [piece.path for piece in news["a"] if piece.data is not None][-1] == layout.STATUS


def test_checkpoints_wait_until_they_are_due(run: Run) -> None:
    watch = sync.Watch(run.dir)
    with run.writer() as writer:
        writer.start(1)
        writer.checkpoint(0, {"w": torch.zeros(2)}, {})
        assert not any(piece.path.startswith(layout.CHECKPOINTS) for piece in watch.changes())
        assert any(piece.path.startswith(layout.CHECKPOINTS) for piece in watch.changes(last=True))


def test_whoever_forgot_everything_is_told_everything(run: Run, tmp_path: Path) -> None:
    watch = sync.Watch(run.dir)
    assert watch.changes() == []
    watch.forget()
    sync.apply(tmp_path / "copy", watch.changes(last=True))
    assert contents(tmp_path / "copy") == contents(run.dir)


def test_of_what_is_on_its_way_only_the_newest_is_kept(run: Run, tmp_path: Path) -> None:
    """However slow whoever takes it is; and what is not said to have arrived is there to be taken again."""
    pending, watch, copy = sync.Pending(), sync.Watch(run.dir), tmp_path / "copy"
    sync.apply(copy, sync.whole(run.dir))
    with run.writer() as writer:
        writer.start(100)
        for step in range(100):
            writer.metrics({"step": step})
            writer.progress(step, force=True)
            writer.save_tensors("snapshots", {"x": torch.full((50,), float(step))})
            pending.add("a", watch.changes())
        version, news = pending.all()
        assert len(news["a"]) == 4  # metrics, log, snapshots, status
        assert news["a"][-1].path == layout.STATUS
        writer.metrics({"step": 100})
        pending.add("a", watch.changes())
        sync.apply(copy, news["a"])
        pending.arrived(version)
        version, news = pending.all()
        for _ in range(2):
            sync.apply(copy, news["a"])
            assert contents(copy) == contents(run.dir)
        pending.arrived(version)
        assert pending.all() == (version, {})


def test_growth_of_what_was_never_here_is_refused(tmp_path: Path) -> None:
    (tmp_path / layout.METRICS).write_bytes(b"12345")
    with pytest.raises(AfterimageError, match="lacks what came before byte 9"):
        sync.apply(tmp_path, [sync.FileChange(layout.METRICS, 9, b"x")])
    sync.apply(tmp_path, [sync.FileChange(layout.METRICS, 3, b"abc")])
    assert (tmp_path / layout.METRICS).read_bytes() == b"123abc"


def test_a_disk_that_fills_up_keeps_what_came_before(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "64k") as disk:
        file = disk / layout.METRICS
        file.write_bytes(b"row\n")
        with pytest.raises(AfterimageError, match="the disk is full"):
            sync.apply(disk, [sync.FileChange(layout.METRICS, 4, b"x" * 200_000)])
        assert file.read_bytes() == b"row\n"


def test_a_folder_that_is_lost_on_its_node_takes_nothing_along(run: Run) -> None:
    """Whatever clears up temporary folders there."""
    watch = sync.Watch(run.dir)
    with run.writer() as writer:
        writer.start(1)
        for step in range(2):
            writer.checkpoint(step, {"w": torch.zeros(2)}, {})
        pieces = watch.changes(last=True)
        (run.dir / layout.CONFIG).unlink()
        (run.dir / next(piece.path for piece in pieces if piece.path.startswith(layout.CHECKPOINTS))).unlink()
        gone = [piece.path for piece in watch.changes(last=True) if piece.data is None]
        assert [path.partition("/")[0] for path in gone] == [layout.CHECKPOINTS]
        (run.dir / layout.STATUS).unlink()
        with pytest.raises(FileNotFoundError, match="was removed"):
            watch.changes()


@pytest.mark.parametrize("path", ["../escaped.json", "/etc/passwd", "lock", "cancel", "sub/x.json", ".queue"])
def test_a_piece_that_is_no_content_of_a_run_is_left_out(path: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    sync.apply(copy, [sync.FileChange(path, None, b"{}")])
    assert sorted(os.listdir(tmp_path)) == ["copy"]
    assert os.listdir(copy) == []
