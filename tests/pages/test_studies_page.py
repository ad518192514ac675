"""The Studies page on stores whose answer is known: nothing there, a finished study, a failed one, own studies."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from recon_core.config import parse_config
from recon_core.errors import InputError
from recon_core.scheduling import queue
from recon_core.settings_text import read_values
from recon_core.store import RunState, RunStore
from recon_core.studies.catalogue import CATALOGUE, StudySize
from recon_core.studies.custom import own_plan, plan_from_text
from recon_core.studies.starting import begun_before, own_values
from recon_core.studies.study import StudyConfig, create_study
from tests.pages.page_texts import mosaics, run_links
from tests.studies.tiny_studies import do_study, tiny_plan
from ui.shared.store import forget
from ui.studies.view import selected_cell

APP = str(Path(__file__).resolve().parents[2] / "app.py")
OWN_TAB, SO_FAR_TAB = "A study of your own", "Studies so far"


@pytest.fixture(autouse=True)
def _no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "ensure_scheduler", lambda root: None)


@pytest.fixture(scope="session")
def tiny_store(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A finished study: two values, a reference, one seed."""
    root = tmp_path_factory.mktemp("studies-page") / "runs"
    claims = [{"text": "Decay <b>helps</b>.", "check": "some values raise the count above that of the first"}]
    run = create_study(RunStore(root), StudyConfig(plan=tiny_plan(claims=claims, about="About *this*.")))
    do_study(run)
    return root, run.id


@pytest.fixture
def tiny(tiny_store: tuple[Path, str], own_store: Path) -> str:
    shutil.copytree(tiny_store[0], own_store)
    return tiny_store[1]


def visit(**query: str) -> AppTest:
    forget()
    app = AppTest.from_file(APP, default_timeout=120)
    app.switch_page("pages/5_Studies.py")
    app.query_params.update(query)
    app.run()
    assert not app.exception
    return app


def texts(app: AppTest) -> str:
    elements = [*app.title, *app.subheader, *app.markdown, *app.caption, *app.info, *app.error, *app.warning]
    return "\n".join(element.value for element in elements).replace("\\", "")


def studies(store: RunStore) -> list[str]:
    return [summary.id for summary in store.list("study")]


def charts(app: AppTest) -> list[dict[str, Any]]:
    return [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")]


class TestNothingThere:
    def test_every_built_in_study_is_offered_with_figures_and_times(self) -> None:
        app = visit()
        (experiments,) = [radio for radio in app.radio if radio.label == "Study"]
        assert [title.replace("\\", "") for title in experiments.options] == [
            study.title for study in CATALOGUE.values()
        ]
        captions = [" ".join(text.replace("\\", "").split()) for text in experiments.proto.captions]
        for study, caption in zip(CATALOGUE.values(), captions, strict=True):
            assert study.where == "ours" or study.where in caption
            assert ("quick " in caption) == (StudySize.QUICK in study.sizes)
            assert "full " in caption
        assert "90 models" in texts(app)
        assert not app.error

    def test_no_study_so_far(self) -> None:
        assert "No study was started yet" in texts(visit(s_view=SO_FAR_TAB))

    def test_an_unknown_run_is_one_sentence(self, store: RunStore) -> None:
        store.create("train", {})
        (error,) = visit(run="study-20260101-abcdef").error
        assert "study-20260101-abcdef" in error.value.replace("\\", "")

    def test_another_kind_of_run_is_opened_on_its_own_page(self, store: RunStore) -> None:
        run = store.create("match", {}, name="a matching")
        assert [title.value for title in visit(run=run.id).title] == ["a matching"]


class TestStarting:
    def test_a_built_in_study_is_put_in_line_and_opened(self, store: RunStore) -> None:
        app = visit(s_study="faces", s_seeds="1")
        app.button(key="s_start").click().run()
        assert not app.exception
        (run_id,) = studies(store)
        plan = parse_config(StudyConfig, store.open(run_id).config).plan
        assert plan == CATALOGUE["faces"].plan().restricted(seeds=1)
        assert store.open(run_id).command[-5:] == ("faces", "--size", "quick", "--seeds", "1")
        assert queue.waiting(store) == [run_id]
        assert app.query_params["run"] == run_id
        assert "queued" in texts(app)

        # The same again opens the one that is in line.
        app = visit(s_study="faces", s_seeds="1")
        app.button(key="s_start").click().run()
        assert studies(store) == [run_id]
        assert app.query_params["run"] == run_id

    def test_a_study_can_be_sent_to_a_cluster(self, store: RunStore) -> None:
        app = visit(s_study="faces", s_seeds="1")
        app.text_input(key="s_start_p_cluster").set_value("127.0.0.2:9").run()
        app.text_input(key="s_start_p_gpus").set_value("0.25").run()
        app.button(key="s_start_p_look").click().run(timeout=240)
        assert "no Ray cluster answers at '127.0.0.2:9'" in texts(app).replace("\\", "")
        app.button(key="s_start").click().run()
        (run_id,) = studies(store)
        config = parse_config(StudyConfig, store.open(run_id).config)
        assert (config.cluster, config.gpus, config.workers) == ("127.0.0.2:9", 0.25, None)
        assert store.open(run_id).command[-4:] == ("--cluster", "127.0.0.2:9", "--gpus-per-run", "0.25")

    def test_places_that_make_no_sense_are_a_sentence(self, store: RunStore) -> None:
        app = visit(s_study="faces", s_seeds="1")
        app.text_input(key="s_start_p_workers").set_value("0").run()
        app.button(key="s_start").click().run()
        assert "Workers must be greater than or equal to 1" in texts(app).replace("\\", "")
        assert studies(store) == []

    def test_one_without_a_quick_size_says_so(self) -> None:
        app = visit(s_study="many-samples")
        assert "has no size Quick; choose Paper n or Full" in texts(app)
        assert not [button for button in app.button if button.key == "s_start"]

    def test_an_own_study_from_the_form(self, store: RunStore) -> None:
        app = visit(s_view=OWN_TAB, s_key="training.weight_decay", s_values="null, 1e-3, 0.01", s_name="My study")
        assert not app.error, app.error[0].value
        app.button(key="s_start_own").click().run()
        (run_id,) = studies(store)
        plan = parse_config(StudyConfig, store.open(run_id).config).plan
        assert plan.name == "my-study"
        assert [(point.label, point.position) for point in plan.points] == [
            ("none", None),
            ("0.001", 0.001),
            ("0.01", 0.01),
        ]
        assert len(plan.seeds) == 2

    @pytest.mark.parametrize(
        ("values", "said"),
        [
            ("ten, 20", "data.n"),
            ("[10", "neither JSON nor YAML"),
            ("", "has no values yet"),
            ("10, 10", "twice"),
            ("10, 99999999", "99999999"),
        ],
    )
    def test_values_that_make_no_sense_are_one_sentence(self, values: str, said: str) -> None:
        app = visit(s_view=OWN_TAB)
        app.text_input(key="s_values").set_value(values).run()
        assert not app.exception
        assert any(said in error.value.replace("\\", "") for error in app.error), [e.value for e in app.error]
        assert not [button for button in app.button if button.key == "s_start_own"]

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (b"vary: {data.n: [5, 10]", "neither JSON nor YAML"),
            (b"\xff\xfe\x00", "neither JSON nor YAML"),
            (b"- 1\n- 2\n", "must hold settings by name"),
            (b"vary: {data.size: [5, 10]}", "did you mean"),
            (b"a: &a [1, 2]\nvary: {data.n: *a}", "aliases"),
            (b"speed: 3\nvary: {data.n: [4]}", "Unknown key 'speed'"),
        ],
    )
    def test_bad_uploads_are_one_sentence(self, content: bytes, said: str) -> None:
        app = visit(s_view=OWN_TAB, s_how="Upload a file")
        app.file_uploader(key="s_file").upload("mine.yaml", content, "application/yaml").run()
        assert not app.exception
        (error,) = app.error
        assert said in error.value.replace("\\", "")
        assert not [button for button in app.button if button.key == "s_start_own"]

    def test_an_uploaded_study_is_started_under_its_name(self, store: RunStore) -> None:
        app = visit(s_view=OWN_TAB, s_how="Upload a file")
        content = json.dumps({"preset": "cifar10-50", "vary": {"data.n": [4, 8]}, "seeds": [3]}).encode()
        app.file_uploader(key="s_file").upload("how-many.json", content, "application/json").run()
        assert "2 models" in texts(app)
        app.button(key="s_start_own").click().run()
        (run_id,) = studies(store)
        assert store.open(run_id).name == "How many"
        assert store.open(run_id).command[-2:] == ("study", "how-many.json")


class TestAFinishedStudy:
    def test_its_curve_and_finding(self, tiny: str) -> None:
        app = visit(run=tiny)
        said = texts(app)
        assert "A tiny study" in said
        assert "Own study. About *this*." in said
        assert "3 of 3 models trained, attacked and matched" in said
        assert re.search(r"Chance level there: \d+ \\?\(the mean image alone \d+", said)
        assert "B = 1.1" in said
        assert "good above 0.4" in said
        (curve,) = charts(app)
        names = [trace.get("name", "") for trace in curve["data"]]
        assert any(name.startswith("small start: ") for name in names)
        assert any(name.startswith("control: mean image") for name in names)
        assert not app.error

    def test_a_mark_opens_the_model_behind_it(self, tiny: str) -> None:
        app = visit(run=tiny, s_model="/0.001/0")
        assert "0.001, seed 0" in [heading.value.replace("\\", "") for heading in app.subheader]
        assert "of 10 training images reconstructed" in texts(app)
        assert re.search(r"Good are \d+ with the papers' 3x3 window \(chance level \d+\)", texts(app))
        assert len(charts(app)) == 2  # the curve and the model's own points
        assert "shown beside" in [trace.get("name") for trace in charts(app)[0]["data"]]
        labels = {button.label for button in app.button}
        assert labels >= {"Match", "Analyze", "Training", "Attack", "Untrained network"}
        app.selectbox(key="s_model").set_value("/=small start/0").run()
        assert "small start\\, seed 0" in [heading.value for heading in app.subheader]
        assert app.query_params["s_model"] == "/=small start/0"

    def test_what_is_in_an_address_and_not_in_the_study_is_left_out(self, tiny: str) -> None:
        app = visit(run=tiny, s_model="/7/0", s_show="nothing")
        assert app.selectbox(key="s_model").value is None
        assert not app.error

    def test_findings_images_and_table(self, tiny: str) -> None:
        said = texts(visit(run=tiny, s_show="findings"))
        assert "Decay <b>helps</b>." in said
        assert "3 of 3 models, each trained on 10 images; 1 seed of each." in said
        app = visit(run=tiny, s_show="images")
        assert "small start" in texts(app)
        originals, *rows = mosaics(app)
        assert originals["pairs"] is None
        assert len(rows) == 3  # two values and the reference
        for row in rows:
            assert [pair["id"] for pair in row["pairs"]["pairs"]] == [tile["id"] for tile in row["tiles"]]
            assert row["pairs"]["pairs"][0]["match"].startswith("from=match-")
        (table,) = visit(run=tiny, s_show="table").dataframe
        assert table.value["value"].tolist() == ["none", "0.001", "small start"]
        assert table.value["of"].tolist() == [10, 10, 10]
        assert "control: mean image" in table.value  # zeros are numbers as well
        assert table.value["B"].tolist() == [1.1, 1.1, 1.1]

    def test_numbers_stay_when_runs_are_deleted(self, tiny: str, store: RunStore) -> None:
        for summary in store.list("train"):
            store.delete(summary.id, with_dependents=True)
        app = visit(run=tiny, s_model="/0.001/0")
        assert "of 10 training images reconstructed" in texts(app)
        assert "gone from the store" in texts(app)
        assert "Match" not in {button.label for button in app.button}

    def test_it_is_presented_slide_by_slide(self, tiny: str) -> None:
        app = visit(run=tiny, present="1")
        assert [header.value for header in app.header] == ["Reconstructed training images"]
        assert "1 of 8" in texts(app)
        pictures = visit(run=tiny, present="1", slide="images")
        assert len(charts(pictures)[0]["layout"]["images"]) == 4
        best = visit(run=tiny, present="1", slide="best-pairs")
        assert "The best pairs of the model that gives most away" in best.header[0].value
        assert "7 of 8" in texts(best)
        claims = visit(run=tiny, present="1", slide="claims")
        assert "What was claimed" in claims.header[0].value
        assert "8 of 8" in texts(claims)

    def test_its_settings_fill_the_form_or_say_why_not(self, tiny: str, store: RunStore) -> None:
        assert "varies several settings at once" in visit(**{"from": tiny}).error[0].value
        run = create_study(store, StudyConfig(plan=CATALOGUE["samples"].plan().restricted(seeds=3)))
        app = visit(**{"from": run.id})
        assert app.radio(key="s_study").value == "samples"
        assert app.number_input(key="s_seeds").value == 3
        own = own_plan(
            {"name": "mine", "vary": {"data.n": [4, 8], "model.widths": [[20, 20], [30]]}, "seeds": 3,
             "untrained_control": False, "set": {"model.init_scale": 1e-3, "training.target_log_loss": -10},
             "references": {"wide": {"model.widths": [99]}}}
        )  # fmt: skip
        run = create_study(store, StudyConfig(plan=own))
        app = visit(**{"from": run.id})
        assert not app.error
        assert not app.warning
        assert app.text_input(key="s_values2").value == "[20, 20], [30]"
        app.button(key="s_start_own").click().run()
        assert app.query_params["run"] == run.id  # the very same study


def test_a_failed_study_says_why(store: RunStore) -> None:
    run = create_study(store, StudyConfig(plan=tiny_plan()))
    with run.writer() as writer:
        writer.start(None)
        writer.log("the last words")
        writer.finish(RunState.FAILED, None, "no model finished; the disk is full")
    app = visit(run=run.id)
    assert "the disk is full" in app.error[0].value
    assert "nothing to draw" in texts(app)
    assert "Resume" in {button.label for button in app.button}
    assert run_links(visit(s_view=SO_FAR_TAB)) == {run.id: "A tiny study"}


def test_a_study_under_way_shows_models_done_of_all(store: RunStore) -> None:
    run = create_study(store, StudyConfig(plan=tiny_plan()))
    with run.writer() as writer:
        writer.start(None)
        writer.progress(2, "0 of 3 models; attacking none, seed 0", total=12, force=True)
        app = visit(run=run.id)
    (bar,) = app.main.get("progress")
    assert "0 of 3 models; attacking none, seed 0" in bar.proto.text.replace("\\", "")
    assert "with the first finished model" in texts(app)


def test_a_click_is_read_from_what_the_chart_reports() -> None:
    assert selected_cell({"selection": {"points": []}}) is None
    assert selected_cell({"selection": {"points": [{"customdata": ["/1/0", "1"]}]}}) == "/1/0"
    assert selected_cell({"selection": {"points": [{"customdata": {"0": "/2/0"}}, {"x": 1}]}}) == "/2/0"


def test_numbers_as_people_write_them() -> None:
    assert read_values("[1e-3, 5, 1e5, none, null, -2e-4, mini-batch, 1.5.2]", "it") == [
        1e-3, 5, 1e5, "none", None, -2e-4, "mini-batch", "1.5.2",
    ]  # fmt: skip
    assert read_values('path: "2024"\nscale: 1E+5\nlist: ["1e-3"]', "it") == {
        "path": "2024",
        "scale": 1e5,
        "list": ["1e-3"],
    }
    with pytest.raises(InputError, match="more than 100000 bytes"):
        plan_from_text("long.yaml", b"#" * 100_001)


def test_an_own_study_goes_into_the_form_and_back(store: RunStore) -> None:
    plan = own_plan(
        {
            "name": "x",
            "set": {"training.epochs": 5},
            "vary": {"data.n": [4, 8]},
            "seeds": 2,
            "references": {"r": {"model.widths": [9]}},
        }
    )
    assert own_plan(own_values(plan)) == plan
    assert begun_before(store, plan) is None
    run = create_study(store, StudyConfig(plan=plan))
    reworded = plan.model_copy(update={"title": "Other words", "axis": "images"})
    for asked in (plan, reworded):
        found = begun_before(store, asked)
        assert found is not None
        assert found.id == run.id
    assert begun_before(store, plan.restricted(seeds=1)) is None
