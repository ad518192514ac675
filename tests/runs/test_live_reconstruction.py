"""What a page sees of an attack: pictures of the right moment, in the right order, and counts that know the truth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from recon_core.attacks import AUTHORS_PRESETS, CERTAIN
from recon_core.config import parse_config
from recon_core.errors import InputError
from recon_core.kinds import perform
from recon_core.matching.controls import LeakCount
from recon_core.models import Architecture, build_network
from recon_core.runs import StopFlag
from recon_core.runs.attack_request import attack_request, baseline_request, baselines_of, starting_points
from recon_core.runs.models import AttackModel, model_of
from recon_core.runs.reconstruction import (
    Baseline,
    ReconstructConfig,
    attack_settings,
    default_attack,
    usual_candidates,
    warning_for,
)
from recon_core.store import Run, RunState, RunStore
from recon_core.studies.requests import create_requested, search_request
from recon_core.views.live_reconstruction import (
    Picture,
    TileOrder,
    Truth,
    attack_residuals,
    evaluator_of,
    moments,
    newest_picture,
    picture_at,
    picture_version,
    search_trials,
    truth_of,
)
from tests.runs.match_runs import CIRCLE, MNIST, candidate_run, data_of, noise, train_run


def picture_of(candidates: Tensor, multipliers: list[float] | None = None, labels: Tensor | None = None) -> Picture:
    count = len(candidates)
    return Picture(
        step=None,
        candidates=candidates.numpy(),
        multipliers=np.array(multipliers or [2.0] * count),
        labels=(torch.zeros(count, dtype=torch.long) if labels is None else labels).numpy(),
        total=count,
    )


def imported(store: RunStore, tmp_path: Path, architecture: Architecture | None = None) -> Run:
    network = build_network(architecture or Architecture((1, 8, 8), (10, 6), 1), init_scale="kaiming", seed=1)
    torch.save(network.state_dict(), tmp_path / "theirs.pth")
    run = store.create("model", {"path": str(tmp_path / "theirs.pth"), "input_shape": None})
    perform(run, StopFlag())
    return run


def small(store: RunStore, model: Run, **values: Any) -> Run:
    given = {"m": 6, "iterations": 20, "measure_every": 5, "snapshots": 4, "device": "cpu", **values}
    return create_requested(store, model_of(model), attack_request(model, model_of(model), "fast", given, False))


class TestOrder:
    def test_places_stay_and_multipliers_count_by_their_size(self) -> None:
        picture = picture_of(noise(3, (1, 4, 4), 0), [0.5, -3.0, 1.0])
        assert picture.order(TileOrder.PLACE).tolist() == [0, 1, 2]
        assert picture.order(TileOrder.MULTIPLIER).tolist() == [1, 2, 0]

    def test_the_surest_come_first_and_without_confidence_places_stay(self) -> None:
        picture = picture_of(noise(3, (1, 4, 4), 0))
        assert picture.order(TileOrder.CONFIDENCE).tolist() == [0, 1, 2]
        sure = replace(picture, confidence=np.array([0.1, 0.0, 0.9]))
        assert sure.order(TileOrder.CONFIDENCE).tolist() == [2, 0, 1]

    def test_an_ended_attack_tells_how_sure_it_is(self, store: RunStore, tmp_path: Path) -> None:
        model = imported(store, tmp_path)
        request = attack_request(model, model_of(model), "copies", {"m": 6, "iterations": 40, "rank": 3}, False)
        run = create_requested(store, model_of(model), request)
        assert perform(run, StopFlag()) is RunState.DONE
        picture = newest_picture(run)
        assert picture is not None
        assert picture.confidence is not None
        assert len(picture.confidence) == len(picture.candidates) == run.result()["candidates"]
        assert run.result()["certain"] == int((picture.confidence > CERTAIN).sum())
        assert run.result()["prior"] == "natural"

    def test_candidates_that_found_the_same_come_first(self) -> None:
        candidates = noise(5, (1, 6, 6), 1)
        candidates[4] = 3 * candidates[1] + 0.2  # brighter and stronger, yet the same picture
        picture = picture_of(candidates)
        assert set(picture.order(TileOrder.AGREEMENT)[:2].tolist()) == {1, 4}
        assert picture.agreement()[1] == pytest.approx(1.0, abs=1e-5)

    def test_what_is_no_number_comes_last_and_breaks_nothing(self) -> None:
        candidates = noise(3, (1, 4, 4), 2)
        candidates[0] = torch.nan
        picture = picture_of(candidates, [float("nan"), 1.0, 2.0])
        assert picture.order(TileOrder.MULTIPLIER).tolist() == [2, 1, 0]
        assert np.isfinite(picture.images(picture.order(TileOrder.AGREEMENT))).all()

    def test_images_are_stretched_one_by_one(self) -> None:
        candidates = torch.stack([torch.linspace(-1, 3, 16), torch.linspace(0, 0.1, 16)]).reshape(2, 1, 4, 4)
        images = picture_of(candidates).images(np.array([1, 0]))
        assert images.min(axis=(1, 2, 3)).tolist() == [0.0, 0.0]
        assert images.max(axis=(1, 2, 3)).tolist() == pytest.approx([1.0, 1.0])

    def test_points_are_no_images(self) -> None:
        with pytest.raises(InputError, match="show them as points"):
            picture_of(torch.zeros(3, 2)).images(np.array([0]))


class TestPictures:
    def test_a_run_at_work_shows_its_newest_snapshot(self, store: RunStore, tmp_path: Path) -> None:
        run = store.create("reconstruct", {}, parents=[imported(store, tmp_path).id])
        assert newest_picture(run) is None
        assert picture_version(run) == ""
        with run.writer() as writer:
            writer.start(100)
            seen = set()
            for step in (0, 50):
                tensors = {"candidates": torch.full((1, 2, 1, 8, 8), float(step)), "multipliers": torch.ones(1, 2)}
                tensors |= {"labels": torch.tensor([[0, 1]]), "steps": torch.tensor([step])}
                writer.save_tensors("snapshots", tensors)
                picture = newest_picture(run)
                assert picture is not None
                assert picture.step == step
                assert (picture.candidates == step).all()
                seen.add(picture_version(run))
            assert len(seen) == 2
            assert moments(run) == ()  # only the newest is there

    def test_an_ended_run_shows_what_it_left_and_every_moment_before(self, store: RunStore, tmp_path: Path) -> None:
        run = small(store, imported(store, tmp_path), seeds=2)
        assert perform(run, StopFlag()) is RunState.DONE
        picture, kept = newest_picture(run), run.tensors("candidates")
        assert picture is not None
        assert (picture.step, picture.total) == (None, 12)
        assert (picture.candidates == kept["candidates"].numpy()).all()
        assert picture.histogram() is not None
        along = run.tensors("snapshots")
        assert moments(run) == tuple(along["steps"].tolist())
        third = picture_at(run, 2)
        assert third.step == along["steps"][2]
        assert (third.candidates == along["candidates"][2].numpy()).all()
        with pytest.raises(InputError, match="got number 99"):
            picture_at(run, 99)
        curves = attack_residuals(run)
        assert curves is not None
        assert len(curves.layers) == 3
        assert curves.whole[-1] == (run.result() or {})["seeds"][-1]["residual"]

    def test_a_stopped_run_shows_where_it_was(self, store: RunStore, tmp_path: Path) -> None:
        run, flag = small(store, imported(store, tmp_path), iterations=400), StopFlag()

        def stop(fraction: float | None, message: str) -> None:
            flag.raised = True

        assert perform(run, flag, stop) is RunState.CANCELLED
        picture = newest_picture(run)
        assert picture is not None
        assert picture.step == 0

    def test_what_has_no_multipliers_has_no_histogram(self, store: RunStore, tmp_path: Path) -> None:
        model = imported(store, tmp_path)
        request = baseline_request(model, model_of(model), Baseline.WEIGHTS)
        run = create_requested(store, model_of(model), request)
        perform(run, StopFlag())
        picture = newest_picture(run)
        assert picture is not None
        assert picture.histogram() is None
        assert picture.candidates.shape == (10, 1, 8, 8)

    def test_a_damaged_file_is_a_sentence(self, store: RunStore, tmp_path: Path) -> None:
        run = small(store, imported(store, tmp_path))
        perform(run, StopFlag())
        file = run.dir / "candidates.safetensors"
        file.chmod(0o644)
        file.write_bytes(file.read_bytes()[:200])
        with pytest.raises(InputError, match="is damaged"):
            newest_picture(run)


class TestEvaluator:
    def test_training_images_themselves_all_count_and_noise_does_not(self, store: RunStore) -> None:
        model, data = train_run(store, MNIST), data_of(MNIST)
        evaluator = evaluator_of(model)
        found = evaluator.count(picture_of(data.train_x.clone()))
        assert isinstance(found, LeakCount)
        assert (found.good, found.of, found.merge_factor, found.threshold) == (6, 6, 1.1, 0.4)
        nothing = evaluator.count(picture_of(noise(6, data.input_shape, 0)))
        assert isinstance(nothing, LeakCount)
        assert nothing.good == 0
        assert nothing.control_mean_image == found.control_mean_image

    def test_points_at_the_training_points_are_found_as_a_match_run_finds_them(self, store: RunStore) -> None:
        model, data = train_run(store, CIRCLE), data_of(CIRCLE)
        away = data.train_x + torch.tensor([0.05, 0.0])
        counts = evaluator_of(model).count(picture_of(away, labels=data.train_labels))
        assert not isinstance(counts, LeakCount)
        assert [(at.radius, at.recovered, at.of) for at in counts] == [(0.1, 6, 6), (0.03, 0, 6)]
        assert counts[0].non_members_of is not None  # for the chance level

    def test_points_the_run_itself_cleaned_away_do_not_count(self, store: RunStore) -> None:
        model, data = train_run(store, CIRCLE), data_of(CIRCLE)
        run = candidate_run(store, model, data.train_x.clone(), labels=data.train_labels)
        whole = newest_picture(run)
        assert whole is not None
        assert whole.kept is None
        partly = Picture(None, whole.candidates, whole.multipliers, whole.labels, whole.total, kept=np.arange(6) < 4)
        (_, fine) = evaluator_of(model).count(partly)  # type: ignore[misc]
        assert (fine.recovered, fine.kept) == (4, 4)

    def test_other_sizes_do_not_fit(self, store: RunStore) -> None:
        evaluator = evaluator_of(train_run(store, MNIST))
        assert evaluator.fits(picture_of(torch.zeros(1, 1, 28, 28)))
        assert not evaluator.fits(picture_of(torch.zeros(1, 3, 3, 3)))

    def test_who_knows_the_truth(self, store: RunStore, tmp_path: Path) -> None:
        theirs = imported(store, tmp_path)
        assert truth_of(theirs) is Truth.UNKNOWN
        with pytest.raises(InputError, match="not known here"):
            evaluator_of(theirs)
        assert truth_of(train_run(store, MNIST)) is Truth.AT_HAND

    def test_other_data_than_the_model_saw_is_refused(self, store: RunStore) -> None:
        with pytest.raises(InputError, match="saw other data"):
            evaluator_of(train_run(store, MNIST, fingerprint="0" * 64))


class TestRequests:
    def test_nothing_filled_in_takes_twice_the_rank_and_the_attack_that_fits(
        self, store: RunStore, tmp_path: Path
    ) -> None:
        theirs = imported(store, tmp_path)
        model = model_of(theirs)
        assert usual_candidates(model) == 100  # untrained: nothing stands above the noise
        vars(model)["rank"] = 9
        given = attack_request(theirs, model, default_attack(model), {}, known_init=False).settings
        assert (given.recipe, given.m) == ("copies", 18)
        plane = AttackModel(build_network(Architecture((2,), (30, 20), 1), init_scale="kaiming", seed=0))
        assert (default_attack(plane), usual_candidates(plane)) == ("fast", 100)

    def test_fewer_candidates_than_the_rank_are_warned_about(self, store: RunStore, tmp_path: Path) -> None:
        wide = model_of(imported(store, tmp_path))
        vars(wide)["rank"] = 9  # kept once it was looked at
        assert warning_for(wide, attack_settings(wide, {"m": 18})) is None
        told = warning_for(wide, attack_settings(wide, {"m": 8}))
        assert told is not None
        assert "m = 8 is below the rank 9" in told
        assert "18" in told

    def test_presets_and_what_was_filled_in_win_in_that_order(self, store: RunStore, tmp_path: Path) -> None:
        run = imported(store, tmp_path)
        model = model_of(run)
        assert set(starting_points()) == {"fast", "copies", "paper", *AUTHORS_PRESETS}
        usual = attack_request(run, model, "mnist-a", {}, False).settings
        assert (usual.recipe, usual.alpha, usual.m) == ("paper", 150.0, 100)
        typed = attack_request(run, model, "mnist-a", {"alpha": "7", "m": "12"}, True)
        assert (typed.settings.alpha, typed.settings.m, typed.known_init) == (7.0, 12, True)
        with pytest.raises(InputError, match="unknown preset 'mine'"):
            attack_request(run, model, "mine", {}, False)

    @pytest.mark.parametrize(
        ("given", "sentence"),
        [
            ({"m": "101"}, "m must be even"),
            ({"alpha": "-3"}, "alpha must be greater than 0, got '-3'"),
            ({"lr_x": "fast"}, "lr_x must be"),
        ],
    )
    def test_bad_numbers_are_sentences(
        self, store: RunStore, tmp_path: Path, given: dict[str, str], sentence: str
    ) -> None:
        run = imported(store, tmp_path)
        with pytest.raises(InputError, match=sentence):
            attack_request(run, model_of(run), "fast", given, False)

    def test_what_would_end_at_once_is_said_before_a_run_is_made(self, store: RunStore, tmp_path: Path) -> None:
        run = imported(store, tmp_path)
        model, before = model_of(run), len(store.list())
        with pytest.raises(InputError, match="initial weights"):
            create_requested(store, model, attack_request(run, model, "fast", {}, True))
        with pytest.raises(InputError, match="layer_weights"):
            create_requested(store, model, attack_request(run, model, "fast", {"layer_weights": "1,2"}, False))
        assert len(store.list()) == before

    def test_baselines_follow_the_network(self, store: RunStore, tmp_path: Path) -> None:
        dense = imported(store, tmp_path)
        assert baselines_of(model_of(dense)) == (Baseline.INVERSION, Baseline.WEIGHTS, Baseline.UNTRAINED)
        like = attack_request(dense, model_of(dense), "fast", {"m": 8, "alpha": 33.0}, False).settings
        untrained = baseline_request(dense, model_of(dense), Baseline.UNTRAINED, like)
        assert untrained.settings == like
        inversion = baseline_request(dense, model_of(dense), Baseline.INVERSION, like).settings
        assert (inversion.m, inversion.iterations) == (8, 500)

    def test_search_leaves_the_trials_a_page_reads(self, store: RunStore, tmp_path: Path) -> None:
        model = imported(store, tmp_path)
        given = {"m": 4, "iterations": 10, "device": "cpu"}
        request = search_request(model, model_of(model), "paper", given, {"trials": "3", "sampler": "random"}, False)
        run = create_requested(store, model_of(model), request)
        assert search_trials(run).records == ()
        assert perform(run, StopFlag()) is RunState.DONE
        found = search_trials(run)
        assert [trial.number for trial in found.records] == [0, 1, 2]
        assert found.best is not None
        assert found.best.value == (run.result() or {})["residual"]
        picture = newest_picture(run)
        assert picture is not None
        assert picture.total == 4 * len(found.complete)
        assert parse_config(ReconstructConfig, request.attack_config().model_dump()).settings.m == 4
