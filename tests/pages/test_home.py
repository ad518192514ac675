"""The home page and a run's own address, on real stores."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from recon_core.runs.titles import training_title
from recon_core.store import Run, RunState, RunStore
from tests.pages.page_texts import raw_texts as texts
from tests.pages.page_texts import run_links
from ui.shared.formatting import plain
from ui.shared.pages import page_of
from ui.shared.runs import PAGE_SIZE
from ui.shared.store import exported_zip, recent_runs, run_details

APP = str(Path(__file__).resolve().parents[2] / "app.py")
CONFIG = {"data": {"source": "cifar10", "n": 50, "path": None}, "model": {"widths": [1000, 1000]}, "device": "cpu"}
COMMAND = ("python", "-m", "recon_core", "train", "--set", "data.n=50")
RESULT = {
    "seconds": 4.5,
    "rank": 17,
    "on_margin": 46,
    "log_loss": -1000.25,
    "test_error": 0.231,
    "device": "cpu",
    "converged": True,
    "margins": [1.5, 2.5],
}


def visit(**query: str) -> AppTest:
    app = AppTest.from_file(APP, default_timeout=240)
    app.query_params.update(query)
    app.run()
    assert not app.exception
    return app


def listed(app: AppTest) -> list[str]:
    return list(run_links(app).values())


def finished_run(store: RunStore, name: str | None = "animals and vehicles", kind: str = "train") -> Run:
    run = store.create(kind, CONFIG, name=name, command=COMMAND)
    with run.writer() as writer:
        writer.start(812)
        writer.log("reached loss 1e-6 at step 312")
        writer.progress(812)
        writer.finish(RunState.DONE, RESULT)
    return run


def failed_run(store: RunStore) -> Run:
    run = store.create("train", CONFIG, name="too fast", command=COMMAND)
    with run.writer() as writer:
        writer.start(500)
        writer.log("step size 9")
        writer.progress(77)
        writer.finish(RunState.FAILED, None, "the loss became non-finite at step 77; try a smaller flow_step")
    return run


class TestEmptyStore:
    def test_says_what_this_is_and_what_to_do_next(self, own_store: Path) -> None:
        app = visit()
        assert [title.value for title in app.title] == ["Afterimage"]
        assert "There are no runs yet" in texts(app)
        assert [code.value for code in app.code] == ["python -m recon_core train --preset cifar10-50"]
        assert plain(str(own_store)) in texts(app)

    def test_looking_makes_nothing(self, own_store: Path) -> None:
        visit()
        assert not own_store.exists()


class TestFinishedRun:
    def test_is_listed_and_opens_at_its_own_address(self, store: RunStore) -> None:
        run = finished_run(store)
        app = visit()
        assert listed(app) == ["animals and vehicles"]
        assert "done" in texts(app)
        assert "812 steps" in texts(app)
        assert "no runs yet" not in texts(app)
        assert list(run_links(app)) == [run.id]

    def test_without_a_name_goes_by_what_it_was_asked_for(self, store: RunStore) -> None:
        run = finished_run(store, name=None)
        assert listed(visit()) == [plain(training_title(run.config))]

    def test_a_kind_without_a_page_has_results_settings_log_and_command_here(self, store: RunStore) -> None:
        run = finished_run(store, kind="trial")
        app = visit(run=run.id)
        assert [title.value for title in app.title] == ["animals and vehicles"]
        assert [(metric.label, metric.value) for metric in app.metric] == [
            ("test error", "23.1%"),
            ("log10 loss", "\N{MINUS SIGN}434.4"),
            ("samples on the margin", "46"),
            ("rank", "17"),
        ]
        settings = {key: row.iloc[0] for table in app.table for key, row in table.value.iterrows()}
        assert settings == {
            "Data set": "cifar10",
            "Training samples": "50",
            plain("Hidden layer widths (neurons)"): plain("1000, 1000"),
            "Device": "cpu",
        }
        command, log = app.code
        assert "reached loss 1e-6 at step 312" in log.value
        assert command.value == "python -m recon_core train --set data.n=50"

    def test_download_is_a_zip_that_another_store_takes_in(self, store: RunStore, tmp_path: Path) -> None:
        run = finished_run(store)
        (button,) = [one for one in visit(run=run.id).download_button if one.label == "Run as zip"]
        assert not button.disabled
        target = tmp_path / "taken.zip"
        target.write_bytes(exported_zip(run.id))
        assert zipfile.is_zipfile(target)
        (copy,) = RunStore(tmp_path / "elsewhere").import_zip(target)
        assert copy.result() == run.result()


class TestFailedRun:
    def test_list_says_why(self, store: RunStore) -> None:
        failed_run(store)
        assert plain("the loss became non-finite at step 77; try a smaller flow_step") in texts(visit())

    def test_address_says_why_and_shows_the_log(self, store: RunStore) -> None:
        app = visit(run=failed_run(store).id)
        assert [error.value for error in app.error] == [
            plain("the loss became non-finite at step 77; try a smaller flow_step")
        ]
        assert "step size 9" in app.code[0].value
        assert not app.metric

    def test_damaged_settings_do_not_hide_the_rest(self, store: RunStore) -> None:
        run = failed_run(store)
        (run.dir / "config.json").write_text("{torn")
        app = visit(run=run.id)
        (warning,) = app.warning
        assert "config" in warning.value
        assert "step size 9" in app.code[0].value


class TestUnfinishedRun:
    def test_running_shows_how_far_and_the_last_measurement(self, store: RunStore) -> None:
        run = store.create("trial", CONFIG, name="at work", command=COMMAND)
        with run.writer() as writer:
            writer.start(200)
            writer.metrics({"step": 40, "log_loss": -1.5})
            writer.metrics({"step": 50, "log_loss": -2.5, "loss": 0.082})
            writer.progress(50, force=True)
            (bar,) = visit().main.get("progress")
            app = visit(run=run.id)
        assert bar.value == 25
        assert bar.text.startswith("step 50 of 200")
        assert {metric.label: metric.value for metric in app.metric} == {"log10 loss": "\N{MINUS SIGN}1.1"}
        assert app.download_button[0].disabled

    def test_killed_is_shown_as_interrupted(self, store: RunStore) -> None:
        run = store.create("train", CONFIG, command=COMMAND)
        with run.writer() as writer:
            writer.start(200)
            writer.progress(50, force=True)
        app = visit(run=run.id)
        assert "interrupted" in texts(app)
        (warning,) = app.warning
        assert "resume" in warning.value


class TestHostileInput:
    @pytest.mark.parametrize(
        "run_id",
        ["train-20260101-nobody", "../../etc/passwd", "/etc", "", "a" * 5000, "<b>x</b>", "**x** :red[y]", "\0"],
    )
    def test_bad_address_gets_a_sentence_and_a_way_back(self, run_id: str, store: RunStore) -> None:
        finished_run(store)
        app = visit(run=run_id)
        (error,) = app.error
        assert error.value.endswith(".")
        assert "**x**" not in error.value
        assert [button.label for button in app.button] == ["All runs"]
        assert not app.title

    def test_store_that_is_a_file(self, own_store: Path) -> None:
        own_store.write_text("not a folder")
        (error,) = visit().error
        assert plain(f"The store {own_store} cannot be read") in error.value

    def test_markup_in_a_name_is_shown_as_typed(self, store: RunStore) -> None:
        name = "<script>x</script> **bold** :red[x] $x^2$ [a](http://x)"
        run = finished_run(store, name)
        assert listed(visit()) == [plain(name)]
        assert [title.value for title in visit(run=run.id).title] == [plain(name)]


def test_long_lists_come_in_pages(store: RunStore) -> None:
    for number in range(PAGE_SIZE + 2):
        store.create("train", CONFIG, name=f"run {number}")
    app = visit()
    newest_first = [f"run {number}" for number in reversed(range(PAGE_SIZE + 2))]
    assert listed(app) == newest_first[:PAGE_SIZE]
    app.pagination(key="page").set_value(2).run()
    assert not app.exception
    assert listed(app) == newest_first[PAGE_SIZE:]


def test_reads_are_values_not_live_objects(store: RunStore) -> None:
    """The cache hands the same run to every session: what one changes another must not see."""
    run = finished_run(store)
    run_details(run.id).config["data"]["n"] = 9
    assert run_details(run.id).config["data"]["n"] == 50
    assert [summary.id for summary in recent_runs()] == [run.id]


class TestWhatCanBeDoneWithARun:
    """At a run's own address, whatever kind it is of."""

    def test_a_failed_run_can_be_resumed_and_a_finished_one_cannot(self, store: RunStore) -> None:
        failed, finished = failed_run(store), finished_run(store)
        keys = {button.key for button in visit(run=failed.id).button}
        assert {f"resume-{failed.id}", f"clone-{failed.id}", f"delete-{failed.id}"} <= keys
        assert f"resume-{finished.id}" not in {button.key for button in visit(run=finished.id).button}

    def test_a_waiting_run_can_be_cancelled(self, store: RunStore) -> None:
        run = store.create("match", {})
        visit(run=run.id).button(key=f"cancel-{run.id}").click().run()
        assert run.status().state is RunState.CANCELLED

    def test_deleting_goes_back_to_the_page_of_its_kind(self, store: RunStore) -> None:
        run = finished_run(store)
        app = visit(run=run.id).button(key=f"delete-{run.id}").click().run()
        assert store.list() == []
        assert "run" not in app.query_params
        assert [title.value for title in app.title] == ["Train"]

    @pytest.mark.parametrize(
        ("kind", "page"),
        [
            ("train", "1_Train"),
            ("model", "1_Train"),
            ("reconstruct", "2_Reconstruct"),
            ("search", "2_Reconstruct"),
            ("match", "3_Match"),
            ("audit", "6_Audit"),
            ("trial", "app"),
        ],
    )
    def test_a_run_has_one_page_and_old_links_lead_there(self, store: RunStore, kind: str, page: str) -> None:
        run = store.create(kind, {}, name="the one")
        app = visit(run=run.id)
        assert [title.value for title in app.title] == ["the one"]
        assert app.query_params == {"run": run.id}
        assert page_of(kind).file.endswith(f"{page}.py")

    def test_an_old_link_to_a_deleted_run_says_so(self, store: RunStore) -> None:
        run = finished_run(store)
        store.delete(run.id)
        (error,) = visit(run=run.id).error
        assert "it may have been deleted" in error.value
