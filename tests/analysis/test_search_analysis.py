"""What is made of an attack's measurements and a search's trials, on numbers whose meaning is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from recon_core.analysis.residuals import residual_curves
from recon_core.analysis.search import LEAST_TRIALS, TrialTable, parameter_importance, trial_table
from recon_core.attacks import SEARCH_RANGES
from recon_core.studies.trials import TrialRecord

RANGES = SEARCH_RANGES["haim2022"]


def row(step: int, whole: float | None, *layers: float | None, seed: int = 0) -> dict[str, object]:
    by_layer = {f"residual_layer{index + 1}": value for index, value in enumerate(layers)}
    return {"step": step, "seed": seed, "residual": whole, **by_layer}


def drawn_params(count: int) -> list[dict[str, float]]:
    generator = np.random.default_rng(3)
    return [
        {
            name: float(
                10 ** generator.uniform(math.log10(span.low), math.log10(span.high))
                if span.log
                else generator.uniform(span.low, span.high)
            )
            for name, span in RANGES.items()
        }
        for _ in range(count)
    ]


def table(values: list[float | None], params: list[dict[str, float]]) -> TrialTable:
    records = [
        TrialRecord(number, own, value, "complete" if value is not None else "diverged", None)
        for number, (value, own) in enumerate(zip(values, params, strict=True))
    ]
    return TrialTable(tuple(records), RANGES)


class TestResidualCurves:
    def test_every_layer_has_its_curve_and_gaps_stay_gaps(self) -> None:
        rows = [row(0, 1.0, 1.0, 1.0), row(10, None, 0.5, None), row(20, 0.1, 0.2, 0.05, seed=1)]
        curves = residual_curves(rows)
        assert curves is not None
        assert curves.steps.tolist() == [0, 10, 20]
        assert curves.seeds.tolist() == [0, 0, 1]
        assert curves.layers[0].tolist() == [1.0, 0.5, 0.2]
        assert math.isnan(curves.whole[1])
        assert math.isnan(curves.layers[1, 1])
        assert list(curves.to_frame().columns) == ["step", "seed", "residual", "layer1", "layer2"]

    def test_a_long_run_is_thinned_from_its_first_to_its_last_row(self) -> None:
        curves = residual_curves([row(step, 1.0, 1.0) for step in range(0, 50_000, 5)], most=100)
        assert curves is not None
        assert len(curves.steps) == 100
        assert (curves.steps[0], curves.steps[-1]) == (0, 49_995)

    def test_rows_of_something_else_make_no_curve(self) -> None:
        assert residual_curves([]) is None
        assert residual_curves([{"step": 3, "trial": 0, "residual": 0.4}]) is None


class TestTrialTable:
    def test_rows_tell_of_trials_since_the_search_last_ended(self) -> None:
        params = drawn_params(3)
        stored = [
            {"number": 0, "params": params[0], "value": 0.5, "state": "complete", "seconds": 2.0},
            {"number": 1, "params": params[1], "value": None, "state": "running", "seconds": None},
        ]
        rows = [
            {"step": 9, "trial": 0, "residual": 0.5, "state": "complete", **params[0]},
            {"step": 19, "trial": 1, "residual": 0.2, "state": "complete", **params[1]},
            {"step": 29, "trial": 2, "residual": None, "state": "diverged", **params[2]},
        ]
        found = trial_table(rows, stored, RANGES)
        assert [trial.state for trial in found.records] == ["complete", "complete", "diverged"]
        assert [trial.seconds for trial in found.records] == [2.0, None, None]
        assert found.best is not None
        assert (found.best.number, found.best.params) == (1, params[1])
        frame = found.to_frame()
        assert list(frame.columns) == ["trial", "residual", "state", *RANGES, "seconds"]
        assert math.isnan(frame["residual"][2])

    def test_a_search_that_has_just_begun_has_no_best(self) -> None:
        assert trial_table([], [], RANGES).best is None
        assert trial_table([], [], RANGES).to_frame().empty


class TestImportance:
    def test_the_number_that_decides_is_found(self) -> None:
        params = drawn_params(60)
        values = [abs(math.log10(own["lr_x"]) + 2.0) for own in params]
        found = parameter_importance(table(values, params))
        assert found is not None
        assert next(iter(found.shares)) == "lr_x"
        assert found.shares["lr_x"] > 0.5
        assert sum(found.shares.values()) == pytest.approx(1.0)
        assert (found.top, found.of) == (6, 60)

    def test_scale_does_not_matter_and_diverged_trials_count_as_bad(self) -> None:
        params = drawn_params(40)
        near = [abs(own["alpha"] - 100.0) for own in params]
        values: list[float | None] = [value if value < 200 else None for value in near]
        found = parameter_importance(table(values, params))
        squeezed = parameter_importance(table([None if v is None else math.exp(v / 50) for v in values], params))
        assert found is not None
        assert squeezed is not None
        assert next(iter(found.shares)) == "alpha"
        assert squeezed.shares == found.shares

    @pytest.mark.parametrize("values", [[0.1] * 20, [0.1 * k for k in range(LEAST_TRIALS - 1)]])
    def test_too_little_to_go_by_says_nothing(self, values: list[float]) -> None:
        assert parameter_importance(table(values, drawn_params(len(values)))) is None
