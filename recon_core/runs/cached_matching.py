"""Matching with a cache: neighbours are found again by content, scores by content and settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from recon_core.matching.neighbours import Neighbours
from recon_core.matching.protocol import Matching, MatchSettings, Prepared, neighbours_for, neighbours_kept, prepare
from recon_core.runs.match_cache import MatchCache, cache_key, content_digest


@dataclass(frozen=True, eq=False)
class Batch:
    """Images, and the digest by which the cache identifies them."""

    images: Tensor

    @cached_property
    def digest(self) -> str:
        return content_digest(self.images)


@dataclass(frozen=True, eq=False)
class Scored:
    """A matching, and its scores had the merge factor been another one."""

    matching: Matching
    ssim_by_factor: Tensor
    """(F, N), one row for each factor asked for."""


@dataclass(frozen=True)
class CachedMatcher:
    """Matches on `device` with one set of settings; results are on the CPU. Without a cache it computes."""

    cache: MatchCache | None
    settings: MatchSettings
    device: torch.device

    def prepare(self, images: Batch, mean: Tensor, candidates: Batch) -> Prepared:
        """Neighbours found before, laid out for merging at any factor."""
        on_device = candidates.images.to(self.device)
        neighbours = self._neighbours(images, candidates, on_device)
        return prepare(images.images, mean, on_device, self.settings, neighbours)

    def match(self, images: Batch, mean: Tensor, candidates: Batch, factors: Sequence[float] = ()) -> Scored:
        """Match images (N, C, H, W), centred with `mean` (C, H, W), and score them at other factors as well."""

        def compute() -> dict[str, Tensor]:
            prepared = self.prepare(images, mean, candidates)
            matching = prepared.merge()
            others = [prepared.merge(factor).ssim for factor in factors]
            other = {} if matching.other_ssim is None else {"other_ssim": matching.other_ssim}
            return {
                **other,
                "reconstructions": matching.reconstructions,
                "ssim": matching.ssim,
                "merged_counts": matching.merged_counts,
                "merged_indices": matching.merged_indices,
                "nearest": matching.nearest,
                "distances": matching.distances,
                "capped": matching.capped,
                "left_out": torch.tensor([matching.non_finite, matching.constant]),
                "ssim_by_factor": torch.stack(others) if others else matching.ssim.new_empty(0, len(matching.ssim)),
            }

        if self.cache is None:
            found = {name: tensor.cpu() for name, tensor in compute().items()}
        else:
            about = (images.digest, candidates.digest, content_digest(mean), self.settings, tuple(factors))
            found = self.cache.tensors(cache_key("scores", *about), compute)
        by_factor = found.pop("ssim_by_factor")
        non_finite, constant = found.pop("left_out").tolist()
        matching = Matching(
            settings=self.settings,
            images=(images.images.cpu().float() + mean.cpu()).clamp_(0.0, 1.0),
            candidates=len(candidates.images),
            non_finite=non_finite,
            constant=constant,
            **found,
        )
        return Scored(matching, by_factor)

    def _neighbours(self, images: Batch, candidates: Batch, on_device: Tensor) -> Neighbours:
        if self.cache is None:
            return neighbours_for(images.images, on_device, self.settings)

        def compute() -> dict[str, Tensor]:
            found = neighbours_for(images.images, on_device, self.settings)
            facts = torch.tensor([found.dimension, found.candidates, found.non_finite, found.constant])
            return {"distances": found.distances, "indices": found.indices, "facts": facts}

        kept = neighbours_kept(images.images, self.settings)
        key = cache_key("neighbours", images.digest, candidates.digest, str(self.settings.search_size), kept)
        found = self.cache.tensors(key, compute)
        neighbours = Neighbours(found["distances"], found["indices"], *found["facts"].tolist())
        return replace(
            neighbours,
            distances=neighbours.distances.to(self.device),
            indices=neighbours.indices.to(self.device),
        )
