"""The line of runs: order, slots, parents, and what is left when processes are killed. Real processes throughout."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from recon_core.scheduling.scheduler import Dispatcher
from recon_core.errors import InputError
from recon_core.scheduling import queue
from recon_core.scheduling.slots import slots
from recon_core.store import Run, RunState, RunStore, lock
from tests.processes import end_processes, wait_for

_SMALL = {
    "data": {"source": "circle", "n": 6},
    "model": {"widths": [30, 30], "init_scale": 0.1},
    "training": {"recipe": "flow", "target_loss": 1e-3},
}
_ENDLESS = {
    "data": {"source": "circle", "n": 6},
    "model": {"widths": [30, 30]},
    "training": {"recipe": "paper", "epochs": 10**9},
}


@pytest.fixture(autouse=True)
def _one_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERIMAGE_SLOTS", "1")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    """A store whose processes are all gone afterwards."""
    store = RunStore(tmp_path / "store")
    yield store
    end_processes(store.root)


def state(run: Run) -> RunState:
    return run.status().state


def dispatcher_gone(store: RunStore) -> bool:
    return not lock.is_held(queue.dispatcher_lock(store.root))


def test_a_run_in_line_is_done_by_another_process_and_the_dispatcher_leaves(store: RunStore) -> None:
    run = store.create("train", _SMALL)
    queue.submit(run)
    wait_for(lambda: state(run) is RunState.DONE)
    wait_for(lambda: dispatcher_gone(store))
    assert queue.waiting(store) == []
    assert store.check() == []


def test_one_slot_means_one_at_a_time_in_order_and_a_cancelled_run_frees_it(store: RunStore) -> None:
    first, second = store.create("train", _ENDLESS), store.create("train", _SMALL)
    queue.submit(first)
    queue.submit(second)
    wait_for(lambda: state(first) is RunState.RUNNING)
    assert queue.waiting(store)[-1] == second.id
    time.sleep(0.6)
    assert state(second) is RunState.QUEUED
    asked = time.monotonic()
    assert queue.cancel(first)
    wait_for(lambda: state(first) is RunState.CANCELLED)
    assert time.monotonic() - asked < 5
    wait_for(lambda: state(second) is RunState.DONE)


def test_a_run_waits_for_its_parent_and_says_so_when_that_ended_early(store: RunStore) -> None:
    parent = store.create("train", _ENDLESS)
    child = store.create("reconstruct", {"model": parent.id}, parents=[parent.id])
    queue.submit(child)
    queue.submit(parent)
    wait_for(lambda: state(parent) is RunState.RUNNING)
    queue.cancel(parent)
    wait_for(lambda: parent.id in child.status().message)
    assert state(child) is RunState.QUEUED
    wait_for(lambda: dispatcher_gone(store))
    assert queue.waiting(store) == [child.id]


def test_a_killed_dispatcher_leaves_its_worker_and_the_next_one_counts_its_slot(store: RunStore) -> None:
    first, second = store.create("train", _ENDLESS), store.create("train", _SMALL)
    queue.submit(first)
    queue.submit(second)
    wait_for(lambda: state(first) is RunState.RUNNING)
    os.kill(int(lock.holder(queue.dispatcher_lock(store.root))), signal.SIGKILL)
    wait_for(lambda: dispatcher_gone(store))
    queue.ensure_dispatcher(store.root)
    wait_for(lambda: not dispatcher_gone(store))
    time.sleep(0.6)
    assert (state(first), state(second)) == (RunState.RUNNING, RunState.QUEUED)
    queue.cancel(first)
    wait_for(lambda: state(second) is RunState.DONE)


def test_a_killed_worker_shows_and_resumes(store: RunStore) -> None:
    run = store.create("train", {**_ENDLESS, "training": {"recipe": "paper", "max_seconds": 6.0}})
    queue.submit(run)
    wait_for(lambda: run.status().step > 0)
    os.kill(run.status().pid or 0, signal.SIGKILL)
    wait_for(lambda: state(run) is RunState.INTERRUPTED, seconds=10)
    wait_for(lambda: dispatcher_gone(store))
    queue.resume(run)
    wait_for(lambda: state(run) is RunState.DONE)
    assert store.check() == []


def test_a_run_resumed_before_its_last_process_was_seen_to_be_gone_stays_in_line(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "ensure_dispatcher", lambda root: None)
    run = store.create("train", _ENDLESS)
    queue.submit(run)
    here = Dispatcher(store.root)
    here.hand_out()
    wait_for(lambda: run.status().step > 0)
    queue.cancel(run)
    wait_for(lambda: state(run) is RunState.CANCELLED)
    queue.resume(run)  # the dispatcher has not looked since
    wait_for(lambda: not lock.is_held(queue.queue_folder(store.root) / "slot-0.lock"))
    time.sleep(0.2)  # from the lock's end to the process's
    here.reap()
    assert state(run) is RunState.QUEUED
    assert queue.waiting(store) == [run.id]
    here.hand_out()
    wait_for(lambda: state(run) is RunState.RUNNING)
    queue.cancel(run)
    wait_for(lambda: state(run) is RunState.CANCELLED)
    wait_for(lambda: not lock.is_held(queue.queue_folder(store.root) / "slot-0.lock"))
    time.sleep(0.2)
    here.reap()
    assert queue.waiting(store) == []


def test_a_worker_that_cannot_even_begin_fails_the_run(store: RunStore) -> None:
    run = store.create("dance", {})  # a kind nobody can do
    queue.submit(run)
    wait_for(lambda: state(run) is RunState.FAILED)
    assert "before it began" in run.status().message
    assert any("dance" in line for line in run.log_tail())


def test_a_step_that_never_ends_is_ended_within_five_seconds(store: RunStore, tmp_path: Path) -> None:
    run = store.create("train", _SMALL)
    stuck = tmp_path / "stuck.py"
    stuck.write_text(
        "import sys, time\nfrom recon_core import worker\n"
        "def perform(run, stop):\n"
        "    with run.writer() as writer:\n        writer.start(1)\n        time.sleep(60)\n"
        "worker.perform = perform\nsys.exit(worker.main(sys.argv[1:]))\n"
    )
    process = subprocess.Popen([sys.executable, str(stuck), str(run.dir)], env=queue.module_environment())
    try:
        wait_for(lambda: state(run) is RunState.RUNNING)
        asked = time.monotonic()
        queue.cancel(run)
        wait_for(lambda: state(run) is RunState.CANCELLED)
        assert time.monotonic() - asked < 5
    finally:
        process.kill()
        process.wait()
    queue.resume(run)
    wait_for(lambda: state(run) is RunState.DONE)


def test_a_deleted_run_loses_its_place(store: RunStore) -> None:
    first, second = store.create("train", _ENDLESS), store.create("train", _SMALL)
    queue.submit(first)
    queue.submit(second)
    wait_for(lambda: state(first) is RunState.RUNNING)
    store.delete(second.id)
    queue.cancel(first)
    wait_for(lambda: dispatcher_gone(store))
    assert queue.waiting(store) == []


def test_only_queued_runs_get_in_line_and_twice_is_once(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "ensure_dispatcher", lambda root: None)
    run, other = store.create("train", _SMALL), store.create("train", _SMALL)
    queue.submit(run)
    queue.submit(run)
    queue.submit(other)
    assert queue.waiting(store) == [run.id, other.id]
    queue.cancel(run)
    with pytest.raises(InputError, match="cancelled and cannot be put in line"):
        queue.submit(run)


def test_slots_follow_the_cores_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr("recon_core.scheduling.slots.core_count", lambda: 8)
    monkeypatch.delenv("AFTERIMAGE_SLOTS")
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert [slot.threads for slot in slots()] == [2, 2, 2, 2]
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert [slot.threads for slot in slots()] == [1, 1, 1, 1]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert [slot.environment()["CUDA_VISIBLE_DEVICES"] for slot in slots()] == ["3", "5"]
    monkeypatch.setenv("AFTERIMAGE_SLOTS", "many")
    with pytest.raises(InputError, match="'many'"):
        slots()
