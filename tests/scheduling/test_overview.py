"""What the strip in the sidebar says: what runs, what waits, and why."""

from __future__ import annotations

import pytest

from recon_core.scheduling import queue
from recon_core.scheduling.overview import queue_overview
from recon_core.store import RunState, RunStore


@pytest.fixture(autouse=True)
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody hands out tickets."""
    monkeypatch.setenv("AFTERIMAGE_SLOTS", "1")
    monkeypatch.setattr(queue, "ensure_scheduler", lambda root: None)


def test_waiting_runs_stand_in_their_order_each_with_its_reason(store: RunStore) -> None:
    train, study = store.create("train", {}), store.create("study", {})
    attack = store.create("reconstruct", {"model": train.id}, parents=[train.id])
    for run in (study, train, attack):
        queue.submit(run)
    found = queue_overview(store, store.list())
    assert [waiting.run.id for waiting in found.waiting] == [train.id, attack.id, study.id]
    assert [waiting.why for waiting in found.waiting] == [
        "waits for a free slot; one run at a time here",
        "waits for the training before it",
        "controls and studies take turns, after what you start",
    ]
    assert [waiting.next for waiting in found.waiting] == [True, False, False]
    assert all(waiting.seconds >= 0 for waiting in found.waiting)


def test_a_run_at_work_is_running_and_waits_no_more(store: RunStore) -> None:
    run = store.create("train", {})
    queue.submit(run)
    with run.writer() as writer:
        writer.start(10)
        found = queue_overview(store, store.list())
        assert [one.id for one in found.running] == [run.id]
        assert found.waiting == ()
        writer.finish(RunState.DONE, {})
    assert queue_overview(store, store.list()).running == ()


def test_behind_what_failed_nothing_starts_and_the_strip_says_so(store: RunStore) -> None:
    train = store.create("train", {})
    attack = store.create("reconstruct", {}, parents=[train.id])
    queue.submit(attack)
    with train.writer() as writer:
        writer.start(1)
        writer.finish(RunState.FAILED, None, "no")
    [waiting] = queue_overview(store, store.list()).waiting
    assert waiting.why == "the training before it is failed; resume that first"
