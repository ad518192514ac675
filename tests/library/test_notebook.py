"""Results as a notebook shows them."""

from __future__ import annotations

import base64
import io
import re
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

import recon_core as rc
from tests.library.conftest import Experiment


def picture(shown: str) -> np.ndarray:
    found = re.search(r'src="data:image/png;base64,([^"]+)"', shown)
    assert found is not None
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(found[1]))).convert("RGB"))


def test_data_candidates_and_pairs_are_pictures(experiment: Experiment) -> None:
    for result, count in ((experiment.data, "8 samples"), (experiment.found, "16 candidates"), (experiment.score, "8")):
        shown = result._repr_html_()
        assert count in shown
        assert picture(shown).std() > 10


def test_pairs_stand_in_order_of_their_ssim(experiment: Experiment) -> None:
    pixels = picture(experiment.score._repr_html_())
    best = int(experiment.score.ssim.nan_to_num(-1).argmax())
    image = (experiment.data.images[best].permute(1, 2, 0).numpy() * 255).round()
    height, width, _ = pixels.shape
    corners = ((y, x) for y in range(height - 31) for x in range(min(width - 31, 40)))
    assert any(np.abs(pixels[y : y + 32, x : x + 32] - image).max() <= 1 for y, x in corners)


def test_a_model_is_a_small_table(experiment: Experiment) -> None:
    shown = experiment.model._repr_html_()
    assert "3x32x32-60-60-1" in shown
    assert "samples on the margin" in shown


def test_points_are_tables() -> None:
    data = rc.load_data("circle", n=6)
    found = rc.reconstruct(rc.train(data, widths=20, epochs=3, progress=False), m=4, iterations=2, progress=False)
    for result in (data, found, rc.match(found, data)):
        assert "<table>" in result._repr_html_()


def test_names_of_files_are_text_and_no_markup() -> None:
    data = rc.load_data("circle", n=6)
    object.__setattr__(data, "config", data.config.model_copy(update={"path": "<b>mine</b>"}))
    assert "<b>" not in data._repr_html_()


def test_a_notebook_has_a_bar_that_moves(experiment: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []
    display: Any = ModuleType("IPython.display")
    display.HTML = str
    display.display = lambda content, display_id: SimpleNamespace(update=drawn.append)
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    rc.reconstruct(experiment.model, m=16, iterations=5, measure_every=1)
    assert all("<progress" in bar for bar in drawn)
    assert 'value="1.000"' in drawn[-1]
