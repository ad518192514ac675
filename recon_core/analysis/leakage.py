"""Which samples leak: reconstruction quality against what the network says about them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from torch import Tensor

from recon_core.analysis.arrays import Flags, Floats, Integers, flags, floats, integers
from recon_core.analysis.margins import margin_distances, own_outputs
from recon_core.errors import InputError


@dataclass(frozen=True, eq=False)
class LeakScatter:
    """SSIM of n training samples against output and distance to the margin (Haim Fig. 4 and 16, Buzaglo Fig. 14)."""

    ssim: Floats
    outputs: Floats
    margin_distances: Floats
    labels: Integers
    on_margin: Flags
    train_error: float | None
    test_error: float | None

    @property
    def rank_correlation(self) -> float:
        """Spearman's, of SSIM with the distance to the margin; negative if samples near the margin leak most."""
        valid = np.isfinite(self.ssim) & np.isfinite(self.margin_distances)
        if valid.sum() < 2:
            return float("nan")
        frame = pd.DataFrame({"ssim": self.ssim[valid], "distance": self.margin_distances[valid]}).rank()
        if (frame.nunique() < 2).any():
            return float("nan")
        return float(frame["ssim"].corr(frame["distance"]))

    def to_frame(self) -> pd.DataFrame:
        return pd.DataFrame(
            {
                "label": self.labels,
                "ssim": self.ssim,
                "output": self.outputs,
                "margin_distance": self.margin_distances,
                "on_margin": self.on_margin,
            }
        )


def leak_scatter(
    ssim: Tensor,
    outputs: Tensor,
    labels: Tensor,
    on_margin: Tensor,
    train_error: float | None = None,
    test_error: float | None = None,
) -> LeakScatter:
    """From SSIM (n,), outputs phi (n, C), class indices (n,) and the samples on the margin (n,) bool."""
    if len(ssim) != len(outputs):
        raise InputError(f"there are {len(ssim)} scores and {len(outputs)} outputs; take both from one model")
    return LeakScatter(
        ssim=floats(ssim),
        outputs=floats(own_outputs(outputs, labels)),
        margin_distances=floats(margin_distances(outputs, labels)),
        labels=integers(labels),
        on_margin=flags(on_margin),
        train_error=train_error,
        test_error=test_error,
    )
