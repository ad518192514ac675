"""How the multipliers lambda are spread: the KKT conditions want many at 0 and few above."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from torch import Tensor

from recon_core.analysis.arrays import Floats, Integers, floats
from recon_core.errors import InputError


@dataclass(frozen=True, eq=False)
class MultiplierHistogram:
    """Counts (bins,) between edges (bins + 1,)."""

    edges: Floats
    counts: Integers
    non_finite: int
    """Multipliers that are no number and in no bin."""

    def to_frame(self) -> pd.DataFrame:
        return pd.DataFrame({"low": self.edges[:-1], "high": self.edges[1:], "count": self.counts})


def multiplier_histogram(multipliers: Tensor, bins: int = 40) -> MultiplierHistogram:
    """From multipliers of any shape."""
    if bins < 1:
        raise InputError(f"a histogram needs at least 1 bin, got {bins}")
    values = floats(multipliers).ravel()
    finite = values[np.isfinite(values)]
    if len(finite) == 0:
        raise InputError(f"none of the {len(values)} multipliers is a finite number; run again with a smaller rate")
    counts, edges = np.histogram(finite, bins=bins)
    return MultiplierHistogram(edges, counts.astype(np.int64), len(values) - len(finite))
