"""Presets by figure: each stands under one, with a picture of what it trains on."""

from __future__ import annotations

import numpy as np
import pytest

from recon_core.presets import FIGURES, PRESETS
from recon_core.views.preset_pictures import HEIGHT, WIDTH, preset_picture


def test_every_preset_stands_under_one_figure() -> None:
    named = [name for names in FIGURES.values() for name in names]
    assert sorted(named) == sorted(PRESETS)


@pytest.mark.parametrize("name", ["cifar10-50", "mnist-50", "cifar10-500", "circle"])
def test_a_picture_shows_what_is_trained_on(name: str) -> None:
    picture = preset_picture(name)
    assert picture.shape == (3, HEIGHT, WIDTH)
    assert 0 <= picture.min() < picture.max() <= 1
    assert len(np.unique(picture)) > 2


def test_more_images_fill_more_of_the_picture_with_smaller_tiles() -> None:
    few, many = preset_picture("cifar10-10"), preset_picture("cifar10-500")
    assert np.abs(np.diff(many, axis=-1)).mean() > np.abs(np.diff(few, axis=-1)).mean()
