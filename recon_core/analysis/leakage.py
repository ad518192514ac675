"""Which samples leak: reconstruction quality against what the network says about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pandas as pd
from torch import Tensor

from recon_core.analysis.arrays import Flags, Floats, Integers, above, flags, floats, integers
from recon_core.analysis.margins import margin_distances, network_margin, own_outputs, sample_margins
from recon_core.errors import InputError
from recon_core.matching.protocol import MatchSettings


class LeakAxis(StrEnum):
    """What SSIM is drawn against."""

    MARGIN = "margin"
    """Signed distance to the margin (Haim et al. 2022, Fig. 4; Buzaglo et al. 2023, Fig. 14); see
    `analysis.margins.margin_distances`."""
    RELATIVE = "relative"
    """The same in units of the margin, so that models of any scale share an axis."""
    OUTPUT = "output"
    """The network's own output."""


class AxisScale(StrEnum):
    """How positions along an axis are drawn."""

    LINEAR = "linear"
    LOG = "log"
    """Zeros are drawn at the left edge; an axis with negative values is symlog instead."""
    SYMLOG = "symlog"
    """Logarithmic in both directions, linear near 0."""


_CROWD, _CORNER = 0.5, 0.05


def usual_scale(*positions: Floats) -> AxisScale:
    """Logarithmic where at least half of the positions are within a twentieth of the way to the farthest."""
    far = np.abs(np.concatenate(positions))
    far = far[np.isfinite(far)]
    if not len(far) or far.max() == 0:
        return AxisScale.LINEAR
    crowded = float((far < _CORNER * far.max()).mean()) >= _CROWD
    return AxisScale.LOG if crowded else AxisScale.LINEAR


@dataclass(frozen=True, eq=False)
class LeakScatter:
    """SSIM of n training samples against output and distance to the margin (Haim Fig. 4 and 16, Buzaglo Fig. 14)."""

    ids: Integers
    """Positions in the data source."""
    ssim: Floats
    """NaN for a sample without a candidate."""
    outputs: Floats
    margin_distances: Floats
    relative_distances: Floats
    """Distance over margin, 0 on the margin and below -1 where misclassified; NaN where no sample is classified
    correctly and there is no margin."""
    labels: Integers
    on_margin: Flags
    mean_image: Floats | None
    """What the mean image alone scores on each sample, like `untrained` a control; None where not measured."""
    untrained: Floats | None
    """What an untrained network's candidates score."""
    train_error: float | None
    test_error: float | None

    def along(self, axis: LeakAxis) -> Floats:
        match axis:
            case LeakAxis.MARGIN:
                return self.margin_distances
            case LeakAxis.RELATIVE:
                return self.relative_distances
            case LeakAxis.OUTPUT:
                return self.outputs

    def good(self, threshold: float) -> int:
        return int(above(self.ssim, threshold).sum())

    def controls(self, threshold: float) -> dict[str, int]:
        """How many samples each control that was run would match, by name."""
        measured = {"mean image": self.mean_image, "untrained network": self.untrained}
        return {name: int(above(scores, threshold).sum()) for name, scores in measured.items() if scores is not None}

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
        columns = {
            "sample": np.arange(len(self.ids)),
            "id": self.ids,
            "label": self.labels,
            "ssim": self.ssim,
            "output": self.outputs,
            "margin_distance": self.margin_distances,
            "relative_distance": self.relative_distances,
            "on_margin": self.on_margin,
        }
        if self.mean_image is not None:
            columns["mean_image_ssim"] = self.mean_image
        if self.untrained is not None:
            columns["untrained_ssim"] = self.untrained
        return pd.DataFrame(columns)


def leak_scatter(
    ssim: Tensor,
    outputs: Tensor,
    labels: Tensor,
    on_margin: Tensor,
    train_error: float | None = None,
    test_error: float | None = None,
    *,
    ids: Sequence[int] | None = None,
    mean_image: Tensor | None = None,
    untrained: Tensor | None = None,
) -> LeakScatter:
    """From SSIM (n,), outputs phi (n, C), class indices (n,) and the samples on the margin (n,) bool.

    `ids` (n,) are 0, 1, ... unless given; the controls `mean_image` and `untrained` are SSIM (n,) too.
    """
    if len(ssim) != len(outputs):
        raise InputError(f"there are {len(ssim)} scores and {len(outputs)} outputs; take both from one model")
    distances = floats(margin_distances(outputs, labels))
    return LeakScatter(
        ids=np.arange(len(ssim)) if ids is None else np.asarray(ids, dtype=np.int64),
        ssim=floats(ssim),
        outputs=floats(own_outputs(outputs, labels)),
        margin_distances=distances,
        relative_distances=_relative(distances, network_margin(sample_margins(outputs, labels))),
        labels=integers(labels),
        on_margin=flags(on_margin),
        mean_image=None if mean_image is None else floats(mean_image),
        untrained=None if untrained is None else floats(untrained),
        train_error=train_error,
        test_error=test_error,
    )


@dataclass(frozen=True, eq=False)
class LeakPanel:
    """One model among several that are drawn on common axes."""

    name: str
    class_names: tuple[str, ...]
    settings: MatchSettings
    scatter: LeakScatter


def panels_frame(panels: Sequence[LeakPanel]) -> pd.DataFrame:
    """All panels' rows, each with its model's name."""
    return pd.concat(
        [
            panel.scatter.to_frame().assign(model=panel.name, merge_factor=panel.settings.merge_factor)
            for panel in panels
        ],
        ignore_index=True,
    )


def _relative(distances: Floats, margin: float | None) -> Floats:
    return np.full_like(distances, np.nan) if margin is None else distances / margin
