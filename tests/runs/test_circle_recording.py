"""The circle's runs and what the player gets of them: numbers that must agree with the runs themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from recon_core.config import PlanarLabels, TrainConfig, parse_config
from recon_core.errors import InputError
from recon_core.kinds import perform
from recon_core.runs import StopFlag
from recon_core.runs.chains import create_attack_chain
from recon_core.runs.circle import BASELINES, CircleSettings, find_circle
from recon_core.runs.models import model_of
from recon_core.runs.reconstruction import Baseline, ReconstructConfig, attack_settings
from recon_core.runs.requests import create_training
from recon_core.store import Run, RunState, RunStore
from recon_core.training.session import FIELD_SIDE, field_grid
from recon_core.views.circle_frames import load_shipped
from recon_core.views.circle_recording import (
    MIDDLE,
    TrainingPoints,
    candidate_frames,
    clean_up,
    field_frames,
    final_points,
    first_layer_points,
    neuron_lines,
    training_points,
    truth_of,
)

SMALL = CircleSettings(n=6, width=30)
ITERATIONS = 40


class Finished(NamedTuple):
    store: RunStore
    train: Run
    attack: Run
    inversion: Run
    untrained: Run


@pytest.fixture(scope="module", autouse=True)
def _quick_attacks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CircleSettings, "_attack", lambda self: {"seed": self.seed, "iterations": ITERATIONS})
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    store = RunStore(tmp_path_factory.mktemp("circle") / "runs")
    runs = SMALL.queue(store)
    for run in runs:
        assert perform(run, StopFlag()) is RunState.DONE
    return Finished(store, *runs)


def stop_after(calls: int) -> tuple[StopFlag, Any]:
    stop, heard = StopFlag(), []

    def listener(fraction: float | None, message: str) -> None:
        heard.append(message)
        stop.raised = len(heard) >= calls

    return stop, listener


class TestSettings:
    def test_default_is_the_preset(self) -> None:
        config = CircleSettings().training()
        assert (config.data.n, config.data.labels, config.model.widths) == (20, PlanarLabels.ALTERNATING, (1000, 1000))
        assert (config.training.recipe, config.training.target_log_loss) == ("flow", -6.0)

    def test_each_setting_reaches_the_run(self) -> None:
        config = CircleSettings(n=8, labels=PlanarLabels.RANDOM, width=70, weight_decay=1e-3, seed=5).training()
        assert (config.data.n, config.data.labels, config.data.seed) == (8, "random", 5)
        assert (config.model.widths, config.model.seed) == ((70, 70), 5)
        assert (config.training.recipe, config.training.weight_decay) == ("stationary", 1e-3)
        assert config.model.init_scale == "kaiming"

    @pytest.mark.parametrize(
        ("values", "said"),
        [({"n": 7}, "even"), ({"n": 0}, "n must be"), ({"width": 0}, "width"), ({"m": 3}, "unknown")],
    )
    def test_bad_value_becomes_a_sentence(self, values: dict[str, int], said: str) -> None:
        with pytest.raises(InputError, match=said):
            parse_config(CircleSettings, values)


class TestChain:
    def test_runs_wait_for_one_another_and_tell_how_to_repeat_them(self, store: RunStore) -> None:
        chain = create_attack_chain(store, SMALL.training(), name="mine", attack={"iterations": 9})
        assert [run.kind for run in chain.runs] == ["train", "reconstruct", "reconstruct", "match"]
        assert {run.status().state for run in chain.runs} == {RunState.QUEUED}
        assert chain.match is not None
        control = chain.baselines[Baseline.UNTRAINED]
        assert chain.attack.parents == control.parents == (chain.train.id,)
        assert chain.match.parents == (chain.attack.id, control.id)
        assert chain.train.name == "mine"
        assert chain.attack.command[:6] == ("python", "-m", "recon_core", "reconstruct", "--model", chain.train.id)
        assert "data.n=6" in chain.train.command

    def test_done_in_order_it_counts_with_a_chance_level(self, store: RunStore) -> None:
        chain = create_attack_chain(store, SMALL.training(), attack={"iterations": 9})
        assert [perform(run, StopFlag()) for run in chain.runs] == [RunState.DONE] * 4
        assert chain.match is not None
        counts = (chain.match.result() or {})["counts"]
        assert all(count["of"] == 6 and count["control_untrained"] is not None for count in counts)
        assert store.check() == []

    def test_settings_are_those_that_the_trained_model_would_get(self, finished: Finished) -> None:
        """They are chosen before there is a model."""
        known = ReconstructConfig(
            model=finished.train.id,
            settings=attack_settings(model_of(finished.train), {"seed": 0, "iterations": ITERATIONS}),
        )
        assert finished.attack.config == known.model_dump(mode="json")

    def test_request_that_cannot_be_met_leaves_nothing(self, store: RunStore) -> None:
        with pytest.raises(InputError, match="even"):
            create_attack_chain(store, SMALL.training(), attack={"m": 7})
        assert store.list() == []


class TestFinding:
    def test_nothing_in_an_empty_store(self, store: RunStore) -> None:
        assert find_circle(store, SMALL) is None

    def test_finished_runs_are_found_by_their_settings(self, finished: Finished) -> None:
        found = find_circle(finished.store, SMALL)
        assert found is not None
        assert (found.train.id, found.attack and found.attack.id) == (finished.train.id, finished.attack.id)
        assert found.inversion
        assert found.inversion.id == finished.inversion.id
        assert found.untrained
        assert found.untrained.id == finished.untrained.id
        assert found.done
        assert not found.active
        assert found.stopped is None

    @pytest.mark.parametrize("other", [{"n": 8}, {"width": 31}, {"seed": 1}, {"labels": "arcs"}, {"weight_decay": 0.1}])
    def test_other_settings_are_not_taken_for_them(self, finished: Finished, other: dict[str, Any]) -> None:
        assert find_circle(finished.store, SMALL.model_copy(update=other)) is None

    def test_a_run_at_work_comes_before_one_that_failed_and_a_finished_one_before_both(self, store: RunStore) -> None:
        failed = SMALL.queue(store)
        with failed[0].writer() as writer:
            writer.start(10)
            writer.finish(RunState.FAILED, None, "no luck")
        found = find_circle(store, SMALL)
        assert found is not None
        assert found.stopped is not None
        assert not found.active
        assert found.stopped.id == failed[0].id
        second = SMALL.queue(store)
        found = find_circle(store, SMALL)
        assert found is not None
        assert found.active
        assert found.train.id == second[0].id
        assert found.current.id == second[0].id
        for run in second[:2]:
            perform(run, StopFlag())
        SMALL.queue(store)  # newer, but with nothing to show
        found = find_circle(store, SMALL)
        assert found is not None
        assert found.done
        assert found.train.id == second[0].id
        assert found.active, "its baselines are still to come"

    def test_trained_but_not_attacked(self, store: RunStore) -> None:
        train, *others = SMALL.queue(store)
        perform(train, StopFlag())
        for run in others:
            store.delete(run.id)
        found = find_circle(store, SMALL)
        assert found is not None
        assert found.attack is None
        assert not found.done
        assert not found.active
        again = SMALL.queue(store, train)
        assert [run.parents for run in again] == [(train.id,)] * (1 + len(BASELINES))

    def test_damaged_settings_are_passed_over(self, store: RunStore) -> None:
        train, *_ = SMALL.queue(store)
        (train.dir / "config.json").write_text("{torn")
        assert find_circle(store, SMALL) is None


class TestFields:
    def test_shapes_and_steps(self, finished: Finished) -> None:
        frames = field_frames(finished.train)
        assert frames is not None
        assert frames.fields.shape == (len(frames.steps), FIELD_SIDE, FIELD_SIDE)
        assert frames.fields.dtype == np.uint8
        assert (np.diff(frames.steps) > 0).all()
        assert frames.steps[-1] == (finished.train.result() or {})["steps"]

    def test_of_a_long_training_the_first_the_last_and_some_between_are_shown(self, store: RunStore) -> None:
        run = store.create("train", {})
        with run.writer() as writer:
            writer.start(1000)
            fields = torch.linspace(-1, 1, 1000)[:, None, None].expand(1000, 2, 2)
            writer.save_tensors("recording", {"fields": fields, "steps": torch.arange(0, 8000, 8)})
            frames = field_frames(run)
            writer.finish(RunState.DONE, {})
        assert frames is not None
        assert len(frames.steps) == len(frames.fields) == 160
        assert (frames.steps[0], frames.steps[-1]) == (0, 7992)
        assert (frames.fields[0, 0, 0], frames.fields[-1, 0, 0]) == (1, 255)

    def test_last_field_is_the_networks_output(self, finished: Finished) -> None:
        frames = field_frames(finished.train)
        assert frames is not None
        output = model_of(finished.train).network(field_grid())[:, 0].reshape(FIELD_SIDE, FIELD_SIDE).numpy()
        shown = (frames.fields[-1].astype(float) - MIDDLE) / 127 * frames.scale
        assert np.abs(shown - output.clip(-frames.scale, frames.scale)).max() <= frames.scale / 127

    def test_before_training_it_is_as_good_as_undecided(self, finished: Finished) -> None:
        frames = field_frames(finished.train)
        assert frames is not None
        assert (
            np.abs(frames.fields[0].astype(int) - MIDDLE).max()
            < 20
            < np.abs(frames.fields[-1].astype(int) - MIDDLE).max()
        )

    def test_nothing_before_the_first_frame(self, store: RunStore) -> None:
        assert field_frames(SMALL.queue(store)[0]) is None

    def test_a_run_at_work_shows_its_newest_field(self, store: RunStore) -> None:
        train, *_ = SMALL.queue(store)
        assert perform(train, *stop_after(3)) is RunState.CANCELLED
        frames = field_frames(train)
        assert frames is not None
        assert frames.fields.shape == (1, FIELD_SIDE, FIELD_SIDE)
        assert perform(train, StopFlag()) is RunState.DONE
        whole = field_frames(train)
        assert whole is not None
        assert len(whole.steps) > 5


class TestCandidates:
    def test_path_leads_from_the_start_to_what_the_run_found(self, finished: Finished) -> None:
        frames = candidate_frames(finished.attack)
        assert frames is not None
        found, stages = finished.attack.tensors("candidates"), finished.attack.tensors("stages")
        assert frames.points.shape == (len(frames.steps), 100, 2)
        assert frames.points.dtype == np.float32
        assert (frames.steps[0], frames.steps[-1]) == (0, ITERATIONS)
        assert np.array_equal(frames.points[0], stages["initial"].numpy())
        assert np.array_equal(frames.points[-1], found["candidates"].numpy())
        assert np.array_equal(frames.labels, found["labels"].numpy())
        assert np.array_equal(frames.points[-1], final_points(finished.attack).points[0])

    def test_a_run_at_work_shows_its_newest_positions(self, store: RunStore) -> None:
        train, attack, *_ = SMALL.queue(store)
        assert candidate_frames(attack) is None
        perform(train, StopFlag())
        assert perform(attack, *stop_after(2)) is RunState.CANCELLED
        frames = candidate_frames(attack)
        assert frames is not None
        assert frames.points.shape == (1, 100, 2)

    def test_what_ran_away_can_still_be_drawn(self, store: RunStore) -> None:
        run = made_up(store, torch.tensor([[torch.nan, 0.0], [torch.inf, 0.0], [0.5, -1e30]]), torch.ones(3))
        points = final_points(run).points
        assert np.isfinite(points).all()
        assert points[0, 2, 0] == 0.5

    def test_first_layer_weights_are_points(self, finished: Finished) -> None:
        weight = finished.train.tensors("weights")["layers.0.weight"]
        assert np.array_equal(first_layer_points(finished.train), weight.numpy())


def made_up(store: RunStore, candidates: torch.Tensor, multipliers: torch.Tensor) -> Run:
    """A finished attack with just these candidates, of classes 0, 1, 0, 1, ..."""
    run = store.create("reconstruct", {"settings": {"seed": 0}})
    with run.writer() as writer:
        writer.start(1)
        labels = torch.arange(len(candidates)) % 2
        tensors = {"candidates": candidates, "multipliers": multipliers, "labels": labels, "seeds": labels * 0}
        writer.save_tensors("candidates", tensors)
        writer.finish(RunState.DONE, {})
    return run


class TestCleanUp:
    TRUTH = TrainingPoints(
        np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]], dtype=np.float32), np.array([0, 1, 0, 1])
    )

    def test_counts_what_was_laid_out(self, store: RunStore) -> None:
        candidates = torch.tensor([[1.0, 0.02], [0.0, 1.08], [1.0, 0.03], [-1.0, 0.0], [5.0, 5.0], [0.0, -1.0]])
        multipliers = torch.tensor([9.0, 9.0, 9.0, 9.0, 9.0, 1.0])
        run = made_up(store, candidates, multipliers)
        result = clean_up(run, self.TRUTH, threshold=5.0, distance=0.05)
        assert result.filtered.tolist() == [True, True, True, True, True, False]
        assert int(result.kept.sum()) == 4  # one of the two at (1, 0) goes
        assert result.kept[[1, 3, 4]].all()
        # Candidate 3 sits on a point of the other class, so that point is not found.
        assert (result.found(0.1), result.found(0.03)) == (2, 1)
        assert result.settled == {0.1: 2, 0.03: 1}
        assert result.distances[2] == pytest.approx(2.0, abs=1e-3)  # the nearest of its class is across the circle
        every = clean_up(run, self.TRUTH, threshold=0.0, distance=0.0)
        assert every.kept.all()
        assert every.found(0.03) == 2

    def test_nothing_left_is_nothing_found(self, store: RunStore) -> None:
        result = clean_up(made_up(store, torch.zeros(2, 2), torch.ones(2)), self.TRUTH, threshold=5.0, distance=0.03)
        assert not result.kept.any()
        assert (result.found(0.1), result.settled[0.1]) == (0, 0)

    def test_papers_values_give_what_the_run_kept(self, finished: Finished) -> None:
        stages, facts = finished.attack.tensors("stages"), (finished.attack.result() or {})["circle"]
        result = clean_up(
            finished.attack, truth_of(finished.train), threshold=facts["threshold"], distance=facts["distance"]
        )
        assert np.array_equal(result.filtered, stages["filtered"].numpy())
        assert np.array_equal(result.kept, stages["deduplicated"].numpy())

    def test_the_truth_itself_is_found_whole(self, store: RunStore) -> None:
        truth = training_points(CircleSettings(n=8).training())
        assert truth.points.shape == (8, 2)
        run = made_up(store, torch.from_numpy(truth.points), torch.full((8,), 9.0))
        result = clean_up(run, truth, threshold=5.0, distance=0.03)
        assert (result.found(0.1), result.found(0.03), result.settled[0.03]) == (8, 8, 8)


def test_home_picture_shows_images_above_their_reconstructions(tmp_path: Path) -> None:
    from assets.make_pictures import GAP, SCALE, home_picture
    from recon_core.analysis.pairs import best_pairs

    images = torch.stack([torch.full((3, 4, 4), 0.2), torch.full((3, 4, 4), 0.4)])
    pairs = best_pairs(images, 1 - images, torch.tensor([0.5, 0.9]), 2, 0.4)
    picture = np.asarray(home_picture(pairs))
    side = 4 * SCALE
    assert picture.shape[1] == 2 * side + GAP
    assert picture[0, 0].tolist() == [102, 102, 102, 255]  # the better one first
    assert picture[-1, 0].tolist() == [153, 153, 153, 255]
    assert picture[0, side].tolist() == [0, 0, 0, 0]


def test_neurons_are_the_lines_where_the_first_layer_turns_on() -> None:
    """Of the recording: each line has a unit normal, the strongest come first, and most pass by a training point."""
    circle = load_shipped()
    lines = circle.neurons
    assert lines.shape == (60, 4)
    assert np.allclose(np.hypot(lines[:, 0], lines[:, 1]), 1.0, atol=1e-5)
    assert lines[0, 3] == 1.0
    assert (np.diff(lines[:, 3]) <= 1e-6).all()
    # Weights of a trained network point along its training points, which lie on the unit circle.
    directions = lines[:, :2] @ circle.truth.points.T
    assert np.quantile(np.abs(directions).max(axis=1), 0.1) > 0.99


def test_the_line_of_a_neuron_is_where_it_is_zero(store: RunStore) -> None:
    values = {"data": {"source": "circle", "n": 4}, "model": {"widths": [5, 5]}, "training": {"epochs": 3}}
    run = create_training(store, parse_config(TrainConfig, values))
    assert perform(run, StopFlag()) is RunState.DONE
    network = model_of(run).network
    lines = neuron_lines(run, most=3)
    first = network.layers[0]
    for a, b, c, _ in lines:
        on_line = torch.tensor([[-a * c, -b * c], [-a * c - b, -b * c + a]], dtype=first.weight.dtype)
        # Some neuron is zero at both points of its line.
        assert first(on_line).abs().max(dim=0).values.min() < 1e-5
