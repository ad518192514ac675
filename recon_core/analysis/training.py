"""How a training run went: its measurements as curves, its margins as a histogram, its KKT residuals in words."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from torch import Tensor

from recon_core.analysis.arrays import Floats, Integers, flags, floats
from recon_core.errors import InputError
from recon_core.units import log10_loss

LEVELS = tuple(np.round(np.linspace(0.0, 1.0, 11), 1).tolist())
"""The quantiles of the margins that a measurement holds, from the smallest margin to the largest."""
_RESIDUAL = re.compile(r"kkt_layer(\d+)")


class TimeAxis(StrEnum):
    """What a run's progress is measured in."""

    STEPS = "steps"
    SECONDS = "seconds"
    EPOCHS = "epochs"
    """Of plain gradient descent, as a logarithm: steps of flow count many."""


@dataclass(frozen=True, eq=False)
class TrainingCurves:
    """One row for each of the r measurements; NaN where something was not measured then.

    Losses are logarithms to base 10, because a mean loss of e^-1000 is 0 as a number.
    """

    steps: Floats
    seconds: Floats
    log10_epochs: Floats
    """NaN throughout for recipes that do not walk axis gradient descent's path."""
    log10_loss: Floats
    log10_test_loss: Floats
    train_error: Floats
    test_error: Floats
    margins: Floats
    """(r, 11), see LEVELS; runs of older versions have the smallest, the middle and the largest only."""
    on_margin: Floats
    residuals: Floats
    """(r, layers): |theta_l - sum_i lam_i grad q_i| / |theta_l|, in [0, 1]."""
    gradient_norms: Floats
    """Over the decay term; NaN without weight decay."""

    def on_axis(self, axis: TimeAxis) -> Floats:
        return {TimeAxis.STEPS: self.steps, TimeAxis.SECONDS: self.seconds, TimeAxis.EPOCHS: self.log10_epochs}[axis]

    @property
    def counts_epochs(self) -> bool:
        return bool(np.isfinite(self.log10_epochs).any())

    @property
    def decays(self) -> bool:
        """Whether there is weight decay, and so a gradient norm to go to 0."""
        return bool(np.isfinite(self.gradient_norms).any())

    @property
    def last_residuals(self) -> Floats:
        """The newest of each layer (layers,)."""
        return np.array([_last(column) for column in self.residuals.T], dtype=np.float64)

    @property
    def last_test_error(self) -> float:
        """NaN without a test set, and before it was asked."""
        return _last(self.test_error)

    def to_frame(self) -> pd.DataFrame:
        columns = {
            "step": self.steps,
            "seconds": self.seconds,
            "log10_epochs": self.log10_epochs,
            "log10_loss": self.log10_loss,
            "log10_test_loss": self.log10_test_loss,
            "train_error": self.train_error,
            "test_error": self.test_error,
            "on_margin": self.on_margin,
            "gradient_norm": self.gradient_norms,
        }
        columns |= {f"margin_{level:.0%}": values for level, values in zip(LEVELS, self.margins.T, strict=True)}
        columns |= {f"kkt_layer{index + 1}": values for index, values in enumerate(self.residuals.T)}
        return pd.DataFrame(columns).dropna(axis="columns", how="all")


def training_curves(rows: Sequence[Mapping[str, Any]], *, steps_are_epochs: bool = False) -> TrainingCurves:
    """From the metrics of a run. `steps_are_epochs` for the recipes that are gradient descent themselves."""

    def column(name: str) -> Floats:
        return np.array([_number(row.get(name)) for row in rows], dtype=np.float64)

    layers = max(
        (int(found[1]) for row in rows[-200:] for key in row if (found := _RESIDUAL.fullmatch(key))), default=0
    )
    steps = column("step")
    return TrainingCurves(
        steps=steps,
        seconds=column("seconds"),
        log10_epochs=_log10(steps) if steps_are_epochs else column("log10_epochs"),
        log10_loss=log10_loss(column("log_loss")),
        log10_test_loss=_log10(column("test_loss")),
        train_error=column("train_error"),
        test_error=column("test_error"),
        margins=np.array([_margins(row) for row in rows], dtype=np.float64).reshape(len(rows), len(LEVELS)),
        on_margin=column("on_margin"),
        residuals=np.stack([column(f"kkt_layer{index + 1}") for index in range(layers)], axis=1)
        if layers
        else np.empty((len(rows), 0)),
        gradient_norms=column("gradient_norm"),
    )


def _margins(row: Mapping[str, Any]) -> list[float]:
    levels = row.get("margin_levels")
    if isinstance(levels, list) and len(levels) == len(LEVELS):
        return [_number(value) for value in levels]
    known = {0.0: "margin_min", 0.5: "margin_median", 1.0: "margin_max"}
    return [_number(row.get(known[level])) if level in known else float("nan") for level in LEVELS]


def _number(value: Any) -> float:
    """A finite number, or NaN: files hold None where a value was not finite, and infinities."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        return float("nan")
    return float(value)


def _log10(values: Floats) -> Floats:
    """NaN where there is no logarithm."""
    found: Floats = np.full_like(values, np.nan)
    np.log10(values, out=found, where=values > 0)
    return found


def _last(values: Floats) -> float:
    finite = values[np.isfinite(values)]
    return float(finite[-1]) if len(finite) else float("nan")


@dataclass(frozen=True, eq=False)
class MarginHistogram:
    """Training samples by their margin: counts (bins,) between edges (bins + 1,), those on the margin apart."""

    edges: Floats
    on_margin: Integers
    others: Integers
    normalised: bool
    """Margins are over the smallest one, so that the margin itself is at 1; not where a sample is misclassified."""

    def to_frame(self) -> pd.DataFrame:
        return pd.DataFrame(
            {"low": self.edges[:-1], "high": self.edges[1:], "on_margin": self.on_margin, "others": self.others}
        )


def margin_histogram(margins: Tensor, on_margin: Tensor, bins: int = 30) -> MarginHistogram:
    """From margins q (n,) and the samples on the margin (n,) bool, as a training run leaves them."""
    if len(margins) == 0 or margins.shape != on_margin.shape:
        raise InputError(
            f"each sample has one margin, got shapes {tuple(margins.shape)} and {tuple(on_margin.shape)}; train again"
        )
    values, on = floats(margins), flags(on_margin)
    smallest = float(values.min())
    normalised = smallest > 0
    if normalised:
        values = values / smallest
    edges = np.histogram_bin_edges(values, bins=bins)
    return MarginHistogram(
        edges=edges,
        on_margin=np.histogram(values[on], edges)[0].astype(np.int64),
        others=np.histogram(values[~on], edges)[0].astype(np.int64),
        normalised=normalised,
    )


class LayerReading(NamedTuple):
    """What a layer's KKT residual says."""

    layer: int
    residual: float

    @property
    def explained(self) -> float:
        """Share of the layer's squared weights that the samples' gradients account for.

        The best fit is at right angles to what it leaves over, so |theta|^2 is the fit's square plus the rest's:
        1 - residual^2. (1 - residual would compare lengths, which do not add up.)
        """
        return 1.0 - self.residual**2


def layer_readings(residuals: Floats) -> list[LayerReading]:
    """From the newest residuals (layers,); layers that were not measured are left out."""
    return [LayerReading(index + 1, float(value)) for index, value in enumerate(residuals) if np.isfinite(value)]


def margin_share(multipliers: Tensor, on_margin: Tensor) -> float | None:
    """Share of the multipliers' sum that belongs to samples on the margin; 1 at a KKT point (Haim et al. 2022, Eq. 5).

    None for regression, whose multipliers have either sign, and where all are 0.
    """
    lam, on = floats(multipliers), flags(on_margin)
    total = float(lam.sum())
    return None if (lam < 0).any() or total <= 0 else float(lam[on].sum() / total)
