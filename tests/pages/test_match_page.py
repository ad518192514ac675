"""The Match page on stores whose answer is known."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from streamlit.testing.v1 import AppTest

from recon_core.attacks import CERTAIN
from recon_core.kinds import perform
from recon_core.runs import StopFlag
from recon_core.runs.match_request import create_match
from recon_core.runs.match_source import MatchConfig
from recon_core.runs.titles import training_title
from recon_core.store import Run, RunState, RunStore
from tests.pages.match_board import board, board_counts
from tests.pages.page_texts import settled, texts
from tests.runs.match_runs import CIRCLE, MNIST, candidate_run, data_of, leaking_run, noise, noisy_copies, train_run
from ui.shared.store import forget

APP = str(Path(__file__).resolve().parents[2] / "app.py")
SHAPE = (1, 28, 28)


def visit(**query: str | list[str]) -> AppTest:
    """The page, once its pool is open if it has one."""
    forget()
    app = AppTest.from_file(APP, default_timeout=240)
    app.switch_page("pages/3_Match.py")
    for key, value in query.items():
        app.query_params[key] = value
    return settled(app)


def counts(app: AppTest) -> dict[str, str]:
    return board_counts(app) or {metric.label: metric.value for metric in app.metric}


@pytest.fixture
def model(store: RunStore) -> Run:
    return train_run(store, MNIST)


@pytest.fixture
def leaked(store: RunStore, model: Run) -> Run:
    """Five of noise, then training images 0 to 3 themselves."""
    return leaking_run(store, model)


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """What was put in line, where nobody takes it."""
    runs: list[Run] = []
    monkeypatch.setattr("recon_core.scheduling.queue.submit", runs.append)
    return runs


def test_an_empty_store_says_what_to_do(store: RunStore) -> None:
    app = visit()
    assert "There is nothing to match yet" in texts(app)
    assert "Train a network" in texts(app)
    assert not counts(app)


def test_a_model_alone_asks_for_an_attack(store: RunStore, model: Run) -> None:
    app = visit()
    assert "Attack a network first" in texts(app)


def test_the_newest_attack_is_shown_unasked_with_its_controls(store: RunStore, model: Run, leaked: Run) -> None:
    control = candidate_run(store, model, noise(12, SHAPE, 3), baseline="untrained")
    app = visit(m_t="0.9", m_b="1.0")
    assert app.multiselect(key="m_runs").value == [leaked.id]
    assert app.selectbox(key="m_untrained").value == control.id
    assert counts(app) == {
        "Good reconstructions": "4 of 6",
        "Chance: mean image": "0 of 6",
        "Chance: untrained": "0 of 6",
        "Held-out images": "0 of 6",
        "AUC": counts(app)["AUC"],
    }
    assert float(counts(app)["AUC"]) > 0.6
    assert "SSIM (Wang, 11x11 window), B = 1, buzaglo protocol, good above 0.9" in texts(app)
    assert not app.button(key="m-save").disabled


def test_sliders_recount_and_merge_again(store: RunStore, model: Run) -> None:
    candidate_run(store, model, noisy_copies(data_of(MNIST).train_x))
    app = visit(m_t="0.5", m_b="1.0")
    assert counts(app)["Good reconstructions"] == "0 of 6"
    for factor, back in ((1.1, "4 of 6"), (1.5, "5 of 6"), (1.0, "0 of 6")):
        app.slider(key="m_b").set_value(factor)
        settled(app)
        assert counts(app)["Good reconstructions"] == back
        assert f"B = {factor:g}," in texts(app)
    app.slider(key="m_t").set_value(0.1)
    settled(app)
    assert counts(app)["Good reconstructions"] == "6 of 6"
    assert "good above 0.1" in texts(app)


def test_the_other_protocol_has_another_slider(store: RunStore, model: Run, leaked: Run) -> None:
    app = visit(m_protocol="haim", m_ssim="authors", m_ncc="0.95")
    assert app.slider(key="m_ncc").value == 0.95
    assert [slider.key for slider in app.slider] == ["m_t", "m_ncc", "m_ssim_range"]
    assert "authors' 3x3 window" in texts(app)
    assert "NCC above 0.95 of the best" in texts(app)


def test_a_pair_in_the_address_is_shown_large(store: RunStore, model: Run, leaked: Run) -> None:
    app = visit(m_b="1.0", m_t="0.9", m_pair="2")
    assert "Training image 2:" in texts(app)
    assert "✓ good" in texts(app)
    assert "What was merged: C = 1" in texts(app)
    assert f"From {leaked.id}." in texts(app)
    app.button(key="m-close").click()
    settled(app)
    assert "What was merged" not in texts(app)
    assert "m_pair" not in app.query_params


@pytest.mark.parametrize("pair", ["6", "-1", "x", "9" * 30])
def test_a_pair_that_is_not_there_is_left_out(store: RunStore, model: Run, leaked: Run, pair: str) -> None:
    app = visit(m_pair=pair)
    assert counts(app)
    assert "What was merged" not in texts(app)


def shown(app: AppTest) -> list[int]:
    sent = board(app)
    assert sent is not None
    return sorted(tile["id"] for tile in sent["tiles"])


def test_the_grid_is_filtered_by_class_score_and_certainty(store: RunStore, model: Run) -> None:
    data = data_of(MNIST)
    # The attack is certain of what it found of images 0 and 1, not of the others.
    candidate_run(store, model, data.train_x[:4], confidence=torch.tensor([0.99, CERTAIN + 0.01, CERTAIN - 0.01, 0.0]))
    app = visit(m_b="1.0")
    assert shown(app) == [0, 1, 2, 3, 4, 5]
    app.slider(key="m_ssim_range").set_value((0.99, 1.0))
    assert shown(settled(app)) == [0, 1, 2, 3]
    app.button_group(key="m_certain").set_value("certain")
    assert shown(settled(app)) == [0, 1]
    app.button_group(key="m_certain").set_value("not certain")
    assert shown(settled(app)) == [2, 3]
    label = int(data.train_labels[2])
    app.multiselect(key="m_class").set_value([label])
    assert shown(settled(app)) == [i for i in (2, 3) if int(data.train_labels[i]) == label]
    # The counts are of all images all the same, and a pair that is left out can still be looked at.
    assert counts(app)["Good reconstructions"].endswith("of 6")
    app.query_params["m_pair"] = "0"
    assert "Training image 0:" in texts(settled(app))


def test_an_attack_that_is_not_asked_for_certainty_offers_no_such_filter(store: RunStore, leaked: Run) -> None:
    assert [group.key for group in visit().button_group] == []


def test_several_runs_make_one_pool(store: RunStore, model: Run, leaked: Run) -> None:
    rest = candidate_run(store, model, data_of(MNIST).train_x[4:], kind="search")
    app = visit(m_runs=[rest.id, leaked.id], m_t="0.9", m_b="1.0")
    assert counts(app)["Good reconstructions"] == "6 of 6"


def test_runs_of_two_models_are_refused_in_a_sentence(store: RunStore, model: Run, leaked: Run) -> None:
    stranger = candidate_run(store, train_run(store, MNIST), noise(3, SHAPE, 1))
    app = visit(m_runs=[leaked.id, stranger.id])
    assert len(app.error) == 1
    assert "match runs of one model together" in app.error[0].value.replace("\\", "")
    assert not counts(app)


@pytest.mark.parametrize("key", ["m_runs", "from"])
def test_an_unknown_run_in_the_address_is_a_sentence(store: RunStore, model: Run, leaked: Run, key: str) -> None:
    app = visit(**{key: "reconstruct-20260101-nobody"})
    assert [warning.value.replace("\\", "")[:40] for warning in app.warning] == [
        "There is no run reconstruct-20260101-nob"
    ]
    assert counts(app)["Good reconstructions"].endswith("of 6")


def test_what_cannot_be_matched_is_said_until_another_choice(
    store: RunStore, model: Run, leaked: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page whose pool opens slowly is drawn more than once, and so is one whose slider is moved."""
    monkeypatch.setattr("ui.match.pool.PATIENCE", 0.0)
    rest = candidate_run(store, model, noise(3, SHAPE, 1))
    app = visit(m_runs=["reconstruct-20260101-nobody", leaked.id])
    assert counts(app)
    assert len(app.warning) == 1
    app.slider(key="m_t").set_value(0.7)
    assert len(settled(app).warning) == 1
    app.multiselect(key="m_runs").set_value([leaked.id, rest.id])
    assert not settled(app).warning
    app.multiselect(key="m_runs").set_value([leaked.id])
    assert not settled(app).warning


def test_a_failed_run_is_not_offered_and_named_when_asked_for(store: RunStore, model: Run, leaked: Run) -> None:
    failed = candidate_run(store, model, noise(3, SHAPE, 1), state=RunState.FAILED)
    app = visit(m_runs=[failed.id, leaked.id])
    assert "is failed, not done" in app.warning[0].value.replace("\\", "")
    assert app.multiselect(key="m_runs").value == [leaked.id]
    assert counts(app)["Good reconstructions"].endswith("of 6")


def test_settings_beyond_their_range_fall_back(store: RunStore, model: Run, leaked: Run) -> None:
    app = visit(m_t="7", m_b="nan", m_protocol="<b>", m_per_page="-3", m_sort="?")
    assert (app.slider(key="m_t").value, app.slider(key="m_b").value) == (0.4, 1.1)
    assert app.radio(key="m_protocol").value == "buzaglo"
    assert counts(app)["Good reconstructions"].endswith("of 6")


def test_nothing_chosen_is_said(store: RunStore, model: Run, leaked: Run) -> None:
    app = visit()
    app.multiselect(key="m_runs").set_value([])
    settled(app)
    assert "Choose at least one" in app.info[0].value
    assert not counts(app)


def test_a_missing_control_can_be_had(
    store: RunStore, model: Run, leaked: Run, submitted: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def create_untrained_control(where: RunStore, run_id: str) -> Run:
        asked.append(run_id)
        return where.create("reconstruct", {"model": model.id, "baseline": "untrained"}, parents=[model.id])

    monkeypatch.setattr("ui.match.choice.create_untrained_control", create_untrained_control)
    app = visit()
    assert counts(app)["Chance: untrained"] == "not run"
    app.button(key="m-untrained-start").click()
    settled(app)
    assert asked == [leaked.id]
    assert [run.kind for run in submitted] == ["reconstruct"]
    # It is on its way now, and not asked for twice.
    assert "queued" in texts(app)
    assert "m-untrained-start" not in [button.key for button in app.button]


def test_a_matching_is_saved_once(store: RunStore, model: Run, leaked: Run, submitted: list[Run]) -> None:
    app = visit(m_t="0.55", m_b="1.25", m_vote="median")
    app.button(key="m-save").click()
    settled(app)
    [run] = submitted
    config = MatchConfig(**run.config)
    assert (config.runs, config.threshold, config.merge_factor, config.vote) == ((leaked.id,), 0.55, 1.25, "median")
    assert app.button(key="m-save").disabled
    name = f"{training_title(model.config)}: matching"
    assert f"is being saved as {name}" in texts(app)
    assert perform(run, StopFlag()) is RunState.DONE
    forget()
    settled(app)
    assert f"is saved as {name}" in texts(app)
    result = run.result()
    assert result is not None
    assert counts(app)["Good reconstructions"] == f"{result['count']['good']} of 6"
    app.slider(key="m_t").set_value(0.5)
    settled(app)
    assert not app.button(key="m-save").disabled


def test_a_match_run_can_be_taken_up_again(store: RunStore, model: Run, leaked: Run) -> None:
    run = create_match(store, MatchConfig(runs=(leaked.id,), threshold=0.9, merge_factor=1.5, assignment="exclusive"))
    app = visit(**{"from": run.id})
    assert (app.slider(key="m_t").value, app.slider(key="m_b").value) == (0.9, 1.5)
    assert app.radio(key="m_assign").value == "exclusive"
    assert app.multiselect(key="m_runs").value == [leaked.id]


def test_a_large_pool_is_matched_by_a_run_first(
    store: RunStore, model: Run, leaked: Run, submitted: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recon_core.runs.match_request.QUICK_CANDIDATES", 3)
    monkeypatch.setattr("recon_core.runs.match_request.size_of", lambda run: 9)
    app = visit(m_b="1.0", m_t="0.9")
    assert not counts(app)
    assert "9 candidates have not been matched yet" in app.info[0].value
    app.button(key="m-start").click()
    settled(app)
    [run] = submitted
    # Its progress stands in place of the counts, also after a slider has moved.
    app.slider(key="m_t").set_value(0.5)
    settled(app)
    assert "queued" in texts(app)
    assert perform(run, StopFlag()) is RunState.DONE
    forget()
    app.slider(key="m_t").set_value(0.9)
    settled(app)
    assert counts(app)["Good reconstructions"] == "4 of 6"


def test_points_are_counted_within_a_radius(store: RunStore) -> None:
    data = data_of(CIRCLE)
    model = train_run(store, CIRCLE)
    candidate_run(store, model, data.train_x + 0.05, labels=data.train_labels)
    app = visit()
    assert counts(app)["Points found"] == "0 of 6"
    assert counts(app)["Precision"] == "0%, 6 strays"
    app.slider(key="m_r").set_value(0.1)
    settled(app)
    assert counts(app)["Points found"] == "6 of 6"
    assert counts(app)["Precision"] == "100%, no strays"
    assert "within 0.1" in texts(app)
    assert [slider.key for slider in app.slider] == ["m_r"]


def test_damaged_candidates_are_a_sentence(store: RunStore, model: Run, leaked: Run) -> None:
    file = leaked.dir / "candidates.safetensors"
    file.chmod(0o644)
    file.write_bytes(b"not tensors")
    app = visit()
    assert "is damaged" in app.error[0].value
    assert not counts(app)


def test_a_lecture_keeps_sliders_and_images_and_can_be_ended(store: RunStore, model: Run, leaked: Run) -> None:
    app = visit(lecture="1")
    assert app.slider(key="m_t").value == visit().slider(key="m_t").value
    app.button(key="lecture-end").click()
    settled(app)
    assert "lecture" not in app.query_params
    assert app.button(key="lecture-begin")
