"""A match run: pooled candidates against the training images, with the floors a count stands on."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from recon_core.attacks.circle import PAPER_DISTANCE, deduplicate, filter_multipliers
from recon_core.config import parse_config
from recon_core.data import TaskData
from recon_core.devices import pick_device
from recon_core.runs.cached_matching import Batch, CachedMatcher, Scored, batch_of
from recon_core.runs.match_cache import MatchCache
from recon_core.runs.match_source import MatchConfig, MatchInput, MatchSource, load_source
from recon_core.runs.listening import Listener
from recon_core.runs.signals import StopFlag
from recon_core.matching.controls import Evidence, LeakCount, SeedInterval, over_seeds, score_mean_image
from recon_core.matching.planar import PlanarMatching, match_points
from recon_core.matching.protocol import Matching, MatchSettings, Prepared, Protocol
from recon_core.matching.roc import roc
from recon_core.store import Run, RunState, RunStore, RunWriter

MERGE_FACTORS = (1.0, 1.02, 1.05, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0)
"""Merge factors B whose counts every match run keeps, for the curve of good reconstructions against B."""
RADII = (0.03, 0.1)
"""How near a candidate must be to a point of the plane to have found it."""


@dataclass(frozen=True, eq=False)
class MatchOutcome:
    """What a match run leaves."""

    result: dict[str, Any]
    tensors: dict[str, Tensor]
    sentence: str


@dataclass(frozen=True, eq=False)
class LiveMatching:
    """Matching and its controls laid out for a slider: `evidence` merges at another B and searches nothing."""

    members: Prepared
    untrained: Prepared | None
    non_members: Prepared | None
    mean_image: Tensor

    def evidence(self, merge_factor: float | None = None) -> Evidence:
        return Evidence(
            matching=self.members.merge(merge_factor),
            mean_image=self.mean_image,
            untrained=None if self.untrained is None else self.untrained.merge(merge_factor),
            non_members=None if self.non_members is None else self.non_members.merge(merge_factor),
        )


@dataclass(frozen=True)
class PointCount:
    """Points found within a radius, and its floors. None means that control was not run."""

    radius: float
    recovered: int
    of: int
    """Training points."""
    settled: int
    """Candidates at a training point of their class."""
    kept: int
    """Candidates left after the clean-up."""
    floor_untrained: int | None
    non_members: int | None
    """Points never trained on that are found as well."""
    non_members_of: int | None


@dataclass(frozen=True, eq=False)
class PlanarEvidence:
    """Points matched, and their controls; a new radius is a comparison, nothing more."""

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
            floor_untrained=None if self.untrained is None else self.untrained.recovered(radius),
            non_members=None if others is None else others.recovered(radius),
            non_members_of=None if others is None else len(others.distances),
        )


class _CancelledError(Exception):
    """Somebody asked for an end between two searches."""


@dataclass(frozen=True, eq=False)
class _Batches:
    members: Batch
    candidates: Batch
    untrained: Batch | None
    non_members: Batch | None


def perform_matching(run: Run, writer: RunWriter, stop: StopFlag, listener: Listener, data: TaskData | None) -> None:
    """Match, score, and finish the run. Nothing is worth a checkpoint: a second try finds all in the cache."""
    config = parse_config(MatchConfig, run.config)
    store = RunStore(run.dir.parent)
    source = load_source(store, config, data, progress=lambda message, fraction: listener(fraction, message))
    seeds = _seeds(source)
    total = 3 + (len(seeds) if len(seeds) > 1 else 0)
    writer.start(total)
    done = 0

    def tell(message: str) -> None:
        nonlocal done
        if stop.raised or writer.cancel_requested():
            raise _CancelledError
        writer.progress(done, message, total=total)
        listener(done / total, message)
        done += 1

    try:
        with torch.no_grad():
            outcome = (
                match_planar_source(source, config, tell)
                if source.planar
                else match_image_source(source, config, MatchCache.of_store(store.root), tell)
            )
    except _CancelledError:
        again = f"python -m recon_core runs resume {run.id}"
        writer.finish(RunState.CANCELLED, None, f"was stopped on request and can be resumed: {again}")
        return
    writer.save_tensors("match", outcome.tensors)
    writer.progress(total, force=True)
    writer.finish(RunState.DONE, outcome.result, outcome.sentence)


def live_matching(source: MatchInput, config: MatchConfig, cache: MatchCache) -> LiveMatching:
    """For a page: neighbours from the cache where a run has found them before."""
    matcher = _matcher(source, config, cache)
    batches, mean = _batches(source), source.data.mean
    with torch.no_grad():
        untrained, others = batches.untrained, batches.non_members
        return LiveMatching(
            members=matcher.prepare(batches.members, mean, batches.candidates),
            untrained=None if untrained is None else matcher.prepare(batches.members, mean, untrained),
            non_members=None if others is None else matcher.prepare(others, mean, batches.candidates),
            mean_image=_score_mean_image(source, matcher.settings),
        )


def match_image_source(
    source: MatchSource, config: MatchConfig, cache: MatchCache, tell: Callable[[str], None]
) -> MatchOutcome:
    """Both papers' protocols with all controls; `tell` hears what comes next."""
    matcher = _matcher(source, config, cache)
    batches, mean = _batches(source), source.data.mean
    factors = MERGE_FACTORS if config.protocol is Protocol.BUZAGLO else ()
    tell(f"matching {len(batches.candidates.images)} candidates with {source.data.n} training images")
    members = matcher.match(batches.members, mean, batches.candidates, factors)
    tell("matching the untrained network's candidates")
    untrained = None if batches.untrained is None else matcher.match(batches.members, mean, batches.untrained)
    tell("matching images that were not trained on")
    others = (
        None if batches.non_members is None else matcher.match(batches.non_members, mean, batches.candidates, factors)
    )
    by_seed = _match_seeds(source, matcher, batches.members, tell)
    evidence = Evidence(
        matching=members.matching,
        mean_image=_score_mean_image(source, matcher.settings),
        untrained=None if untrained is None else untrained.matching,
        non_members=None if others is None else others.matching,
    )
    count = evidence.at(config.threshold)
    membership = None if others is None else evidence.membership()
    result = {
        "kind": "images",
        "model": source.model_run.id,
        "fingerprint": source.data.fingerprint,
        "count": asdict(count),
        "auc": None if membership is None else membership.auc,
        "tpr_at_1_percent_fpr": None if membership is None else membership.true_positive_rate_at(0.01),
        "seeds": _seed_summary({seed: scored.good(config.threshold) for seed, scored in by_seed.items()}),
        "settings": asdict(matcher.settings),
        "non_finite": members.matching.non_finite,
        "constant": members.matching.constant,
        "from_cache": cache.misses == 0,
    }
    tensors = {
        **_image_tensors(source, members, evidence.mean_image),
        "factors": torch.tensor(factors, dtype=torch.float64),
        "ssim_by_factor": members.ssim_by_factor,
    }
    if untrained is not None:
        tensors["untrained_ssim"] = untrained.matching.ssim
    if others is not None:
        tensors["non_member_ssim"] = others.matching.ssim
        tensors["non_member_ids"] = source.data.test_ids[_non_members(source.data)]
        tensors["non_member_ssim_by_factor"] = others.ssim_by_factor
    return MatchOutcome(result, tensors, image_sentence(count))


def match_planar_source(source: MatchSource, config: MatchConfig, tell: Callable[[str], None]) -> MatchOutcome:
    """Points found within `RADII`, after the stages of Haim et al. 2022, Section 4, run by run."""
    data, candidates = source.data, source.pool.candidates
    evidence = planar_evidence(source, config, tell)
    kept, members, others = evidence.kept, evidence.members, evidence.non_members
    curve = None if others is None else roc(-members.distances, -others.distances)
    by_seed = {}
    seeds = _seeds(source)
    for seed in seeds if len(seeds) > 1 else []:
        tell(f"matching seed {seed} alone")
        own = kept & (source.seeds == seed)
        by_seed[seed] = _points(data.train_x, data.train_labels, source, own).recovered(RADII[0]) if own.any() else 0
    result = {
        "kind": "points",
        "model": source.model_run.id,
        "fingerprint": data.fingerprint,
        "counts": [asdict(evidence.at(radius)) for radius in RADII],
        "candidates": len(candidates),
        "auc": None if curve is None else curve.auc,
        "tpr_at_1_percent_fpr": None if curve is None else curve.true_positive_rate_at(0.01),
        "seeds": _seed_summary(by_seed),
        "multiplier_share": config.multiplier_share,
        "non_finite": members.non_finite,
    }
    tensors = {
        "points": data.train_x,
        "labels": data.train_labels,
        "distances": members.distances,
        "nearest": evidence.nearest,
        "kept": kept,
        "candidates": candidates,
        "candidate_labels": source.labels,
        "run_starts": torch.tensor(source.pool.starts),
    }
    return MatchOutcome(result, tensors, planar_sentence(result))


def planar_evidence(
    source: MatchInput, config: MatchConfig, tell: Callable[[str], None] = lambda message: None
) -> PlanarEvidence:
    """Points and their controls matched; `tell` hears what comes next."""
    data = source.data
    tell(f"matching {len(source.pool.candidates)} candidates with {data.n} points")
    kept = _planar_kept(source, config)
    members = _points(data.train_x, data.train_labels, source, kept)
    tell("matching the untrained network's candidates")
    untrained = None
    if source.untrained is not None and source.untrained_labels is not None:
        untrained = match_points(data.train_x, data.train_labels, source.untrained, source.untrained_labels)
    tell("matching points that were not trained on")
    others = None
    if len(data.test_x):
        others = _points(data.test_x[: data.n], data.test_labels[: data.n], source, kept)
    return PlanarEvidence(kept, members, untrained, others)


def image_sentence(count: LeakCount) -> str:
    """The count with its floors, in plain words."""
    floors = [f"the mean image alone matches {count.floor_mean_image}"]
    if count.floor_untrained is not None:
        floors.append(f"an untrained network's candidates {count.floor_untrained}")
    if count.non_members is not None:
        floors.append(f"{count.non_members} of {count.non_members_of} images never trained on match")
    return (
        f"{count.good} of {count.of} training images come back with SSIM ({count.ssim_kind}) above "
        f"{count.threshold:g}, from {count.unique} different candidates; for comparison, {', '.join(floors)}"
    )


def planar_sentence(result: dict[str, Any]) -> str:
    parts = [f"{count['recovered']} of {count['of']} within {count['radius']:g}" for count in result["counts"]]
    fine = result["counts"][0]
    sentence = f"training points found: {', '.join(parts)}"
    if fine["non_members"] is not None:
        sentence += f"; for comparison, {fine['non_members']} of {fine['non_members_of']} points never trained on"
        sentence += f" within {fine['radius']:g}"
    return sentence


def _matcher(source: MatchInput, config: MatchConfig, cache: MatchCache) -> CachedMatcher:
    return CachedMatcher(cache, config.settings(source.default_factor), pick_device(config.device))


def _batches(source: MatchInput) -> _Batches:
    data = source.data
    others = data.test_x[_non_members(data)]
    return _Batches(
        members=batch_of(data.train_x),
        candidates=batch_of(source.pool.candidates),
        untrained=None if source.untrained is None else batch_of(source.untrained),
        non_members=batch_of(others) if len(others) else None,
    )


def _non_members(data: TaskData) -> Tensor:
    """The first n test images, as many as there are training images; none that was trained on, none constant."""
    trained = {image.numpy().tobytes() for image in data.train_x}
    flat = data.test_x.flatten(1)
    varied = (flat.amax(dim=1) - flat.amin(dim=1) > 0).tolist() if len(flat) else []
    fit = (index for index, image in enumerate(data.test_x) if varied[index] and image.numpy().tobytes() not in trained)
    return torch.tensor(list(itertools.islice(fit, data.n)), dtype=torch.int64)


def _match_seeds(
    source: MatchSource, matcher: CachedMatcher, members: Batch, tell: Callable[[str], None]
) -> dict[int, Matching]:
    """Each seed's candidates alone, where there are several seeds."""
    seeds = _seeds(source)
    found = {}
    for seed in seeds if len(seeds) > 1 else []:
        tell(f"matching seed {seed} alone")
        own = batch_of(source.pool.candidates[source.seeds == seed])
        found[seed] = matcher.match(members, source.data.mean, own).matching
    return found


def _seeds(source: MatchInput) -> list[int]:
    return sorted(set(source.seeds.tolist()))


def _seed_summary(counts: dict[int, int]) -> dict[str, Any] | None:
    if len(counts) < 2:
        return None
    interval: SeedInterval = over_seeds(list(counts.values()))
    return {"counts": {str(seed): good for seed, good in counts.items()}, **asdict(interval)}


def _score_mean_image(source: MatchInput, settings: MatchSettings) -> Tensor:
    data = source.data
    return score_mean_image((data.train_x + data.mean).clamp(0.0, 1.0), data.mean, settings.ssim)


def _image_tensors(source: MatchSource, members: Scored, mean_image: Tensor) -> dict[str, Tensor]:
    matching = members.matching
    return {
        "images": matching.images,
        "reconstructions": matching.reconstructions,
        "ssim": matching.ssim,
        "merged_counts": matching.merged_counts,
        "merged_indices": matching.merged_indices,
        "nearest": matching.nearest,
        "distances": matching.distances,
        "capped": matching.capped,
        "mean_image_ssim": mean_image,
        "labels": source.data.train_labels,
        "run_starts": torch.tensor(source.pool.starts),
    }


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


def _points(points: Tensor, classes: Tensor, source: MatchInput, kept: Tensor) -> PlanarMatching:
    return match_points(points, classes, source.pool.candidates[kept], source.labels[kept])
