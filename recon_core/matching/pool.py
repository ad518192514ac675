"""Candidates of several runs as one pool that still knows who made what."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from recon_core.errors import InputError


class Origin(NamedTuple):
    """Where a pooled candidate came from."""

    run: str
    candidate: int


@dataclass(frozen=True)
class Pool:
    candidates: Tensor
    """(M, ...), run after run."""
    runs: tuple[str, ...]
    starts: tuple[int, ...]
    """Index of each run's first candidate."""

    def origin(self, index: int) -> Origin:
        if not 0 <= index < len(self.candidates):
            raise InputError(f"the pool has {len(self.candidates)} candidates, got index {index}")
        run = bisect_right(self.starts, index) - 1
        return Origin(self.runs[run], index - self.starts[run])


def pool(candidates_by_run: Mapping[str, Tensor]) -> Pool:
    """Put the candidates of all runs, (m, ...) each, behind one another."""
    filled = {run: candidates for run, candidates in candidates_by_run.items() if len(candidates)}
    if not filled:
        raise InputError(f"there are 0 candidates in {len(candidates_by_run)} run(s); run a reconstruction first")
    first, reference = next(iter(filled.items()))
    starts, total = [], 0
    for run, candidates in filled.items():
        if candidates.shape[1:] != reference.shape[1:]:
            raise InputError(
                f"run {run} has candidates of shape {tuple(candidates.shape[1:])} and run {first} of "
                f"{tuple(reference.shape[1:])}; match runs on the same data together"
            )
        starts.append(total)
        total += len(candidates)
    return Pool(torch.cat(list(filled.values())), tuple(filled), tuple(starts))
