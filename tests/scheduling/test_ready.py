"""A scheduler and its worker that wait before there is anything to do."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from recon_core.scheduling import queue
from recon_core.scheduling.memory import FreeMemory
from recon_core.scheduling.ready import Held, wait_until_needed
from recon_core.store import Run, RunState, RunStore, lock
from tests.gates import Gates
from tests.processes import end_processes, wait_for

SMALL = {
    "data": {"source": "circle", "n": 4},
    "model": {"widths": [8]},
    "training": {"recipe": "paper", "epochs": 2},
}
ENDLESS = {**SMALL, "training": {"recipe": "paper", "epochs": 10**9}}
NOTHING = [sys.executable, "-c", "import sys; sys.stdin.read()"]  # ends with its input, which is empty


@pytest.fixture(autouse=True)
def _may_be_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AFTERIMAGE_READY")
    monkeypatch.setenv("AFTERIMAGE_SLOTS", "1")


@pytest.fixture
def held(store: RunStore, gates: Gates) -> Iterator[psutil.Process]:
    """The scheduler that waits, once its worker does."""
    try:
        queue.hold_ready(store.root)
        process = psutil.Process(queue._HELD[store.root].pid)
        wait_for(process.children, what="the worker that waits")
        yield process
    finally:
        if (left := queue._HELD.pop(store.root, None)) is not None:
            left.dismiss()
        end_processes(store.root)


def gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def done(run: Run) -> bool:
    return run.status().state is RunState.DONE


def test_the_first_training_is_done_by_those_that_waited(store: RunStore, held: psutil.Process, gates: Gates) -> None:
    [worker] = held.children()
    assert not store.root.exists()  # nothing is written for a visitor who starts nothing
    first, second = store.create("train", ENDLESS), store.create("train", SMALL)
    gate = gates.close("train", words=(first.id,))
    queue.submit(first)
    queue.submit(second)
    gate.wait()
    assert [arrival.pid for arrival in gate.arrivals()] == [worker.pid]
    assert lock.holder(queue.scheduler_lock(store.root)) == str(held.pid)
    queue.cancel(first)
    wait_for(lambda: done(second), what="the end of the other")
    assert first.status().state is RunState.CANCELLED
    wait_for(lambda: gone(held), what="the scheduler's end")
    assert store.check() == []


def test_another_kind_of_run_is_not_done_by_a_worker_that_can_read_data(store: RunStore, held: psutil.Process) -> None:
    [worker] = held.children()
    run = store.create("reconstruct", {"model": "train-20260101-nobody"})
    queue.submit(run)
    wait_for(lambda: gone(worker), what="the end of the worker that is not needed")
    wait_for(lambda: run.status().state is RunState.FAILED, what="the end of the attack, whose model is not there")


def test_one_is_held_and_another_where_that_was_killed(store: RunStore, held: psutil.Process) -> None:
    [worker] = held.children()
    queue.hold_ready(store.root)
    assert queue._HELD[store.root].pid == held.pid
    held.kill()
    wait_for(lambda: gone(worker), what="the end of its worker")  # whose holder has ended
    run = store.create("train", SMALL)
    queue.submit(run)  # by a scheduler that is started as usual
    wait_for(lambda: done(run), what="the end of the training")
    wait_for(lambda: not lock.is_held(queue.scheduler_lock(store.root)))
    queue.hold_ready(store.root)
    assert queue._HELD[store.root].waits


def test_a_killed_worker_that_waited_is_replaced_by_a_new_one(store: RunStore, held: psutil.Process) -> None:
    [worker] = held.children()
    worker.kill()
    wait_for(lambda: gone(worker))
    run = store.create("train", SMALL)
    queue.submit(run)
    wait_for(lambda: done(run), what="the end of the training")


def test_nothing_is_held_where_memory_is_short_or_somebody_says_so(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "free_memory", lambda: FreeMemory(2**20, "free"))
    queue.hold_ready(store.root)
    monkeypatch.undo()
    monkeypatch.setenv("AFTERIMAGE_READY", "0")
    queue.hold_ready(store.root)
    assert store.root not in queue._HELD


def test_what_is_handed_over_arrives_with_its_files(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    log = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    socket.send_fds(ours, [b"some words"], [log])
    found = wait_until_needed(theirs.detach())
    assert found is not None
    assert found.words == "some words"
    os.write(found.files[0], b"said")
    assert (tmp_path / "log").read_bytes() == b"said"
    for file in (log, *found.files):
        os.close(file)
    ours.close()


def test_whoever_is_not_needed_leaves(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    assert wait_until_needed(theirs.detach(), 0.0) is None
    with pytest.raises(OSError, match="pipe"):
        ours.send(b"too late")
    ours.close()
    ours, theirs = socket.socketpair()
    ours.close()  # the holder has ended
    assert wait_until_needed(theirs.detach()) is None


def test_a_process_that_has_ended_takes_nothing_over() -> None:
    held = Held(NOTHING, os.environ)
    wait_for(lambda: not held.waits)
    assert held.need("some words", []) is None
    held.dismiss()
