"""Curves, margins, readings and tables of training runs, on numbers worked out by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
import torch

from recon_core.analysis.training import (
    LEVELS,
    LayerReading,
    TimeAxis,
    layer_readings,
    margin_histogram,
    margin_share,
    training_curves,
)
from recon_core.analysis.training_table import TrainedRun, differing, results, training_table
from recon_core.analysis.training_text import layers_sentence, margin_sentence, percent
from recon_core.errors import InputError
from recon_core.models import Architecture, Network
from recon_core.plots import training as plots
from recon_core.store import RunStore
from recon_core.training.kkt import kkt_residual
from recon_core.training.losses import Loss
from recon_core.training.trainable import Trainable
from recon_core.views.training_rows import WHOLE_BYTES, spread_rows

ROWS: list[dict[str, Any]] = [
    {
        "step": 0, "seconds": 0.1, "log_loss": math.log(0.5), "train_error": 0.5, "on_margin": 4,
        "log10_epochs": -math.inf, "margin_levels": list(range(11)), "kkt_layer1": 1.0, "kkt_layer2": 0.5,
        "test_loss": 10.0, "test_error": 0.25,
    },
    {"step": 10, "seconds": 0.2, "log_loss": -1000.0, "train_error": 0.0, "on_margin": 3, "log10_epochs": 400.0,
     "margin_min": 1.0, "margin_median": 2.0, "margin_max": 3.0},
    {"step": 20, "seconds": 0.3, "log_loss": None, "train_error": 0.0, "kkt_layer1": 0.2, "kkt_layer2": None,
     "test_loss": 0.0, "test_error": 0.125},
]  # fmt: skip


class TestCurves:
    def test_losses_are_powers_of_ten_however_small(self) -> None:
        curves = training_curves(ROWS)
        assert curves.log10_loss[:2] == pytest.approx([math.log10(0.5), -1000 / math.log(10)])
        assert math.isnan(curves.log10_loss[2])
        assert curves.log10_test_loss[0] == 1.0
        assert np.isnan(curves.log10_test_loss[1:]).all()

    def test_what_was_measured_last(self) -> None:
        curves = training_curves(ROWS)
        assert curves.last_residuals.tolist() == [0.2, 0.5]
        assert curves.last_test_error == 0.125

    def test_margins_of_new_and_old_runs(self) -> None:
        margins = training_curves(ROWS).margins
        assert margins[0].tolist() == list(range(11))
        assert margins[1, [0, 5, 10]].tolist() == [1.0, 2.0, 3.0]
        assert np.isnan(margins[1, [1, 4, 9]]).all()
        assert LEVELS[5] == 0.5

    def test_epochs_are_the_rows_own_or_the_steps(self) -> None:
        assert training_curves(ROWS).on_axis(TimeAxis.EPOCHS)[1] == 400.0
        plain = training_curves(ROWS, steps_are_epochs=True).on_axis(TimeAxis.EPOCHS)
        assert np.isnan(plain[0])
        assert plain[1:].tolist() == pytest.approx([1.0, math.log10(20)])
        assert not training_curves([{"step": 1}]).counts_epochs

    def test_nothing_measured_is_no_fault(self) -> None:
        curves = training_curves([])
        assert len(curves.steps) == 0
        assert curves.margins.shape == (0, 11)
        assert math.isnan(curves.last_test_error)
        assert curves.to_frame().empty

    def test_table_has_what_was_measured_and_no_empty_columns(self) -> None:
        frame = training_curves(ROWS).to_frame()
        assert {"step", "log10_loss", "margin_0%", "margin_100%", "kkt_layer2"} <= set(frame.columns)
        assert "gradient_norm" not in frame.columns


class TestMarginHistogram:
    def test_the_margin_is_at_one(self) -> None:
        found = margin_histogram(torch.tensor([2.0, 2.0, 3.0, 4.0]), torch.tensor([True, True, False, False]), bins=2)
        assert found.normalised
        assert found.edges.tolist() == [1.0, 1.5, 2.0]
        assert found.on_margin.tolist() == [2, 0]
        assert found.others.tolist() == [0, 2]
        assert found.to_frame()["others"].sum() == 2

    def test_misclassified_samples_keep_their_own_scale(self) -> None:
        found = margin_histogram(torch.tensor([-1.0, 3.0]), torch.tensor([True, False]), bins=4)
        assert not found.normalised
        assert found.edges[[0, -1]].tolist() == [-1.0, 3.0]

    def test_equal_margins_fit_in_a_bin(self) -> None:
        found = margin_histogram(torch.full((3,), 5.0), torch.ones(3, dtype=torch.bool))
        assert found.on_margin.sum() == 3

    def test_samples_without_margins_are_refused(self) -> None:
        with pytest.raises(InputError, match="one margin"):
            margin_histogram(torch.ones(3), torch.ones(2, dtype=torch.bool))


class TestReading:
    def test_explained_is_one_less_the_square(self) -> None:
        assert LayerReading(1, 0.6).explained == pytest.approx(0.64)
        assert [reading.layer for reading in layer_readings(np.array([0.5, np.nan, 0.1]))] == [1, 3]

    def test_explained_is_the_share_of_squared_weights_that_the_fit_has(self) -> None:
        """A linear network of weights (3, 4) and one sample along the first axis: 9 of 25 are explained."""
        network = Network(Architecture((2,), (1,), 1))
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.zero_()
            network.layers[0].weight.copy_(torch.tensor([[3.0, 4.0]]))
            network.layers[1].weight.fill_(1.0)
        found = kkt_residual(Trainable(network, torch.tensor([[1.0, 0.0]])), Loss("logistic", torch.tensor([1])))
        (first, *_) = layer_readings(np.array(found.per_layer))
        # The bias of layer 1 is 0 but its gradient is not, so the best multiple of the gradient is half the weight.
        assert first.explained == pytest.approx(1 - ((1.5**2 + 1.5**2 + 16) / 25), abs=1e-6)

    def test_sentences(self) -> None:
        readings = [LayerReading(1, 0.2), LayerReading(2, math.sqrt(0.74)), LayerReading(3, 0.044)]
        said = "96% of layer 1, 26% of layer 2 and 99.8% of layer 3 are explained by the training samples."
        assert layers_sentence(readings) == said
        assert layers_sentence(readings[:1]) == "96% of layer 1 is explained by the training samples."
        assert layers_sentence([]) == ""
        assert margin_sentence(42, 50, 0.985) == "42 of 50 samples are on the margin and carry 98% of the multipliers."
        assert margin_sentence(42, 50, None) == "42 of 50 samples are on the margin."

    @pytest.mark.parametrize(
        ("share", "words"),
        [(0.0, "0%"), (0.0004, "under 0.1%"), (0.005, "0.5%"), (0.5, "50%"), (0.996, "99.6%"), (0.9999, "over 99.9%"),
         (1.0, "100%"), (None, "–"), (math.nan, "–")],
    )  # fmt: skip
    def test_percent_never_says_none_or_all_of_what_is_not(self, share: float | None, words: str) -> None:
        assert percent(share) == words

    def test_share_of_the_multipliers_on_the_margin(self) -> None:
        on = torch.tensor([True, True, False])
        assert margin_share(torch.tensor([1.0, 2.0, 1.0]), on) == 0.75
        assert margin_share(torch.tensor([1.0, -2.0, 1.0]), on) is None
        assert margin_share(torch.zeros(3), on) is None


class TestRows:
    def test_a_long_run_is_sampled_evenly_from_its_first_row_to_its_last(self, tmp_path: Path) -> None:
        run = RunStore(tmp_path).create("train", {})
        padding = "x" * 200
        count = 3 * WHOLE_BYTES // 250
        every_fifth = ({"kkt": 1} if step % 5 == 0 else {} for step in range(count))
        lines = (json.dumps({"step": step, "padding": padding, **slow}) for step, slow in enumerate(every_fifth))
        (run.dir / "metrics.jsonl").write_text("\n".join(lines) + "\n" + '{"step": 999999999, "torn')
        rows = spread_rows(run)
        steps = np.array([row["step"] for row in rows])
        assert (steps[0], steps[-1]) == (0, count - 1)
        assert (np.diff(steps) > 0).all()
        assert np.diff(steps).max() < count / 100
        assert len(rows) < count / 2
        slow = [row["step"] for row in rows if "kkt" in row]
        assert np.diff(slow).max() < count / 50

    def test_a_short_run_is_whole_and_a_new_one_empty(self, tmp_path: Path) -> None:
        run = RunStore(tmp_path).create("train", {})
        assert spread_rows(run) == []
        with run.writer() as writer:
            writer.metrics({"step": 0})
            writer.metrics({"step": 1})
        assert [row["step"] for row in spread_rows(run)] == [0, 1]


def trained(run_id: str, **config: Any) -> TrainedRun:
    numbers = {"train_error": 0.0, "test_error": 0.25, "log_loss": math.log(1e-6), "kkt_layer1": 0.2, "on_margin": 42}
    base: dict[str, Any] = {
        "data": {"n": 50, "seed": 0, "path": None},
        "model": {"widths": [10, 10], "seed": 0},
        "device": "cpu",
    }
    for group, changes in config.items():
        base[group] = {**base[group], **changes}
    return TrainedRun(run_id, f"name of {run_id}", "done", "2026-11-16T12:00:00+00:00", 3.5, base, numbers)


class TestTable:
    def test_differing_settings_only(self) -> None:
        runs = [trained("a"), trained("b", data={"n": 100}), trained("c", model={"widths": [5]})]
        assert differing([run.config for run in runs]) == ["data.n", "model.widths"]
        frame = training_table(runs).to_frame()
        assert list(frame["n"]) == [50, 100, 50]
        assert list(frame["widths"]) == ["10,10", "10,10", "5"]
        assert "seed" not in frame
        assert list(frame.columns[:2]) == ["name", "state"]
        assert training_table(runs[:1]).settings == ()

    def test_settings_of_one_name_keep_their_group(self) -> None:
        frame = training_table([trained("a"), trained("b", data={"seed": 1}, model={"seed": 2})]).to_frame()
        assert {"data.seed", "model.seed"} <= set(frame.columns)

    def test_numbers_and_texts_in_one_column_are_texts(self) -> None:
        runs = [trained("a", model={"init_scale": 0.1}), trained("b", model={"init_scale": "kaiming"}), trained("c")]
        assert list(training_table(runs).to_frame()["init_scale"].fillna("")) == ["0.1", "kaiming", ""]

    def test_results(self) -> None:
        found = results(trained("a").numbers)
        assert found == pytest.approx(
            {"train_error": 0.0, "test_accuracy": 0.75, "log10_loss": -6.0, "explained_layer1": 0.96, "on_margin": 42}
        )
        assert set(results({}).values()) == {None}
        assert results({"log_loss": -math.inf})["log10_loss"] is None

    def test_differences_lie_down(self) -> None:
        found = training_table([trained("a"), trained("b", data={"n": 100})]).differences()
        assert list(found.columns) == ["a", "b"]
        assert list(found.loc["n"]) == ["50", "100"]
        assert list(found.loc["test_accuracy"]) == ["75%", "75%"]

    def test_a_damaged_run_has_its_line(self) -> None:
        broken = TrainedRun("x", "x", "failed", "2026-11-16T12:00:00+00:00", 0.0, {}, {})
        frame = training_table([trained("a"), broken]).to_frame()
        assert frame.loc[1, "state"] == "failed"
        assert math.isnan(frame.loc[1, "train_error"])


class TestFigures:
    def test_every_figure_draws_what_is_there(self) -> None:
        curves = training_curves(ROWS)
        for axis in TimeAxis:
            for draw in (
                plots.plot_loss,
                plots.plot_errors,
                plots.plot_margins,
                plots.plot_residuals,
                plots.plot_gradient_norm,
            ):
                assert isinstance(draw(curves, axis), go.Figure)
        assert [trace.name for trace in plots.plot_loss(curves).data] == ["training", "test"]
        assert [trace.name for trace in plots.plot_residuals(curves).data] == ["layer 1", "layer 2"]
        assert "layer 1 96%" in plots.plot_residuals(curves).layout.title.subtitle.text

    def test_the_loss_is_drawn_as_its_logarithm_to_base_10(self) -> None:
        drawn = plots.plot_loss(training_curves(ROWS))
        assert drawn.layout.yaxis.title.text == "log10 loss"
        assert min(drawn.data[0].y) == pytest.approx(-434.29, abs=0.01)

    def test_the_axis_of_gradient_norms_reads_as_powers_of_ten(self) -> None:
        rows = [{"step": step, "gradient_norm": norm} for step, norm in enumerate((1.0, 1e-3, 1e-7))]
        assert plots.plot_gradient_norm(training_curves(rows)).layout.yaxis.tickprefix == "10<sup>"

    def test_over_few_decades_it_reads_as_numbers(self) -> None:
        rows = [{"step": step, "gradient_norm": norm} for step, norm in enumerate((0.7, 0.3, 0.05))]
        axis = plots.plot_gradient_norm(training_curves(rows)).layout.yaxis
        assert {"0.1", "0.2", "0.5", "0.05"} <= set(axis.ticktext)
        assert dict(zip(axis.ticktext, axis.tickvals, strict=True))["0.1"] == pytest.approx(-1.0)

    def test_long_lines_are_thinned_but_keep_their_ends(self) -> None:
        rows = [{"step": step, "log_loss": -float(step)} for step in range(10_000)]
        line = plots.plot_loss(training_curves(rows)).data[0]
        assert len(line.x) == plots.MOST_POINTS
        assert (line.x[0], line.x[-1]) == (0, 9_999)

    def test_compared_runs_differ_in_more_than_colour(self) -> None:
        curves = {f"run {index} <b>": training_curves(ROWS) for index in range(6)}
        for draw in (plots.compare_losses, plots.compare_errors, plots.compare_margins, plots.compare_residuals):
            lines = draw(curves).data
            assert len({line.line.dash for line in lines}) == len({line.line.color for line in lines}) == 6
            assert lines[0].name == "run 0 &lt;b&gt;"

    def test_histogram_stacks_both_kinds(self) -> None:
        found = margin_histogram(torch.tensor([1.0, 1.0, 2.0]), torch.tensor([True, True, False]))
        drawn = plots.plot_margin_histogram(found)
        assert "2 of 3" in drawn.layout.title.subtitle.text
        assert sum(sum(bar.y) for bar in drawn.data) == 3
