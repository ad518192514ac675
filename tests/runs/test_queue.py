"""The line of runs: order, slots, parents, and what is left when processes are killed. Real processes throughout."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from recon_core import worker
from recon_core.errors import InputError
from recon_core.runs.titles import training_title
from recon_core.scheduling import queue, scheduler
from recon_core.scheduling.scheduler import Scheduler
from recon_core.scheduling.slots import Slot, slots
from recon_core.store import Run, RunState, RunStore, lock
from tests.faults.apps import scheduler_of
from tests.gates import Gates
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


@pytest.fixture
def spawned(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Workers by their run, of dispatchers in this very process: the queue starts none by itself."""
    started: dict[str, subprocess.Popen[bytes]] = {}
    spawn = scheduler._spawn

    def noted(run: Run, slot: Slot, handle: int) -> subprocess.Popen[bytes]:
        started[run.id] = spawn(run, slot, handle)
        return started[run.id]

    monkeypatch.setattr(scheduler, "_spawn", noted)
    monkeypatch.setattr(queue, "ensure_scheduler", lambda root: None)
    yield started
    for process in started.values():
        process.kill()
        process.wait()


def state(run: Run) -> RunState:
    return run.status().state


def schedulers(store: RunStore) -> set[int]:
    """The one at work, and who stands by."""
    found = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if "recon_core.scheduling.scheduler" in words and str(store.root) in words:
                found |= {process.pid} if process.status() != psutil.STATUS_ZOMBIE else set()
    return found


def end_schedulers(store: RunStore) -> None:
    """All at once: whoever is left follows those that were killed."""
    while found := schedulers(store):
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    wait_for(lambda: dispatcher_gone(store))


def dispatcher_gone(store: RunStore) -> bool:
    return not lock.is_held(queue.scheduler_lock(store.root))


def test_a_run_in_line_is_done_by_another_process_and_the_dispatcher_leaves(store: RunStore) -> None:
    run = store.create("train", _SMALL)
    queue.submit(run)
    wait_for(lambda: state(run) is RunState.DONE)
    wait_for(lambda: dispatcher_gone(store))
    assert queue.waiting(store) == []
    assert store.check() == []


def test_one_slot_means_one_at_a_time_in_order_and_a_cancelled_run_frees_it(
    store: RunStore, spawned: dict[str, subprocess.Popen[bytes]], gates: Gates
) -> None:
    first, second = store.create("train", _ENDLESS), store.create("train", _SMALL)
    gate = gates.close("train", words=(first.id,))
    queue.submit(first)
    queue.submit(second)
    here = Scheduler(store.root)
    assert here.hand_out()
    gate.wait()
    here.reap()
    assert here.hand_out()  # it looks again, and the only slot is taken
    assert list(spawned) == [first.id]
    assert (state(first), state(second)) == (RunState.RUNNING, RunState.QUEUED)
    assert queue.waiting(store)[-1] == second.id
    assert queue.cancel(first)
    wait_for(lambda: state(first) is RunState.CANCELLED)
    spawned[first.id].wait()
    here.reap()
    assert here.hand_out()
    assert list(spawned) == [first.id, second.id]
    wait_for(lambda: state(second) is RunState.DONE)


def test_a_run_waits_for_its_parent_and_says_so_when_that_ended_early(store: RunStore) -> None:
    parent = store.create("train", _ENDLESS)
    child = store.create("reconstruct", {"model": parent.id}, parents=[parent.id])
    queue.submit(child)
    queue.submit(parent)
    wait_for(lambda: state(parent) is RunState.RUNNING)
    queue.cancel(parent)
    wait_for(lambda: training_title(_ENDLESS) in child.status().message)
    assert state(child) is RunState.QUEUED
    wait_for(lambda: dispatcher_gone(store))
    assert queue.waiting(store) == [child.id]


def test_a_killed_dispatcher_leaves_its_worker_and_the_next_one_counts_its_slot(
    store: RunStore, gates: Gates, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = store.create("train", _ENDLESS), store.create("train", _SMALL)
    gate = gates.close("train", words=(first.id,))
    queue.submit(first)
    queue.submit(second)
    gate.wait()
    end_schedulers(store)
    started: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(scheduler, "_spawn", lambda run, *place: started.append(run.id))
        assert Scheduler(store.root).hand_out()
    assert started == []
    assert (state(first), state(second)) == (RunState.RUNNING, RunState.QUEUED)
    assert queue.waiting(store) == [second.id]
    queue.ensure_scheduler(store.root)
    assert not dispatcher_gone(store)
    queue.cancel(first)
    wait_for(lambda: state(second) is RunState.DONE)
    assert (second.status().started or "") > (first.status().updated or "")


def test_a_killed_scheduler_is_followed_by_another_without_anybodys_doing(store: RunStore, gates: Gates) -> None:
    first, second = store.create("train", _ENDLESS), store.create("train", _SMALL)
    gate = gates.close("train", words=(first.id,))
    queue.submit(first)
    queue.submit(second)
    gate.wait()
    killed = []
    for _ in range(3):  # its followers too
        wait_for(lambda: len(schedulers(store)) == 2, what="another that stands by")
        killed.append(scheduler_of(store))
        os.kill(killed[-1], signal.SIGKILL)
        wait_for(lambda: scheduler_of(store) not in killed and not dispatcher_gone(store))
    assert (state(first), state(second)) == (RunState.RUNNING, RunState.QUEUED)
    queue.cancel(first)
    wait_for(lambda: state(second) is RunState.DONE)
    wait_for(lambda: not schedulers(store), what="the end of all schedulers")


def test_who_stands_by_is_replaced(store: RunStore, gates: Gates) -> None:
    run = store.create("train", _SMALL)
    gate = gates.close("train")
    queue.submit(run)
    gate.wait()
    wait_for(lambda: len(schedulers(store)) == 2)
    working = scheduler_of(store)
    (standing_by,) = schedulers(store) - {working}
    os.kill(standing_by, signal.SIGKILL)
    wait_for(lambda: len(schedulers(store) - {standing_by}) == 2)
    assert scheduler_of(store) == working
    gate.open()
    wait_for(lambda: state(run) is RunState.DONE)
    wait_for(lambda: not schedulers(store))


def test_a_killed_worker_shows_and_resumes(store: RunStore, gates: Gates) -> None:
    run = store.create("train", {**_ENDLESS, "training": {"recipe": "paper", "epochs": 20, "measure_every": 1}})
    gate = gates.close("train", step=5)
    queue.submit(run)
    os.kill(gate.wait_one().pid, signal.SIGKILL)
    wait_for(lambda: state(run) is RunState.INTERRUPTED)
    wait_for(lambda: dispatcher_gone(store))
    gate.open()
    queue.resume(run)
    wait_for(lambda: state(run) is RunState.DONE)
    assert run.status().step == 20
    assert store.check() == []


def test_a_run_resumed_before_its_last_process_was_seen_to_be_gone_stays_in_line(
    store: RunStore, spawned: dict[str, subprocess.Popen[bytes]], gates: Gates
) -> None:
    gate = gates.close("train")
    run = store.create("train", _ENDLESS)
    queue.submit(run)
    here = Scheduler(store.root)
    here.hand_out()
    gate.wait()
    queue.cancel(run)
    wait_for(lambda: state(run) is RunState.CANCELLED)
    queue.resume(run)  # the scheduler has not looked since
    spawned[run.id].wait()
    here.reap()
    assert state(run) is RunState.QUEUED
    assert queue.waiting(store) == [run.id]
    gate.forget()
    here.hand_out()
    gate.wait()
    queue.cancel(run)
    wait_for(lambda: state(run) is RunState.CANCELLED)
    spawned[run.id].wait()
    here.reap()
    assert queue.waiting(store) == []


def test_a_worker_that_cannot_even_begin_fails_the_run(store: RunStore) -> None:
    run = store.create("dance", {})  # a kind nobody can do
    queue.submit(run)
    wait_for(lambda: state(run) is RunState.FAILED)
    assert "before it began" in run.status().message
    assert any("dance" in line for line in run.log_tail())


def test_a_step_that_never_ends_is_ended_on_request(store: RunStore, gates: Gates) -> None:
    gate = gates.close("train", step=0, deaf=True)
    run = store.create("train", _SMALL)
    queue.submit(run)
    gate.wait()
    queue.cancel(run)
    wait_for(lambda: state(run) is RunState.CANCELLED)
    assert "in the middle of a step" in run.status().message
    assert worker._GRACE_SECONDS < 5  # no user waits longer
    gate.open()
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
    monkeypatch.setattr(queue, "ensure_scheduler", lambda root: None)
    run, other = store.create("train", _SMALL), store.create("train", _SMALL)
    queue.submit(run)
    queue.submit(run)
    queue.submit(other)
    assert queue.waiting(store) == [run.id, other.id]
    queue.cancel(run)
    with pytest.raises(InputError, match="cancelled and cannot be queued"):
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


def test_two_cores_are_shared_with_whoever_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delenv("AFTERIMAGE_SLOTS", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("recon_core.scheduling.slots.core_count", lambda: 2)
    assert [slot.threads for slot in slots()] == [1]
    monkeypatch.setattr("recon_core.scheduling.slots.core_count", lambda: 4)
    assert [slot.environment()["OMP_WAIT_POLICY"] for slot in slots()] == ["passive", "passive"]
