"""Matching laid out for a page: counts, pairs and points as plain arrays, at whatever the sliders say.

`open_pool` does what is slow, once for a pool; `ImagePool.view` merges again at another B, `PairView.count` only
compares with another threshold. Neither searches.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import torch

from recon_core.analysis.arrays import Flags, Floats, Integers, above, flags, floats, integers
from recon_core.analysis.pairs import Images
from recon_core.analysis.points import PointTable, point_table
from recon_core.analysis.table import MatchTable, match_table
from recon_core.attacks import CERTAIN
from recon_core.errors import InputError
from recon_core.matching.controls import Evidence, LeakCount
from recon_core.matching.pool import Origin
from recon_core.matching.protocol import GOOD_SSIM, Matching, MatchSettings
from recon_core.matching.roc import roc
from recon_core.matching.scaling import stretch
from recon_core.matching.ssim import SsimKind, ssim_map
from recon_core.runs.match_cache import MatchCache
from recon_core.runs.match_source import MatchConfig, MatchSource
from recon_core.runs.scoring import LaidOut, PlanarEvidence, PointCount, lay_out, planar_evidence
from recon_core.store import RunStore

SHOWN_CANDIDATES = 24
"""Merged candidates shown of one pair: where nothing was reconstructed there are thousands."""


class PairOrder(StrEnum):
    """How a grid of pairs is sorted. Images without a candidate come last."""

    SSIM = "ssim"
    DISTANCE = "distance"
    CLASS = "class"
    INDEX = "index"


@dataclass(frozen=True)
class PairFilter:
    """Which training images a grid shows; by default all."""

    classes: tuple[int, ...] = ()
    """Class indices; all if empty."""
    ssim: tuple[float, float] = (0.0, 1.0)
    certain: bool | None = None
    """Only those whose nearest candidate the attack calls certain, or only the others."""


@dataclass(frozen=True, eq=False)
class Samples:
    """The training samples by name; all (n,)."""

    ids: Integers
    """Positions in the data source."""
    labels: Integers
    class_names: tuple[str, ...]

    def class_of(self, sample: int) -> str:
        return self.class_names[int(self.labels[sample])]


@dataclass(frozen=True, eq=False)
class PairView:
    """All training images and what came back of them, at one merge factor. All (n, ...)."""

    settings: MatchSettings
    samples: Samples
    images: Images
    """(n, C, H, W) in [0, 1]."""
    reconstructions: Images
    """(n, C, H, W) in [0, 1]; all zeros without a candidate."""
    ssim: Floats
    """NaN without a candidate."""
    distances: Floats
    merged: Integers
    """The papers' C."""
    capped: Flags
    nearest: Integers
    """In the pool; -1 without one."""
    auc: float | None
    """SSIM as a test of membership; None where no image outside the training set is known."""
    evidence: Evidence
    certain: Flags | None = None
    """Images whose nearest candidate the attack itself calls certain; None where it does not say."""

    def count(self, threshold: float) -> LeakCount:
        return self.evidence.at(threshold)

    def good(self, threshold: float) -> Flags:
        return above(self.ssim, threshold)

    def order(self, by: PairOrder) -> Integers:
        """Sample numbers, the first to be shown first; ties by number."""
        worst_last = np.where(np.isnan(self.ssim), np.inf, -self.ssim)
        keys: dict[PairOrder, tuple[Floats | Integers, ...]] = {
            PairOrder.SSIM: (worst_last,),
            PairOrder.DISTANCE: (self.distances,),
            PairOrder.CLASS: (worst_last, self.samples.labels),
            PairOrder.INDEX: (np.arange(len(self.ssim)),),
        }
        return np.lexsort(keys[by])

    def passing(self, asked: PairFilter) -> Flags:
        """The images that are asked for. One without a candidate has an SSIM of 0 here."""
        score = np.nan_to_num(self.ssim, nan=0.0)
        low, high = asked.ssim
        # SSIM can be a little below 0; whoever asks for everything from 0 on means those too.
        kept: Flags = (np.maximum(score, 0.0) >= low) & (score <= high)
        if asked.classes:
            kept &= np.isin(self.samples.labels, asked.classes)
        if asked.certain is not None and self.certain is not None:
            kept &= self.certain == asked.certain
        return kept

    def scores(self) -> ScoreLists:
        """All that a count at any threshold needs."""
        found = self.evidence
        return ScoreLists(
            ssim=self.ssim,
            nearest=self.nearest,
            mean_image=floats(found.mean_image),
            untrained=None if found.untrained is None else floats(found.untrained.ssim),
            held_out=None if found.non_members is None else floats(found.non_members.ssim),
        )


@dataclass(frozen=True, eq=False)
class ScoreLists:
    """SSIM of every image: of the training images (n,), of the same with the controls, of held-out images (h,)."""

    ssim: Floats
    nearest: Integers
    mean_image: Floats
    untrained: Floats | None
    held_out: Floats | None


@dataclass(frozen=True, eq=False)
class Merged:
    """What came back of the training images at one merge factor, without controls. All (n, ...)."""

    ssim: Floats
    """NaN without a candidate."""
    nearest: Integers
    reconstructions: Images
    """(n, C, H, W) in [0, 1]."""


@dataclass(frozen=True, eq=False)
class PairDetail:
    """One pair in detail: both images, their difference, and the map of SSIM."""

    image: Images
    """(C, H, W) in [0, 1], like reconstruction and difference."""
    reconstruction: Images
    difference: Images
    """Reconstruction minus image, shifted so that 0.5 means no difference."""
    similarity: Floats
    """(H, W), the SSIM map averaged over channels; NaN at the border, where the window does not fit."""
    candidates: Images
    """(k, C, H, W) in [0, 1], each stretched by itself: the nearest of those merged."""
    origins: tuple[Origin, ...]
    distances: Floats
    """(k,), by Buzaglo et al. 2023, Eq. 16; like multipliers."""
    multipliers: Floats
    merged: int
    """The papers' C, which may be more than are shown."""


@dataclass(frozen=True, eq=False)
class ImagePool:
    """Candidates and training images, laid out for merging at any factor."""

    source: MatchSource
    live: LaidOut
    samples: Samples
    images: Images

    @property
    def size(self) -> int:
        return len(self.source.pool.candidates)

    def view(self, config: MatchConfig) -> PairView:
        """Merge and score. Of `config` only what `slow_part` leaves out may differ from the pool's own."""
        settings = config.settings(self.source.default_factor)
        found = self.live.evidence(settings)
        members = found.matching
        return PairView(
            settings=settings,
            samples=self.samples,
            images=self.images,
            reconstructions=members.reconstructions.cpu().numpy(),
            ssim=floats(members.ssim),
            distances=floats(members.distances),
            merged=integers(members.merged_counts),
            capped=flags(members.capped),
            nearest=integers(members.nearest),
            auc=None if found.non_members is None else found.membership().auc,
            evidence=Evidence.of(found.matchings.map(_scores_only), found.mean_image, found.mean_image_other),
            certain=self._certain(integers(members.nearest)),
        )

    def merged(self, config: MatchConfig) -> Merged:
        """The part of `view` that a slider can show while it is dragged, in a fraction of its time."""
        found = self.live.members_at(config.settings(self.source.default_factor))
        return Merged(floats(found.ssim), integers(found.nearest), found.reconstructions.cpu().numpy())

    def _certain(self, nearest: Integers) -> Flags | None:
        confidence = self.source.confidence
        if confidence is None:
            return None
        # -1, no candidate at all, would be the last one.
        found: Flags = (floats(confidence)[nearest] > CERTAIN) & (nearest >= 0)
        return found

    def pair(self, view: PairView, sample: int, shown: int = SHOWN_CANDIDATES) -> PairDetail:
        """What stands behind one reconstruction of `view`."""
        if not 0 <= sample < len(view.ssim):
            raise InputError(f"there is no training image {sample}; the first is 0 and the last {len(view.ssim) - 1}")
        image = torch.from_numpy(view.images[sample : sample + 1])
        reconstruction = torch.from_numpy(view.reconstructions[sample : sample + 1])
        neighbours = self.live.members.neighbours
        merged = int(view.merged[sample])
        rows = neighbours.indices[sample, : min(merged, shown)].cpu()
        candidates = self.source.pool.candidates[rows].float() + self.source.data.mean
        return PairDetail(
            image=view.images[sample],
            reconstruction=view.reconstructions[sample],
            difference=((reconstruction - image) / 2 + 0.5)[0].numpy(),
            similarity=_padded(floats(ssim_map(image, reconstruction, view.settings.ssim)[0].mean(dim=0)), image.shape),
            candidates=stretch(candidates).numpy(),
            origins=tuple(self.source.pool.origin(row) for row in rows.tolist()),
            distances=floats(neighbours.distances[sample, : len(rows)]),
            multipliers=floats(self.source.multipliers[rows]),
            merged=merged,
        )

    def table(self, view: PairView, threshold: float) -> MatchTable:
        """One row for every training image."""
        return match_table(
            torch.from_numpy(view.images),
            torch.from_numpy(view.reconstructions),
            torch.from_numpy(view.ssim),
            torch.from_numpy(view.distances),
            torch.from_numpy(view.merged),
            torch.from_numpy(view.capped),
            torch.from_numpy(view.nearest),
            ids=self.samples.ids.tolist(),
            labels=torch.from_numpy(self.samples.labels),
            class_names=self.samples.class_names,
            runs=self.source.pool.runs,
            run_starts=self.source.pool.starts,
            outputs=self.source.model_run.tensors("samples")["outputs"],
            threshold=threshold,
        )


@dataclass(frozen=True, eq=False)
class PointPool:
    """Points of the plane and what was found of them."""

    source: MatchSource
    evidence: PlanarEvidence
    table: PointTable
    auc: float | None

    @property
    def size(self) -> int:
        return len(self.source.pool.candidates)

    def count(self, radius: float) -> PointCount:
        return self.evidence.at(radius)


def slow_part(config: MatchConfig) -> MatchConfig:
    """The same request as far as it is slow: whatever a slider moves stands at a value that always works."""
    moved = {"threshold": GOOD_SSIM, "merge_factor": None, "ncc_share": 0.9, "ssim": SsimKind.AUTHORS}
    return config.model_copy(update=moved)


def open_pool(store: RunStore, config: MatchConfig, source: MatchSource) -> ImagePool | PointPool:
    """Lay out `source` for `config`; neighbours come from the cache where a run has found them before."""
    if source.planar:
        return _open_points(source, config)
    data = source.data
    live = lay_out(source, slow_part(config), MatchCache.of_store(store.root))
    samples = Samples(integers(data.train_ids), integers(data.train_labels), data.class_names)
    return ImagePool(source, live, samples, live.members.images.cpu().numpy())


def _open_points(source: MatchSource, config: MatchConfig) -> PointPool:
    evidence, data = planar_evidence(source, config), source.data
    others = evidence.non_members
    table = point_table(
        data.train_x,
        data.train_labels,
        evidence.members.distances,
        evidence.nearest,
        source.pool.candidates,
        source.labels,
        evidence.kept,
    )
    auc = None if others is None else roc(-evidence.members.distances, -others.distances).auc
    return PointPool(source, evidence, table, auc)


def _scores_only(matching: Matching) -> Matching:
    """Without pictures: a page keeps many views, and the controls' pictures are shown nowhere."""
    nothing = matching.reconstructions[:0]
    return replace(matching, images=nothing, reconstructions=nothing, merged_indices=matching.merged_indices[:0])


def _padded(inner: Floats, shape: torch.Size) -> Floats:
    """A map that lost its border, in the middle of an image's size."""
    height, width = shape[-2:]
    top, left = (height - inner.shape[0]) // 2, (width - inner.shape[1]) // 2
    whole = np.full((height, width), np.nan)
    whole[top : top + inner.shape[0], left : left + inner.shape[1]] = inner
    return whole
