"""The real app, workers and runs through kills, restarts, full disks, read-only stores and jumping clocks."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest
from streamlit.testing.v1 import AppTest

from benchmarks.visitors import Visitor
from recon_core.kinds import perform
from recon_core.runs import StopFlag, observer
from recon_core.scheduling import queue, scheduler
from recon_core.store import Run, RunState, RunStore, lock
from tests.faults.apps import (
    EACH,
    PROJECT,
    SHORT,
    STEPWISE,
    App,
    assert_as_undisturbed,
    attack_on,
    processes_of,
    resume_in,
    small_disk,
    state,
    unhealed,
    waiting_to_be_resumed,
)
from tests.gates import Gates
from tests.pages.page_texts import run_links
from tests.processes import end_processes, wait_for
from ui.shared.store import forget


class Undisturbed(NamedTuple):
    """What the runs of these tests come to when nothing happens to them."""

    store: RunStore
    model: Run
    attack: Run


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    store = RunStore(tmp_path_factory.mktemp("undisturbed") / "runs")
    model = store.create("train", STEPWISE)
    attack = attack_on(store, model)
    for run in (model, attack):
        assert perform(run, StopFlag()) is RunState.DONE
    return Undisturbed(store, model, attack)


def test_a_run_outlives_the_app_that_started_it(store: RunStore, start_app: Callable[..., App], gates: Gates) -> None:
    run = waiting_to_be_resumed(store, STEPWISE, "outlives")
    gate = gates.close("train", step=EACH)
    app = start_app()
    resume_in(app, run)
    gate.wait()
    app.kill()
    gate.move(3 * EACH)
    gate.wait()  # it has gone on
    assert state(run) is RunState.RUNNING
    gate.open()
    with start_app().visit() as visitor:
        visitor.wait_until(lambda page: _listed(page, "outlives"))
        visitor.wait_until(lambda page: "finished all steps" in page.words)
        assert ":green" in visitor.words  # the badge of a run that is done
    assert state(run) is RunState.DONE
    assert store.check() == []


def test_a_machine_that_was_switched_off(
    store: RunStore, start_app: Callable[..., App], undisturbed: Undisturbed, gates: Gates
) -> None:
    app = start_app()
    first = waiting_to_be_resumed(store, STEPWISE, "first")
    gate = gates.close("train", step=5 * EACH, words=(first.id,))
    child, other = attack_on(store, first), store.create("train", SHORT, name="other")
    resume_in(app, first)
    for run in (child, other):
        queue.submit(run)
    gate.wait()
    end_processes(store.root)  # all at once: whoever is left follows those that were killed
    app.kill()
    wait_for(lambda: state(first) is RunState.INTERRUPTED)
    gate.forget()
    assert unhealed(store) == []
    assert (state(child), state(other)) == (RunState.QUEUED, RunState.QUEUED)

    again = start_app()
    with again.visit("Train") as visitor:  # whichever page is opened first
        visitor.wait_until(lambda page: "Train" in page.words)
    wait_for(lambda: state(other) is RunState.DONE)
    wait_for(lambda: "which is interrupted; resume that one first" in child.status().message)
    assert state(child) is RunState.QUEUED
    with again.visit(query=f"run={first.id}") as visitor:
        visitor.wait_until(lambda page: "its process ended unexpectedly" in page.words)
        visitor.press("Resume")
        gate.wait()
        wait_for(lambda: child.status().message == "")  # it need not be resumed any more
        gate.open()
        visitor.wait_until(lambda page: "finished all steps" in page.words)
    wait_for(lambda: state(child) is RunState.DONE)
    assert_as_undisturbed(first, undisturbed.model, "weights")
    assert_as_undisturbed(child, undisturbed.attack, "candidates")
    assert store.check() == []


def test_two_apps_on_one_store(store: RunStore, start_app: Callable[..., App], gates: Gates) -> None:
    names = ["one", "two", "three"]
    held, *rest = [waiting_to_be_resumed(store, SHORT if name != "one" else STEPWISE, name) for name in names]
    gate = gates.close("train", step=EACH, words=(held.id,))
    apps = [start_app(), start_app()]
    dispatchers: set[int] = set()
    most_workers = 0

    def count() -> None:
        nonlocal most_workers
        dispatchers.update(processes_of(store, "recon_core.scheduling.scheduler"))
        most_workers = max(most_workers, len(processes_of(store, "recon_core.worker")))

    resume_in(apps[0], held)
    resume_in(apps[1], rest[0])
    resume_in(apps[0], rest[1])
    wait_for(lambda: count() or gate.arrivals())
    with apps[0].visit() as left, apps[1].visit() as right:
        for visitor in (left, right):
            visitor.wait_until(lambda page: all(_listed(page, name) for name in names))
            visitor.wait_until(lambda page: len(page.of_kind("progress")) == 1)
            visitor.wait_until(lambda page: _queued(page) == 2)
        with apps[1].visit(query=f"run={held.id}") as elsewhere:
            elsewhere.wait_until(lambda page: "Cancel" in page.words)
            elsewhere.press("Cancel")
        left.wait_until(lambda page: "cancelled" in page.words)
        wait_for(lambda: count() or all(state(run) is RunState.DONE for run in rest))
        for visitor in (left, right):
            visitor.wait_until(lambda page: page.words.count("reached the target loss") == 2)
    assert (len(dispatchers), most_workers) == (1, 1)
    assert [summary.name for summary in store.list()] == names[::-1]
    assert store.check() == []


def _listed(page: Visitor, name: str) -> bool:
    """In the list of runs; the strip beside the page has plain names."""
    return any(link.label == f":primary[{name}]" for link in page.of_kind("page_link"))


def _queued(page: Visitor) -> int:
    """By their badges."""
    return sum("badge[" in text.body and "queued" in text.body for text in page.of_kind("markdown"))


def test_a_disk_that_fills_up_while_runs_are_at_work(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    start_app: Callable[..., App],
    undisturbed: Undisturbed,
    gates: Gates,
) -> None:
    with small_disk(tmp_path / "disk", "8m") as disk:
        store = RunStore(disk / "runs")
        monkeypatch.setenv("AFTERIMAGE_STORE", str(store.root))
        try:
            run, behind = (store.create("train", config) for config in (STEPWISE, SHORT))
            gate = gates.close("train", step=5 * EACH, words=(run.id,))
            queue.submit(run)
            queue.submit(behind)
            gate.wait()
            ballast = disk / "ballast"
            with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as file:
                while True:
                    file.write(b"x" * 4096)
            gate.open()
            wait_for(lambda: state(run) in (RunState.FAILED, RunState.INTERRUPTED))
            assert "the disk is full" in run.status().message
            assert unhealed(store) == []
            app = start_app()
            with app.visit() as visitor:
                visitor.wait_until(lambda page: "the disk is full" in page.words)
                assert "queued" in visitor.words
            with app.visit(query=f"run={run.id}") as visitor:
                visitor.wait_until(lambda page: "Resume" in page.words)
                visitor.press("Resume")
                visitor.wait_until(lambda page: page.toasts)
                assert "the disk is full" in visitor.toasts[0]
            # Nobody tries to start it over and over: there is a slot, and whoever hands it out now does not.
            wait_for(lambda: not any(lock.is_held(slot) for slot in queue.queue_folder(store.root).glob("slot-*.lock")))
            with monkeypatch.context() as patch:
                patch.setattr(scheduler, "_spawn", lambda run, *place: pytest.fail(f"{run.id} was started"))
                assert scheduler.Scheduler(store.root).hand_out()
            assert state(behind) is RunState.QUEUED

            ballast.unlink()
            wait_for(lambda: state(behind) is RunState.DONE)  # goes on by itself
            resume_in(app, run)
            wait_for(lambda: state(run) is RunState.DONE)
            assert_as_undisturbed(run, undisturbed.model, "weights")
            assert store.check() == []
            app.kill()
        finally:
            end_processes(store.root)


class TestReadOnlyStore:
    @pytest.fixture
    def runs(self, own_store: Path, tmp_path: Path) -> Iterator[dict[str, Run]]:
        """Runs in a store that then is made read-only, root or not."""
        with small_disk(own_store, "16m"):
            store = RunStore(own_store)
            model = store.create("train", SHORT, name="trained")
            perform(model, StopFlag())
            attack = attack_on(store, model)
            perform(attack, StopFlag())
            stopped = waiting_to_be_resumed(store, SHORT, "stopped")
            queued = store.create("train", SHORT, name="queued")
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(queue, "ensure_scheduler", lambda root: None)
                queue.submit(queued)
            subprocess.run(["mount", "-o", "remount,ro", str(own_store)], check=True)
            forget()
            yield {"model": model, "attack": attack, "stopped": stopped, "queued": queued}

    @staticmethod
    def visit(page: str | None = None, **query: str) -> AppTest:
        app = AppTest.from_file(str(PROJECT / "app.py"), default_timeout=240)
        if page is not None:
            app.switch_page(f"pages/{page}.py")
        app.query_params.update(query)
        return app.run()

    @staticmethod
    def sentences(app: AppTest) -> list[str]:
        assert not app.exception
        found = [element.value.replace("\\", "") for element in (*app.error, *app.toast, *app.warning)]
        return [text for text in found if "read-only" in text]

    def test_every_page_opens_and_says_why_the_line_stands_still(self, runs: dict[str, Run]) -> None:
        pages = [None, "1_Train", "2_Reconstruct", "3_Match", "4_Analyze", "5_Studies"]
        for page in pages:
            app = self.visit(page)
            assert len(self.sentences(app)) == 1, page
            assert app.title, page
        links = run_links(self.visit())
        assert list(links) == [runs[name].id for name in ("queued", "stopped", "attack", "model")]
        names = [links[runs[name].id] for name in ("queued", "stopped", "model")]
        assert names == ["queued", "stopped", "trained"]
        trained = self.visit("1_Train", run=runs["model"].id)
        assert [title.value for title in trained.title] == ["trained"]

    def test_whatever_would_change_it_is_refused_in_one_sentence(self, runs: dict[str, Run]) -> None:
        actions = {"cancel": runs["queued"], "resume": runs["stopped"], "delete": runs["stopped"]}
        for action, run in actions.items():
            app = self.visit(run=run.id)
            before = len(self.sentences(app))
            app.button(key=f"{action}-{run.id}").click().run()
            assert len(self.sentences(app)) == before + 1, action
        model = runs["model"]
        app = self.visit(run=model.id)
        before = len(self.sentences(app))
        app.text_input(key=f"name-{model.id}").set_value("another").run()
        app.button(key=f"rename-{model.id}").click().run()
        assert len(self.sentences(app)) == before + 1
        for page, label in (("1_Train", "Start training"), ("2_Reconstruct", "Start")):
            app = self.visit(page)
            [start] = [button for button in app.button if button.label == label]
            start.click().run()
            assert len(self.sentences(app)) == before + 1, page
        assert (state(runs["queued"]), state(runs["stopped"])) == (RunState.QUEUED, RunState.CANCELLED)
        assert model.name == "trained"


LESS_THAN_A_JUMP = 1_800  # seconds, and more than any test may take

# What the interpreter runs before anything else: the wall clock of our modules is off by what the file says.
_JUMPING_CLOCK = """
import datetime, os, sys, time
from importlib.machinery import PathFinder

def jump():
    with open(os.environ["JUMP_FILE"]) as file:
        return float(file.read() or 0)

class Jumping(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.now(tz) + datetime.timedelta(seconds=jump())

class Finder:
    def find_spec(self, name, path, target=None):
        if name not in ("recon_core.store.record", "recon_core.store.ids", "ui.shared.runs"):
            return None
        spec = PathFinder.find_spec(name, path)
        load = spec.loader.exec_module
        def exec_module(module):
            load(module)
            module.datetime = Jumping
        spec.loader.exec_module = exec_module
        return spec

plain_time = time.time
time.time = lambda: plain_time() + jump()
sys.meta_path.insert(0, Finder())
"""


def test_a_clock_that_jumps(
    store: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start_app: Callable[..., App], gates: Gates
) -> None:
    folder, jump = tmp_path / "clock", tmp_path / "jump"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(_JUMPING_CLOCK)
    jump.write_text("0")
    # Behind the hook of the gates, which gives way to the next.
    monkeypatch.setenv("PYTHONPATH", f"{os.environ['PYTHONPATH']}{os.pathsep}{folder}")
    monkeypatch.setenv("JUMP_FILE", str(jump))
    first = waiting_to_be_resumed(store, STEPWISE, "first")
    second = waiting_to_be_resumed(store, SHORT, "second")
    gate = gates.close("train", step=5 * EACH, words=(first.id,))
    app = start_app()
    resume_in(app, first)
    resume_in(app, second)
    worker = gate.wait_one().pid
    seen = []
    with app.visit() as visitor:
        for seconds, step in ((86_400, 6 * EACH), (-3_600, 7 * EACH)):
            jump.write_text(str(seconds))
            gate.move(step)
            gate.wait()
            visitor.wait_until(lambda page: f"step {step} of" in page.words)  # noqa: B023
            seen.append(visitor.words)
            assert (state(second), first.status().pid) == (RunState.QUEUED, worker)
            assert 0 <= first.status().seconds < LESS_THAN_A_JUMP
            off = datetime.fromisoformat(first.status().updated or "") - datetime.now(UTC)
            assert abs(off.total_seconds() - seconds) < LESS_THAN_A_JUMP, "the clock did not jump where the run is"
        assert queue.cancel(first)
        wait_for(lambda: state(second) is RunState.DONE)
        visitor.wait_until(lambda page: "reached the target loss" in page.words)
    assert state(first) is RunState.CANCELLED
    for words in seen:
        assert re.search(r"^under 0\.1 s|^\d+(\.\d)? s", words, re.MULTILINE), words  # what it took so far
        left = re.findall(r"about ([^·\n]*?) left", words)
        assert all(re.fullmatch(r"(under )?\d+(\.\d)? s|\d+ min( \d+ s)?", text) for text in left), left
        assert not re.search(r"\d+ (h|d)\b(?! ago)", words), words
        assert not re.search(r"-\d+ (s|min|h|d)\b|interrupted", words)
    assert 0 <= first.status().seconds < LESS_THAN_A_JUMP
    assert store.check() == []


@pytest.mark.parametrize("kind", ["train", "reconstruct"])
def test_a_torn_row_and_a_truncated_checkpoint_of_real_work(
    kind: str, undisturbed: Undisturbed, monkeypatch: pytest.MonkeyPatch, gates: Gates
) -> None:
    monkeypatch.setattr(observer, "CHECKPOINT_SECONDS", 0.0)  # one at every report
    store = undisturbed.store
    if kind == "train":
        expected, run, tensors = undisturbed.model, store.create("train", STEPWISE), "weights"
    else:
        expected, run, tensors = undisturbed.attack, attack_on(store, undisturbed.model), "candidates"
    _killed_with_two_checkpoints(run, gates)
    newest, _ = sorted((run.dir / "checkpoints").glob("step-*.safetensors"), reverse=True)
    newest.write_bytes(newest.read_bytes()[: newest.stat().st_size // 2])
    with (run.dir / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 17, "loss": 0.')
    problems = store.check()
    assert unhealed(store) == []
    assert any("is torn" in problem.sentence for problem in problems)
    assert any(newest.name in problem.sentence for problem in problems)

    assert perform(run, StopFlag()) is RunState.DONE
    log = "\n".join(run.log_tail(100))
    assert "the last line of metrics.jsonl was torn and has been dropped" in log
    assert f"the checkpoint of step {int(newest.stem[5:])} is damaged and was removed, the one before is used" in log
    assert_as_undisturbed(run, expected, tensors)
    assert [row["step"] for row in run.metrics()] == [row["step"] for row in expected.metrics()]
    assert store.check() == []


def _killed_with_two_checkpoints(run: Run, gates: Gates) -> None:
    gate = gates.close(run.kind, step=5 * EACH)
    child = os.fork()
    if child == 0:
        try:
            perform(run, StopFlag())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    try:
        gate.wait()
    finally:
        os.kill(child, signal.SIGKILL)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    gate.open()
    assert ended == -signal.SIGKILL
    assert len(list((run.dir / "checkpoints").glob("step-*.safetensors"))) == 2
    assert not lock.is_held(run.dir / "lock")
