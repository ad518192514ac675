"""One row for every training image: its reconstruction, the candidates behind it, and the model's output on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from torch import Tensor

from recon_core.analysis.arrays import Flags, Floats, Integers, above, flags, floats, integers
from recon_core.analysis.margins import margin_distances, own_outputs
from recon_core.matching.mse import mse
from recon_core.matching.ncc import ncc
from recon_core.matching.psnr import psnr


@dataclass(frozen=True, eq=False)
class MatchTable:
    """All columns are (n,), in the order of the training set. A sample without a candidate scores NaN."""

    ids: Integers
    """Position in the data source."""
    labels: Integers
    class_names: tuple[str, ...]
    ssim: Floats
    psnr: Floats
    ncc: Floats
    mse: Floats
    distances: Floats
    merged: Integers
    """The papers' C: candidates merged into the reconstruction."""
    capped: Flags
    nearest: Integers
    """Nearest candidate in the pool; -1 without one."""
    runs: tuple[str, ...]
    """The run that candidate came from."""
    outputs: Floats
    margin_distances: Floats
    threshold: float

    def to_frame(self) -> pd.DataFrame:
        return pd.DataFrame(
            {
                "sample": np.arange(len(self.ids)),
                "id": self.ids,
                "label": self.labels,
                "class": [self.class_names[label] for label in self.labels],
                "good": above(self.ssim, self.threshold),
                "ssim": self.ssim,
                "psnr": self.psnr,
                "ncc": self.ncc,
                "mse": self.mse,
                "distance": self.distances,
                "merged": self.merged,
                "capped": self.capped,
                "nearest": self.nearest,
                "run": self.runs,
                "output": self.outputs,
                "margin_distance": self.margin_distances,
            }
        )


def match_table(
    images: Tensor,
    reconstructions: Tensor,
    ssim: Tensor,
    distances: Tensor,
    merged_counts: Tensor,
    capped: Tensor,
    nearest: Tensor,
    *,
    ids: Sequence[int],
    labels: Tensor,
    class_names: Sequence[str],
    runs: Sequence[str],
    run_starts: Sequence[int],
    outputs: Tensor,
    threshold: float,
) -> MatchTable:
    """From a matching, as the match run keeps it, and the model's outputs phi (n, C) on its samples."""
    matched = nearest >= 0
    blank = float("nan")
    places = np.searchsorted(np.asarray(run_starts), integers(nearest), side="right") - 1
    return MatchTable(
        ids=np.asarray(ids, dtype=np.int64),
        labels=integers(labels),
        class_names=tuple(class_names),
        ssim=floats(ssim),
        psnr=floats(psnr(images, reconstructions).where(matched, blank)),
        ncc=floats(ncc(images, reconstructions).where(matched, blank)),
        mse=floats(mse(images, reconstructions).where(matched, blank)),
        distances=floats(distances),
        merged=integers(merged_counts),
        capped=flags(capped),
        nearest=integers(nearest),
        runs=tuple(runs[place] if place >= 0 else "" for place in places),
        outputs=floats(own_outputs(outputs, labels)),
        margin_distances=floats(margin_distances(outputs, labels)),
        threshold=threshold,
    )
