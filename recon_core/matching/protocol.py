"""Both papers' way from candidates to scored reconstructions.

`prepare` does what is expensive and does not depend on the merge factor; `Prepared.merge` is cheap enough for a
slider; `Matching.good` touches no pixels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor

from recon_core.config import Frozen
from recon_core.errors import InputError
from recon_core.matching.assignment import Assignment, assign
from recon_core.matching.merging import Stack, Vote, stack
from recon_core.matching.neighbours import Neighbours, SearchSize, find_neighbours
from recon_core.matching.scaling import stretch
from recon_core.matching.ssim import SsimKind, fits, ssim
from recon_core.matching.threads import one_thread

# Laying out neighbours reads each of them once; this much is about the time of a large search.
STACKED_BYTES = 8 << 30
LEAST_KEPT = 1000
RANGE_SLACK = 1e-3  # how far rounding may take train_x + mean out of [0, 1]


GOOD_SSIM = 0.4
"""SSIM above which both papers call a reconstruction good."""


class Protocol(StrEnum):
    BUZAGLO = "buzaglo"
    """Buzaglo et al. 2023, App. A: merge all within merge_factor times the nearest distance, add the mean, stretch."""
    HAIM = "haim"
    """Haim et al. 2022, App. B.3: stretch, vote over all with a correlation above ncc_share of the best."""


class MatchChoices(Frozen):
    """How candidates become reconstructions and how those are scored, apart from the merge factor."""

    protocol: Protocol = Field(Protocol.BUZAGLO, description="which paper's way of merging candidates")
    ncc_share: float = Field(
        0.9, description="protocol haim: candidates are merged above this share of the best correlation"
    )
    vote: Vote = Field(Vote.MEAN, description="merged into their mean, their median, or the best alone")
    ssim: SsimKind = Field(SsimKind.WANG, description="window of SSIM: wang (11x11) or authors (3x3)")
    search_size: SearchSize = Field(SearchSize.FULL, description="size of the images that neighbours are searched on")
    assignment: Assignment = Field(Assignment.FREE, description="whether a candidate may serve several training images")
    max_merged: int | None = Field(None, description="most candidates merged into one; as many as feasible if unset")
    """Nearest first; None for as many as a merge can do while a slider moves (`neighbours_kept`: 13,981 for 50
    images of 3x32x32, 1,398 for 500). The papers set no limit, yet where nothing was reconstructed nearly all
    candidates of a large pool are within B of the nearest. `Matching.capped` tells where the limit bit; there SSIM may
    be overstated, the nearest being picked for likeness."""

    @model_validator(mode="after")
    def _in_range(self) -> Self:
        if not 0 < self.ncc_share <= 1:
            raise InputError(f"ncc_share must be above 0 and at most 1, got {self.ncc_share}; the paper uses 0.9")
        if self.max_merged is not None and self.max_merged < 1:
            raise InputError(
                f"max_merged must be at least 1, got {self.max_merged}; leave it out for the largest feasible"
            )
        return self


class MatchSettings(MatchChoices):
    """Those choices with the merge factor, the paper's B: 1.1 for dense networks, 1.5 for convolutional ones."""

    merge_factor: float = Field(1.1, description="B, protocol buzaglo only")

    @field_validator("merge_factor")
    @classmethod
    def _at_least_the_nearest(cls, merge_factor: float) -> float:
        check_merge_factor(merge_factor)
        return merge_factor

    def merging_within(self, merge_factor: float) -> MatchSettings:
        """The same with another merge factor."""
        check_merge_factor(merge_factor)
        return self.model_copy(update={"merge_factor": merge_factor})


def check_merge_factor(merge_factor: float) -> None:
    if not (math.isfinite(merge_factor) and merge_factor >= 1):
        raise InputError(
            f"merge_factor (B) must be at least 1, got {merge_factor}; 1 merges the nearest candidate alone"
        )


def check_threshold(threshold: float) -> None:
    if not -1 <= threshold <= 1:
        raise InputError(f"the SSIM threshold must lie in [-1, 1], got {threshold}; the papers use {GOOD_SSIM}")


@dataclass(frozen=True)
class Matching:
    """What each of N training images was matched with. A training image without a candidate scores NaN."""

    settings: MatchSettings
    images: Tensor
    """(N, C, H, W), the training images in [0, 1]."""
    reconstructions: Tensor
    """(N, C, H, W) in [0, 1]; all zeros without a candidate."""
    ssim: Tensor
    """(N,)."""
    merged_counts: Tensor
    """(N,), the paper's C."""
    merged_indices: Tensor
    """All merged candidates, nearest first, one training image after another; see `merged`."""
    nearest: Tensor
    """(N,), index of the nearest candidate, -1 without one."""
    distances: Tensor
    """(N,), its distance by Eq. 16, inf without one."""
    capped: Tensor
    """(N,) bool: C reached the limit, so more candidates may have been within reach."""
    candidates: int
    non_finite: int
    """Candidates left out because they hold NaN or infinity."""
    constant: int
    """Candidates left out because they are constant."""
    other_ssim: Tensor | None = None
    """(N,), the same reconstructions scored with the other window of `SsimKind`; None where that does not fit."""

    def merged(self, i: int) -> Tensor:
        """The candidates merged into reconstruction i, nearest first."""
        stop = int(self.merged_counts[: i + 1].sum())
        return self.merged_indices[stop - int(self.merged_counts[i]) : stop]

    def good(self, threshold: float) -> int:
        """Training images whose reconstruction scores above the threshold."""
        check_threshold(threshold)
        return int((self.ssim > threshold).sum())

    def unique_good(self, threshold: float) -> int:
        """Distinct nearest candidates among the good: one candidate may be nearest to several training images."""
        check_threshold(threshold)
        return len(torch.unique(self.nearest[self.ssim > threshold]))


@dataclass(frozen=True)
class Prepared:
    """All that does not depend on the merge factor."""

    settings: MatchSettings
    images: Tensor
    neighbours: Neighbours
    stack: Stack

    def merge(self, merge_factor: float | None = None) -> Matching:
        """Merge and score, with another merge factor than the settings' if given."""
        return with_other_window(self.merge_in_one_window(merge_factor))

    def merge_in_one_window(self, merge_factor: float | None = None) -> Matching:
        """The same in half the time, without `other_ssim`."""
        settings = self.settings if merge_factor is None else self.settings.merging_within(merge_factor)
        kept = self.neighbours.indices.shape[1]
        limit = kept if settings.max_merged is None else min(settings.max_merged, kept)
        single = settings.vote is Vote.BEST or settings.assignment is Assignment.ONE_TO_ONE
        within = _within(self.neighbours, settings)
        counts = within.clamp(max=1 if single else limit)
        capped = (counts == limit) & (limit < self.neighbours.usable) & (not single)
        with one_thread():
            merged = self.stack.median_of(counts) if settings.vote is Vote.MEDIAN else self.stack.mean_of(counts)
            merged = stretch(merged) if settings.protocol is Protocol.BUZAGLO else merged.clamp(0.0, 1.0)
        matched = counts > 0
        reconstructions = merged.where(matched.view(-1, 1, 1, 1), 0.0)
        chosen = torch.arange(kept, device=counts.device) < counts[:, None]
        return Matching(
            settings=settings,
            images=self.images,
            reconstructions=reconstructions,
            ssim=ssim(self.images, reconstructions, settings.ssim).where(matched, math.nan),
            merged_counts=counts,
            merged_indices=self.neighbours.indices[chosen],
            nearest=self.neighbours.indices[:, 0].where(matched, -1),
            distances=self.neighbours.distances[:, 0],
            capped=capped,
            candidates=self.neighbours.candidates,
            non_finite=self.neighbours.non_finite,
            constant=self.neighbours.constant,
        )


def prepare(
    train_x: Tensor,
    mean: Tensor,
    candidates: Tensor,
    settings: MatchSettings,
    neighbours: Neighbours | None = None,
) -> Prepared:
    """Search and lay out neighbours on the candidates' device.

    train_x (N, C, H, W) and candidates (M, C, H, W) are centred; mean (C, H, W) is what was subtracted, so that
    train_x + mean lies in [0, 1]. Pass `neighbours` found before (`neighbours_for`) to skip the search.
    """
    if not candidates.is_floating_point():
        raise InputError(f"candidates must be floats, got {candidates.dtype}")
    found = neighbours_for(train_x, candidates, settings) if neighbours is None else neighbours
    if found.candidates != len(candidates) or len(found.indices) != len(train_x):
        raise InputError(
            f"these neighbours belong to {len(found.indices)} training images and {found.candidates} candidates, "
            f"got {len(train_x)} and {len(candidates)}; search again"
        )
    device = candidates.device
    mean = _mean_image(mean, train_x).to(device, torch.float32)
    images = train_x.to(device, torch.float32) + mean
    lowest, highest = float(images.min()), float(images.max())
    if lowest < -RANGE_SLACK or highest > 1 + RANGE_SLACK:
        raise InputError(
            f"training images plus their mean must lie in [0, 1], got [{lowest:.3g}, {highest:.3g}]; "
            "pass centred images and the mean that was subtracted"
        )
    assigned = assign(found, settings.assignment)
    laid_out = stack(candidates, mean, assigned, settings.vote, stretch_first=settings.protocol is Protocol.HAIM)
    return Prepared(settings, images.clamp_(0.0, 1.0), assigned, laid_out)


def neighbours_for(train_x: Tensor, candidates: Tensor, settings: MatchSettings) -> Neighbours:
    """The search alone. Of the settings only search_size and `neighbours_kept` matter to it."""
    return find_neighbours(train_x, candidates, neighbours_kept(train_x, settings), settings.search_size)


def neighbours_kept(train_x: Tensor, settings: MatchSettings) -> int:
    """How many neighbours of each training image are kept, and so merged at most."""
    keep = settings.max_merged
    if keep is None:
        keep = max(LEAST_KEPT, STACKED_BYTES // max(1, 4 * train_x.numel()))
    return max(keep, len(train_x)) if settings.assignment is Assignment.ONE_TO_ONE else keep


def match(train_x: Tensor, mean: Tensor, candidates: Tensor, settings: MatchSettings) -> Matching:
    """Match once: `prepare` and `merge`."""
    return prepare(train_x, mean, candidates, settings).merge()


def with_other_window(matching: Matching) -> Matching:
    """Scored with the other SSIM window as well, where that fits the images."""
    kind, matched = matching.settings.ssim.other, matching.merged_counts > 0
    if not fits(matching.images, kind):
        return matching
    scores = ssim(matching.images, matching.reconstructions, kind)
    return replace(matching, other_ssim=scores.where(matched, math.nan))


def _within(neighbours: Neighbours, settings: MatchSettings) -> Tensor:
    """C for each training image (N,): how many of its neighbours the protocol merges."""
    distances = neighbours.distances
    match settings.protocol:
        case Protocol.BUZAGLO:
            near = distances <= settings.merge_factor * distances[:, :1]
        case Protocol.HAIM:
            scores = neighbours.correlations
            # A best score below 0 lies under its own share; the best is always in.
            near = (scores > settings.ncc_share * scores[:, :1]) | (scores == scores[:, :1])
    return (near & torch.isfinite(distances)).sum(dim=1)


def _mean_image(mean: Tensor, train_x: Tensor) -> Tensor:
    shape = train_x.shape[1:]
    if mean.numel() != shape.numel():
        raise InputError(f"the mean image must have the images' shape {tuple(shape)}, got {tuple(mean.shape)}")
    return mean.reshape(shape)
