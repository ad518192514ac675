"""Figures and mosaics of an attack and of a search: what is drawn where."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
from PIL import Image

from recon_core.analysis.residuals import ResidualCurves
from recon_core.analysis.search import ParameterImportance, TrialTable
from recon_core.analysis.trials import TrialRecord
from recon_core.attacks import SEARCH_RANGES
from recon_core.errors import InputError
from recon_core.plots.attack import log_ticks, plot_candidate_points, plot_residuals
from recon_core.plots.attack_mosaic import WIDEST, candidate_mosaic
from recon_core.plots.search import plot_importance, plot_parallel, plot_trials

RANGES = SEARCH_RANGES["buzaglo2023"]


def trial(number: int, value: float | None, state: str = "complete") -> TrialRecord:
    params = {"lr_x": 10.0 ** -(number + 1), "x_init_scale": 1e-3, "lam_min": 0.1, "alpha": 50.0 + number}
    return TrialRecord(number, params, value, state, None)  # type: ignore[arg-type]


def table(*records: TrialRecord) -> TrialTable:
    return TrialTable(records, RANGES)


def opened(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)))


def test_each_layer_and_all_of_them_have_a_line_that_breaks_between_seeds() -> None:
    curves = ResidualCurves(
        steps=np.array([0, 10, 11, 21]),
        whole=np.array([1.0, 0.1, 1.0, 0.0]),
        layers=np.array([[1.0, 0.2, 1.0, 0.3], [1.0, 0.01, 1.0, 0.02]]),
        seeds=np.array([0, 0, 1, 1]),
    )
    drawn = plot_residuals(curves)
    assert [line.name for line in drawn.data] == ["layer 1", "layer 2", "all layers"]
    assert len({(line.line.color, line.line.dash) for line in drawn.data}) == 3
    assert len({line.line.dash for line in drawn.data}) == 3  # not by colour alone
    first = drawn.data[0]
    assert math.isnan(first.x[2])
    assert list(first.y[[0, 1, 3, 4]]) == [1.0, 0.2, 1.0, 0.3]
    assert math.isnan(drawn.data[2].y[-1])  # nothing left to explain has no logarithm
    assert drawn.layout.yaxis.type == "log"


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([0.3, 2.5], (0.5, 1.0, 2.0)),
        ([0.04, 0.6], (0.05, 0.1, 0.2, 0.5)),
        ([0.51, 0.58], None),
        ([math.nan, 0.0], None),
    ],
)
def test_narrow_axes_have_ticks_one_can_read(values: list[float], ticks: tuple[float, ...] | None) -> None:
    found = log_ticks(np.array(values)).get("tickvals")
    assert found == (None if ticks is None else pytest.approx(list(ticks)))


def test_wide_axes_have_powers_of_ten() -> None:
    assert log_ticks(np.array([1e-4, 1.0]))["dtick"] == 1


def test_candidates_and_truth_are_told_apart_by_class_and_kind() -> None:
    candidates = np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]], dtype=np.float32)
    labels, multipliers = np.array([0, 1, 1]), np.array([1.0, -4.0, 2.0])
    truth = (np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([0, 1]))
    assert len(plot_candidate_points(candidates, labels, multipliers, None).data) == 2
    drawn = plot_candidate_points(candidates, labels, multipliers, truth)
    assert [len(part.x) for part in drawn.data] == [1, 2, 1, 1]
    assert len({(part.marker.symbol, part.marker.color) for part in drawn.data}) == 4
    assert drawn.data[1].marker.size[0] > drawn.data[1].marker.size[1]  # |-4| explains more than 2


def test_best_so_far_never_gets_worse() -> None:
    drawn = plot_trials(table(trial(0, 0.5), trial(1, None, "diverged"), trial(2, 0.7), trial(3, 0.2)))
    made, best = drawn.data
    assert list(made.x) == [1, 3, 4]
    assert list(best.y) == [0.5, 0.5, 0.2]


def test_a_line_crosses_what_was_varied_and_ends_at_its_residual() -> None:
    drawn = plot_parallel(table(trial(0, 0.1), trial(1, None, "diverged"), trial(2, 0.001)))
    assert list(drawn.layout.xaxis.ticktext) == [*RANGES, "residual"]
    worse, better = drawn.data  # the best is drawn last, on top
    assert (better.name, worse.name) == ("best fifth", "third")
    assert better.line.width > worse.line.width
    assert better.line.color != worse.line.color
    assert list(better.x) == [0, 1, 2, 3, 4, None]
    # lr_x runs from 1e-5 to 1 on its logarithm, alpha from 10 to 500 as it is.
    assert better.y[0] == pytest.approx(2 / 5)
    assert better.y[3] == pytest.approx(42 / 490)
    assert (better.y[4], worse.y[4]) == (0.0, 1.0)
    assert better.text[0] == "trial 3: lr_x 0.001"
    assert "1 that diverged" in drawn.layout.title.subtitle.text
    with pytest.raises(InputError, match="no trial is complete"):
        plot_parallel(table(trial(0, None, "diverged")))


def test_one_trial_alone_and_many_alike_can_be_drawn() -> None:
    assert len(plot_parallel(table(trial(0, 0.5))).data) == 1
    drawn = plot_parallel(table(*(trial(number, 0.5) for number in range(10))))
    assert [sum(place is None for place in line.x) for line in drawn.data] == [2, 2, 2, 2, 2]
    assert drawn.data[0].y[4] == 0.5


def test_importance_is_drawn_largest_first() -> None:
    drawn = plot_importance(ParameterImportance({"alpha": 0.75, "lr_x": 0.25}, top=5, of=20))
    assert list(drawn.data[0].x) == [0.75, 0.25]
    assert "(alpha)" in drawn.data[0].y[0]
    assert "best 5 of 20" in drawn.layout.title.subtitle.text


def test_mosaic_keeps_every_pixel_and_leaves_gaps_open() -> None:
    generator = np.random.default_rng(0)
    images = (generator.integers(0, 256, (5, 3, 8, 8)) / 255).astype(np.float32)
    picture = opened(candidate_mosaic(images, 3))
    assert picture.shape[1] <= WIDEST
    pitch = (picture.shape[1] + 4) // 3
    scale = (pitch - 4) // 8
    assert scale >= 10
    for index, image in enumerate(images):
        top, left = index // 3 * pitch, index % 3 * pitch
        tile = picture[top : top + 8 * scale : scale, left : left + 8 * scale : scale]
        assert (tile[..., :3] == (image.transpose(1, 2, 0) * 255).round()).all()
        assert (tile[..., 3] == 255).all()
    assert (picture[:, pitch - 4 : pitch, 3] == 0).all()
    assert (picture[pitch:, 2 * pitch :, 3] == 0).all()  # the sixth place is empty


def test_grey_images_and_a_width_of_ones_own() -> None:
    picture = opened(candidate_mosaic(np.full((4, 1, 28, 28), 0.5, dtype=np.float32), 2, widest=150))
    assert picture.shape == (2 * 2 * 28 + 4, 2 * 2 * 28 + 4, 4)
    assert set(picture[0, 0, :3].tolist()) == {128}
    with pytest.raises(InputError, match="at least 1 image"):
        candidate_mosaic(np.zeros((0, 1, 8, 8), dtype=np.float32), 4)
