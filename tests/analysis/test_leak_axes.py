"""What SSIM is drawn against, the controls beside it, and the weight-decay curve, on inputs whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from recon_core.analysis.decay import DecayPoint, decay_curve
from recon_core.analysis.leakage import LeakAxis, LeakPanel, LeakScatter, leak_scatter, panels_frame
from recon_core.analysis.models import model_row
from recon_core.errors import InputError
from recon_core.matching.protocol import MatchSettings


def scatter_of(outputs: list[list[float]], labels: list[int], **controls: torch.Tensor) -> LeakScatter:
    n = len(outputs)
    ssim, on_margin = torch.linspace(0.9, 0.1, n), torch.ones(n, dtype=torch.bool)
    return leak_scatter(ssim, torch.tensor(outputs), torch.tensor(labels), on_margin, **controls)


def test_each_axis_is_its_own_column() -> None:
    scatter = scatter_of([[-3.0], [2.0], [-2.5]], [0, 1, 0])
    assert scatter.along(LeakAxis.OUTPUT).tolist() == [-3.0, 2.0, -2.5]
    assert scatter.along(LeakAxis.MARGIN).tolist() == [1.0, 0.0, 0.5]
    assert scatter.along(LeakAxis.RELATIVE).tolist() == [0.5, 0.0, 0.25]  # the margin is 2


def test_relative_distance_does_not_know_the_scale() -> None:
    once = scatter_of([[-3.0], [2.0], [-2.5]], [0, 1, 0])
    larger = scatter_of([[-300.0], [200.0], [-250.0]], [0, 1, 0])
    assert np.allclose(once.relative_distances, larger.relative_distances)


def test_relative_distance_of_several_classes_is_0_on_the_margin() -> None:
    scatter = scatter_of([[5.0, 1.0, 3.0], [0.0, 7.0, 6.0]], [0, 1])
    assert scatter.margin_distances.tolist() == [1.0, 0.0]
    assert scatter.relative_distances.tolist() == [1.0, 0.0]


def test_without_a_margin_there_is_no_relative_distance() -> None:
    misclassified = scatter_of([[1.0, 5.0], [6.0, 4.0]], [0, 1])
    assert np.isnan(misclassified.relative_distances).all()
    one_right = scatter_of([[5.0, 1.0], [6.0, 4.0]], [0, 1])
    assert one_right.relative_distances.tolist() == [0.0, -1.5]  # the margin is 4; below -1 is the wrong side


def test_counts_stand_beside_the_controls_that_were_run() -> None:
    bare = scatter_of([[1.0], [2.0], [3.0]], [1, 1, 1])
    assert bare.good(0.4) == 2
    assert bare.controls(0.4) == {}
    measured = scatter_of(
        [[1.0], [2.0], [3.0]],
        [1, 1, 1],
        mean_image=torch.tensor([0.5, 0.1, 0.1]),
        untrained=torch.tensor([0.5, 0.6, 0.1]),
    )
    assert measured.controls(0.4) == {"mean image": 1, "untrained network": 2}
    assert measured.to_frame()["untrained_ssim"].tolist() == pytest.approx([0.5, 0.6, 0.1])


def test_ids_are_those_given() -> None:
    n = 3
    scatter = leak_scatter(torch.ones(n), torch.ones(n, 1), torch.ones(n).long(), torch.ones(n) > 0, ids=[7, 30, 2])
    assert scatter.to_frame()["id"].tolist() == [7, 30, 2]
    assert scatter.to_frame()["sample"].tolist() == [0, 1, 2]


def test_panels_make_one_table() -> None:
    panels = [
        LeakPanel(name, ("a", "b"), MatchSettings(merge_factor=1.3), scatter_of([[1.0], [-2.0]], [1, 0]))
        for name in ("first", "second")
    ]
    frame = panels_frame(panels)
    assert frame["model"].tolist() == ["first", "first", "second", "second"]
    assert set(frame["merge_factor"]) == {1.3}


def point(model: str, weight_decay: float, good: int) -> DecayPoint:
    return DecayPoint(model, weight_decay, good, 50, 1, None, 2, 50)


def test_decay_curve_is_ordered_and_keeps_none_apart() -> None:
    curve = decay_curve([point("c", 1e-2, 3), point("a", 0.0, 9), point("b", 1e-3, 5)], 0.4)
    assert [found.model for found in curve.points] == ["a", "b", "c"]
    assert [found.model for found in curve.without] == ["a"]
    assert [found.good for found in curve.with_decay] == [5, 3]
    frame = curve.to_frame()
    assert frame["weight_decay"].tolist() == [0.0, 1e-3, 1e-2]
    assert set(frame["threshold"]) == {0.4}


def test_decay_curve_of_nothing_is_a_sentence() -> None:
    with pytest.raises(InputError, match="at least 1 model"):
        decay_curve([], 0.4)


def test_model_rows_tell_margin_residuals_and_decay() -> None:
    result = {"n": 3, "log_loss": -5.0, "train_error": 0.0, "margin_min": 4.5, "kkt": 0.2, "kkt_layer1": 0.1}
    row = model_row("net", result, weight_decay=1e-4)
    assert (row.margin, row.kkt, row.kkt_layer1, row.weight_decay) == (4.5, 0.2, 0.1, 1e-4)
    assert model_row("net", {"n": 3, "log_loss": -5.0, "train_error": 0.0}).margin is None
