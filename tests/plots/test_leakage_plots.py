"""The scatter, its small multiples and the decay curve hold what they were given; files need nothing else."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest
import torch

from recon_core.analysis.decay import DecayPoint, decay_curve
from recon_core.analysis.leakage import AxisScale, LeakAxis, LeakPanel, LeakScatter, leak_scatter, usual_scale
from recon_core.errors import InputError
from recon_core.matching.protocol import MatchSettings
from recon_core.plots.decay import decay_label, none_position, plot_decay_curve
from recon_core.plots.files import can_draw_png, figure_html, figure_png
from recon_core.plots.leakage import plot_leakage, plot_leakage_panels
from recon_core.plots.style import figure, literal

SETTINGS = MatchSettings(merge_factor=1.3)
NAMES = ("cats <b>", "dogs")


@pytest.fixture
def scatter() -> LeakScatter:
    return leak_scatter(
        torch.tensor([0.9, 0.5, 0.1, -0.2]),
        torch.tensor([[1.0], [-2.0], [4.0], [-8.0]]),
        torch.tensor([1, 0, 1, 0]),
        torch.tensor([True, False, False, False]),
        0.0,
        0.2,
        ids=[10, 11, 12, 13],
        mean_image=torch.tensor([0.1, 0.45, 0.0, 0.0]),
        untrained=torch.tensor([0.5, 0.45, 0.0, 0.0]),
    )


def draw(scatter: LeakScatter, axis: LeakAxis = LeakAxis.MARGIN, **options: object) -> go.Figure:
    return plot_leakage(scatter, axis, NAMES, SETTINGS, 0.4, **options)


def points_of(drawn: go.Figure) -> dict[int, tuple[float, float]]:
    """Where each sample stands."""
    return {
        int(data[0]): (float(x), float(y))
        for trace in drawn.data[:2]
        for data, x, y in zip(trace.customdata, trace.x, trace.y, strict=True)
    }


def test_a_point_for_every_sample_on_every_axis(scatter: LeakScatter) -> None:
    assert {sample: x for sample, (x, _) in points_of(draw(scatter)).items()} == {0: 0.0, 1: 1.0, 2: 3.0, 3: 7.0}
    outputs = points_of(draw(scatter, LeakAxis.OUTPUT))
    assert {sample: x for sample, (x, _) in outputs.items()} == {0: 1.0, 1: -2.0, 2: 4.0, 3: -8.0}
    assert outputs[0][1] == pytest.approx(0.9)


def test_hover_names_image_class_score_and_margin(scatter: LeakScatter) -> None:
    cats = draw(scatter).data[0]
    assert [row[1] for row in cats.customdata] == [11, 13]
    for piece in ("image %{customdata[1]}", "cats &lt;b&gt;", "SSIM %{y", "distance to the margin %{customdata[2]"):
        assert piece in cats.hovertemplate


def test_caption_says_count_chance_level_ssim_and_b(scatter: LeakScatter) -> None:
    said = draw(scatter).layout.title.subtitle.text
    for piece in ("2 of 4 good", "mean image 1", "untrained network 2", "Wang", "B = 1.3", "above 0.4", "20.0%"):
        assert piece in said


def test_chosen_samples_stand_out_and_one_is_ringed(scatter: LeakScatter) -> None:
    drawn = draw(scatter, chosen={1, 2}, ringed=2)
    strong = {
        int(data[0])
        for trace in drawn.data[:2]
        for data, opacity in zip(trace.customdata, trace.marker.opacity, strict=True)
        if opacity == 1.0
    }
    assert strong == {1, 2}
    ring = drawn.data[-1]
    assert (ring.x[0], ring.text[0], ring.customdata[0][0]) == (3.0, "image 12", 2)
    assert np.ndim(draw(scatter, chosen=set()).data[0].marker.opacity) == 0


def test_chance_levels_are_drawn_where_asked(scatter: LeakScatter) -> None:
    names = [trace.name for trace in draw(scatter, show_controls=True).data]
    assert names[:2] == ["control: mean image alone", "control: untrained network"]
    assert len(draw(scatter).data) == 2


def test_threshold_is_in_sight_whatever_the_scores(scatter: LeakScatter) -> None:
    low, high = draw(scatter).layout.yaxis.range
    assert low < -0.2
    assert high > 1


def test_a_ring_around_nothing_is_a_sentence(scatter: LeakScatter) -> None:
    with pytest.raises(InputError, match="no training image 9"):
        draw(scatter, ringed=9)


def test_panels_share_axes_and_name_models_counts_and_chance_levels(scatter: LeakScatter) -> None:
    panels = [LeakPanel(name, NAMES, SETTINGS, scatter) for name in ("first", "second", "third <i>", "fourth")]
    drawn = plot_leakage_panels(panels, LeakAxis.RELATIVE, 0.4)
    titles = [note.text for note in drawn.layout.annotations]
    assert titles[2] == "<b>third &lt;i&gt;</b><br>2 of 4 good, chance level 2"
    for letter in "xy":
        followed = {drawn.layout[f"{letter}axis{k}"].matches or f"{letter}{k}" for k in ("", "2", "3", "4")}
        assert len(followed) == 1, letter
    assert len(drawn.data) == 8
    assert [trace.name for trace in drawn.data if trace.showlegend] == ["cats &lt;b&gt;", "dogs"]
    assert "B = 1.3" in drawn.layout.title.subtitle.text
    # Every panel carries its axis.
    named = [k for k in ("", "2", "3", "4") if drawn.layout[f"xaxis{k}"].title.text]
    assert named == ["", "2", "3", "4"]


def test_a_long_name_takes_two_lines_so_that_neighbours_stay_apart(scatter: LeakScatter) -> None:
    long = "1000-1000, all biases: train error 0%, test error 24%"
    panels = [LeakPanel(name, NAMES, SETTINGS, scatter) for name in (long, "1e-05: train error 0%")]
    first, second = (note.text for note in plot_leakage_panels(panels, LeakAxis.RELATIVE, 0.4).layout.annotations[:2])
    assert first.startswith("<b>1000-1000, all biases</b><br>train error 0%, test error 24%<br>2 of 4 good")
    assert second.startswith("<b>1e-05: train error 0%</b><br>2 of 4 good")


def test_no_panels_is_a_sentence() -> None:
    with pytest.raises(InputError, match="at least 1 model"):
        plot_leakage_panels([], LeakAxis.MARGIN, 0.4)


def decay_point(model: str, weight_decay: float, good: int, untrained: int | None = None) -> DecayPoint:
    return DecayPoint(model, weight_decay, good, 50, 1, untrained, 2, 40, 0.0, 0.25)


def test_decay_is_logarithmic_with_none_apart_and_chance_levels_drawn() -> None:
    curve = decay_curve(
        [
            decay_point("none", 0.0, 20),
            decay_point("a", 1e-4, 30, 3),
            decay_point("b", 1e-4, 34),
            decay_point("c", 1e-2, 10),
        ],
        0.4,
    )
    assert none_position(curve) == pytest.approx(1e-5)
    drawn = plot_decay_curve(curve, SETTINGS)
    assert drawn.layout.xaxis.type == "log"
    assert list(drawn.layout.xaxis.ticktext) == ["none", "1e-4", "0.01"]
    low, high = drawn.layout.xaxis.range
    assert low < math.log10(1e-5) < math.log10(1e-2) < high
    traces = {(trace.name, trace.mode): trace for trace in drawn.data}
    marks = traces["reconstructions", "markers"]
    assert dict(zip(marks.x, marks.y, strict=True)) == {1e-5: 20, 1e-4: 34, 1e-2: 10}
    line = traces["reconstructions", "lines"]
    assert list(zip(line.x, line.y, strict=True)) == [(1e-4, 32.0), (1e-2, 10.0)]
    assert set(traces["mean image alone", "markers"].y) == {1}
    assert list(traces["untrained network", "markers"].y) == [3]
    assert ("untrained network", "lines") not in traces
    assert "Wang" in drawn.layout.title.subtitle.text
    assert "B = 1.3" in drawn.layout.title.subtitle.text


def test_models_without_decay_alone_make_a_figure() -> None:
    drawn = plot_decay_curve(decay_curve([decay_point("none", 0.0, 20)], 0.4), SETTINGS)
    assert list(drawn.layout.xaxis.ticktext) == ["none"]
    assert not drawn.layout.shapes


@pytest.mark.parametrize(
    ("decay", "words"), [(0.0, "none"), (1e-5, "1e-5"), (2.5e-4, "2.5e-4"), (1e-3, "0.001"), (0.5, "0.5")]
)
def test_decays_are_named_shortly(decay: float, words: str) -> None:
    assert decay_label(decay) == words


def test_others_text_is_shown_as_typed() -> None:
    assert literal("<a href='x'>&</a>") == "&lt;a href='x'&gt;&amp;&lt;/a&gt;"


def test_a_page_of_its_own_asks_for_nothing() -> None:
    page = figure_html(figure("Title", "caption", "x", "y")).decode()
    assert "Title" in page
    assert not re.search(r"<(script|link)[^>]*(src|href)=", page)


def test_a_picture_is_drawn_where_a_browser_is() -> None:
    assert can_draw_png(), "these tests need Chromium and kaleido, as the browser's do"
    assert figure_png(figure("Title", "caption", "x", "y")).startswith(b"\x89PNG")


def test_without_a_browser_no_picture_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("choreographer.browsers.chromium.Chromium.find_browser", lambda **options: None)
    assert not can_draw_png()


def test_a_log_axis_keeps_what_is_zero_and_a_symlog_axis_keeps_signs(scatter: LeakScatter) -> None:
    drawn = draw(scatter, scale=AxisScale.LOG)
    assert drawn.layout.xaxis.type == "log"
    assert {sample: x for sample, (x, _) in points_of(drawn).items()} == {0: 0.5, 1: 1.0, 2: 3.0, 3: 7.0}
    assert "0 at the left edge" in drawn.layout.xaxis.title.text
    # Outputs have signs, of which there is no logarithm.
    signed = draw(scatter, LeakAxis.OUTPUT, scale=AxisScale.LOG)
    assert signed.layout.xaxis.type != "log"
    places = points_of(signed)
    assert places[3][0] < places[1][0] < 0 < places[0][0] < places[2][0]
    assert places[3][0] == pytest.approx(math.asinh(-8) / math.log(10))
    assert list(signed.layout.xaxis.ticktext) == ["−10", "−1", "0", "1", "10"]
    # What nothing can spread stays as it is.
    level = replace(scatter, margin_distances=np.zeros(4))
    assert draw(level, scale=AxisScale.LOG).layout.xaxis.type != "log"


def test_an_axis_is_logarithmic_where_half_of_the_points_crowd_at_zero() -> None:
    assert usual_scale(np.array([0.0, 0.001, 0.01, 5.0])) is AxisScale.LOG
    assert usual_scale(np.array([0.0, 1.0, 3.0, 5.0])) is AxisScale.LINEAR
    assert usual_scale(np.array([0.0, 1.0, 3.0, 5.0]), np.array([0.0, 0.1, np.nan, 0.0])) is AxisScale.LOG
    assert usual_scale(np.zeros(3)) is AxisScale.LINEAR


def test_every_small_multiple_has_a_named_axis(scatter: LeakScatter) -> None:
    panels = [LeakPanel(f"model {i}", NAMES, SETTINGS, scatter) for i in range(5)]
    drawn = plot_leakage_panels(panels, LeakAxis.MARGIN, 0.4, AxisScale.LOG)
    axes = [drawn.layout[f"xaxis{i or ''}"] for i in ("", 2, 3, 4, 5)]
    assert {axis.title.text for axis in axes} == {"distance to the margin (log)"}
    assert all(axis.showticklabels and axis.type == "log" for axis in axes)
