"""kill -9 at random moments of real work: the store stays clean, and the end is the one of an undisturbed run."""

from __future__ import annotations

import os
import random
import signal
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from recon_core.kinds import perform
from recon_core.runs import StopFlag, observer
from recon_core.store import Run, RunState, RunStore
from recon_core.studies.record import read_record
from recon_core.studies.study import StudyConfig, create_study
from tests.studies.tiny_studies import FLOW, do_study, tiny_plan

KILLS = {"train": 14, "reconstruct": 14, "search": 10, "match": 12}  # 50 in all, and those of a study
STUDY_KILLS = 6
TRAIN: Mapping[str, Any] = {
    "data": {"source": "cifar10", "n": 8, "test_n": 16},
    "model": {"widths": [60, 60]},
    "training": {"recipe": "flow", "target_loss": 1e-6},
}
ATTACK: Mapping[str, Any] = {"m": 16, "iterations": 24, "seeds": 2}


def do(run: Run) -> None:
    if run.kind == "study":
        do_study(run)
    else:
        perform(run, StopFlag())


class FileEvents:
    """Counts what this process does with files, and may end it with SIGKILL at one of them.

    Kills at random events are as random as kills at random moments, and the same on every machine.
    """

    def __init__(self) -> None:
        self.counting, self.count, self.deadly = False, 0, None
        sys.addaudithook(self._see)

    def _see(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.counting and event in ("open", "os.rename", "os.remove"):
            self.count += 1
            if self.count == self.deadly:
                os.kill(os.getpid(), signal.SIGKILL)

    def of(self, run: Run) -> int:
        """Perform `run`, and say how many there were."""
        self.counting, self.count, self.deadly = True, 0, None
        try:
            do(run)
        finally:
            self.counting = False
        return self.count


@pytest.fixture(scope="module")
def events() -> FileEvents:
    return FileEvents()  # a hook cannot be taken away again


def killed_at(run: Run, events: FileEvents, deadly: int) -> bool:
    """Let a process of its own work on `run` and die at its event number `deadly`. Whether it came that far."""
    child = os.fork()
    if child == 0:
        try:
            events.counting, events.count, events.deadly = True, 0, deadly
            do(run)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def request(store: RunStore, kind: str, model: Run, attacked: Run) -> Run:
    configs: dict[str, Any] = {
        "train": TRAIN,
        "reconstruct": {"model": model.id, "settings": ATTACK},
        "search": {"model": model.id, "settings": {"trials": 3, "attack": {**ATTACK, "seeds": 1}}},
        "match": {"runs": [attacked.id]},
    }
    parents = {"train": [], "match": [attacked.id]}.get(kind, [model.id])
    return store.create(kind, configs[kind], parents=parents)


TENSORS = {"train": "weights", "reconstruct": "candidates", "search": "candidates", "match": "match"}


@pytest.mark.parametrize("kind", KILLS)
def test_killed_again_and_again_it_ends_as_if_undisturbed(
    kind: str, store: RunStore, events: FileEvents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observer, "CHECKPOINT_SECONDS", 0.0)  # so that there is something to go on from
    monkeypatch.setattr(observer, "SNAPSHOT_SECONDS", 0.0)
    model = store.create("train", TRAIN)
    do(model)
    attacked = store.create("reconstruct", {"model": model.id, "settings": ATTACK}, parents=[model.id])
    do(attacked)
    undisturbed = request(store, kind, model, attacked)
    do(undisturbed)
    usual = events.of(request(store, kind, model, attacked))  # a second matching finds most of it in the cache
    expected = undisturbed.tensors(TENSORS[kind])

    moments = random.Random(20261116)
    kills = 0
    while kills < KILLS[kind]:
        run = request(store, kind, model, attacked)
        for _ in range(4):  # then it may finish, and the next one is disturbed
            if not killed_at(run, events, moments.randint(1, usual)):
                break
            kills += 1
            assert [problem for problem in store.check() if not problem.heals] == []
        if run.status().state is not RunState.DONE:
            do(run)
        assert run.status().state is RunState.DONE
        found = run.tensors(TENSORS[kind])
        assert found.keys() == expected.keys()
        for name, tensor in expected.items():
            torch.testing.assert_close(found[name], tensor, rtol=1e-5, atol=1e-6, msg=f"{name} of {kind} changed")
    assert [problem for problem in store.check() if not problem.heals] == []


def test_a_study_killed_with_the_run_it_was_at_ends_as_if_undisturbed(
    store: RunStore, tmp_path: Path, events: FileEvents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its runs are done in the same process here, so that each kill takes both."""
    monkeypatch.setattr(observer, "CHECKPOINT_SECONDS", 0.0)
    plan = tiny_plan(points=[{"label": "none", "settings": FLOW}], references=[], seeds=[0, 1])
    undisturbed = create_study(RunStore(tmp_path / "undisturbed"), StudyConfig(plan=plan))
    usual = events.of(undisturbed)

    moments = random.Random(20261116)
    kills = 0
    while kills < STUDY_KILLS:
        run = create_study(store, StudyConfig(plan=plan))
        while kills < STUDY_KILLS and killed_at(run, events, moments.randint(1, usual // 2)):
            kills += 1
            assert [problem for problem in store.check() if not problem.heals] == []
        if run.status().state is not RunState.DONE:
            do(run)
        assert run.status().state is RunState.DONE
        assert numbers(run) == numbers(undisturbed)
        for summary in store.list():  # or the next study would find all of it done
            if summary.kind == "train":
                store.delete(summary.id, with_dependents=True)
    assert [problem for problem in store.check() if not problem.heals] == []


def numbers(run: Run) -> list[dict[str, Any]]:
    """What a study came to, but for the times it took."""
    return [
        {name: value for name, value in cell.numbers.items() if not name.endswith("_seconds")}
        for cell in read_record(run).cells
    ]
