"""The experiment behind the home page's second button, on real stores."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from recon_core.attacks import find_attack
from recon_core.config import TrainConfig, parse_config
from recon_core.kinds import perform
from recon_core.presets import find_preset
from recon_core.runs import StopFlag
from recon_core.runs.chain_search import find_attack_chain
from recon_core.runs.chains import Chain, create_attack_chain
from recon_core.runs.circle import CircleSettings
from recon_core.scheduling import queue
from recon_core.store import RunState, RunStore
from tests.pages.page_texts import raw_texts as texts
from ui.home import experiment
from ui.home.margins import described as described_margins
from ui.shared.store import forget

APP = str(Path(__file__).resolve().parents[2] / "app.py")
SMALL = {
    "data": {"source": "cifar10", "n": 4},
    "model": {"widths": [10]},
    "training": {"recipe": "flow", "target_log_loss": -20.0},
}


@pytest.fixture(autouse=True)
def _nobody_hands_out_tickets(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is put in line stays there: no process is left behind."""
    monkeypatch.setattr(queue, "ensure_scheduler", lambda root: None)


@pytest.fixture(autouse=True)
def _nothing_remembered() -> Iterator[None]:
    forget()
    yield
    forget()


def small() -> TrainConfig:
    return parse_config(TrainConfig, SMALL)


def visit(**query: str) -> AppTest:
    app = AppTest.from_file(APP, default_timeout=240)
    app.query_params.update(query)
    return fresh(app)


def fresh(app: AppTest) -> AppTest:
    forget()
    app.run()
    assert not app.exception
    return app


def press(app: AppTest, label: str) -> AppTest:
    (button,) = [button for button in app.button if button.label == label]
    button.click()
    return fresh(app)


def labels(app: AppTest) -> list[str]:
    return [button.label for button in app.button]


def test_a_click_outlives_the_page_that_is_drawn_anew_meanwhile(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is where somebody clicks twice while the engine is loaded."""
    opened: list[str] = []
    really = experiment.open_first_experiment

    def interrupted() -> str:
        opened.append("")
        if len(opened) == 1:
            st.rerun()
        return really()

    monkeypatch.setattr(experiment, "open_first_experiment", interrupted)
    app = press(visit(), "Reconstruct CIFAR images")
    [match] = [run for run in store.list() if run.kind == "match"]
    assert app.query_params["chain"] == match.id
    assert len(opened) == 2
    # Back on the home page, the click is over.
    assert "Watch the circle" in labels(press(app, "Home"))
    assert len(store.list("train")) == 1


def parts(app: AppTest) -> dict[str, Any]:
    """What the gallery and the figure of margins were sent."""
    sent = [json.loads(element.proto.json) for element in app.get("bidi_component")]
    return {"gallery" if "pairs" in one else "margins": one for one in sent}


def do(*runs: Any) -> None:
    for run in runs:
        assert perform(run, StopFlag()) is RunState.DONE


@pytest.fixture(scope="module")
def finished_store(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """One finished experiment on four images, with its controls."""
    root = tmp_path_factory.mktemp("experiment") / "runs"
    chain = create_attack_chain(RunStore(root), small(), attack={"iterations": 30})
    do(*chain.runs)
    return root, chain.runs[-1].id


class TestStarting:
    def test_one_button_queues_it_with_the_controls_last(self, store: RunStore) -> None:
        app = press(visit(), "Reconstruct CIFAR images")
        waiting = [store.open(run_id) for run_id in queue.waiting(store)]
        assert [run.kind for run in waiting] == ["train", "reconstruct", "reconstruct", "match"]
        assert [bool(run.config.get("baseline")) for run in waiting] == [False, False, True, False]
        assert [ticket.background for ticket in queue.tickets(store.root)] == [False, False, True, True]
        assert waiting[0].config == find_preset(experiment.FIRST_PRESET).config().model_dump(mode="json")
        assert app.query_params["chain"] == waiting[3].id

    def test_pictures_are_there_before_anything_is_computed(self, store: RunStore) -> None:
        found = parts(press(visit(), "Reconstruct CIFAR images"))
        assert len(found["gallery"]["pairs"]) == 20
        assert found["gallery"]["images"]["count"] == 50
        assert found["gallery"]["reconstructions"] is None
        assert found["margins"]["steps"] == []

    def test_one_that_is_going_on_is_joined(self, store: RunStore) -> None:
        first = press(visit(), "Reconstruct CIFAR images").query_params["chain"]
        app = press(visit(), "Reconstruct CIFAR images")
        assert app.query_params["chain"] == first
        assert len(store.list("train")) == 1
        assert not app.info

    def test_a_finished_one_is_offered_instead_of_computed_again(
        self, store: RunStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        preset = find_preset(experiment.FIRST_PRESET)
        monkeypatch.setattr(type(preset), "config", lambda self, size=None: small())
        chain = create_attack_chain(store, small())
        _pretend_done(chain)
        app = press(visit(), "Reconstruct CIFAR images")
        assert app.query_params["chain"] == chain.runs[-1].id
        assert "just now" in app.info[0].value
        assert len(store.list("train")) == 1
        app = press(app, "Run it again")
        assert len(store.list("train")) == 2
        assert app.query_params["chain"] != chain.runs[-1].id
        assert not app.info

    @pytest.mark.parametrize(
        "other", [{"data": {"source": "cifar10", "n": 6}}, {"model": {"widths": [11]}}, {"model": {"seed": 1}}]
    )
    def test_other_settings_are_another_experiment(self, store: RunStore, other: dict[str, Any]) -> None:
        chain = create_attack_chain(store, small())
        _pretend_done(chain)
        found = find_attack_chain(store, small())
        assert found is not None
        assert found.match.id == chain.runs[-1].id
        assert find_attack_chain(store, parse_config(TrainConfig, {**SMALL, **other})) is None

    def test_another_attack_is_another_experiment(self, store: RunStore) -> None:
        _pretend_done(create_attack_chain(store, small(), attack={"iterations": 30}))
        assert find_attack_chain(store, small()) is None

    def test_an_attack_of_an_earlier_version_is_another_experiment(self, store: RunStore) -> None:
        _pretend_done(create_attack_chain(store, small()), version=find_attack("copies").version - 1)
        assert find_attack_chain(store, small()) is None

    def test_a_failed_one_is_not_offered(self, store: RunStore) -> None:
        chain = create_attack_chain(store, small())
        with chain.train.writer() as writer:
            writer.start(1)
            writer.finish(RunState.FAILED, None, "no luck")
        assert find_attack_chain(store, small()) is None


def _pretend_done(chain: Chain, version: int = find_attack("copies").version) -> None:
    """Training and attack as far as a search looks at them."""
    for run in (chain.train, chain.attack):
        with run.writer() as writer:
            writer.start(1)
            writer.finish(RunState.DONE, {"data": {}, "attack_version": version})


class TestAtWork:
    def test_training_shows_margins_and_the_loss_on_its_way(self, store: RunStore) -> None:
        chain = create_attack_chain(store, find_preset(experiment.FIRST_PRESET).config())
        rows = [{"step": step, "log_loss": -float(step), "margin_levels": [0.1 * step, 1.0 * step]} for step in (0, 10)]
        with chain.train.writer() as writer:
            writer.start(None)
            for row in rows:
                writer.metrics(row)
            writer.progress(10, total=51_065, force=True)
            app = visit(chain=chain.runs[-1].id)
        found = parts(app)["margins"]
        assert found["steps"] == [0, 10]
        assert found["levels"][-1] == [1.0, 10.0]
        assert "step 10, log10 loss -4.3 on its way to -434 · usually 2–5 s" in texts(app)
        assert "51,065" not in texts(app)
        assert not app.get("progress")

    def test_candidates_are_matched_while_the_attack_goes_on(self, store: RunStore) -> None:
        chain = create_attack_chain(store, small(), attack={"iterations": 30})
        do(chain.train)
        stop = StopFlag()

        def stop_soon(fraction: float | None, message: str) -> None:
            stop.raised = True

        perform(chain.attack, stop, stop_soon)
        with chain.attack.writer() as writer:
            writer.start(30)
            writer.progress(10, force=True)
            app = visit(chain=chain.runs[-1].id)
        gallery = parts(app)["gallery"]
        assert gallery["candidates"]["count"] == store.open(chain.attack.id).config["settings"]["m"]
        assert len(gallery["pairs"]) == gallery["reconstructions"]["count"] == 4
        shown = [float(pair["label"].removeprefix("✓ ")) for pair in gallery["pairs"]]
        assert shown == sorted(shown, reverse=True)
        metrics = {metric.label: metric.value for metric in app.metric}
        assert metrics["Good reconstructions"].endswith(" of 4")
        assert metrics["Chance level"].endswith(" of 4")
        assert "step 10 of 30" in texts(app)
        assert "untrained network …" in texts(app)

    def test_what_went_wrong_is_said_with_a_way_to_the_run(self, store: RunStore) -> None:
        chain = create_attack_chain(store, small())
        with chain.train.writer() as writer:
            writer.start(1)
            writer.finish(RunState.FAILED, None, "no luck")
        app = visit(chain=chain.runs[-1].id)
        (error,) = app.error
        assert "no luck" in error.value
        app = press(app, "Open the run")
        assert app.query_params == {"run": chain.train.id}
        app = press(app, "Back to the experiment")
        assert app.query_params == {"chain": chain.runs[-1].id}


class TestFinished:
    def test_the_result_comes_before_the_controls(self, store: RunStore) -> None:
        chain = create_attack_chain(store, small(), attack={"iterations": 30})
        do(chain.train, chain.attack)
        app = visit(chain=chain.runs[-1].id)
        assert "Open in Match" in labels(app)
        assert "untrained network …" in texts(app)
        assert "they fill in by themselves" in texts(app)

    def test_controls_stand_beside_the_count(self, store: RunStore, finished_store: tuple[Path, str]) -> None:
        root, match_id = finished_store
        shutil.copytree(root, store.root)
        app = visit(chain=match_id)
        count = (store.open(match_id).result() or {})["count"]
        metrics = {metric.label: metric.value for metric in app.metric}
        assert metrics["Good reconstructions"] == f"{count['good']} of 4"
        assert f"untrained network {count['control_untrained']}; held-out images {count['non_members']} of" in texts(
            app
        )
        assert "…" not in texts(app)
        assert parts(app)["margins"]["steps"]

    def test_points_are_said_in_words(self, store: RunStore) -> None:
        chain = create_attack_chain(store, CircleSettings(n=4, width=50).training(), attack={"iterations": 9})
        do(*chain.runs)
        app = visit(chain=chain.runs[-1].id)
        (sentence,) = [subheader.value for subheader in app.subheader]
        assert "points" in sentence
        assert "Open in Match" in labels(app)


class TestAddress:
    @pytest.mark.parametrize("named", ["match-20260101-nobody", "../../etc", ""])
    def test_bad_address_is_a_sentence(self, named: str) -> None:
        (error,) = visit(chain=named).error
        assert error.value.endswith(".")

    def test_a_run_of_another_kind_is_a_sentence(self, store: RunStore) -> None:
        train, *_ = CircleSettings(n=4, width=50).queue(store)
        (error,) = visit(chain=train.id).error
        assert "match run" in error.value


def test_margins_are_thinned_out_but_keep_their_ends() -> None:
    rows: list[dict[str, Any]] = [{"step": step, "margin_levels": [0.0, float(step)]} for step in range(1001)]
    rows.append({"step": 1001, "margin_levels": [0.0, float("nan")]})
    found = described_margins(rows, "Margins")
    assert found["steps"][0] == 0
    assert found["steps"][-1] == 1000
    assert len(found["steps"]) <= 202
    assert described_margins([], "Margins")["steps"] == []
