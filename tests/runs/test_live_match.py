"""Matching for a page: the same numbers as a match run, on candidates whose origin is known."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from recon_core.config import TrainConfig, parse_config
from recon_core.errors import InputError
from recon_core.kinds import perform
from recon_core.matching.protocol import Protocol
from recon_core.matching.ssim import SsimKind, ssim_map
from recon_core.plots.pair import pair_pictures, similarity_image
from recon_core.plots.sheet import sheet
from recon_core.runs import StopFlag
from recon_core.runs.match_request import QUICK_CANDIDATES, create_match, create_untrained_control, is_quick, pool_facts
from recon_core.runs.match_source import MatchConfig, load_source
from recon_core.runs.reconstruction import ReconstructConfig
from recon_core.runs.requests import create_reconstruction
from recon_core.store import Run, RunState, RunStore
from recon_core.views.live_match import ImagePool, PairOrder, PointPool, open_pool, slow_part
from recon_core.views.match_export import grid_png, pairs_csv, pairs_zip
from tests.runs.match_runs import CIRCLE, MNIST, candidate_run, data_of, leaking_run, noise, train_run

SHAPE = (1, 28, 28)


def opened(store: RunStore, config: MatchConfig) -> ImagePool:
    pool = open_pool(store, config, load_source(store, config))
    assert isinstance(pool, ImagePool)
    return pool


@pytest.fixture
def model(store: RunStore) -> Run:
    return train_run(store, MNIST)


@pytest.fixture
def leaked(store: RunStore, model: Run) -> Run:
    """Five of noise, then training images 0 to 3 themselves."""
    return leaking_run(store, model)


@pytest.fixture
def request_(store: RunStore, model: Run, leaked: Run) -> MatchConfig:
    control = candidate_run(store, model, noise(12, SHAPE, 3), baseline="untrained")
    return MatchConfig(runs=(leaked.id,), untrained=control.id, merge_factor=1.0, threshold=0.9)


@pytest.mark.parametrize(
    "settings",
    [
        {"merge_factor": 1.0},
        {"merge_factor": 1.35, "vote": "median"},
        {"merge_factor": 1.2, "ssim": "authors", "assignment": "exclusive"},
        {"protocol": "haim", "ncc_share": 0.7},
    ],
)
def test_a_view_has_the_numbers_of_the_match_run(store: RunStore, request_: MatchConfig, settings: dict) -> None:
    asked = parse_config(MatchConfig, {"runs": request_.runs, "untrained": request_.untrained, **settings})
    run = create_match(store, asked)
    assert perform(run, StopFlag()) is RunState.DONE
    result, tensors = run.result(), run.tensors("match")
    assert result is not None
    # Opened with other values on the sliders: only the slow part of the request may matter.
    view = opened(store, slow_part(asked)).view(asked)
    count = view.count(asked.threshold)
    assert asdict(count) == result["count"]
    assert view.auc == pytest.approx(result["auc"])
    assert np.array_equal(view.ssim.astype(np.float32), tensors["ssim"].numpy(), equal_nan=True)
    assert np.array_equal(view.reconstructions, tensors["reconstructions"].numpy())
    assert view.merged.tolist() == tensors["merged_counts"].tolist()


def test_another_factor_or_threshold_searches_nothing(
    store: RunStore, request_: MatchConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = opened(store, request_)

    def fail(*args: object) -> None:
        raise AssertionError("searched again")

    monkeypatch.setattr("recon_core.runs.cached_matching.neighbours_for", fail)
    near, far = pool.view(request_), pool.view(request_.model_copy(update={"merge_factor": 2.0}))
    assert near.count(0.9).good == 4
    assert near.count(-1.0).good == near.count(0.9).of == 6
    assert (far.merged >= near.merged).all()
    assert far.merged.sum() > near.merged.sum()
    assert near.good(0.9).tolist() == [True] * 4 + [False] * 2


def test_pairs_are_sorted_as_asked(store: RunStore, request_: MatchConfig) -> None:
    view = opened(store, request_).view(request_)
    assert view.order(PairOrder.INDEX).tolist() == list(range(6))
    assert np.all(np.diff(view.ssim[view.order(PairOrder.SSIM)]) <= 0)
    assert np.all(np.diff(view.distances[view.order(PairOrder.DISTANCE)]) >= 0)
    assert np.all(np.diff(view.samples.labels[view.order(PairOrder.CLASS)]) >= 0)


def test_images_without_a_candidate_come_last(store: RunStore, model: Run) -> None:
    # Two candidates, one for each image: the other four images stay without.
    two = candidate_run(store, model, data_of(MNIST).train_x[[4, 2]])
    config = MatchConfig(runs=(two.id,), assignment="exclusive")
    pool = opened(store, config)
    view = pool.view(config)
    assert set(view.order(PairOrder.SSIM)[:2].tolist()) == {2, 4}
    lonely = int(view.order(PairOrder.SSIM)[-1])
    assert np.isnan(view.ssim[lonely])
    assert pool.pair(view, lonely).merged == len(pool.pair(view, lonely).origins) == 0


def test_a_pair_from_all_sides(store: RunStore, model: Run, leaked: Run) -> None:
    other = candidate_run(store, model, 0.5 * data_of(MNIST).train_x[1:2] + noise(1, SHAPE, 8))
    config = MatchConfig(runs=(leaked.id, other.id), merge_factor=1.0)
    pool = opened(store, config)
    view = pool.view(config)
    exact = pool.pair(view, 1)
    assert [(origin.run, origin.candidate) for origin in exact.origins] == [(leaked.id, 6)]
    assert exact.distances == pytest.approx([0.0], abs=1e-3)
    assert np.array_equal(exact.image, view.images[1])
    middle = exact.similarity[5:-5, 5:-5]
    assert np.isnan(exact.similarity).sum() == 28 * 28 - 18 * 18
    assert middle.mean() == pytest.approx(view.ssim[1], abs=1e-5)
    x, y = (torch.from_numpy(values[1:2]) for values in (view.images, view.reconstructions))
    assert middle == pytest.approx(ssim_map(x, y, SsimKind.WANG)[0, 0].numpy(), abs=1e-6)
    assert exact.difference == pytest.approx(0.5 + (view.reconstructions[1] - view.images[1]) / 2, abs=1e-6)
    # Where everything is merged, all ten show, nearest first, and no more than asked for.
    wide = pool.view(config.model_copy(update={"merge_factor": 100.0}))
    whole = pool.pair(wide, 5)
    assert whole.merged == len(whole.origins) == 10
    assert np.all(np.diff(whole.distances) >= 0)
    assert (whole.candidates.min(), whole.candidates.max()) == (0.0, 1.0)
    assert len(pool.pair(wide, 5, shown=3).origins) == 3
    with pytest.raises(InputError, match="no training image 6"):
        pool.pair(view, 6)


def test_what_sliders_move_is_not_part_of_the_slow_request(store: RunStore, request_: MatchConfig) -> None:
    assert slow_part(request_).ssim is SsimKind.AUTHORS
    assert slow_part(request_) == slow_part(request_.model_copy(update={"merge_factor": 1.7, "threshold": 0.1}))
    assert slow_part(request_) != slow_part(request_.model_copy(update={"protocol": Protocol.HAIM}))


def test_points_have_the_numbers_of_the_match_run(store: RunStore) -> None:
    data = data_of(CIRCLE)
    model = train_run(store, CIRCLE)
    made = candidate_run(store, model, data.train_x + 0.05, labels=data.train_labels)
    config = MatchConfig(runs=(made.id,))
    pool = open_pool(store, config, load_source(store, config))
    assert isinstance(pool, PointPool)
    run = create_match(store, config)
    assert perform(run, StopFlag()) is RunState.DONE
    result = run.result()
    assert result is not None
    for count in result["counts"]:
        found = pool.count(count["radius"])
        assert {key: getattr(found, key) for key in count} == count
    assert pool.auc == result["auc"]
    # Each candidate stands 0.05 * sqrt(2) from its point.
    assert pool.count(0.08).recovered == data.n > pool.count(0.03).recovered


def test_files_hold_what_the_page_shows(store: RunStore, request_: MatchConfig) -> None:
    pool = opened(store, request_)
    view = pool.view(request_)
    order = view.order(PairOrder.SSIM).tolist()
    table = pd.read_csv(io.BytesIO(pairs_csv(pool, view, order, 0.9)))
    assert table["sample"].tolist() == order
    assert table["good"].sum() == 4
    with Image.open(io.BytesIO(grid_png(view, order[:3], 0.9, columns=3))) as grid:
        # Three tiles of 28 + 2 * 2 pixels, enlarged three times.
        assert grid.size == (3 * 32 * 3, (2 * 28 + 4) * 3)
    with zipfile.ZipFile(io.BytesIO(pairs_zip(pool, view, order, request_))) as archive:
        assert archive.testzip() is None
        pictures = [name for name in archive.namelist() if name.startswith("pairs/")]
        assert len(pictures) == 6
        settings = json.loads(archive.read("settings.json"))
        assert (settings["count"]["good"], settings["request"]["merge_factor"]) == (4, 1.0)
        with Image.open(archive.open("pairs/00003.png")) as pair:
            shown = np.asarray(pair)
    assert shown.shape == (56, 28, 3)
    assert np.array_equal(shown[:28, :, 0], (view.images[3, 0] * 255).round().astype(np.uint8))


def test_a_sheet_puts_every_tile_in_its_place() -> None:
    images = np.arange(5, dtype=np.float32).reshape(5, 1, 1, 1).repeat(2, 2).repeat(3, 3) / 255
    packed = sheet(images, images + 10 / 255)
    assert (packed.count, packed.columns, packed.rows, packed.tile_width, packed.tile_height) == (5, 2, 3, 3, 4)
    with Image.open(io.BytesIO(packed.png)) as picture:
        pixels = np.asarray(picture)[:, :, 0]
    assert pixels.shape == (12, 6)
    for tile in range(5):
        top, left = tile // 2 * 4, tile % 2 * 3
        assert (pixels[top : top + 2, left : left + 3] == tile).all()
        assert (pixels[top + 2 : top + 4, left : left + 3] == tile + 10).all()
    with pytest.raises(InputError, match="5 images need as many below them, got 4"):
        sheet(images, images[:4])


def test_a_similarity_map_is_dark_where_images_differ() -> None:
    shown = similarity_image(np.array([[-1.0, 0.0, 1.0, np.nan]]))
    assert np.array_equal(shown[:, 0, 0], shown[:, 0, 1])
    assert shown[:, 0, 1].sum() < shown[:, 0, 2].sum()
    assert (shown[:, 0, 3] == 0.5).all()
    grey = np.full((1, 2, 2), 0.2, dtype=np.float32)
    assert pair_pictures(grey, grey, grey, np.ones((2, 2))).shape == (4, 3, 2, 2)


def test_only_large_pools_that_nobody_has_searched_need_a_run_first() -> None:
    config, large = MatchConfig(runs=("a", "b"), untrained="u"), QUICK_CANDIDATES
    assert is_quick(config, {"a": large - 1, "b": 1, "u": 9}, [])
    assert not is_quick(config, {"a": large, "b": 1, "u": 9}, [])
    sizes = {"a": large, "b": large, "u": 9}
    searched = MatchConfig(runs=("a", "b"), threshold=0.7, merge_factor=1.9, vote="median")
    assert is_quick(config, sizes, [searched])
    assert not is_quick(config, sizes, [MatchConfig(runs=("a",))])
    assert not is_quick(config, sizes, [searched.model_copy(update={"max_merged": 5})])
    assert not is_quick(config, {**sizes, "u": large + 1}, [searched])
    assert is_quick(config, {**sizes, "u": large + 1}, [searched, MatchConfig(runs=("c",), untrained="u")])


def test_facts_of_a_pool_and_what_is_wrong_with_a_choice(store: RunStore, model: Run, leaked: Run) -> None:
    facts = pool_facts(store, [leaked.id])
    assert (facts.model, facts.planar, facts.default_factor) == (model.id, False, 1.1)
    stranger = candidate_run(store, train_run(store, MNIST), noise(3, SHAPE, 1))
    with pytest.raises(InputError, match="match runs of one model together"):
        pool_facts(store, [leaked.id, stranger.id])
    failed = candidate_run(store, model, noise(3, SHAPE, 1), state=RunState.FAILED)
    with pytest.raises(InputError, match="is failed, not done"):
        pool_facts(store, [failed.id])
    with pytest.raises(InputError, match="has no candidates"):
        pool_facts(store, [model.id])


def test_a_match_run_keeps_the_command_that_repeats_it(store: RunStore, request_: MatchConfig) -> None:
    run = create_match(store, request_.model_copy(update={"ssim": SsimKind.AUTHORS}), "mine")
    assert run.name == "mine"
    assert run.parents == (*request_.runs, request_.untrained)
    assert list(run.command[3:]) == [
        *("match", *request_.runs, "--ssim", "authors"),
        *("--untrained", request_.untrained, "--threshold", "0.9", "--merge-factor", "1.0"),
    ]


def test_the_untrained_control_repeats_the_attack_on_an_untrained_network(store: RunStore) -> None:
    trained = store.create("train", parse_config(TrainConfig, MNIST).model_dump(mode="json"))
    assert perform(trained, StopFlag()) is RunState.DONE
    asked = parse_config(
        ReconstructConfig, {"model": trained.id, "settings": {"m": 8, "iterations": 5, "objective": "binary"}}
    )
    attacked = create_reconstruction(store, asked)
    assert perform(attacked, StopFlag()) is RunState.DONE
    control = create_untrained_control(store, attacked.id)
    assert control.config == {**attacked.config, "baseline": "untrained"}
    assert perform(control, StopFlag()) is RunState.DONE
    # Of a baseline there are no settings to repeat: the usual ones are taken.
    assert create_untrained_control(store, control.id).config["baseline"] == "untrained"
    config = MatchConfig(runs=(attacked.id,), untrained=control.id)
    pool = opened(store, config)
    count = pool.view(config).count(0.4)
    assert (count.candidates, count.untrained_candidates, count.of) == (8, 8, 6)
    assert pool_facts(store, [attacked.id]).sizes == {attacked.id: 8}
