"""The nearest candidates of every training image: the expensive half of matching, computed once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from recon_core.errors import InputError

# Candidates normalised at a time: on a CPU a block should stay in its cache, elsewhere larger products win.
CPU_BLOCK, DEVICE_BLOCK = 48 << 20, 256 << 20
REFINED_PAIRS = 512  # differences taken at a time, for the same reason
TABLE_BYTES = 512 << 20  # correlations held at a time; beyond that, training images come in turns
REFINED_ABOVE = 0.99  # correlation from which 1 - correlation has lost too many digits in float32
CONSTANT_BELOW = 1e-6  # standard deviation, relative to the mean, that float32 cannot tell from rounding


class SearchSize(StrEnum):
    """On how large an image neighbours are searched; the authors' code uses half."""

    FULL = "full"
    HALF = "half"
    QUARTER = "quarter"

    @property
    def divisor(self) -> int:
        return {SearchSize.FULL: 1, SearchSize.HALF: 2, SearchSize.QUARTER: 4}[self]


@dataclass(frozen=True)
class Neighbours:
    """For each of N training images its K nearest candidates, nearest first.

    `distances` (N, K) is Buzaglo et al. 2023, Eq. 16; inf marks a place nobody fills (see `assignment`).
    `indices` (N, K) points into the candidates as given. Candidates that hold NaN or infinity, or that are
    constant, have no distance: they are left out and counted.
    """

    distances: Tensor
    indices: Tensor
    dimension: int
    """Values per image in the search: 3072 for 3x32x32 at full size."""
    candidates: int
    non_finite: int
    constant: int

    @property
    def usable(self) -> int:
        return self.candidates - self.non_finite - self.constant

    @property
    def correlations(self) -> Tensor:
        """Normalised cross-correlation with each neighbour (N, K). Eq. 16 is 2 (d - 1) (1 - correlation)."""
        return 1.0 - self.distances / (2 * (self.dimension - 1))


def find_neighbours(
    train_x: Tensor, candidates: Tensor, keep: int = 1000, search_size: SearchSize = SearchSize.FULL
) -> Neighbours:
    """The `keep` nearest candidates (M, C, H, W) of each training image (N, C, H, W), on the candidates' device.

    Buzaglo et al. 2023, Eq. 16: squared distance of images brought to mean 0 and standard deviation 1 (d - 1).
    Like the paper and unlike the authors' code this normalises whole images, not single channels. It is affine in
    the correlation, so one matrix product gives all distances; near 0, where that loses digits, the difference is
    taken outright, and a candidate equal to a training image is at distance 0.
    Candidates are read block by block and never copied as a whole.
    """
    _check_batches(train_x, candidates, keep)
    centred = _centre(_flat(train_x.to(candidates.device, torch.float32), search_size))
    _refuse_constant(centred)
    unit = centred.values / centred.norms[:, None]

    rows = max(1, TABLE_BYTES // (4 * len(candidates)))
    distances, indices = [], []
    for start in range(0, len(unit), rows):
        part = unit[start : start + rows]
        table = _correlate(part, candidates, search_size)
        kept = min(keep, table.usable)
        nearest = table.correlations.topk(kept, dim=1)
        refined = _refine(part, candidates, nearest.values, nearest.indices, search_size)
        distances.append(refined.distances)
        indices.append(refined.indices)
    return Neighbours(
        distances=torch.cat(distances),
        indices=torch.cat(indices),
        dimension=unit.shape[1],
        candidates=len(candidates),
        non_finite=int(table.non_finite.sum()),
        constant=int(table.constant.sum()),
    )


class _Centred(NamedTuple):
    values: Tensor  # (P, d), each row less its mean
    norms: Tensor  # (P,)
    constant: Tensor  # (P,) bool: no variance to normalise by


class _Table(NamedTuple):
    correlations: Tensor  # (rows, M); -2, below any correlation, for candidates left out
    non_finite: Tensor  # (M,) bool
    constant: Tensor  # (M,) bool

    @property
    def usable(self) -> int:
        return int((~(self.non_finite | self.constant)).sum())


class _Nearest(NamedTuple):
    distances: Tensor  # (rows, K)
    indices: Tensor  # (rows, K)


def _check_batches(train_x: Tensor, candidates: Tensor, keep: int) -> None:
    if train_x.ndim != 4 or candidates.ndim != 4 or train_x.shape[1:] != candidates.shape[1:]:
        raise InputError(
            "training images and candidates must be batches (N, C, H, W) of one image shape, "
            f"got {tuple(train_x.shape)} and {tuple(candidates.shape)}; choose runs on the same data"
        )
    if len(train_x) == 0:
        raise InputError("there are 0 training images to match; give at least 1")
    if len(candidates) == 0:
        raise InputError("there are 0 candidates to match; run a reconstruction first or choose another run")
    if not torch.isfinite(train_x).all():
        raise InputError("training images hold NaN or infinite values; load the data again")
    if keep < 1:
        raise InputError(f"at least 1 neighbour must be kept for each training image, got {keep}")


def _refuse_constant(centred: _Centred) -> None:
    if centred.constant.any():
        which = centred.constant.nonzero().flatten().tolist()
        named = ", ".join(map(str, which[:5])) + (", ..." if len(which) > 5 else "")
        raise InputError(
            f"{len(which)} training image(s) are constant (zero variance) and cannot be matched, "
            f"index {named}; remove them"
        )


def _flat(images: Tensor, search_size: SearchSize) -> Tensor:
    """(P, C, H, W) -> (P, d), shrunk for the search the way the authors' code does it."""
    if search_size is not SearchSize.FULL:
        if min(images.shape[2:]) // search_size.divisor < 2:
            raise InputError(
                f"search_size {search_size} leaves too little of images of "
                f"{images.shape[2]}x{images.shape[3]} pixels; use full"
            )
        images = F.interpolate(images, scale_factor=1 / search_size.divisor, mode="bicubic")
    return images.flatten(1)


def _centre(rows: Tensor, out: Tensor | None = None) -> _Centred:
    """Subtract each row's own mean. Its norm is sigma sqrt(d - 1), which is all the normalisation Eq. 16 needs."""
    means = rows.mean(dim=1, keepdim=True)
    values = torch.sub(rows, means, out=out)
    norms = torch.linalg.vector_norm(values, dim=1)
    constant = norms <= CONSTANT_BELOW * math.sqrt(rows.shape[1]) * means[:, 0].abs()
    return _Centred(values, norms, constant)


def _correlate(unit: Tensor, candidates: Tensor, search_size: SearchSize) -> _Table:
    """Correlation of unit rows (rows, d) with all candidates, block by block into one table."""
    count, d = len(candidates), unit.shape[1]
    correlations = unit.new_empty(len(unit), count)
    non_finite = torch.zeros(count, dtype=torch.bool, device=unit.device)
    constant = torch.zeros_like(non_finite)
    size = max(1, min(count, (CPU_BLOCK if unit.device.type == "cpu" else DEVICE_BLOCK) // (4 * d)))
    buffer = unit.new_empty(size, d)
    for start in range(0, count, size):
        part = slice(start, min(start + size, count))
        block = _flat(candidates[part].to(torch.float32), search_size)
        centred = _centre(block, out=buffer[: len(block)])
        non_finite[part] = ~torch.isfinite(centred.norms)
        constant[part] = centred.constant & ~non_finite[part]
        scored = correlations[:, part]
        torch.mm(unit, centred.values.T, out=scored)
        scored.mul_(centred.norms.reciprocal())
        left_out = non_finite[part] | constant[part]
        if left_out.any():
            scored.masked_fill_(left_out, -2.0)
    table = _Table(correlations, non_finite, constant)
    if table.usable == 0:
        raise InputError(
            f"none of the {count} candidates can be matched: {int(non_finite.sum())} hold NaN or infinite values, "
            f"{int(constant.sum())} are constant; run the reconstruction again with a smaller rate"
        )
    return table


def _refine(
    unit: Tensor, candidates: Tensor, correlations: Tensor, indices: Tensor, search_size: SearchSize
) -> _Nearest:
    """Distances from correlations, by outright difference where float32 correlations are too coarse.

    Which ones depends on the value alone, so candidates that tie before it tie after it.
    """
    scale = unit.shape[1] - 1
    distances = (1.0 - correlations).clamp_(min=0.0) * (2 * scale)
    close = (correlations >= REFINED_ABOVE).nonzero()
    if len(close) == 0:
        return _Nearest(distances, indices)
    for pairs in torch.split(close, REFINED_PAIRS):
        row, place = pairs.unbind(1)
        centred = _centre(_flat(candidates[indices[row, place]].to(torch.float32), search_size))
        difference = centred.values / centred.norms[:, None] - unit[row]
        distances[row, place] = scale * difference.square().sum(dim=1)
    distances, order = distances.sort(dim=1, stable=True)
    return _Nearest(distances, indices.gather(1, order))
