"""The Analyze page on stores whose answer is known."""

from __future__ import annotations

import base64
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from recon_core.kinds import perform
from recon_core.runs import StopFlag
from recon_core.store import Run, RunState, RunStore
from tests.pages.page_texts import settled, texts
from tests.runs.match_runs import CIRCLE, MNIST, candidate_run, data_of, noise, noisy_copies, train_run
from ui.analyze.choice import Choice, read, written
from ui.analyze.one import choice_after, selected_samples
from ui.shared.store import forget

APP = str(Path(__file__).resolve().parents[2] / "app.py")
SHAPE = (1, 28, 28)


def visit(**query: str) -> AppTest:
    forget()
    app = AppTest.from_file(APP, default_timeout=240)
    app.switch_page("pages/4_Analyze.py")
    app.query_params.update(query)
    return settled(app)


def figure_in(app: AppTest) -> dict[str, Any]:
    return unpacked(json.loads(app.get("plotly_chart")[0].proto.spec))


def unpacked(part: Any) -> Any:
    """Plotly writes arrays as base64; here they are lists again."""
    if isinstance(part, dict) and "bdata" in part:
        values = np.frombuffer(base64.b64decode(part["bdata"]), dtype=part["dtype"])
        shape = [int(size) for size in str(part.get("shape", len(values))).split(",")]
        return values.reshape(shape).tolist()
    if isinstance(part, dict):
        return {name: unpacked(value) for name, value in part.items()}
    return [unpacked(value) for value in part] if isinstance(part, list) else part


def headings(app: AppTest) -> list[str]:
    return [heading.value for heading in app.subheader]


def matched(store: RunStore, *runs: Run, **settings: Any) -> Run:
    run = store.create("match", {"runs": [run.id for run in runs], **settings}, parents=[run.id for run in runs])
    assert perform(run, StopFlag()) is RunState.DONE
    return run


def model_with_decay(store: RunStore, weight_decay: float) -> Run:
    return train_run(store, {**MNIST, "training": {"epochs": 1, "weight_decay": weight_decay}})


@pytest.fixture
def model(store: RunStore) -> Run:
    return train_run(store, MNIST)


@pytest.fixture
def noisy(store: RunStore, model: Run) -> Run:
    """Of six images, 0, 4 and 5 reach an SSIM of 0.5 at B = 1, 1.1 and 1.5."""
    return candidate_run(store, model, noisy_copies(data_of(MNIST).train_x))


class TestNothingThere:
    def test_an_empty_store_says_what_to_do(self, store: RunStore) -> None:
        app = visit()
        assert "There is nothing to analyse yet" in texts(app)
        assert [title.value for title in app.title] == ["Analyze"]
        assert not app.error

    def test_a_model_alone_has_errors_to_show(self, model: Run) -> None:
        assert "There is nothing to analyse yet" in texts(visit())
        (frame,) = visit(a_view="Errors").dataframe
        assert frame.value["train error"].tolist() == [0.0]
        assert "never matched" not in texts(visit(a_view="Weight decay"))
        assert "Match page" in visit(a_view="Weight decay").info[0].value
        assert "Choose the runs" in visit(a_view="Several models").info[0].value

    def test_a_failed_run_is_told_with_its_reason(self, store: RunStore) -> None:
        run = store.create("match", {"runs": ["reconstruct-20260101-abcdef"]}, name="unlucky")
        with run.writer() as writer:
            writer.start(1)
            writer.finish(RunState.FAILED, None, "the images are gone; restore them")
        app = visit()
        assert "unlucky is failed. the images are gone; restore them" in texts(app)
        assert not app.error


class TestOneModel:
    def test_count_chance_levels_and_points(self, store: RunStore, model: Run, noisy: Run) -> None:
        candidate_run(store, model, noise(12, SHAPE, 3), baseline="untrained")
        app = visit(a_t="0.5")
        assert headings(app) == ["4 of 6 training images reconstructed"]
        said = texts(app)
        assert "the mean image alone matches 0, an untrained network 0, 0 of 6 held-out images match" in said
        assert re.search(r"good are \d+ with the papers' 3x3 window \(chance level \d+\)", said)
        assert "SSIM (Wang, 11x11 window), B = 1.1, buzaglo protocol, good above 0.5" in said
        points = [row for trace in figure_in(app)["data"] for row in trace["customdata"]]
        assert sorted(int(row[0]) for row in points) == [0, 1, 2, 3, 4, 5]
        assert {int(row[0]): row[2] for row in points} == {sample: float(sample) for sample in range(6)}

    def test_sliders_move_count_and_plot(self, noisy: Run) -> None:
        app = visit(a_t="0.5", a_b="1.0")
        assert headings(app) == ["0 of 6 training images reconstructed"]
        before = figure_in(app)["data"][0]["y"]
        app.slider(key="a_b").set_value(1.5)
        settled(app)
        assert headings(app) == ["5 of 6 training images reconstructed"]
        assert "B = 1.5," in texts(app)
        assert figure_in(app)["data"][0]["y"] != before
        app.slider(key="a_t").set_value(0.1)
        settled(app)
        assert headings(app) == ["6 of 6 training images reconstructed"]
        assert figure_in(app)["layout"]["shapes"][0]["y0"] == 0.1

    def test_another_axis(self, noisy: Run) -> None:
        app = visit(a_x="output")
        assert figure_in(app)["layout"]["xaxis"]["title"]["text"] == "model output φ(x)"
        app.radio(key="a_x").set_value("relative")
        settled(app)
        assert figure_in(app)["layout"]["xaxis"]["title"]["text"] == "signed distance to the margin, q/γ − 1"

    def test_chance_levels_are_drawn_on_demand(self, noisy: Run) -> None:
        assert len(figure_in(visit())["data"]) == 2
        names = [trace["name"] for trace in figure_in(visit(a_f="true"))["data"]]
        assert "control: mean image alone" in names

    def test_a_match_run_is_shown_with_its_own_b(self, store: RunStore, noisy: Run) -> None:
        run = matched(store, noisy, merge_factor=1.5)
        app = visit(a_t="0.5")
        assert app.selectbox(key="a_run").value == run.id
        assert app.slider(key="a_b").value == 1.5
        assert headings(app) == ["5 of 6 training images reconstructed"]

    def test_haims_protocol_has_no_b(self, store: RunStore, noisy: Run) -> None:
        matched(store, noisy, protocol="haim")
        app = visit()
        assert app.slider(key="a_b").disabled
        assert "NCC above 0.9" in texts(app)

    def test_the_address_brings_a_choice_back(self, noisy: Run) -> None:
        app = visit(a_sel=f"{noisy.id}:1-2,5", a_img=f"{noisy.id}:2")
        assert "3 chosen images, best first" in texts(app)
        figure = figure_in(app)
        strong = {
            int(row[0])
            for trace in figure["data"][:2]
            for row, opacity in zip(trace["customdata"], trace["marker"]["opacity"], strict=True)
            if opacity == 1.0
        }
        assert strong == {1, 2, 5}
        assert figure["data"][-1]["customdata"] == [[2]]
        assert "distance to the margin 2" in texts(app)
        app.button(key="a_all").click()
        settled(app)
        assert "All 6 images" in texts(app)
        assert "a_sel" not in app.query_params

    def test_a_choice_of_another_run_is_forgotten(self, store: RunStore, model: Run, noisy: Run) -> None:
        other = candidate_run(store, model, noise(4, SHAPE, 1))
        app = visit(a_sel=f"{noisy.id}:1", a_img=f"{noisy.id}:1")
        assert app.selectbox(key="a_run").value == other.id
        assert "All 6 images" in texts(app)

    def test_points_of_the_plane_are_shown_as_such(self, store: RunStore) -> None:
        points = data_of(CIRCLE)
        candidate_run(store, train_run(store, CIRCLE), points.train_x, labels=points.train_labels)
        app = visit()
        assert "6 of 6 training points found" in texts(app)
        assert not app.error


class TestSeveralModels:
    def test_a_panel_for_each(self, store: RunStore, noisy: Run) -> None:
        first = matched(store, noisy)
        other = candidate_run(store, model_with_decay(store, 0.01), noise(6, SHAPE, 1))
        second = matched(store, other)
        app = visit(a_view="Several models", a_t="0.5")
        assert sorted(app.multiselect(key="a_runs").value) == sorted([first.id, second.id])
        titles = [note["text"] for note in figure_in(app)["layout"]["annotations"]]
        assert len(titles) == 2
        assert any(title.endswith("4 of 6 good, chance level 0") for title in titles)
        assert any(title.endswith("0 of 6 good, chance level 0") for title in titles)
        app.multiselect(key="a_runs").set_value([first.id])
        settled(app)
        assert len(figure_in(app)["layout"]["annotations"]) == 1

    def test_runs_of_one_model_are_told_apart(self, store: RunStore, noisy: Run) -> None:
        first, second = matched(store, noisy), matched(store, noisy, merge_factor=1.5)
        app = visit(a_view="Several models")
        app.multiselect(key="a_runs").set_value([first.id, second.id])
        settled(app)
        titles = [note["text"] for note in figure_in(app)["layout"]["annotations"]]
        assert first.id in titles[0]
        assert second.id in titles[1]


class TestWeightDecay:
    def test_a_point_for_each_model_with_its_controls(self, store: RunStore, noisy: Run) -> None:
        matched(store, noisy)
        matched(store, candidate_run(store, model_with_decay(store, 0.01), noise(6, SHAPE, 1)))
        never = model_with_decay(store, 0.1)
        app = visit(a_view="Weight decay", a_t="0.5")
        figure = figure_in(app)
        assert figure["layout"]["xaxis"]["ticktext"] == ["none", "0.01"]
        found = next(trace for trace in figure["data"] if trace["name"] == "reconstructions")
        assert found["y"] == [4, 0]
        assert {"mean image alone", "held-out images"} <= {trace["name"] for trace in figure["data"]}
        assert f"never matched: {never.id}" in texts(app)
        app.slider(key="a_b").set_value(1.0)
        settled(app)
        found = next(trace for trace in figure_in(app)["data"] if trace["name"] == "reconstructions")
        assert found["y"] == [0, 0]

    def test_models_matched_in_different_ways_are_not_compared(self, store: RunStore, noisy: Run) -> None:
        matched(store, noisy)
        matched(store, candidate_run(store, model_with_decay(store, 0.01), noise(6, SHAPE, 1)), ssim="authors")
        (error,) = visit(a_view="Weight decay").error
        assert "matched in different ways" in error.value

    def test_one_decay_asks_for_another(self, store: RunStore, noisy: Run) -> None:
        matched(store, noisy)
        assert "same weight decay" in visit(a_view="Weight decay").info[0].value


class TestErrors:
    def test_counts_stand_with_chance_level_ssim_and_b(self, store: RunStore, noisy: Run) -> None:
        matched(store, noisy, merge_factor=1.5)
        unmatched = model_with_decay(store, 0.01)
        app = visit(a_view="Errors", a_t="0.5")
        frame = app.dataframe[0].value.set_index("model")
        row = frame.drop(index=unmatched.id).iloc[0]
        assert (row["good"], row["chance level"], row["B"], row["SSIM"]) == (5, 0, 1.5, "wang")
        assert (row["train error"], row["test error"], row["log10 loss"]) == (
            0.0,
            0.25,
            pytest.approx(-13.8 / math.log(10)),
        )
        assert frame.loc[unmatched.id, ["good", "chance level", "B"]].isna().all()
        assert frame.loc[unmatched.id, "weight decay"] == 0.01
        assert "SSIM above 0.5" in texts(app)


class TestPresenting:
    def test_slides_follow_the_settings(self, store: RunStore, noisy: Run) -> None:
        matched(store, noisy)
        app = visit(present="1", a_t="0.5", a_b="1.5")
        assert [header.value for header in app.header] == ["SSIM against distance to the margin"]
        assert "5 of 6 good" in texts(app)
        seen = [app.query_params.get("slide", "leakage")]
        while not app.button(key="presenter-Right").disabled:
            app.button(key="presenter-Right").click()
            settled(app)
            assert not app.error
            seen.append(app.query_params["slide"])
        one = ["leakage", "best-pairs", "count-by-threshold", "sorted-ssim", "roc"]
        assert seen == [*one, "models", "weight-decay", "errors"]  # one network, one prior: nothing to line up
        assert app.table[0].value["good (chance level)"].tolist() == [r"4 \(0\)"]  # at the match run's own B

    def test_presenting_begins_at_what_is_shown(self, store: RunStore, noisy: Run) -> None:
        matched(store, noisy)
        app = visit(a_view="Weight decay")
        app.button(key="a_present").click()
        settled(app)
        assert app.query_params["slide"] == "weight-decay"
        assert app.header[0].value == "Good reconstructions of 6 training images by weight decay"


@pytest.mark.parametrize(
    "query",
    [
        {"a_run": "match-20260101-nobody", "a_sel": "x:1-2"},
        {"a_run": "../../etc/passwd", "a_sel": "<b>:**", "present": "yes"},
        {"a_t": "seven", "a_b": "-4", "a_x": "sideways", "a_view": "Nowhere"},
        {"a_runs": "nobody", "a_view": "Several models"},
    ],
)
def test_a_bad_address_shows_the_usual(noisy: Run, query: dict[str, str]) -> None:
    app = visit(**query)
    assert not app.error
    assert [title.value for title in app.title] == ["Analyze"]


def test_out_of_range_samples_are_left_out(noisy: Run) -> None:
    app = visit(a_sel=f"{noisy.id}:4-900000,17", a_img=f"{noisy.id}:99")
    assert "2 chosen images" in texts(app)
    assert app.query_params["a_sel"] == f"{noisy.id}:4-5"


def test_damaged_weights_of_a_match_are_a_sentence(store: RunStore, noisy: Run) -> None:
    (noisy.dir / "candidates.safetensors").unlink()
    (error,) = visit().error
    assert noisy.id in error.value.replace("\\", "")


@pytest.mark.parametrize("samples", [set(), {0}, {3, 4, 5, 9}, set(range(50)), {0, 2, 4}])
def test_choices_survive_the_address(samples: set[int]) -> None:
    assert read(written(samples)) == samples


def test_choices_are_written_shortly() -> None:
    assert written({5, 3, 4, 9}) == "3-5,9"


@pytest.mark.parametrize(
    ("text", "samples"),
    [("", set()), ("a,b", set()), ("3-", {3}), ("5-3", set()), ("-4", set()), ("1,,2", {1, 2}), ("9" * 50, set())],
)
def test_nonsense_chooses_nothing(text: str, samples: set[int]) -> None:
    assert read(text) == samples


def test_a_second_click_takes_a_choice_back_and_a_second_line_does_not() -> None:
    def selection(*samples: int, lasso: bool) -> dict[str, Any]:
        points = [{"customdata": [sample]} for sample in samples]
        return {"selection": {"points": points, "lasso": [{"x": [0, 1], "y": [0, 1]}] if lasso else []}}

    clicked = choice_after(Choice("run"), selection(3, lasso=False))
    assert clicked == Choice("run", frozenset({3}), 3)
    assert choice_after(clicked, selection(3, lasso=False)) == Choice("run")
    drawn = choice_after(clicked, selection(3, 4, lasso=True))
    assert drawn == Choice("run", frozenset({3, 4}))
    assert choice_after(drawn, selection(3, 4, lasso=True)) == drawn


def test_selected_points_are_read_by_what_they_carry() -> None:
    points = [{"customdata": [3, 30, 0.5]}, {"customdata": {"0": 4, "1": 40}}, {"customdata": [3]}, {}]
    assert selected_samples({"selection": {"points": points}}) == {3, 4}
