"""How well candidates explain the weights while an attack goes on: the residual of every layer over its steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from recon_core.analysis.arrays import Floats, Integers

MOST_POINTS = 400
"""Points of a curve: more than a screen can resolve, few enough to redraw every second."""
_LAYER = "residual_layer"


@dataclass(frozen=True, eq=False)
class ResidualCurves:
    """|R|^2 / |theta|^2 at K steps. Seeds follow one another, and a step belongs to one of them."""

    steps: Integers
    """(K,), counted through all seeds."""
    whole: Floats
    """(K,), over all layers; NaN where it was not finite, like `layers`."""
    layers: Floats
    """(L, K), of each layer by itself."""
    seeds: Integers
    """(K,)."""

    def to_frame(self) -> pd.DataFrame:
        by_layer = {f"layer{index + 1}": values for index, values in enumerate(self.layers)}
        return pd.DataFrame({"step": self.steps, "seed": self.seeds, "residual": self.whole, **by_layer})


def residual_curves(rows: Sequence[Mapping[str, Any]], most: int = MOST_POINTS) -> ResidualCurves | None:
    """From the measurements of an attack; None before the first. Of more than `most`, evenly many are kept."""
    found = [row for row in rows if f"{_LAYER}1" in row and "step" in row]
    if not found:
        return None
    if len(found) > most:
        found = [found[index] for index in np.linspace(0, len(found) - 1, most).round().astype(int)]
    count = sum(key.startswith(_LAYER) for key in found[0])
    layers = [[_number(row.get(f"{_LAYER}{index + 1}")) for row in found] for index in range(count)]
    return ResidualCurves(
        steps=np.array([row["step"] for row in found], dtype=np.int64),
        whole=np.array([_number(row.get("residual")) for row in found]),
        layers=np.array(layers),
        seeds=np.array([row.get("seed", 0) for row in found], dtype=np.int64),
    )


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
