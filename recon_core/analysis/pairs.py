"""The best pairs: training images beside their reconstructions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from recon_core.analysis.arrays import Flags, Floats, Integers, above, floats
from recon_core.analysis.counts import sorted_ssim
from recon_core.errors import InputError
from recon_core.matching.protocol import check_threshold

Images = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class BestPairs:
    """The k best reconstructions, best first (Buzaglo Fig. 8)."""

    images: Images
    """(k, C, H, W) in [0, 1]."""
    reconstructions: Images
    """(k, C, H, W) in [0, 1]."""
    ssim: Floats
    samples: Integers
    threshold: float

    @property
    def good(self) -> Flags:
        return above(self.ssim, self.threshold)

    def to_frame(self) -> pd.DataFrame:
        return pd.DataFrame(
            {"rank": np.arange(1, len(self.ssim) + 1), "sample": self.samples, "ssim": self.ssim, "good": self.good}
        )


def best_pairs(images: Tensor, reconstructions: Tensor, ssim: Tensor, k: int, threshold: float) -> BestPairs:
    """From images and reconstructions (n, C, H, W) in [0, 1] and SSIM (n,)."""
    check_threshold(threshold)
    if k < 1:
        raise InputError(f"at least 1 pair must be shown, got {k}")
    if images.shape != reconstructions.shape or len(images) != len(ssim):
        raise InputError(
            f"images {tuple(images.shape)}, reconstructions {tuple(reconstructions.shape)} and {len(ssim)} scores "
            "do not belong together"
        )
    ordered = sorted_ssim(ssim)
    kept = ordered.samples[:k]
    return BestPairs(
        images=images.detach().cpu().float().numpy()[kept],
        reconstructions=reconstructions.detach().cpu().float().numpy()[kept],
        ssim=floats(ssim)[kept],
        samples=kept,
        threshold=threshold,
    )
