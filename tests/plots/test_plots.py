"""Figures hold the numbers they were given; mosaics put every pixel where it belongs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
import torch
from PIL import Image

from recon_core.analysis.counts import count_by_factor, count_by_threshold, roc_curve, sorted_ssim
from recon_core.analysis.leakage import leak_scatter
from recon_core.analysis.models import ModelTable, model_row
from recon_core.analysis.multipliers import multiplier_histogram
from recon_core.analysis.pairs import best_pairs
from recon_core.analysis.points import point_table
from recon_core.analysis.weights import singular_values
from recon_core.errors import InputError
from recon_core.matching.protocol import MatchSettings
from recon_core.matching.roc import roc
from recon_core.plots.counts import plot_count_by_factor, plot_count_by_threshold, plot_roc, plot_sorted_ssim
from recon_core.plots.files import write_figures
from recon_core.plots.leakage import plot_ssim_by_margin, plot_ssim_by_output
from recon_core.plots.model import plot_models, plot_multipliers, plot_singular_values
from recon_core.plots.mosaic import image_mosaic, pairs_mosaic, save_mosaic
from recon_core.plots.points import plot_points
from recon_core.plots.style import conditions

SETTINGS = MatchSettings(merge_factor=1.3)
BLUE, ORANGE, WHITE = (0, 0x72, 0xB2), (0xE6, 0x9F, 0), (255, 255, 255)


@pytest.fixture
def figures() -> dict[str, go.Figure]:
    ssim, others = torch.tensor([0.9, 0.5, 0.1]), torch.tensor([0.2, 0.3, 0.0])
    outputs = torch.tensor([[1.0], [-2.0], [4.0]])
    scatter = leak_scatter(ssim, outputs, torch.tensor([1, 0, 1]), torch.tensor([True, False, False]), 0.0, 0.2)
    names = ("odd", "even")
    points = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    labels, kept = torch.tensor([0, 1]), torch.tensor([True, True])
    table = point_table(points, labels, torch.tensor([0.0, 0.5]), torch.tensor([0, 1]), points, labels, kept)
    model = model_row("net", {"n": 3, "log_loss": -1000.0, "train_error": 0.0, "test_error": 0.2}, 2)
    return {
        "output": plot_ssim_by_output(scatter, names, SETTINGS, 0.4),
        "margin": plot_ssim_by_margin(scatter, names, SETTINGS, 0.4),
        "threshold": plot_count_by_threshold(count_by_threshold(ssim, others, others, others), SETTINGS, 0.4),
        "factor": plot_count_by_factor(
            count_by_factor(torch.tensor([1.0, 1.3]), torch.stack([ssim, ssim]), 0.4), SETTINGS
        ),
        "sorted": plot_sorted_ssim(sorted_ssim(ssim), SETTINGS, 0.4),
        "roc": plot_roc(roc_curve(roc(ssim, others)), SETTINGS),
        "multipliers": plot_multipliers(multiplier_histogram(torch.rand(30)), "the candidates"),
        "singular": plot_singular_values(singular_values(torch.tensor([3.0, 1.0]))),
        "models": plot_models(ModelTable((model,))),
        "points": plot_points(table, 0.1),
    }


def test_every_figure_of_ssim_says_which_one_and_which_b(figures: dict[str, go.Figure]) -> None:
    for name in ("output", "margin", "threshold", "factor", "sorted", "roc"):
        caption = figures[name].layout.title.subtitle.text
        assert "Wang" in caption, name
        if name != "factor":  # there B is the axis
            assert "B = 1.3" in caption, name
    assert "NCC above 0.9" in conditions(MatchSettings(protocol="haim"))
    assert "3x3" in conditions(MatchSettings(ssim="authors"))


def test_scatter_shows_every_sample_and_the_errors(figures: dict[str, go.Figure]) -> None:
    drawn = figures["margin"]
    assert "train error 0.0%; test error 20.0%" in drawn.layout.title.subtitle.text
    shown = {(float(x), float(y)) for trace in drawn.data for x, y in zip(trace.x, trace.y, strict=True)}
    assert {round(x, 6) for x, _ in shown} == {0.0, 1.0, 3.0}
    assert [trace.name for trace in drawn.data] == ["odd", "even"]
    assert len({trace.marker.symbol for trace in drawn.data}) == 2


def test_chance_levels_are_drawn_beside_the_count(figures: dict[str, go.Figure]) -> None:
    assert [trace.name for trace in figures["threshold"].data] == [
        "reconstructions",
        "mean image alone",
        "untrained network",
        "3 held-out images",
    ]


def test_a_loss_too_small_for_a_float_is_still_told(figures: dict[str, go.Figure]) -> None:
    cells = figures["models"].data[0].cells.values
    assert ("-434.3",) in [tuple(column) for column in cells]


def test_points_found_are_counted(figures: dict[str, go.Figure]) -> None:
    assert "1 of 2 training points found" in figures["points"].layout.title.text


def _pairs(threshold: float):
    images = torch.stack([torch.full((1, 4, 4), 0.2), torch.full((1, 4, 4), 0.6)])
    return best_pairs(images, torch.zeros(2, 1, 4, 4), torch.tensor([0.9, 0.3]), 2, threshold)


def test_mosaic_puts_images_above_and_frames_them_by_the_threshold() -> None:
    mosaic = pairs_mosaic(_pairs(0.4), columns=2, scale=1)
    assert mosaic.shape == (4 + 4 + 4, 2 * (4 + 4), 3)
    assert mosaic.dtype == np.uint8
    assert tuple(mosaic[0, 0]) == WHITE
    assert tuple(mosaic[1, 1]) == BLUE
    assert tuple(mosaic[1, 9]) == ORANGE
    assert mosaic[3, 3].tolist() == [51] * 3
    assert mosaic[3, 11].tolist() == [153] * 3
    assert mosaic[8, 3].tolist() == [0] * 3
    beside = pairs_mosaic(_pairs(0.4), columns=1, arrangement="beside", scale=1)
    assert beside.shape == (2 * 8, 4 + 4 + 4, 3)


def test_mosaic_enlarges_by_whole_pixels(tmp_path: Path) -> None:
    small, large = pairs_mosaic(_pairs(0.4), scale=1), pairs_mosaic(_pairs(0.4), scale=3)
    assert np.array_equal(large[1::3, 1::3], small)
    with Image.open(save_mosaic(large, tmp_path / "grid.png")) as saved:
        assert np.array_equal(np.asarray(saved), large)


def test_colour_images_keep_their_channels_and_leave_gaps_white() -> None:
    images = np.zeros((3, 3, 2, 2), dtype=np.float32)
    images[:, 0] = 1.0
    mosaic = image_mosaic(images, columns=2, scale=1)
    assert mosaic[2, 2].tolist() == [255, 0, 0]
    assert (mosaic[6:, 6:] == 255).all()


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: image_mosaic(np.zeros((1, 5, 2, 2), dtype=np.float32)), "(1, 5, 2, 2)"),
        (lambda: image_mosaic(np.zeros((0, 1, 2, 2), dtype=np.float32)), "and 0"),
        (lambda: pairs_mosaic(_pairs(0.4), columns=0), "got 0"),
        (lambda: pairs_mosaic(_pairs(0.4), scale=-1), "got -1"),
        (lambda: pairs_mosaic(_pairs(0.4), arrangement="below"), "'below'"),
    ],
)
def test_bad_mosaics_are_a_sentence(call, named: str) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert named in str(caught.value)


def test_pages_need_no_network(figures: dict[str, go.Figure], tmp_path: Path) -> None:
    written = write_figures(figures, tmp_path, formats=())
    assert written.missing is None
    assert len(written.paths) == len(figures)
    assert (tmp_path / "plotly.min.js").is_file()
    page = (tmp_path / "roc.html").read_text(encoding="utf-8")
    assert 'src="plotly.min.js"' in page
    assert "cdn.plot.ly" not in page


def test_without_a_browser_a_sentence_says_so(
    figures: dict[str, go.Figure], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("BROWSER_PATH", str(tmp_path / "nowhere"))
    written = write_figures({"roc": figures["roc"]}, tmp_path)
    assert written.missing is not None
    assert "PNG, SVG and PDF need" in written.missing
    assert [path.name for path in written.paths] == ["roc.html"]


def test_papers_get_png_svg_and_pdf(figures: dict[str, go.Figure], tmp_path: Path) -> None:
    written = write_figures({"roc": figures["roc"]}, tmp_path)
    assert written.missing is None
    assert (tmp_path / "roc.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in (tmp_path / "roc.svg").read_bytes()[:200]
    assert (tmp_path / "roc.pdf").read_bytes().startswith(b"%PDF")
