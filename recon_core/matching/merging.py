"""From the C nearest candidates to one image: mean, median or the best alone.

A slider moves C for every training image at once, and where no candidate is near, C runs into the hundreds. So
sums over the nearest 64, 128, ... candidates are kept, and a merge adds only what lies beyond the last of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import torch
import torch.nn.functional as F
from torch import Tensor

from recon_core.matching.neighbours import Neighbours

SHORTEST_STEP = 64
MOST_STEPS = 32
SUMS_BYTES = 256 << 20  # fewer, longer steps beyond that
MEDIAN_VALUES = 1 << 25  # gathered at a time


class Vote(StrEnum):
    MEAN = "mean"
    MEDIAN = "median"
    """The lower of the two middle values if C is even, as in the authors' code."""
    BEST = "best"


@dataclass(frozen=True)
class Gains:
    """The stretch of each candidate to [0, 1], as image = gain * candidate + gain * (mean - low)."""

    gain: Tensor  # (M,)
    low: Tensor  # (M,) smallest value of candidate + mean


@dataclass(frozen=True)
class Stack:
    """Candidates laid out nearest first for each training image, ready to be merged at any C."""

    candidates: Tensor
    """(M, C, H, W), centred."""
    mean: Tensor
    """(C, H, W)."""
    indices: Tensor
    """(N, K), nearest first."""
    step: int
    sums: Tensor
    """(N, Q, d): the sum of the nearest step, 2 step, ... Q step candidates, scaled by their gains if any."""
    gains: Gains | None

    def mean_of(self, counts: Tensor) -> Tensor:
        """Mean of the nearest counts[i] candidates, plus the training mean: (N,) -> (N, C, H, W)."""
        whole = counts // self.step
        place = torch.arange(self.indices.shape[1], device=counts.device)
        beyond = (place >= (whole * self.step)[:, None]) & (place < counts[:, None])
        lengths = counts - whole * self.step
        total = _sum_bags(self.candidates, self.indices[beyond], lengths.cumsum(0) - lengths, self.gains)
        reached = whole > 0
        total[reached] += self.sums[reached, whole[reached] - 1]
        divisor = counts.clamp(min=1)[:, None]
        mean = self.mean.flatten()
        if self.gains is None:
            merged = total / divisor + mean
        else:
            chosen = place < counts[:, None]
            gain = self.gains.gain[self.indices].where(chosen, 0.0)
            offset = (gain * self.gains.low[self.indices]).sum(dim=1, keepdim=True)
            merged = (total + gain.sum(dim=1, keepdim=True) * mean - offset) / divisor
        return merged.view(-1, *self.mean.shape)

    def median_of(self, counts: Tensor) -> Tensor:
        """Pixelwise median of the nearest counts[i] candidates, plus the training mean: (N,) -> (N, C, H, W)."""
        merged = self.mean.expand(len(counts), *self.mean.shape).clone()
        order = counts.argsort()
        longest = int(counts.max()) if len(counts) else 0
        # Rows of like C go together, so that few gathered places stay empty.
        for rows in torch.split(order, max(1, MEDIAN_VALUES // (self.mean.numel() * max(1, longest)))):
            places = max(1, int(counts[rows].max()))
            images = self._images(self.indices[rows, :places].flatten()).view(len(rows), places, -1)
            empty = torch.arange(places, device=counts.device) >= counts[rows, None]
            median = images.masked_fill(empty[:, :, None], math.nan).nanmedian(dim=1).values
            filled = counts[rows] > 0
            merged[rows[filled]] = median[filled].view(-1, *self.mean.shape)
        return merged

    def _images(self, chosen: Tensor) -> Tensor:
        """Candidate plus mean, stretched if the protocol stretches before it votes."""
        images = self.candidates[chosen].to(torch.float32) + self.mean
        if self.gains is None:
            return images
        shape = (-1, 1, 1, 1)
        return (images - self.gains.low[chosen].view(shape)) * self.gains.gain[chosen].view(shape)


def stack(candidates: Tensor, mean: Tensor, neighbours: Neighbours, vote: Vote, stretch_first: bool) -> Stack:
    """Prepare merging. Haim et al. 2022 stretch each candidate before they vote, Buzaglo et al. 2023 the merged one."""
    indices = neighbours.indices
    count, kept = indices.shape
    gains = _gains(candidates, mean) if stretch_first else None
    most = max(1, min(MOST_STEPS, SUMS_BYTES // (4 * count * mean.numel())))
    step = max(SHORTEST_STEP, math.ceil(kept / most))
    steps = kept // step if vote is Vote.MEAN else 0  # the others have no use for sums
    bags = indices[:, : steps * step].flatten()
    starts = torch.arange(0, len(bags), step, device=bags.device)
    sums = _sum_bags(candidates, bags, starts, gains).view(count, steps, mean.numel())
    for q in range(1, steps):
        sums[:, q] += sums[:, q - 1]
    return Stack(candidates, mean, indices, step, sums, gains)


def _sum_bags(candidates: Tensor, indices: Tensor, starts: Tensor, gains: Gains | None) -> Tensor:
    """Sums of runs of candidates, each run from one start to the next: -> (len(starts), d)."""
    flat = candidates.flatten(1)
    weights = None if gains is None else gains.gain[indices].to(flat.dtype)
    sums: Tensor = F.embedding_bag(indices, flat, starts, mode="sum", per_sample_weights=weights)
    return sums.to(torch.float32)


def _gains(candidates: Tensor, mean: Tensor) -> Gains:
    gain, low = [], []
    for block in torch.split(candidates, max(1, MEDIAN_VALUES // mean.numel())):
        images = (block.to(torch.float32) + mean).flatten(1)
        smallest, largest = images.amin(dim=1), images.amax(dim=1)
        span = largest - smallest
        gain.append(span.where(span > 0, 1.0).reciprocal())
        low.append(smallest)
    return Gains(torch.cat(gain), torch.cat(low))
