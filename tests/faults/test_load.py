"""200 runs in line, 2,000 in the store, 20 visitors at once, 200 pooled in Match: what is counted stays small."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch

from benchmarks.load import candidates, drawn, fill, network, opened
from recon_core.scheduling import queue, scheduler
from recon_core.scheduling.slots import Slot
from recon_core.store import Run, RunState, RunStore
from tests.faults.apps import App
from tests.pages.match_board import board_counts
from tests.pages.page_texts import run_links
from ui.shared.runs import PAGE_SIZE
from ui.shared.store import forget, recent_runs

IN_LINE, RUNS, VISITORS, POOLED = 200, 2_000, 20, 200


class Reads:
    """How many files below a folder are opened."""

    def __init__(self) -> None:
        self._below: str | None = None
        self._count = 0
        sys.addaudithook(self._hear)  # for good: there is no way to take one away

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._below is not None and event == "open" and str(arguments[0]).startswith(self._below):
            self._count += 1

    def of(self, action: Callable[[], object], folder: Path) -> int:
        self._below, self._count = str(folder), 0
        try:
            action()
        finally:
            self._below = None
        return self._count


@pytest.fixture(scope="module")
def reads() -> Reads:
    return Reads()


@contextlib.contextmanager
def _in_memory() -> Iterator[RunStore]:
    """Thousands of synced writes, none of which has to survive a power cut here."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as folder:
        yield RunStore(Path(folder) / "runs")


@pytest.fixture
def in_memory() -> Iterator[RunStore]:
    with _in_memory() as store:
        yield store


class TestRunsInLine:
    def test_many_who_submit_at_once_start_one_dispatcher(
        self, in_memory: RunStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        started: list[subprocess.Popen[bytes]] = []

        def sleeper(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
            """A scheduler that takes its time to start, as a real one does."""
            process = subprocess.Popen(["sleep", "60"], pass_fds=options["pass_fds"])
            started.append(process)
            return process

        fake = SimpleNamespace(Popen=sleeper, DEVNULL=subprocess.DEVNULL)
        monkeypatch.setattr(queue, "subprocess", fake)
        runs = [in_memory.create("train", {}) for _ in range(20)]
        try:
            for run in runs:
                queue.submit(run)
            assert len(started) == 1
            assert queue.waiting(in_memory) == [run.id for run in runs]
        finally:
            for process in started:
                process.kill()
                process.wait()

    def test_they_start_in_order_and_a_look_at_the_line_reads_next_to_nothing(
        self, in_memory: RunStore, reads: Reads, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(queue, "ensure_scheduler", lambda root: None)
        order: list[str] = []

        def done_at_once(run: Run, slot: Slot, handle: int) -> SimpleNamespace:
            order.append(run.id)
            with run.writer() as writer:
                writer.start(1)
                writer.finish(RunState.DONE, {})
            return SimpleNamespace(poll=lambda: 0, returncode=0)

        monkeypatch.setattr(scheduler, "_spawn", done_at_once)
        parent = in_memory.create("train", {})
        children = [in_memory.create("match", {}, parents=[parent.id]) for _ in range(IN_LINE)]
        costs = [reads.of(lambda run=run: queue.submit(run), in_memory.root) for run in children]  # type: ignore[misc]
        assert costs[-1] == costs[1]  # whoever comes last pays no more
        here = scheduler.Scheduler(in_memory.root)
        with parent.writer() as writer:
            writer.start(1)
            assert here.hand_out()
            look = reads.of(here.hand_out, in_memory.root)
            writer.finish(RunState.DONE, {})
        assert look < 10  # the line, the parent and its lock; none of those who wait
        while here.hand_out():
            here.reap()
        here.reap()
        assert order == [run.id for run in children]
        assert queue.waiting(in_memory) == []


class Filled(NamedTuple):
    store: RunStore
    model: Run
    ids: list[str]
    """Of the runs made from it, the oldest first."""


@pytest.fixture(scope="module")
def many() -> Iterator[Filled]:
    with _in_memory() as store:
        model = network(store)
        yield Filled(store, model, fill(store, model, RUNS - 1))


class TestStoreOfThousands:
    def test_what_has_not_changed_is_not_read_again(self, many: Filled, reads: Reads) -> None:
        store, model, ids = many
        fresh = RunStore(store.root)
        assert reads.of(fresh.list, store.root) <= 4 * RUNS
        assert [summary.id for summary in fresh.list()] == [model.id, *ids[::-1]]
        assert reads.of(fresh.list, store.root) == 0
        store.rename(ids[3], "renamed")
        assert reads.of(fresh.list, store.root) <= 4
        assert fresh.summary(ids[3]).name == "renamed"
        waiting = store.create("train", {})
        assert fresh.list()[0].id == waiting.id
        with waiting.writer() as writer:
            writer.start(5)
            assert fresh.summary(waiting.id).status.state is RunState.RUNNING
        assert fresh.summary(waiting.id).status.state is RunState.INTERRUPTED
        store.delete(waiting.id)
        assert len(fresh.list()) == RUNS

    def test_pages_read_only_what_they_show(self, many: Filled, reads: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
        store, model = many.store, many.model
        monkeypatch.setenv("AFTERIMAGE_STORE", str(store.root))
        forget()
        assert len(recent_runs()) == RUNS
        home = opened()
        assert list(run_links(home)) == [model.id, *many.ids[::-1]][:PAGE_SIZE]
        assert reads.of(home.run, store.root) < 20
        page = opened(run=model.id)  # with the popover that would delete all others along with it
        assert any(f"{RUNS - 1} runs made from it" in text.value for text in page.markdown)
        assert reads.of(page.run, store.root) < 40
        match = opened("3_Match")
        assert len(match.multiselect(key="m_runs").options) == RUNS - 1
        assert reads.of(match.run, store.root) < 100


def test_twenty_visitors_all_see_a_run_move(store: RunStore, start_app: Callable[..., App]) -> None:
    run = store.create("train", {"data": {"n": 3}}, name="watched")
    app = start_app()
    seen: list[list[int]] = [[] for _ in range(VISITORS)]
    failures: list[str] = []
    moved = threading.Barrier(VISITORS + 1)

    def watch(number: int) -> None:
        try:
            with app.visit(query=f"run={run.id}") as visitor:
                for step in (25, 50, 100):
                    visitor.wait_until(lambda page: any(bar.value == step for bar in page.of_kind("progress")))  # noqa: B023
                    seen[number].append(step)
                    moved.wait(240)
                visitor.wait_until(lambda page: "it is over" in page.words)
                failures.extend(visitor.failures)
        except BaseException as error:
            failures.append(repr(error))
            moved.abort()

    threads = [threading.Thread(target=watch, args=(number,)) for number in range(VISITORS)]
    with run.writer() as writer:
        writer.start(200)
        writer.progress(50, force=True)
        for thread in threads:
            thread.start()
        for step in (100, 200):
            moved.wait(240)
            writer.progress(step, force=True)
        moved.wait(240)
        writer.finish(RunState.DONE, {}, "it is over")
    for thread in threads:
        thread.join(240)
    assert failures == []
    assert seen == [[25, 50, 100]] * VISITORS


def test_two_hundred_runs_make_one_pool(in_memory: RunStore, reads: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERIMAGE_STORE", str(in_memory.root))
    forget()
    model = network(in_memory)
    generator = torch.Generator().manual_seed(0)
    noise = [0.05 * torch.randn(20, 3, 32, 32, generator=generator) for _ in range(POOLED)]
    ids = [candidates(in_memory, model, images).id for images in noise]
    page = opened("3_Match", m_runs=ids, m_t="0.9", m_b="1.0")
    assert page.multiselect(key="m_runs").value == ids
    back = board_counts(page)["Good reconstructions"]
    assert back == "0 of 8"
    page.slider(key="m_b").set_value(1.3)
    # Nothing is searched or loaded again: some small files of each run, however large its candidates are.
    assert reads.of(lambda: drawn(page), in_memory.root) <= 7 * POOLED
    assert not any("candidates" in info.value for info in page.info)
