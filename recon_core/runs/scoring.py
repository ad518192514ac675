"""Candidates scored against data: the one way from both to a count and its controls.

A match run, the live view of an attack, the pages and the library all come through here. `score` gives the evidence at
once; `lay_out` keeps what is slow, so that a slider only merges again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from recon_core.attacks.circle import PAPER_DISTANCE, deduplicate, filter_multipliers
from recon_core.data import TaskData
from recon_core.devices import pick_device
from recon_core.matching.controls import Controlled, Evidence, chance_level, score_mean_image
from recon_core.matching.planar import PlanarMatching, match_points
from recon_core.matching.protocol import Matching, MatchSettings, Prepared, with_other_window
from recon_core.matching.ssim import SsimKind, fits
from recon_core.runs.cached_matching import Batch, CachedMatcher
from recon_core.runs.match_cache import MatchCache
from recon_core.runs.match_source import MatchConfig, MatchInput

RADII = (0.03, 0.1)
"""How near a candidate must be to a point of the plane to have found it."""


@dataclass(frozen=True)
class PointCount:
    """Points found within a radius, and its controls. None means that control was not run."""

    radius: float
    recovered: int
    of: int
    """Training points."""
    settled: int
    """Candidates at a training point of their class."""
    kept: int
    """Candidates left after filtering and deduplication."""
    control_untrained: int | None
    non_members: int | None
    """Held-out points that are found as well."""
    non_members_of: int | None

    @property
    def strays(self) -> int:
        """Remaining candidates that show no training point."""
        return self.kept - self.settled

    @property
    def precision(self) -> float | None:
        """The share of the remaining candidates that are at a training point of their class; None without any."""
        return self.settled / self.kept if self.kept else None

    @property
    def chance(self) -> int:
        return chance_level(
            self.of,
            mean_image=None,
            untrained=self.control_untrained,
            held_out=self.non_members,
            held_out_of=self.non_members_of,
        )


@dataclass(frozen=True, eq=False)
class PlanarEvidence:
    """Matched points and their controls, from which counts within any radius follow."""

    kept: Tensor
    """(M,) bool, the pooled candidates left after the clean-up; the matchings see these only."""
    members: PlanarMatching
    untrained: PlanarMatching | None
    non_members: PlanarMatching | None

    @property
    def nearest(self) -> Tensor:
        """(N,), index in the pool of each point's nearest candidate, -1 without one."""
        rows = self.kept.nonzero()[:, 0]
        return rows[self.members.nearest.clamp(min=0)].where(self.members.nearest >= 0, -1)

    def at(self, radius: float) -> PointCount:
        others = self.non_members
        return PointCount(
            radius=radius,
            recovered=self.members.recovered(radius),
            of=len(self.members.distances),
            settled=self.members.settled(radius),
            kept=int(self.kept.sum()),
            control_untrained=None if self.untrained is None else self.untrained.recovered(radius),
            non_members=None if others is None else others.recovered(radius),
            non_members_of=None if others is None else len(others.distances),
        )


@dataclass(frozen=True, eq=False)
class Pairing:
    """Images, and the candidates they are matched with."""

    images: Batch
    candidates: Batch


@dataclass(frozen=True, eq=False)
class LaidOut:
    """Matching and its controls laid out for a slider: `evidence` merges and scores, and searches nothing."""

    prepared: Controlled[Prepared]
    mean: Tensor
    """(C, H, W), of the training images."""
    _mean_scores: dict[SsimKind, Tensor] = field(default_factory=dict)
    _newest: list[Matching] = field(default_factory=list)
    """The training images as they were merged last."""

    @property
    def members(self) -> Prepared:
        return self.prepared.members

    def evidence(self, settings: MatchSettings | None = None) -> Evidence:
        """At other settings than its own, if given: all may differ but search_size, vote, assignment and max_merged."""
        chosen = settings or self.members.settings
        with torch.no_grad():
            merged = self.prepared.map(lambda prepared: self._merge(prepared, chosen))
            for kind in (chosen.ssim, chosen.ssim.other):
                if kind not in self._mean_scores and fits(self.members.images, kind):  # no slider changes them
                    self._mean_scores[kind] = score_mean_image(self.members.images, self.mean, kind).cpu()
        return Evidence.of(merged, self._mean_scores[chosen.ssim], self._mean_scores.get(chosen.ssim.other))

    def members_at(self, settings: MatchSettings) -> Matching:
        """The training images alone, scored with one window: what a slider shows while it is dragged."""
        for kept in tuple(self._newest):
            if kept.settings == settings:
                return kept
        with torch.no_grad():
            found = replace(self.members, settings=settings).merge_in_one_window()
        self._newest[:] = [found]
        return found

    def _merge(self, prepared: Prepared, settings: MatchSettings) -> Matching:
        if prepared is self.members:
            return with_other_window(self.members_at(settings))
        return replace(prepared, settings=settings).merge()


def score(
    source: MatchInput, config: MatchConfig, cache: MatchCache | None = None, *, held_out: bool = True
) -> Evidence | PlanarEvidence:
    """Candidates against data, images or points, with all controls; without held-out images it takes half the time."""
    if source.planar:
        with torch.no_grad():
            return planar_evidence(source, config)
    return lay_out(source, config, cache, held_out=held_out).evidence()


def lay_out(
    source: MatchInput, config: MatchConfig, cache: MatchCache | None = None, *, held_out: bool = True
) -> LaidOut:
    """The slow part of matching images; neighbours that were found before come from the cache."""
    matcher = matcher_of(source, config, cache)
    mean = source.data.mean
    with torch.no_grad():
        return LaidOut(pairings(source, held_out).map(lambda p: matcher.prepare(p.images, mean, p.candidates)), mean)


def matcher_of(source: MatchInput, config: MatchConfig, cache: MatchCache | None) -> CachedMatcher:
    return CachedMatcher(cache, config.settings(source.default_factor), pick_device(config.device))


def pairings(source: MatchInput, held_out: bool = True) -> Controlled[Pairing]:
    """The pairs to match: training images with candidates, and the same for each control."""
    data = source.data
    members, candidates = Batch(data.train_x), Batch(source.pool.candidates)
    others = data.test_x[held_out_rows(data)] if held_out else data.test_x[:0]
    return Controlled(
        Pairing(members, candidates),
        untrained=None if source.untrained is None else Pairing(members, Batch(source.untrained)),
        non_members=Pairing(Batch(others), candidates) if len(others) else None,
    )


def held_out_rows(data: TaskData) -> Tensor:
    """The first n test images, as many as there are training images; none that was trained on, none constant."""
    trained = {image.numpy().tobytes() for image in data.train_x}
    flat = data.test_x.flatten(1)
    varied = (flat.amax(dim=1) - flat.amin(dim=1) > 0).tolist() if len(flat) else []
    fit = (index for index, image in enumerate(data.test_x) if varied[index] and image.numpy().tobytes() not in trained)
    return torch.tensor(list(itertools.islice(fit, data.n)), dtype=torch.int64)


def planar_evidence(
    source: MatchInput, config: MatchConfig, tell: Callable[[str], None] = lambda message: None
) -> PlanarEvidence:
    """Points and their controls matched; `tell` hears what comes next."""
    data = source.data
    tell(f"matching {len(source.pool.candidates)} candidates with {data.n} points")
    kept = _planar_kept(source, config)
    members = points_matched(data.train_x, data.train_labels, source, kept)
    tell("matching the untrained network's candidates")
    untrained = None
    if source.untrained is not None and source.untrained_labels is not None:
        untrained = match_points(data.train_x, data.train_labels, source.untrained, source.untrained_labels)
    tell("matching held-out points")
    others = None
    if len(data.test_x):
        others = points_matched(data.test_x[: data.n], data.test_labels[: data.n], source, kept)
    return PlanarEvidence(kept, members, untrained, others)


def _planar_kept(source: MatchInput, config: MatchConfig) -> Tensor:
    """(M,) bool: the candidates that survive both stages; each run is cleaned by itself, as the paper does."""
    candidates, sizes = source.pool.candidates, source.multipliers.abs()
    kept = torch.zeros(len(candidates), dtype=torch.bool)
    stops = (*source.pool.starts[1:], len(candidates))
    for run, start, stop in zip(source.pool.runs, source.pool.starts, stops, strict=True):
        part = slice(start, stop)
        if run in source.stages:
            kept[part] = source.stages[run]
            continue
        largest = float(sizes[part].nan_to_num(0.0, 0.0, 0.0).amax())
        among = filter_multipliers(candidates[part], sizes[part], threshold=config.multiplier_share * largest)
        kept[part] = deduplicate(candidates[part], among, distance=PAPER_DISTANCE, seed=0)
    return kept


def points_matched(points: Tensor, classes: Tensor, source: MatchInput, kept: Tensor) -> PlanarMatching:
    """Points (k, 2) and their classes (k,) with the pooled candidates that were kept."""
    return match_points(points, classes, source.pool.candidates[kept], source.labels[kept])
