"""The consistency check: silent on a sound store, one sentence for each thing that is wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from recon_core.errors import InputError
from recon_core.store import Problem, Run, RunState, RunStore


def rewrite(path: Path, data: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(data)


def set_key(path: Path, key: str, value: object) -> None:
    rewrite(path, json.dumps({**json.loads(path.read_text()), key: value}).encode())


DAMAGE: dict[str, tuple[Callable[[Run], object], str]] = {
    "unreadable run": (lambda run: rewrite(run.dir / "run.json", b"{"), "run.json is not readable JSON"),
    "unknown key": (lambda run: set_key(run.dir / "run.json", "colour", 1), "run.json has the unknown key 'colour'"),
    "unknown status key": (lambda run: set_key(run.dir / "status.json", "mood", 1), "unknown key 'mood'"),
    "negative seconds": (lambda run: set_key(run.dir / "status.json", "seconds", -1), "impossible seconds"),
    "not a number": (lambda run: set_key(run.dir / "status.json", "seconds", float("nan")), "impossible seconds"),
    "another folder": (lambda run: set_key(run.dir / "run.json", "id", "train-1"), "says its id is 'train-1'"),
    "no config": (lambda run: (run.dir / "config.json").unlink(), "config.json is missing"),
    "config no object": (lambda run: rewrite(run.dir / "config.json", b"[]"), "config.json must hold an object"),
    "no result": (lambda run: (run.dir / "result.json").unlink(), "it is done but has no result.json"),
    "torn": (lambda run: rewrite(run.dir / "metrics.jsonl", b'{"step":1}\n{"s'), "last line of metrics.jsonl is torn"),
    "no row": (lambda run: rewrite(run.dir / "metrics.jsonl", b'{"step":1}\n7\n{}\n'), "line 2 of metrics.jsonl"),
    "cut weights": (
        lambda run: rewrite(run.dir / "weights.safetensors", (run.dir / "weights.safetensors").read_bytes()[:-4]),
        "weights.safetensors is truncated: it has 20 of 24 bytes",
    ),
    "rotten weights": (
        lambda run: rewrite(
            run.dir / "weights.safetensors", (run.dir / "weights.safetensors").read_bytes()[:-1] + b"\x7f"
        ),
        "weights.safetensors does not match its checksum",
    ),
    "name": (lambda run: (run.dir / "name.json").write_text('{"nom": "x"}'), "name.json must hold one text"),
    "stranger": (lambda run: (run.dir / "notes.txt").write_text(""), "'notes.txt' does not belong"),
    "link": (lambda run: os.symlink("/etc/passwd", run.dir / "extra.json"), "extra.json is a link"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_each_damage_is_one_sentence(store: RunStore, done_run: Callable[..., Run], case: str) -> None:
    run, sound = done_run(), done_run()
    assert store.check() == []
    damage, said = DAMAGE[case]
    damage(run)
    (problem,) = store.check()
    assert problem.run_id == run.id
    assert said in problem.sentence
    assert not problem.heals
    assert store.open(sound.id).status().state is RunState.DONE
    assert {summary.id for summary in store.list()} == {run.id, sound.id}


def test_reading_what_is_damaged_names_the_run(store: RunStore, done_run: Callable[..., Run]) -> None:
    run = done_run()
    for name in ("config.json", "result.json", "weights.safetensors"):
        rewrite(run.dir / name, b"\x01")
    for read in (lambda: run.config, run.result, lambda: run.tensors("weights")):
        with pytest.raises(InputError, match=f"run {run.id} is damaged: "):
            read()


def test_a_missing_parent(store: RunStore, done_run: Callable[..., Run]) -> None:
    model = done_run()
    attack = done_run(model.id)
    for path in model.dir.iterdir():
        path.unlink()
    model.dir.rmdir()
    assert store.check() == [Problem(attack.id, f"the run {model.id} it was made from is missing")]


def test_strange_folders_and_leftovers(store: RunStore, done_run: Callable[..., Run]) -> None:
    done_run()
    (store.root / "My Pictures").mkdir()
    (store.root / "notes.txt").write_text("not a folder, not our business")
    (store.root / ".work-0123").mkdir()
    strange, left = store.check()
    assert strange == Problem("My Pictures", "'My Pictures' is not a run folder; move it out of the store")
    assert left.run_id == ".work-0123"
    assert left.heals
    (store.root / "My Pictures").rmdir()
    store.create("train", {})
    assert store.check() == []


def test_an_interrupted_run_is_said_to_be_and_no_worse(store: RunStore) -> None:
    run = store.create("train", {})
    with run.writer() as writer:
        writer.start(9)
        writer.checkpoint(3, {"w": torch.ones(3)}, {})
        writer.metrics({"step": 3})
        (run.dir / ".status.json.tmp").write_bytes(b"{")
        assert store.check() == []  # somebody is at work
        status = (run.dir / "status.json").read_bytes()
    rewrite(run.dir / "status.json", status)  # as if the process had been killed
    (problem,) = store.check()
    assert problem.run_id == run.id
    assert problem.sentence.startswith("interrupted")
    assert problem.heals


def test_a_run_killed_while_tidying_up_heals(store: RunStore, done_run: Callable[..., Run]) -> None:
    run = done_run()
    (run.dir / "checkpoints").mkdir()
    (problem,) = store.check()
    assert problem.heals
    assert "tidying up" in problem.sentence
