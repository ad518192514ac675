"""What can be done with a run, on a page made for the test: cancel, resume, clone, rename, delete."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from recon_core.scheduling import memory, queue
from recon_core.scheduling.memory import FreeMemory
from recon_core.store import Run, RunState, RunStore
from recon_core.store.record import read_status, write_status
from tests.pages.page_texts import raw_texts as texts
from ui.shared.formatting import plain
from ui.shared.store import forget


def panel_page() -> None:
    import streamlit as st

    from ui.shared.faults import errors_shown
    from ui.shared.run_panel import show_live_run

    with errors_shown():
        show_live_run(st.query_params.get("run", "none"), lambda run: st.caption(f"body of {run.id}"))


@pytest.fixture(autouse=True)
def _no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "ensure_scheduler", lambda root: None)


def visit(run: Run) -> AppTest:
    app = AppTest.from_function(panel_page, default_timeout=240)
    app.query_params["run"] = run.id
    app.run()
    assert not app.exception
    return app


def labels(app: AppTest) -> set[str]:
    return {button.label for button in app.button}


def ended(
    store: RunStore,
    state: RunState,
    message: str = "",
    parents: tuple[str, ...] = (),
    config: Mapping[str, Any] | None = None,
) -> Run:
    run = store.create("train", config or {}, name="a run", parents=parents)
    with run.writer() as writer:
        writer.start(100)
        writer.log("the last words")
        writer.progress(40, force=True)
        writer.finish(state, {} if state is RunState.DONE else None, message)
    return run


@contextmanager
def at_work(store: RunStore) -> Iterator[Run]:
    run = store.create("train", {}, name="a run")
    with run.writer() as writer:
        writer.start(100)
        writer.log("the last words")
        assert writer._started_at is not None
        writer._started_at -= 5.0  # or it has worked for no time at all, and has no rate
        writer.progress(25, "log loss -3", force=True)
        yield run


class TestStanding:
    def test_queued_can_be_cancelled_and_shows_the_body(self, store: RunStore) -> None:
        app = visit(store.create("train", {}, name="a run"))
        assert "queued" in texts(app)
        assert labels(app) >= {"Cancel", "Use these settings"}
        assert "Resume" not in labels(app)
        assert any(caption.value.startswith("body of train-") for caption in app.caption)

    def test_queued_says_so_once_and_why_it_waits(self, store: RunStore) -> None:
        first, second = store.create("train", {}), store.create("reconstruct", {"model": "m"})
        run = store.create("reconstruct", {"model": first.id}, parents=[first.id])
        for queued in (first, second, run):
            queue.submit(queued)
        shown = texts(visit(run))
        assert shown.count("queued") == 1
        assert "waits for the training before it" in shown
        assert "waits for a free slot" in texts(visit(second))

    def test_running_shows_progress_rate_and_what_it_says(self, store: RunStore) -> None:
        with at_work(store) as run:
            app = visit(run)
        (bar,) = app.main.get("progress")
        assert bar.value == 25
        assert "step 25 of 100" in bar.text
        assert plain("log loss -3") in bar.text
        assert "steps/s" in texts(app)

    def test_killed_is_said_with_the_log_and_resume(self, store: RunStore) -> None:
        with at_work(store) as run:
            status = read_status(run.dir)
        write_status(run.dir, status)  # as a kill leaves it
        app = visit(run)
        (warning,) = app.warning
        assert "ended unexpectedly at step 25 of 100" in warning.value
        assert "the last words" in app.code[0].value
        assert "Resume" in labels(app)
        assert "Cancel" not in labels(app)

    def test_failed_says_why_as_typed(self, store: RunStore) -> None:
        app = visit(ended(store, RunState.FAILED, "lost **its** footing"))
        assert [error.value for error in app.error] == [plain("lost **its** footing")]
        assert "the last words" in app.code[0].value

    def test_done_has_nothing_to_cancel_or_resume(self, store: RunStore) -> None:
        app = visit(ended(store, RunState.DONE, "reached the target loss"))
        assert not labels(app) & {"Cancel", "Resume"}
        assert "reached the target loss" in texts(app)
        assert not app.code


class TestActions:
    def test_cancel_takes_a_waiting_run_out_of_the_line(self, store: RunStore) -> None:
        run = store.create("train", {}, name="a run")
        queue.submit(run)
        app = visit(run)
        app.button(key=f"cancel-{run.id}").click().run()
        assert run.status().state is RunState.CANCELLED
        assert "Resume" in labels(app)

    def test_cancel_asks_a_working_run_to_stop(self, store: RunStore) -> None:
        with at_work(store) as run:
            visit(run).button(key=f"cancel-{run.id}").click().run()
            assert run.cancel_requested()

    def test_a_search_is_taken_back_from_a_cluster_that_is_gone(self, store: RunStore) -> None:
        run = store.create("search", {"model": "train-1", "cluster": "ray://lab:10001"}, name="a search")
        with run.writer() as writer:
            writer.start(3)
            writer.finish(RunState.FAILED, None, "the cluster does not answer any more")
        app = visit(run)
        assert "on the cluster ray://lab:10001" in texts(app).replace("\\", "")
        app.button(key=f"here-{run.id}").click().run()
        assert (run.status().state, run.config["cluster"]) == (RunState.QUEUED, None)
        assert "Resume on this machine" not in labels(visit(ended(store, RunState.FAILED)))

    @pytest.mark.parametrize("state", [RunState.CANCELLED, RunState.FAILED, RunState.INTERRUPTED])
    def test_resume_puts_it_back_in_line(self, store: RunStore, state: RunState) -> None:
        run = ended(store, state)
        app = visit(run)
        app.button(key=f"resume-{run.id}").click().run()
        assert run.status().state is RunState.QUEUED
        assert queue.waiting(store) == [run.id]
        assert "Cancel" in labels(app)

    def test_resume_that_comes_too_late_is_a_sentence(self, store: RunStore) -> None:
        """Another tab resumed it, and its worker is at it."""
        run = ended(store, RunState.CANCELLED)
        app = visit(run)
        with run.writer() as writer:
            writer.start(100)
            app.button(key=f"resume-{run.id}").click().run()
        assert not app.exception
        assert [toast.value for toast in app.toast]

    def test_resume_of_what_does_not_fit_is_insisted_on(self, store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(memory, "free_memory", lambda: FreeMemory(0.1 * 2**30, "free"))
        values = {"data": {"source": "circle", "n": 6}, "training": {"epochs": 2}}
        run = ended(store, RunState.FAILED, config=values)
        app = visit(run)
        assert any(plain("0.1 GiB are free") in warning.value for warning in app.warning)
        assert app.button(key=f"resume-{run.id}").disabled
        app.checkbox(key=f"resume-{run.id}-anyway").check().run()
        app.button(key=f"resume-{run.id}").click().run()
        assert run.status().state is RunState.QUEUED

    def test_rename(self, store: RunStore) -> None:
        run = ended(store, RunState.DONE)
        app = visit(run)
        assert app.button(key=f"rename-{run.id}").disabled
        app.text_input(key=f"name-{run.id}").set_value("a **better** name").run()
        app.button(key=f"rename-{run.id}").click().run()
        assert run.name == "a **better** name"
        assert plain("a **better** name") in texts(app)

    def test_an_impossible_name_is_refused_in_a_sentence(self, store: RunStore) -> None:
        run = ended(store, RunState.DONE)
        app = visit(run)
        app.text_input(key=f"name-{run.id}").set_value("two\nlines").run()
        app.button(key=f"rename-{run.id}").click().run()
        assert not app.exception
        assert run.name in ("a run", "two lines")

    def test_delete_takes_along_what_was_made_from_it(self, store: RunStore) -> None:
        run = ended(store, RunState.DONE)
        child = ended(store, RunState.DONE, parents=(run.id,))
        ended(store, RunState.DONE, parents=(child.id,))
        other = ended(store, RunState.DONE)
        app = visit(run)
        assert "This also deletes the 2 runs made from it" in texts(app)
        app.button(key=f"delete-{run.id}").click().run()
        assert not app.exception
        assert app.query_params == {}
        assert [summary.id for summary in store.list()] == [other.id]

    def test_a_run_that_others_work_on_is_not_deleted(self, store: RunStore) -> None:
        run = ended(store, RunState.DONE)
        child = store.create("train", {}, parents=[run.id])
        with child.writer() as writer:
            writer.start(1)
            app = visit(run)
            app.button(key=f"delete-{run.id}").click().run()
            (error,) = app.error
            assert "is running in process" in error.value
            assert len(store.list()) == 2

    def test_settings_go_to_the_form_by_address(self, store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
        gone_to: list[tuple[str, dict[str, str]]] = []
        monkeypatch.setattr("streamlit.switch_page", lambda page, query_params: gone_to.append((page, query_params)))
        run = ended(store, RunState.DONE)
        visit(run).button(key=f"clone-{run.id}").click().run()
        assert gone_to == [("pages/1_Train.py", {"from": run.id})]

    def test_a_run_deleted_meanwhile_is_a_sentence(self, store: RunStore) -> None:
        run = ended(store, RunState.DONE)
        app = visit(run)
        store.delete(run.id)
        forget()
        app.run()
        (error,) = app.error
        assert run.id in error.value.replace("\\", "")


def test_what_an_imported_run_reads_is_asked_for(store: RunStore, tmp_path: Path) -> None:
    sender = RunStore(tmp_path / "theirs")
    sent = sender.create("train", {"data": {"path": "/home/theirs"}})
    [run] = store.import_zip(sender.export(sent.id, tmp_path / "sent.zip"))
    app = visit(run)
    assert "left out when it was imported" in app.info[0].value
    app.text_input(key=f"path-{run.id}").input(str(tmp_path))
    next(button for button in app.button if button.label == "Attach").click().run()
    assert run.config == {"data": {"path": str(tmp_path)}}
    assert not app.info
