"""Planar sets: the points are where the formula says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from recon_core.config import DataConfig, PlanarLabels, Source
from recon_core.data import TaskData, load_task

PLANAR = [Source.CIRCLE, Source.SPIRAL, Source.CHESSBOARD]


def _load(source: Source, **settings: object) -> TaskData:
    return load_task(DataConfig(source=source, **settings))  # type: ignore[arg-type]


def test_circle_points_are_the_roots_of_unity() -> None:
    data = _load(Source.CIRCLE, n=8)
    roots = np.exp(2j * np.pi * np.arange(8) / 8)
    expected = np.stack([roots.real, roots.imag], axis=1)
    torch.testing.assert_close(data.train_x, torch.from_numpy(expected).float())
    assert data.train_labels.tolist() == [0, 1] * 4
    assert data.mean.tolist() == [0.0, 0.0]
    assert (data.n, data.input_shape, data.outputs) == (8, (2,), 1)


def test_circle_default_has_twenty_points() -> None:
    assert _load(Source.CIRCLE).n == 20
    assert _load(Source.CIRCLE, per_class=7).n == 14


def test_arcs_make_the_upper_half_positive() -> None:
    data = _load(Source.CIRCLE, n=12, labels=PlanarLabels.ARCS)
    assert data.train_labels.tolist() == [1] * 6 + [0] * 6
    # (-1, 0), the seventh point, sits on the border and opens the lower half.
    heights = data.train_x[:, 1]
    assert (heights[data.train_labels == 1] >= 0).all()
    assert (heights[data.train_labels == 0] < 1e-6).all()


def test_random_labels_are_balanced_and_follow_the_seed() -> None:
    def labels(seed: int) -> list[int]:
        drawn: list[int] = _load(Source.CIRCLE, n=40, labels=PlanarLabels.RANDOM, seed=seed).train_labels.tolist()
        return drawn

    assert labels(1) == labels(1) != labels(2)
    assert sum(labels(1)) == 20


def test_radius_noise_moves_points_along_their_rays_only() -> None:
    still = _load(Source.CIRCLE, n=2000)
    moved = _load(Source.CIRCLE, n=2000, radius_noise=0.1, seed=3)
    radius = moved.train_x.norm(dim=1)
    torch.testing.assert_close(moved.train_x / radius[:, None], still.train_x, atol=1e-5, rtol=0)
    assert float(radius.std()) == pytest.approx(0.1, rel=0.1)
    assert float(radius.mean()) == pytest.approx(1.0, abs=0.02)
    assert _load(Source.CIRCLE, n=2000, radius_noise=0.1, seed=3).fingerprint == moved.fingerprint
    assert _load(Source.CIRCLE, n=2000, radius_noise=0.1, seed=4).fingerprint != moved.fingerprint
    # Test points are noisy too, with a draw of their own.
    assert float((moved.test_x.norm(dim=1)[:2000] - radius).abs().max()) > 0.1


def test_spiral_arms_are_each_others_mirror_through_the_origin() -> None:
    data = _load(Source.SPIRAL, n=40)
    first, second = data.train_x[data.train_labels == 0], data.train_x[data.train_labels == 1]
    torch.testing.assert_close(first, -second)
    radius = first.norm(dim=1)
    assert (radius.diff() > 0).all()
    assert float(radius.min()) > 0.2
    assert float(radius.max()) < 1.0


@pytest.mark.parametrize("n", [16, 20, 200])
def test_chessboard_labels_are_the_colours_of_the_squares(n: int) -> None:
    data = _load(Source.CHESSBOARD, n=n)
    for x, labels in ((data.train_x, data.train_labels), (data.test_x, data.test_labels)):
        square = ((x + 1) / 0.5).floor().long()
        assert (square.sum(dim=1) % 2).tolist() == labels.tolist()
    assert len(torch.unique(data.train_x, dim=0)) == n


@pytest.mark.parametrize("source", PLANAR)
@pytest.mark.parametrize("labels", [PlanarLabels.ALTERNATING, PlanarLabels.RANDOM])
def test_test_points_are_new_and_carry_the_label_of_the_nearest_training_point(
    source: Source, labels: PlanarLabels
) -> None:
    data = _load(source, n=20, labels=labels)
    distance = torch.cdist(data.test_x, data.train_x)
    assert float(distance.min()) > 0.01
    assert data.train_labels[distance.argmin(dim=1)].tolist() == data.test_labels.tolist()
    assert torch.bincount(data.test_labels).tolist() == [20, 20]
    assert len(_load(source, test_n=6).test_x) == 6
