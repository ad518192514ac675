"""The circle on the home page, on real stores."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest

from recon_core.attacks.circle import PAPER_DISTANCE, PAPER_THRESHOLD
from recon_core.kinds import perform
from recon_core.runs import StopFlag
from recon_core.runs.circle import CircleSettings
from recon_core.scheduling import queue
from recon_core.store import Run, RunState, RunStore
from recon_core.views.circle_frames import load_shipped
from recon_core.views.circle_recording import clean_up_points, training_points
from tests.pages.page_texts import raw_texts as texts
from ui.circle.cached import forget_circles
from ui.circle.choice import DISTANCE, THRESHOLD
from ui.circle.recording import RECORDED
from ui.shared.formatting import plain
from ui.shared.store import forget

APP = str(Path(__file__).resolve().parents[2] / "app.py")
SMALL = CircleSettings(n=4, width=50)
ADDRESS = {"view": "circle", "c_n": "4", "c_width": "50"}


@pytest.fixture(scope="module", autouse=True)
def _quick_attacks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CircleSettings, "_attack", lambda self: {"seed": self.seed, "iterations": 40})
        yield


@pytest.fixture(autouse=True)
def _nobody_hands_out_tickets(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is put in line stays there: no process is left behind."""
    monkeypatch.setattr(queue, "ensure_scheduler", lambda root: None)


@pytest.fixture(autouse=True)
def _nothing_remembered() -> None:
    forget()
    forget_circles()


def visit(**query: str) -> AppTest:
    app = AppTest.from_file(APP, default_timeout=240)
    app.query_params.update(query)
    return fresh(app)


def fresh(app: AppTest) -> AppTest:
    forget()
    forget_circles()
    app.run()
    assert not app.exception
    return app


def press(app: AppTest, label: str) -> AppTest:
    (button,) = [button for button in app.button if button.label == label]
    button.click()
    return fresh(app)


def labels(app: AppTest) -> list[str]:
    return [button.label for button in app.button]


def scenes(app: AppTest) -> list[dict[str, Any]]:
    """What the players were sent."""
    found = [element.proto for element in app.get("bidi_component")]
    return [json.loads(proto.json) for proto in found if proto.component_name == "afterimage_circle"]


def counts(app: AppTest) -> dict[str, str]:
    return {metric.label: metric.value for metric in app.metric}


@pytest.fixture(scope="module")
def finished_store(_quick_attacks: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One finished circle, made once."""
    root = tmp_path_factory.mktemp("finished") / "runs"
    for run in SMALL.queue(RunStore(root)):
        assert perform(run, StopFlag()) is RunState.DONE
    return root


class TestHome:
    def test_three_ways_in_and_a_picture(self, own_store: Path) -> None:
        app = visit()
        assert labels(app) == ["Watch the circle", "Reconstruct CIFAR images", "Bring your own model"]
        assert "what an attack drew out of its weights" in texts(app)
        assert not own_store.exists()

    def test_the_circle_has_an_address_and_a_way_back(self) -> None:
        app = press(visit(), "Watch the circle")
        assert app.query_params == {"view": "circle"}
        assert [header.value for header in app.header] == ["The circle"]
        app = press(app, "Home")
        assert "view" not in app.query_params
        assert "Watch the circle" in labels(app)

    def test_unknown_view_is_home(self) -> None:
        assert "Watch the circle" in labels(visit(view="<b>nothing</b>"))


class TestRecording:
    """What ships with the project, at the default settings."""

    def test_plays_at_once_and_makes_nothing(self, own_store: Path) -> None:
        app = visit(view="circle")
        (scene,) = scenes(app)
        assert scene["mode"] == "recording"
        assert scene["autoplay"]
        assert scene["labels"] == [0, 1] * 10
        assert [stage["key"] for stage in scene["stages"]] == list("abcdef")
        assert counts(app) == {"Found within 0.1": "20 of 20", "Found within 0.03": "20 of 20"}
        assert "Recorded from a real run" in texts(app)
        assert "model inversion finds 3 and 2" in texts(app)
        assert not own_store.exists()

    def test_sliders_and_overlays_act_on_it(self) -> None:
        app = visit(view="circle")
        app.slider(key="c_lam").set_value(40.0)
        app = fresh(app)
        (scene,) = scenes(app)
        assert counts(app)["Found within 0.1"] == "0 of 20"
        assert not any(scene["kept"])
        app.slider(key="c_lam").set_value(0.0)
        app.slider(key="c_r").set_value(0.0)
        (scene,) = scenes(fresh(app))
        assert all(scene["kept"])
        app.button_group(key="c_over").set_value(["weights", "inversion", "found"])
        (scene,) = scenes(fresh(app))
        assert [one["kind"] for one in scene["overlays"]] == ["weights", "inversion"]
        assert len(scene["found"]) == 20

    def test_was_made_with_the_settings_it_stands_for(self) -> None:
        circle = load_shipped()
        settings = CircleSettings(**asdict(RECORDED))
        truth = training_points(settings.training())
        assert settings == CircleSettings()
        assert np.allclose(circle.truth.points, truth.points)
        assert (circle.truth.labels == truth.labels).all()
        assert (circle.threshold, circle.distance) == (PAPER_THRESHOLD, PAPER_DISTANCE) == (THRESHOLD, DISTANCE)
        again = clean_up_points(
            circle.attack, truth, threshold=circle.threshold, distance=circle.distance, seed=circle.seed
        )
        assert (again.kept == circle.cleaned.kept).all()
        assert np.allclose(again.distances, circle.cleaned.distances)
        assert np.allclose(circle.candidates.points[-1], circle.attack.points, atol=2e-3)

    def test_run_it_live_starts_even_what_is_finished(self, store: RunStore) -> None:
        app = press(visit(view="circle"), "Run it live")
        (first,) = store.list("train")
        assert app.query_params["c_live"] == [first.id] or app.query_params["c_live"] == first.id
        assert len(queue.waiting(store)) == 4
        (scene,) = scenes(app)
        assert scene["mode"] == "live"
        assert store.open(first.id).config == CircleSettings().training().model_dump(mode="json")

    def test_a_knob_starts_it_live(self, store: RunStore) -> None:
        app = visit(view="circle")
        app.selectbox(key="c_n").set_value(6)
        app.selectbox(key="c_width").set_value(50)
        app = fresh(app)
        (first,) = store.list("train")
        assert store.open(first.id).config["data"]["n"] == 6
        (scene,) = scenes(app)
        assert scene["mode"] == "live"
        # The next turn leaves it off: nobody waits for it any more.
        app.selectbox(key="c_n").set_value(4)
        app = fresh(app)
        assert store.open(first.id).status().state is RunState.CANCELLED
        assert len(store.list("train")) == 2
        (scene,) = scenes(app)
        assert scene["mode"] == "live"
        assert len(scene["labels"]) == 4

    def test_watching_the_circle_again_opens_the_recording(self, store: RunStore) -> None:
        app = visit(view="circle")
        app.selectbox(key="c_n").set_value(6)
        app = press(press(fresh(app), "Home"), "Watch the circle")
        (scene,) = scenes(app)
        assert scene["id"] == "shipped"


class TestEmptyStore:
    def test_says_what_will_happen_and_shows_the_points(self, own_store: Path) -> None:
        app = visit(view="circle", c_labels="two arcs")
        assert "This setting has not been run yet" in texts(app)
        assert "half a minute" in texts(app)
        (scene,) = scenes(app)
        assert scene["mode"] == "still"
        assert scene["labels"] == [1] * 10 + [0] * 10
        assert not counts(app)
        assert all(slider.disabled for slider in app.slider)
        assert not own_store.exists()

    def test_settings_come_from_the_address(self) -> None:
        app = visit(view="circle", c_n="8", c_labels="two arcs", c_width="200", c_decay="0.001", c_seed="3")
        (scene,) = scenes(app)
        assert scene["labels"] == [1, 1, 1, 1, 0, 0, 0, 0]
        assert scene["id"] == CircleSettings(n=8, labels="arcs", width=200, weight_decay=1e-3, seed=3).title()

    @pytest.mark.parametrize(
        "wrong",
        [
            {"c_n": "7"},
            {"c_n": "<b>20</b>"},
            {"c_labels": "**bold**"},
            {"c_width": "-1"},
            {"c_decay": "nan"},
            {"c_seed": "-5"},
            {"c_seed": "99999999999999999999"},
            {"c_lam": "oops"},
            {"c_r": "1e9"},
            {"c_over": "weights,nothing"},
            {"c_two": "maybe"},
        ],
    )
    def test_wrong_values_fall_back(self, wrong: dict[str, str]) -> None:
        app = visit(view="circle", **wrong)
        (scene,) = scenes(app)
        assert scene["id"] == "shipped"
        assert not app.error

    def test_start_puts_everything_in_line_once(self, store: RunStore) -> None:
        app = press(visit(**ADDRESS), "Start")
        kinds = [summary.kind for summary in store.list()]
        assert sorted(kinds) == ["reconstruct", "reconstruct", "reconstruct", "train"]
        assert len(queue.waiting(store)) == 4
        assert store.open(queue.waiting(store)[0]).kind == "train"
        assert "Training" in texts(app)
        assert "queued" in texts(app)
        (scene,) = scenes(app)
        assert scene["mode"] == "live"
        assert scene["stages"] == []
        assert "Start" not in labels(app)

    def test_cancelled_it_can_go_on_or_start_again(self, store: RunStore) -> None:
        app = press(press(visit(**ADDRESS), "Start"), "Cancel")
        (warning,) = app.warning
        assert warning.value.startswith("Training was cancelled")
        (first,) = store.list("train")
        app = press(app, "Go on")
        assert store.open(first.id).status().state is RunState.QUEUED
        assert "Cancel" in labels(app)
        app = press(press(app, "Cancel"), "Start again")
        assert len(store.list("train")) == 2
        assert "Cancel" in labels(app)


class TestFinished:
    @pytest.fixture
    def runs(self, store: RunStore, finished_store: Path) -> list[Run]:
        """Training, attack, inversion, untrained."""
        shutil.copytree(finished_store, store.root)
        return [store.open(summary.id) for summary in reversed(store.list())]

    def test_is_shown_at_once_as_a_recording(self, runs: list[Run]) -> None:
        app = visit(**ADDRESS)
        (scene,) = scenes(app)
        assert scene["mode"] == "recording"
        assert [stage["key"] for stage in scene["stages"]] == list("abcdef")
        assert all(stage["title"] and stage["note"].endswith(".") for stage in scene["stages"])
        assert scene["candidate_steps"][-1] == 40
        assert len(scene["kept"]) == len(scene["candidate_labels"]) == 100
        assert scene["id"] == f"{runs[0].id}+{runs[1].id}"
        assert set(counts(app)) == {"Found within 0.1", "Found within 0.03"}
        assert "which the attack never sees" in texts(app)
        assert "model inversion finds" in texts(app)
        assert "untrained network" in texts(app)
        assert "Start" not in labels(app)

    def test_sliders_act_at_once(self, runs: list[Run]) -> None:
        app = visit(**ADDRESS)
        (before,) = scenes(app)
        app.slider(key="c_lam").set_value(0.0)
        app.slider(key="c_r").set_value(0.0)
        (every,) = scenes(fresh(app))
        assert sum(every["kept"]) == 100
        app.slider(key="c_r").set_value(0.3)
        (few,) = scenes(fresh(app))
        assert sum(few["kept"]) < 100
        assert few["id"] == before["id"]
        assert f"{sum(few['kept'])} in all" in few["stages"][5]["note"]
        app.slider(key="c_lam").set_value(40.0)
        app = fresh(app)
        assert counts(app)["Found within 0.1"] == "0 of 4"
        (warning,) = app.warning
        assert "No candidate has a multiplier of 40 or more" in warning.value

    def test_slider_values_come_from_the_address(self, runs: list[Run]) -> None:
        (scene,) = scenes(visit(**ADDRESS, c_lam="0", c_r="0"))
        assert sum(scene["kept"]) == 100

    def test_overlays(self, runs: list[Run]) -> None:
        app = visit(**ADDRESS)
        assert scenes(app)[0]["overlays"] == []
        app.pills(key="c_over").set_value(["weights", "inversion", "found"])
        (scene,) = scenes(fresh(app))
        assert [one["kind"] for one in scene["overlays"]] == ["weights", "inversion"]
        assert len(scene["found"]) == 4
        assert "found within 0.1" in [words for _, words in scene["legend"]]

    def test_two_settings_side_by_side(self, runs: list[Run]) -> None:
        app = visit(**ADDRESS, c_two="true", d_n="6", d_labels="random", d_seed="2")
        first, second = scenes(app)
        assert (first["mode"], second["mode"]) == ("recording", "still")
        assert (len(first["labels"]), len(second["labels"])) == (4, 6)
        assert (first["slot"], second["slot"]) == ("0", "1")
        assert labels(app).count("Start") == 1

    def test_runs_can_be_looked_at(self, runs: list[Run]) -> None:
        app = press(visit(**ADDRESS), "The attack's run")
        assert app.query_params["run"] == runs[1].id
        app = press(app, "Back to the circle")
        assert [header.value for header in app.header] == ["The circle"]


class TestUnfinished:
    def test_a_network_that_has_not_learnt_says_so(self, store: RunStore) -> None:
        train, *others = SMALL.queue(store)
        for run in others:
            store.delete(run.id)
        with train.writer() as writer:
            writer.start(1)
            writer.save_tensors("recording", {"fields": torch.zeros(1, 48, 48), "steps": torch.tensor([0])})
            writer.finish(RunState.DONE, {"train_error": 0.25})
        (scene,) = scenes(visit(**ADDRESS))
        assert "25% of the training points are on the wrong side" in scene["stages"][1]["note"]

    def test_failed_says_why_and_offers_a_way_on(self, store: RunStore) -> None:
        train, *_ = SMALL.queue(store)
        with train.writer() as writer:
            writer.start(10)
            writer.finish(RunState.FAILED, None, "the loss *broke*")
        app = visit(**ADDRESS)
        (error,) = app.error
        assert error.value == f"Training failed: {plain('the loss *broke*')}"
        assert {"Go on", "Start again", "Look at the run"} <= set(labels(app))
        (scene,) = scenes(app)
        assert scene["mode"] == "still"

    def test_attack_that_failed_starts_again_on_the_same_network(self, store: RunStore) -> None:
        train, attack, *_ = SMALL.queue(store)
        perform(train, StopFlag())
        with attack.writer() as writer:
            writer.start(10)
            writer.finish(RunState.FAILED, None, "diverged")
        app = press(visit(**ADDRESS), "Start again")
        assert len(store.list("train")) == 1
        assert len(queue.waiting(store)) == 3
        assert "The attack" in texts(app)

    def test_trained_elsewhere_but_not_attacked(self, store: RunStore) -> None:
        train, *others = SMALL.queue(store)
        perform(train, StopFlag())
        for run in others:
            store.delete(run.id)
        app = visit(**ADDRESS)
        (scene,) = scenes(app)
        assert scene["mode"] == "recording"
        assert [stage["key"] for stage in scene["stages"]] == ["a", "b"]
        press(app, "Attack")
        assert [store.open(run_id).parents for run_id in queue.waiting(store)] == [(train.id,)] * 3

    def test_training_at_work_shows_its_field(self, store: RunStore) -> None:
        train, *_ = SMALL.queue(store)
        stop = StopFlag()

        def stop_soon(fraction: float | None, message: str) -> None:
            stop.raised = True

        perform(train, stop, stop_soon)
        with train.writer() as writer:
            writer.start(100)
            writer.metrics({"step": 30, "log_loss": -1.5})
            writer.progress(30, force=True)
            app = visit(**ADDRESS)
            (scene,) = scenes(app)
        assert scene["mode"] == "live"
        assert scene["side"] == 48
        assert scene["step"] is not None
        assert "step 30" in texts(app)
        assert "on its way to -2.6" in texts(app)
        assert not app.get("progress"), "nobody knows how many steps it takes"
