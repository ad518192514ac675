"""Which candidates a training image may use: any, only those nearest to it, or one each (one-to-one)."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

import torch

from recon_core.errors import InputError
from recon_core.matching.neighbours import Neighbours


class Assignment(StrEnum):
    FREE = "free"
    """Each training image takes its nearest candidates, even if others take them too: both papers' protocol."""
    EXCLUSIVE = "exclusive"
    """A candidate serves only the training image it is nearest to, as an option of the authors' code."""
    ONE_TO_ONE = "one-to-one"
    """One candidate for each training image, none twice, the sum of distances smallest (Hungarian)."""


def assign(neighbours: Neighbours, assignment: Assignment) -> Neighbours:
    """Neighbours under the rule; training images that get no candidate have infinite distances only."""
    match assignment:
        case Assignment.FREE:
            return neighbours
        case Assignment.EXCLUSIVE:
            return _exclusive(neighbours)
        case Assignment.ONE_TO_ONE:
            return _one_to_one(neighbours)


def _exclusive(neighbours: Neighbours) -> Neighbours:
    """A candidate in several lists stays in the one where it is nearest; the first training image wins a tie."""
    distances, indices = neighbours.distances, neighbours.indices
    flat = indices.flatten()
    shortest = distances.new_full((neighbours.candidates,), torch.inf)
    shortest.scatter_reduce_(0, flat, distances.flatten(), "amin")
    wins = distances == shortest[indices]
    nobody = len(distances)
    rows = torch.arange(nobody, device=flat.device)[:, None].expand_as(indices)
    owner = torch.full((neighbours.candidates,), nobody, device=flat.device)
    owner.scatter_reduce_(0, flat, rows.where(wins, nobody).flatten(), "amin")
    own = distances.where(owner[indices] == rows, torch.inf)
    own, order = own.sort(dim=1, stable=True)
    return replace(neighbours, distances=own, indices=indices.gather(1, order))


def _one_to_one(neighbours: Neighbours) -> Neighbours:
    """Minimum-cost assignment.

    No training image need look beyond its N nearest: the others can occupy at most N - 1 of them. So the sparse
    problem on those lists has the same optimum as the full N x M matrix, which would not fit.
    """
    # Here, because most processes never come to it, and all would wait for it.
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import min_weight_full_bipartite_matching

    count, kept = neighbours.distances.shape
    needed = min(count, neighbours.usable)
    if kept < needed:
        raise InputError(
            f"a one-to-one assignment of {count} training images needs {needed} neighbours each, got {kept}; keep more"
        )
    distances, indices = neighbours.distances[:, :needed].cpu(), neighbours.indices[:, :needed].cpu()
    used, columns = torch.unique(indices, return_inverse=True)
    weights = distances.double() + 1.0  # the solver reads 0 as "no edge"; a constant changes no optimum
    starts = torch.arange(count + 1) * needed
    graph = csr_array((weights.flatten().numpy(), columns.flatten().numpy(), starts.numpy()), shape=(count, len(used)))
    solution = min_weight_full_bipartite_matching(graph)
    row, column = (torch.from_numpy(side).long() for side in solution)
    chosen = used[column]
    index = torch.zeros(count, 1, dtype=torch.int64)
    index[row, 0] = chosen
    distance = torch.full((count, 1), torch.inf)
    distance[row, 0] = distances[row].where(indices[row] == chosen[:, None], torch.inf).amin(dim=1)
    device = neighbours.distances.device
    return replace(neighbours, distances=distance.to(device), indices=index.to(device))
