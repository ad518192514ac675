"""Whole studies with real trainings, as small as they can be: shared, stopped, killed, continued."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recon_core.attacks.registry import ATTACKS, find_attack
from recon_core.runs import StopFlag
from recon_core.scheduling import Ended
from recon_core.scheduling.local import LocalExecutor, local_places
from recon_core.store import Run, RunState, RunStore, layout, lock
from recon_core.studies.record import read_record
from recon_core.studies.results import attack_text, study_results
from recon_core.studies.study import StudyConfig, create_study
from tests.gates import Gates
from tests.processes import wait_for, worker_of
from tests.studies.tiny_studies import BASE, FLOW, InlineExecutor, do_study, tiny_plan

ONE_CELL = {"points": [{"label": "none", "settings": FLOW}], "references": [], "untrained_control": False}


def queued(store: RunStore, **changes: Any) -> Run:
    return create_study(store, StudyConfig(plan=tiny_plan(**changes)))


def numbers_of(run: Run) -> dict[str, Any]:
    """What a study came to, without the times it took."""
    return {
        cell.id: {name: value for name, value in cell.numbers.items() if not name.endswith("_seconds")}
        for cell in read_record(run).cells
    }


def test_a_study_leaves_its_numbers_and_ordinary_runs(store: RunStore) -> None:
    run = queued(store)
    executor = do_study(run)
    assert run.status().state is RunState.DONE
    assert run.status().message == "3 of 3 models trained, attacked and matched"
    assert (run.status().step, run.status().total) == (10, 10)
    assert executor.closed
    assert sorted(executor.performed) == sorted(s.id for s in store.list() if s.kind != "study")
    cells = read_record(run).cells
    assert [cell.id for cell in cells] == ["/none/0", "/0.001/0", "/=small start/0"]
    for cell in cells:
        assert set(cell.runs) == {"train", "attack", "untrained", "match"}
        assert cell.numbers["of"] == cell.numbers["n"] == 10
        assert (
            cell.numbers["control_untrained"] == store.open(cell.runs["match"]).result()["count"]["control_untrained"]
        )
        assert cell.numbers["good"] == store.open(cell.runs["match"]).result()["count"]["good"]
        assert cell.numbers["on_margin"] == store.open(cell.runs["train"]).result()["on_margin"]
    rows = run.metrics()
    assert [row["cell"] for row in rows] == [cell.id for cell in cells]
    assert run.result()["done"] == 3


def test_a_baseline_stands_in_place_of_the_attack(store: RunStore) -> None:
    methods = [
        {"label": "model inversion", "settings": {"attack.baseline": "inversion", "attack.m": 6}},
        {"label": "first-layer weights", "settings": {"attack.baseline": "weights"}},
    ]
    run = queued(store, base={**BASE, **FLOW}, points=methods, references=[{"label": "the attack"}], scale="category")
    do_study(run)
    inversion, weights, attack = read_record(run).cells
    assert run.status().state is RunState.DONE
    assert inversion.runs["train"] == weights.runs["train"] == attack.runs["train"]
    asked = [store.open(cell.runs["attack"]).config["baseline"] for cell in (inversion, weights, attack)]
    assert asked == ["inversion", "weights", None]
    # Weights have no chance level of their own; the attack has.
    assert ["untrained" in cell.runs for cell in (inversion, weights, attack)] == [False, False, True]
    assert inversion.numbers["candidates"] == 6
    assert weights.numbers["candidates"] == BASE["model.widths"][0]
    for cell in (inversion, weights):
        assert cell.numbers["good"] == store.open(cell.runs["match"]).result()["count"]["good"]


def test_numbers_stay_when_runs_are_deleted_and_a_new_study_does_them_again(store: RunStore) -> None:
    run = queued(store, **ONE_CELL)
    do_study(run)
    before = numbers_of(run)
    store.delete(read_record(run).cells[0].runs["train"], with_dependents=True)
    results = study_results(store, run.id)
    assert results.table.rows[0].numbers["good"] == before["/none/0"]["good"]
    again = queued(store, **ONE_CELL)
    assert len(do_study(again).performed) == 3
    assert numbers_of(again) == before


def test_a_second_study_shares_what_the_first_has_done(store: RunStore) -> None:
    first = queued(store)
    do_study(first)
    second = queued(store, name="second", title="Second", seeds=[0, 1])
    executor = do_study(second)
    assert len(executor.performed) == 9  # three models of the new seed
    shared = [cell for cell in read_record(second).cells if cell.seed == 0]
    assert [cell.runs for cell in shared] == [cell.runs for cell in read_record(first).cells]
    assert numbers_of(first).items() <= numbers_of(second).items()


def test_an_attack_of_another_version_is_made_again_and_the_old_one_stays(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = queued(store)
    do_study(first)
    before = read_record(first).cells
    now = find_attack("fast").version
    monkeypatch.setitem(ATTACKS, "fast", replace(find_attack("fast"), version=now + 1))
    second = queued(store)
    performed = [store.open(run_id).kind for run_id in do_study(second).performed]
    assert sorted(performed) == 3 * ["match"] + 4 * ["reconstruct"]  # the untrained network is attacked again too
    for old, new in zip(before, read_record(second).cells, strict=True):
        assert new.runs["train"] == old.runs["train"]
        assert new.runs["attack"] != old.runs["attack"]
        assert store.open(old.runs["attack"]).result()["attack_version"] == now
        assert store.open(new.runs["attack"]).result()["attack_version"] == now + 1
    assert f"attack fast, version {now}, " in attack_text(store, study_results(store, first.id))
    assert f"attack fast, version {now + 1}, " in attack_text(store, study_results(store, second.id))
    assert [cell.runs for cell in read_record(first).cells] == [cell.runs for cell in before]
    third = queued(store)
    assert do_study(third).performed == []


def test_a_stopped_study_goes_on_where_it_was(store: RunStore) -> None:
    stop = StopFlag()

    def after(run: Run) -> None:
        stop.raised = run.kind == "match"  # the first model is complete

    run = queued(store)
    first = do_study(run, InlineExecutor(after), stop)
    assert run.status().state is RunState.CANCELLED
    assert "can be resumed" in run.status().message
    assert sum(cell.done for cell in read_record(run).cells) == 1
    second = do_study(run)
    assert run.status().state is RunState.DONE
    assert not set(first.performed) & set(second.performed)
    assert len(first.performed) + len(second.performed) == 10


def test_what_fails_is_said_and_the_rest_is_done(store: RunStore) -> None:
    bad = {"label": "wild", "settings": {"training.recipe": "sgd", "learning_rate": 1e30, "epochs": 150}}
    run = queued(store, points=[*tiny_plan().model_dump()["points"], bad], references=[])
    do_study(run)
    assert run.status().state is RunState.DONE
    assert run.status().message.startswith("2 of 3 models trained, attacked and matched; 1 failed")
    assert "diverged" in run.result()["failed"][0]["message"]


class Killing(InlineExecutor):
    """One training's process is killed whenever it begins."""

    victim = ""

    def wait(self, seconds: float) -> list[Ended]:
        run = self._waiting
        if run is not None and run.kind == "train":
            self.victim = self.victim or run.id
        if run is None or run.id != self.victim:
            return super().wait(seconds)
        self._waiting = None
        with run.writer() as writer:
            writer.start(10)
        return [Ended(run.id, "its process was killed (signal 9)")]


def test_a_study_that_lost_a_part_has_failed_says_which_and_goes_on(store: RunStore) -> None:
    run = queued(store, untrained_control=False)
    executor = Killing()
    do_study(run, executor)
    status = run.status()
    assert status.state is RunState.FAILED
    assert "incomplete, 2 of 3 models" in status.message
    assert "train: given up after 2 tries: its process was killed (signal 9)" in status.message
    assert f"runs resume {run.id}" in status.message
    rest = do_study(run)
    assert run.status().state is RunState.DONE
    assert rest.performed[0] == executor.victim
    assert run.status().message == "3 of 3 models trained, attacked and matched"


def test_a_study_of_failures_fails(store: RunStore) -> None:
    bad = {"label": "wild", "settings": {"training.recipe": "sgd", "learning_rate": 1e30, "epochs": 150}}
    run = queued(store, points=[bad], references=[])
    do_study(run)
    assert run.status().state is RunState.FAILED
    assert "no model finished" in run.status().message


def test_studies_of_one_store_take_turns(store: RunStore) -> None:
    run = queued(store, **ONE_CELL)
    handle = lock.acquire(store.root / ".studies.lock")
    assert handle is not None
    stop = StopFlag()
    stop.raised = True
    executor = do_study(run, stop=stop)
    assert executor.performed == []
    assert run.status().state is RunState.CANCELLED
    os.close(handle)
    assert len(do_study(run).performed) == 3


def test_places_have_one_thread_each_and_workers_report_what_they_cannot_do(store: RunStore, tmp_path: Path) -> None:
    assert local_places(3) == [{"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}] * 3
    run = queued(store, **ONE_CELL)
    executor = LocalExecutor(local_places(1), tmp_path / "log.txt")
    try:
        with run.writer():  # the worker finds it locked
            executor.submit(run)
            assert executor.free() == 0
            ended = executor.wait(240)
        assert ended[0].run_id == run.id
        assert "already running" in (ended[0].trouble or "")
        assert executor.free() == 1
    finally:
        executor.close()


def test_a_killed_study_goes_on_without_repeating_anything(store: RunStore, tmp_path: Path, gates: Gates) -> None:
    """kill -9 while a run is at work: its worker stops by itself, and the end is as if nothing had happened."""
    slow = {**FLOW, "training.recipe": "paper", "training.target_log_loss": None, "training.epochs": 400}
    plan = tiny_plan(
        base={**BASE, "training.measure_every": 50},
        points=[{"label": "quick", "settings": FLOW}, {"label": "slow", "settings": slow}],
        references=[],
        untrained_control=False,
    )
    run = create_study(store, StudyConfig(plan=plan, workers=1))
    gate = gates.close("train", step=100, words=("slow",))
    with worker_of(run) as process:
        interrupted = store.open(gate.wait_one().run_id)
        process.kill()
        process.wait()
        assert run.status().state is RunState.INTERRUPTED
        at_kill = {summary.id: summary for summary in store.list()}
        wait_for(lambda: not lock.is_held(interrupted.dir / layout.LOCK))
    gate.open()
    assert interrupted.status().state is RunState.CANCELLED  # it wrote a checkpoint and left
    reached = interrupted.status().step

    done_before = {summary.id for summary in at_kill.values() if summary.status.state is RunState.DONE}
    executor = do_study(run)
    assert run.status().state is RunState.DONE
    assert not done_before & set(executor.performed)
    assert interrupted.id in executor.performed
    assert any(f"at step {reached}" in line for line in interrupted.log_tail(20))
    other = RunStore(tmp_path / "never-killed")
    untouched = create_study(other, StudyConfig(plan=plan))
    do_study(untouched)
    assert numbers_of(run) == numbers_of(untouched)


@pytest.mark.parametrize("kind", ["train", "reconstruct"])
def test_cancelling_a_study_stops_the_run_at_work(store: RunStore, kind: str) -> None:
    """A request to the study reaches the run inside; both can go on."""
    run = queued(store, **ONE_CELL)
    stop = StopFlag()

    class Slow(InlineExecutor):
        """Its runs are still queued when the study wants to leave."""

        def wait(self, seconds: float) -> list[Any]:
            if self._waiting is not None and self._waiting.kind == kind:
                run.request_cancel()
                return []
            return super().wait(seconds)

    do_study(run, Slow(), stop)
    assert run.status().state is RunState.CANCELLED
    inside = next(summary for summary in store.list(kind))
    assert inside.status.state is RunState.CANCELLED
    do_study(run)
    assert run.status().state is RunState.DONE
    assert len(store.list(kind)) == 1
