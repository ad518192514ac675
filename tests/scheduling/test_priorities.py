"""Who starts first: what a person waits for, then controls, then studies; and beside each other where there is room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from recon_core.scheduling import queue
from recon_core.scheduling.queue import Priority
from recon_core.scheduling.slots import background_slots, slots
from recon_core.store import Run, RunState, RunStore
from tests.gates import Gates, gates  # noqa: F401
from tests.processes import end_processes, wait_for

TRAIN = {
    "data": {"source": "circle", "n": 6},
    "model": {"widths": [30, 30], "init_scale": 0.1},
    "training": {"recipe": "flow", "target_loss": 1e-3},
}


@pytest.fixture
def store(own_store: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunStore]:
    monkeypatch.setenv("AFTERIMAGE_SLOTS", "1")
    yield RunStore(own_store)
    end_processes(own_store)


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody hands out tickets."""
    monkeypatch.setattr(queue, "ensure_scheduler", lambda root: None)


def control(store: RunStore) -> Run:
    return store.create("reconstruct", {"model": "none", "baseline": "untrained"})


@pytest.mark.usefixtures("still")
def test_what_a_person_waits_for_overtakes_controls_and_studies(store: RunStore) -> None:
    study, compared, person = store.create("study", {}), control(store), store.create("train", TRAIN)
    search, second = store.create("search", {}), store.create("train", TRAIN)
    for run in (study, compared, person, search, second):
        queue.submit(run)
    assert queue.waiting(store) == [person.id, second.id, compared.id, study.id, search.id]


@pytest.mark.usefixtures("still")
def test_a_run_can_be_moved_to_the_front(store: RunStore) -> None:
    first, second, study = store.create("train", TRAIN), store.create("train", TRAIN), store.create("study", {})
    for run in (first, second, study):
        queue.submit(run)
    assert queue.move_up(second)
    assert queue.waiting(store) == [second.id, first.id, study.id]
    assert queue.move_up(study)  # somebody waits for it now
    assert queue.waiting(store) == [study.id, second.id, first.id]
    assert queue.tickets(store.root)[0].priority is Priority.PERSON
    assert not queue.move_up(store.create("train", TRAIN))


@pytest.mark.usefixtures("still")
def test_tickets_of_the_version_before_keep_their_order(store: RunStore) -> None:
    old, new = store.create("train", TRAIN), store.create("train", TRAIN)
    queue.queue_folder(store.root).mkdir()
    (queue.queue_folder(store.root) / f"000000007-{old.id}").touch()
    queue.submit(new)
    assert queue.waiting(store) == [old.id, new.id]


def test_work_in_the_background_takes_what_the_machine_leaves_over() -> None:
    assert background_slots()[0].command(["python"]) == ["nice", "-n", "10", "python"]
    assert slots()[0].command(["python"]) == ["python"]


def test_work_in_the_background_leaves_the_slot_to_a_person(store: RunStore, gates: Gates) -> None:  # noqa: F811
    gate = gates.close("train", step=1)
    background, person = store.create("train", TRAIN), store.create("train", TRAIN)
    queue.submit(background, Priority.CONTROL)
    queue.submit(person)
    found = gate.wait(2)  # both are at work although there is one slot
    niceness = {arrival.run_id: psutil.Process(arrival.pid).nice() for arrival in found}
    assert niceness[background.id] > niceness[person.id]  # by less than a user's: see `tests.gate_hooks.held`
    gate.open()
    for run in (background, person):
        wait_for(lambda run=run: run.status().state is RunState.DONE)
    wait_for(lambda: queue.waiting(store) == [])
