"""The Train page on real stores: the form, a run's own view, the table, and what comes from elsewhere."""

from __future__ import annotations

import io
import itertools
import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest

from recon_core.analysis.training import TimeAxis
from recon_core.config import TrainConfig, parse_config
from recon_core.kinds import perform
from recon_core.presets import DEFAULT_PRESET, PRESETS, Size
from recon_core.runs.requests import create_training
from recon_core.runs.signals import StopFlag
from recon_core.runs.training_plan import plan_training
from recon_core.scheduling import memory, queue
from recon_core.store import Run, RunState, RunStore
from tests.pages.page_texts import raw_texts as texts
from ui.shared.formatting import plain
from ui.shared.store import forget
from ui.train.settings import Start, settled

APP = str(Path(__file__).resolve().parents[2] / "app.py")
TINY: dict[str, Any] = {
    "data": {"source": "circle", "n": 6},
    "model": {"widths": [20, 10], "init_scale": 0.3},
    "training": {"recipe": "flow", "target_loss": 1e-3},
}


def tiny(**changes: dict[str, Any]) -> TrainConfig:
    return parse_config(TrainConfig, {key: {**value, **changes.get(key, {})} for key, value in TINY.items()})


@pytest.fixture(scope="module")
def trained_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two trainings that differ in three settings; copy it, never change it."""
    store = RunStore(tmp_path_factory.mktemp("trained") / "runs")
    decays = {"recipe": "stationary", "target_loss": None, "weight_decay": 0.01, "epochs": 40}
    for name, config in (("six points", tiny()), ("eight points", tiny(data={"n": 8}, training=decays))):
        assert perform(create_training(store, config, name), StopFlag()) is RunState.DONE
    return store.root


@pytest.fixture
def trained(trained_store: Path, own_store: Path) -> RunStore:
    shutil.copytree(trained_store, own_store)
    return RunStore(own_store)


@pytest.fixture(autouse=True)
def _no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs stay in line, and the machine's speed is given."""
    monkeypatch.setattr(queue, "ensure_scheduler", lambda root: None)
    monkeypatch.setattr("recon_core.scheduling.estimates._measure_rate", lambda: 30e9)


def visit(view: str | None = None, **query: Any) -> AppTest:
    app = AppTest.from_file(APP, default_timeout=240)
    app.switch_page("pages/1_Train.py")
    app.query_params.update(query | ({"t_view": view} if view else {}))
    app.run()
    assert not app.exception
    return app


def fault(app: AppTest) -> str:
    """The one sentence; it begins with a capital letter, whatever stands first."""
    (error,) = app.error
    return str(error.value)


def start_button(app: AppTest) -> Any:
    return next(button for button in app.button if button.label in ("Start training", "Train it again"))


def charts(app: AppTest) -> list[Any]:
    return app.get("plotly_chart")


def named(store: RunStore, name: str) -> Run:
    return next(store.open(run.id) for run in store.list() if run.name == name)


class TestForm:
    def test_first_visit_offers_the_default_and_says_how_long_it_takes(self, own_store: Path) -> None:
        app = visit()
        assert [title.value for title in app.title] == ["Train"]
        assert app.selectbox(key="t_preset").value == DEFAULT_PRESET
        assert "on this machine" in texts(app)
        assert "50 training images" in texts(app)
        assert plain(PRESETS[DEFAULT_PRESET].where) in texts(app)
        assert not app.error
        assert not start_button(app).disabled
        assert not own_store.exists()

    def test_the_same_training_is_offered_instead_of_started_again(self, store: RunStore) -> None:
        asked = PRESETS[DEFAULT_PRESET].config()
        run = create_training(store, asked.model_copy(update={"device": "cpu"}), "the one before")
        app = visit()
        assert [info.value for info in app.info] == ["This training is queued already: **the one before**."]
        with run.writer() as writer:
            writer.start(1)
            writer.finish(RunState.DONE, {})
        forget()
        app.run()
        assert app.info[0].value.startswith("This training was done ")
        assert "the one before" in app.info[0].value
        app.button(key="t_twin").click().run()
        assert app.query_params["run"] == run.id
        assert len(store.list()) == 1
        app = visit()
        next(button for button in app.button if button.label == "Train it again").click().run()
        assert len(store.list()) == 2
        other = visit(t_preset="circle")
        assert not other.info
        assert not start_button(other).disabled

    def test_start_puts_the_preset_in_line_and_opens_the_run(self, store: RunStore) -> None:
        app = visit()
        start_button(app).click().run()
        (run,) = store.list()
        assert run.status.state is RunState.QUEUED
        assert run.name == DEFAULT_PRESET
        assert parse_config(TrainConfig, store.open(run.id).config) == PRESETS[DEFAULT_PRESET].config()
        assert queue.waiting(store) == [run.id]
        assert app.query_params == {"run": run.id}
        assert [title.value for title in app.title] == [plain("CIFAR-10, 50 images")]
        assert "queued" in texts(app)

    @pytest.mark.parametrize("preset", PRESETS)
    def test_every_preset_in_either_size_can_be_started_as_it_stands(self, preset: str) -> None:
        for size in Size:
            config = parse_config(TrainConfig, settled(Start(preset, size), {}))
            assert config == PRESETS[preset].config(size)
            assert plan_training(config).n >= 10

    def test_the_size_of_the_paper_is_a_choice(self, own_store: Path) -> None:
        app = visit(t_preset="cifar10-500", t_size="As in the paper")
        assert "downloaded first" in texts(app)
        assert "500 training images" in texts(app)
        assert not start_button(app).disabled

    def test_what_is_typed_is_laid_over_the_preset(self, store: RunStore) -> None:
        app = visit(t_preset="circle")
        app.text_input(key="t_data.n").set_value("12")
        app.text_input(key="t_model.widths").set_value("30, 20")
        app.text_input(key="t_name").set_value("twelve")
        app.run()
        assert "12 training points" in texts(app)
        assert plain("Training samples = 12, Hidden layer widths (neurons) = 30, 20") in texts(app)
        start_button(app).click().run()
        config = named(store, "twelve").config
        assert (config["data"]["source"], config["data"]["n"], config["model"]["widths"]) == ("circle", 12, [30, 20])
        assert config["training"]["target_log_loss"] == -6.0

    @pytest.mark.parametrize(
        ("typed", "changed"),
        [
            ({"t_data.per_class": "7"}, {"per_class": 7, "n": None}),
            ({"t_training.target_loss": "0.01"}, {"target_loss": 0.01, "target_log_loss": None}),
            ({"t_training.weight_decay": "1e-4"}, {"weight_decay": 1e-4, "recipe": "stationary"}),
            ({"t_data.test_n": "none"}, {"test_n": None}),
        ],
    )
    def test_a_setting_replaces_what_says_the_same(
        self, store: RunStore, typed: dict[str, str], changed: dict[str, Any]
    ) -> None:
        app = visit(**typed)
        assert [error.value for error in app.error] == []
        start_button(app).click().run()
        config = store.open(store.list()[0].id).config
        flat = {**config["data"], **config["model"], **config["training"]}
        assert {key: flat[key] for key in changed} == changed

    @pytest.mark.parametrize(
        ("typed", "said"),
        [
            ({"t_data.n": "1"}, "data.n must be greater than or equal to 2, got '1'"),
            ({"t_data.n": "7"}, "n=7 cannot be split evenly over 2 classes"),
            ({"t_data.n": "100000"}, "n=100000"),
            ({"t_model.widths": "abc"}, "model.widths must be a valid integer"),
            ({"t_model.widths": "1000000,1000000"}, "GB; use smaller model.widths"),
            ({"t_data.source": "folder", "t_data.path": "/nowhere"}, "/nowhere"),
            ({"t_training.recipe": "stationary"}, "needs weight_decay > 0"),
            ({"t_training.target_log_loss": "none"}, "recipe flow needs a stop"),
            ({"t_preset": "own", "t_path": "/nowhere/at/all"}, "/nowhere/at/all"),
            ({"t_preset": "own", "t_path": "/nowhere/at/all.npz"}, "/nowhere/at/all.npz"),
        ],
    )
    def test_bad_input_gets_a_sentence_and_nothing_to_start(
        self, own_store: Path, typed: dict[str, str], said: str
    ) -> None:
        app = visit(**typed)
        assert plain(said).lower() in fault(app).lower()
        assert start_button(app).disabled
        assert not own_store.exists()

    def test_values_from_a_bad_address_are_ignored(self, own_store: Path) -> None:
        app = visit(t_preset="nobody", t_size="huge", **{"t_data.source": "moon"})
        assert app.selectbox(key="t_preset").value == DEFAULT_PRESET
        assert not app.error

    def test_own_images_ask_for_their_place_first(self, own_store: Path) -> None:
        app = visit(t_preset="own")
        assert "Enter the folder or the file" in texts(app)
        assert not app.error
        assert start_button(app).disabled

    def test_own_images_become_an_absolute_path(
        self, store: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        pictures = np.random.default_rng(0).integers(0, 255, (20, 8, 8), dtype=np.uint8)
        np.savez("mine.npz", images=pictures, labels=np.arange(20) % 2)
        app = visit(t_preset="own", t_path="mine.npz", **{"t_data.n": "10"})
        assert [error.value for error in app.error] == []
        start_button(app).click().run()
        run = named(store, "mine.npz")
        assert run.config["data"] | {"source": "npz", "path": str(tmp_path / "mine.npz"), "n": 10} == run.config["data"]

    @pytest.mark.parametrize(
        ("chosen", "shown", "hidden"),
        [
            ({}, {"data.partition", "training.max_change"}, {"data.path", "data.labels", "training.batch_size"}),
            ({"t_preset": "circle"}, {"data.labels", "training.record_every"}, {"data.partition", "model.conv_kernel"}),
            ({"t_data.task": "multiclass"}, {"data.classes"}, {"data.partition"}),
            ({"t_data.source": "folder"}, {"data.path"}, set()),
            ({"t_training.recipe": "sgd"}, {"training.batch_size", "training.learning_rate"}, {"training.max_change"}),
            ({"t_preset": "own"}, {"data.partition"}, {"data.source", "data.path", "data.labels"}),
        ],
    )  # fmt: skip
    def test_settings_that_do_not_apply_are_not_shown(
        self, own_store: Path, chosen: dict[str, str], shown: set[str], hidden: set[str]
    ) -> None:
        app = visit(**chosen)
        keys = {widget.key.removeprefix("t_") for widget in [*app.text_input, *app.selectbox]}
        assert keys >= shown
        assert not keys & hidden

    def test_settings_have_labels_units_and_a_sentence(self, own_store: Path) -> None:
        app = visit(t_preset="circle")
        widths = app.text_input(key="t_model.widths")
        assert widths.label == "Hidden layer widths (neurons)"
        assert widths.help == "Neurons in each hidden layer, e.g. 1000,1000. Setting: `model.widths`."

    def test_back_to_the_preset_empties_the_form(self, own_store: Path) -> None:
        app = visit(t_preset="circle", **{"t_data.n": "12", "t_data.task": "regression"})
        app.button(key="t_reset").click().run()
        assert app.text_input(key="t_data.n").value == ""
        assert app.selectbox(key="t_data.task").value is None
        assert app.selectbox(key="t_preset").value == "circle"
        assert "Changed" not in texts(app)


class TestClone:
    @pytest.mark.parametrize("name", ["six points", "eight points"])
    def test_the_form_asks_for_the_same_again(self, trained: RunStore, name: str) -> None:
        source = named(trained, name)
        app = visit(**{"from": source.id})
        assert "from" not in app.query_params
        assert app.text_input(key="t_model.widths").value == "20,10"
        assert [error.value for error in app.error] == []
        start_button(app).click().run()
        again = next(trained.open(run.id) for run in trained.list() if run.status.state is RunState.QUEUED)
        assert again.config == source.config

    @pytest.mark.parametrize("preset", ["cifar10-multiclass", "cifar10-conv", "cifar10-500-sgd", "mnist-500"])
    def test_a_preset_is_recognised(self, store: RunStore, preset: str) -> None:
        run = create_training(store, PRESETS[preset].config(), "copied")
        app = visit(**{"from": run.id})
        assert app.selectbox(key="t_preset").value == preset
        assert "Changed" not in texts(app)

    def test_earlier_settings_do_not_linger(self, store: RunStore) -> None:
        run = create_training(store, PRESETS["circle"].config(), "copied")
        app = visit(**{"t_data.n": "12", "t_model.bias": "none"})
        app.query_params["from"] = run.id
        app.run()
        assert app.text_input(key="t_data.n").value == ""
        assert app.selectbox(key="t_model.bias").value is None

    def test_own_images_are_found_again(self, store: RunStore, tmp_path: Path) -> None:
        data = {"source": "npz", "path": str(tmp_path / "x.npz")}
        config = parse_config(TrainConfig, {"data": data, "training": {"epochs": 5, "recipe": "sgd"}})
        run = create_training(store, config, "mine")
        app = visit(**{"from": run.id})
        assert app.selectbox(key="t_preset").value == "own"
        assert app.text_input(key="t_path").value == str(tmp_path / "x.npz")

    @pytest.mark.parametrize("run_id", ["train-20260101-nobody", "../../etc/passwd", ""])
    def test_an_unknown_run_is_a_sentence(self, own_store: Path, run_id: str) -> None:
        (error,) = visit(**{"from": run_id}).error
        assert error.value.endswith(".")

    def test_other_runs_have_no_such_settings(self, store: RunStore) -> None:
        run = store.create("match", {})
        (error,) = visit(**{"from": run.id}).error
        assert "match" in error.value


class TestRun:
    def test_finished_shows_numbers_curves_and_a_plain_reading(self, trained: RunStore) -> None:
        run = named(trained, "six points")
        app = visit(run=run.id)
        result = run.result() or {}
        shown = {metric.label: metric.value for metric in app.metric}
        assert shown["Training error"] == "0%"
        assert shown["On the margin"] == f"{result['on_margin']} of 6"
        assert "explained by the training samples" in texts(app)
        assert f"{result['on_margin']} of 6 samples are on the margin" in texts(app)
        assert len(charts(app)) == 5  # loss, margins, histogram, error, residual
        labels = [button.label for button in app.button]
        assert "Reconstruct its training data" in labels
        assert "Use these settings" in labels
        assert "Resume" not in labels
        assert not app.error

    def test_with_weight_decay_the_gradient_norm_is_shown_as_well(self, trained: RunStore) -> None:
        assert len(charts(visit(run=named(trained, "eight points").id))) == 6

    @pytest.mark.parametrize(
        ("asked", "axis"),
        [
            ("Seconds", TimeAxis.SECONDS),
            ("Epochs of gradient descent", TimeAxis.EPOCHS),
            ("nonsense", TimeAxis.STEPS),
        ],
    )
    def test_axis_what_it_is_drawn_is_in_the_address(self, trained: RunStore, asked: str, axis: TimeAxis) -> None:
        app = visit(run=named(trained, "six points").id, t_axis=asked)
        assert app.button_group(key="t_axis").value is axis
        titles = {json.loads(chart.proto.spec)["layout"]["xaxis"]["title"]["text"] for chart in charts(app)}
        words = {TimeAxis.STEPS: "step", TimeAxis.SECONDS: "seconds", TimeAxis.EPOCHS: "epochs of gradient descent"}
        assert words[axis] in titles

    def test_failed_says_why_with_its_log_and_a_way_on(self, store: RunStore) -> None:
        run = create_training(store, tiny(), "too fast")
        with run.writer() as writer:
            writer.start(500)
            writer.log("step size 9")
            writer.metrics({"step": 0, "seconds": 0.1, "log_loss": -0.4, "train_error": 0.5, "on_margin": 6})
            writer.progress(77)
            writer.finish(RunState.FAILED, None, "the loss became non-finite at step 77; try a smaller max_change")
        app = visit(run=run.id)
        assert [error.value for error in app.error] == [
            plain("the loss became non-finite at step 77; try a smaller max_change")
        ]
        assert "step size 9" in app.code[0].value
        assert "Resume" in [button.label for button in app.button]

    def test_queued_has_nothing_to_show_yet(self, store: RunStore) -> None:
        app = visit(run=create_training(store, tiny(), "waiting").id)
        assert "on its way" in texts(app)
        assert not charts(app)

    def test_numbers_of_a_damaged_result_do_not_break_the_page(self, trained: RunStore) -> None:
        run = named(trained, "six points")
        result = run.dir / "result.json"
        result.chmod(0o644)
        result.write_text("{torn")
        app = visit(run=run.id)
        assert len(charts(app)) == 5

    def test_all_trainings_leads_back_to_the_table(self, trained: RunStore) -> None:
        app = visit(run=named(trained, "six points").id)
        next(button for button in app.button if button.label == "All trainings").click().run()
        assert "run" not in app.query_params
        assert app.dataframe

    @pytest.mark.parametrize("run_id", ["train-20260101-nobody", "../../etc/passwd", "<b>x</b>", "\0"])
    def test_a_bad_address_gets_a_sentence_and_a_way_back(self, trained: RunStore, run_id: str) -> None:
        app = visit(run=run_id)
        (error,) = app.error
        assert error.value.endswith(".")
        assert [button.label for button in app.button] == ["All trainings"]

    def test_a_run_of_another_kind_is_opened_on_the_page_of_its_kind(self, store: RunStore) -> None:
        run = store.create("match", {}, name="a matching")
        app = visit(run=run.id)
        assert not app.error
        assert [title.value for title in app.title] == ["a matching"]
        assert app.query_params == {"run": run.id}

    def test_a_name_with_markup_is_shown_as_typed(self, store: RunStore) -> None:
        name = "<script>x</script> **bold** :red[x]"
        app = visit(run=create_training(store, tiny(), name).id)
        assert [title.value for title in app.title] == [plain(name)]


class TestTable:
    def test_empty_store_says_what_to_do(self, own_store: Path) -> None:
        app = visit("Trained networks")
        assert "No network has been trained yet" in texts(app)
        assert not app.dataframe

    def test_only_what_differs_is_a_column(self, trained: RunStore) -> None:
        frame = visit("Trained networks").dataframe[0].value
        assert list(frame["name"]) == ["eight points", "six points"]
        differing = {"n", "recipe", "weight_decay", "epochs", "target_loss"}
        assert differing <= set(frame.columns)
        assert not {"widths", "source", "task", "seed", "init_scale"} & set(frame.columns)
        assert list(frame["n"]) == [8, 6]
        assert frame["train_error"].tolist()[1] == 0.0
        assert (frame["seconds"] > 0).all()

    def test_running_and_failed_runs_are_listed_too(self, trained: RunStore) -> None:
        create_training(trained, tiny(), "waiting")
        frame = visit("Trained networks").dataframe[0].value
        assert list(frame["state"]) == ["queued", "done", "done"]

    def test_a_link_compares_runs_on_common_axes(self, trained: RunStore) -> None:
        ids = [named(trained, name).id for name in ("six points", "eight points")]
        app = visit("Trained networks", t_cmp=ids)
        assert app.multiselect(key="t_cmp").value == ids
        assert len(charts(app)) == 4
        differences = app.dataframe[1].value
        assert list(differences.columns) == ["six points", "eight points"]
        assert list(differences.loc["n"]) == ["6", "8"]
        assert list(differences.loc["recipe"]) == ["flow", "stationary"]
        assert "widths" not in differences.index

    def test_the_choice_gets_into_the_address_and_opens_a_run(self, trained: RunStore) -> None:
        run = named(trained, "six points")
        app = visit("Trained networks")
        app.multiselect(key="t_cmp").set_value([run.id]).run()
        assert app.query_params["t_cmp"] == run.id
        assert "Choose another one" in texts(app)
        assert not charts(app)
        app.button(key=f"open-{run.id}").click().run()
        assert app.query_params["run"] == run.id
        assert [title.value for title in app.title] == ["six points"]

    def test_runs_that_are_gone_are_left_out_of_the_choice(self, trained: RunStore) -> None:
        app = visit("Trained networks", t_cmp=["train-20260101-nobody", named(trained, "six points").id])
        assert app.multiselect(key="t_cmp").value == [named(trained, "six points").id]

    def test_runs_of_one_name_are_told_apart(self, store: RunStore) -> None:
        for _ in range(2):
            create_training(store, tiny(), "twin")
        options = visit("Trained networks").multiselect(key="t_cmp").options
        assert sorted(options) == ["twin", "twin #2"]


def checkpoint(*sizes: int, bias: bool = True) -> bytes:
    layers = []
    for index, (takes, gives) in enumerate(itertools.pairwise(sizes)):
        last = index == len(sizes) - 2
        layers += [torch.nn.Linear(takes, gives, bias=bias and not last), torch.nn.ReLU()]
    file = io.BytesIO()
    torch.save(torch.nn.Sequential(*layers[:-1]).state_dict(), file)
    return file.getvalue()


def upload(app: AppTest, key: str, name: str, content: bytes) -> AppTest:
    app.file_uploader(key=key).set_value((name, content, "application/octet-stream"))
    app.run()
    assert not app.exception
    return app


def left_behind(own_store: Path) -> list[str]:
    return sorted(os.listdir(own_store / ".uploads"))


class TestFromElsewhere:
    def test_a_checkpoint_is_explained_and_then_imported(self, store: RunStore, own_store: Path) -> None:
        app = upload(visit("Import"), "t_checkpoint", "theirs.pth", checkpoint(192, 30, 1))
        facts = {key: row.iloc[0] for key, row in app.table[0].value.iterrows()}
        assert facts["network"] == plain("3x8x8-30-1")
        assert "ReLU" in facts["activation"]
        layers = app.dataframe[0].value
        assert list(layers["weights"]) == ["30 x 192", "1 x 30"]
        assert list(layers["bias"]) == ["yes", "no"]
        assert store.list() == []
        assert left_behind(own_store) == []

        app.button(key="t_import").click().run()
        (run,) = store.list()
        assert (run.kind, run.name, run.status.state) == ("model", "theirs.pth", RunState.DONE)
        assert app.query_params["run"] == run.id
        assert plain("3x8x8-30-1") in [row.iloc[0] for _, row in app.table[0].value.iterrows()]
        assert left_behind(own_store) == []
        assert stat.S_IMODE((own_store / ".uploads").stat().st_mode) == 0o700
        assert store.check() == []

    def test_what_the_file_does_not_tell_is_asked_for(self, store: RunStore) -> None:
        app = visit("Import")
        app.selectbox(key="t_activation").set_value("gelu").run()
        for key, text in (("t_mean", "0.5, 0.4, 0.3"), ("t_std", "0.25"), ("t_classes", "cat, dog")):
            app.text_input(key=key).set_value(text).run()
        app = upload(app, "t_checkpoint", "theirs.pth", checkpoint(192, 30, 1))
        facts = {key: row.iloc[0] for key, row in app.table[0].value.iterrows()}
        assert facts["activation"] == "gelu"
        app.button(key="t_import").click().run()
        (run,) = store.list()
        result = store.open(run.id).result() or {}
        assert result["normalisation"] == {"mean": [0.5, 0.4, 0.3], "std": [0.25] * 3}
        assert result["class_names"] == ["cat", "dog"]

    def test_a_layout_that_cannot_be_is_explained(self, store: RunStore) -> None:
        app = visit("Import")
        app.text_input(key="t_layout").set_value("dense, pool, dense").run()
        app = upload(app, "t_checkpoint", "theirs.pth", checkpoint(192, 30, 1))
        assert "Unknown layer" in app.error[0].value
        assert store.list() == []

    def test_the_same_file_twice_is_one_import(self, store: RunStore) -> None:
        content = checkpoint(2, 5, 1)
        for _ in range(2):
            app = upload(visit("Import"), "t_checkpoint", "points.pt", content)
            app.button(key="t_import").click().run()
        assert len(store.list()) == 1

    @pytest.mark.parametrize(
        ("name", "content", "shape", "said"),
        [
            ("junk.pth", b"not a checkpoint", "", "junk.pth"),
            ("empty.safetensors", b"", "", "empty.safetensors"),
            ("odd.pth", checkpoint(17, 5, 1), "", "takes inputs of 17 numbers"),
            ("odd.pth", checkpoint(17, 5, 1), "3,8,8", "takes inputs of 17 numbers"),
            ("odd.pth", checkpoint(17, 5, 1), "wide", "input_shape must be a valid integer"),
            ("big.pth", b"0" * (50 * 2**20 + 1), "", "larger than 50 MB"),
        ],
    )
    def test_a_bad_upload_is_a_sentence_and_leaves_nothing(
        self, store: RunStore, own_store: Path, name: str, content: bytes, shape: str, said: str
    ) -> None:
        app = upload(visit("Import", t_shape=shape), "t_checkpoint", name, content)
        assert plain(said).lower() in fault(app).lower()
        assert ".uploads" not in fault(app).replace("\\", "")
        assert not [button for button in app.button if button.key == "t_import"]
        assert store.list() == []
        assert not (own_store / ".uploads").exists() or left_behind(own_store) == []

    def test_a_shape_that_cannot_be_inferred_can_be_given(self, store: RunStore) -> None:
        app = upload(visit("Import", t_shape="17"), "t_checkpoint", "odd.pth", checkpoint(17, 5, 1))
        assert not app.error
        app.button(key="t_import").click().run()
        assert store.open(store.list()[0].id).config["input_shape"] == [17]

    def test_a_run_of_another_store_is_taken_in(self, trained_store: Path, store: RunStore, tmp_path: Path) -> None:
        source = named(RunStore(trained_store), "six points")
        archive = RunStore(trained_store).export(source.id, tmp_path)
        app = upload(visit("Import"), "t_zip", "six.zip", archive.read_bytes())
        app.button(key="t_take").click().run()
        assert [success.value for success in app.success] == [plain("Imported: six points")]
        assert named(store, "six points").result() == source.result()

    def test_a_bad_zip_is_a_sentence(self, store: RunStore) -> None:
        app = upload(visit("Import"), "t_zip", "six.zip", b"PK nonsense")
        app.button(key="t_take").click().run()
        assert plain("six.zip") in fault(app).lower()
        assert store.list() == []


class TestMemory:
    """A run that would not fit: the form says so with both numbers, and starts it only if insisted on."""

    def box(self, app: AppTest) -> list[Any]:
        return [box for box in app.checkbox if box.label == "Start it anyway"]

    def test_what_fits_starts_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(memory, "free_memory", lambda: memory.FreeMemory(2.0**40, "free"))
        app = visit()
        assert self.box(app) == []
        assert not start_button(app).disabled

    def test_what_does_not_is_said_and_insisted_on(self, store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(memory, "free_memory", lambda: memory.FreeMemory(0.1 * 2**30, "free"))
        app = visit()
        assert any("0.1 GiB are free" in warning.value.replace("\\", "") for warning in app.warning)
        assert start_button(app).disabled
        self.box(app)[0].check().run()
        start_button(app).click().run()
        assert [summary.kind for summary in store.list()] == ["train"]
