"""Run folders sent in pieces: the copy is what the original is, and never says more than its files hold."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from recon_core.executors import mirror
from recon_core.store import Run, RunState, RunStore, layout


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
    mirror.apply(copy, mirror.whole(run.dir))
    watch = mirror.Watch(run.dir)
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
            mirror.apply(copy, pieces)
            assert contents(copy) == contents(run.dir)
        writer.finish(RunState.DONE, {"loss": 0.3})
    mirror.apply(copy, watch.changes(last=True))
    assert contents(copy) == contents(run.dir)
    assert watch.changes(last=True) == []


def test_the_status_comes_last_and_is_looked_at_first(run: Run) -> None:
    watch = mirror.Watch(run.dir)
    with run.writer() as writer:
        writer.start(1)
        writer.save_tensors("weights", {"w": torch.zeros(2)})
        writer.finish(RunState.DONE, {})
    pieces = watch.changes(last=True)
    assert [piece.path for piece in pieces].index(layout.STATUS) == len(pieces) - 1


def test_checkpoints_wait_until_they_are_due(run: Run) -> None:
    watch = mirror.Watch(run.dir)
    with run.writer() as writer:
        writer.start(1)
        writer.checkpoint(0, {"w": torch.zeros(2)}, {})
        assert not any(piece.path.startswith(layout.CHECKPOINTS) for piece in watch.changes())
        assert any(piece.path.startswith(layout.CHECKPOINTS) for piece in watch.changes(last=True))


def test_whoever_forgot_everything_is_told_everything(run: Run, tmp_path: Path) -> None:
    watch = mirror.Watch(run.dir)
    assert watch.changes() == []
    watch.forget()
    mirror.apply(tmp_path / "copy", watch.changes(last=True))
    assert contents(tmp_path / "copy") == contents(run.dir)


@pytest.mark.parametrize("path", ["../escaped.json", "/etc/passwd", "lock", "cancel", "sub/x.json", ".queue"])
def test_a_piece_that_is_no_content_of_a_run_is_left_out(path: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    mirror.apply(copy, [mirror.Piece(path, None, b"{}")])
    assert sorted(os.listdir(tmp_path)) == ["copy"]
    assert os.listdir(copy) == []
