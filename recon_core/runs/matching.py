"""A match run: pooled candidates against the training images, with the controls a count is compared with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from recon_core.attacks import CERTAIN
from recon_core.config import parse_config
from recon_core.data import TaskData
from recon_core.matching.certainty import judge_certain
from recon_core.matching.controls import (
    Evidence,
    LeakCount,
    SeedInterval,
    over_seeds,
    score_mean_image,
    score_mean_image_other,
)
from recon_core.matching.protocol import Matching, Protocol
from recon_core.matching.roc import roc
from recon_core.observing import Listener
from recon_core.runs.cached_matching import Batch, CachedMatcher, Scored
from recon_core.runs.match_cache import MatchCache
from recon_core.runs.match_source import MatchConfig, MatchInput, MatchSource, load_source
from recon_core.runs.scoring import (
    RADII,
    Pairing,
    held_out_rows,
    matcher_of,
    pairings,
    planar_evidence,
    points_matched,
)
from recon_core.runs.signals import StopFlag
from recon_core.store import Run, RunState, RunStore, RunWriter

MERGE_FACTORS = (1.0, 1.02, 1.05, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0)
"""Merge factors B whose counts every match run keeps, for the curve of good reconstructions against B."""


@dataclass(frozen=True, eq=False)
class MatchOutcome:
    """What a match run leaves."""

    result: dict[str, Any]
    tensors: dict[str, Tensor]
    sentence: str


class _CancelledError(Exception):
    """A stop was requested between two searches."""


def perform_matching(run: Run, writer: RunWriter, stop: StopFlag, listener: Listener, data: TaskData | None) -> None:
    """Match, score, and finish the run. It needs no checkpoints: a resumed run finds its neighbours in the cache."""
    config = parse_config(MatchConfig, run.config)
    store = RunStore(run.dir.parent)
    source = load_source(store, config, data, progress=listener)
    seeds = _seeds(source)
    searches = 3 if source.planar or source.untrained is not None else 2
    total = searches + (len(seeds) if len(seeds) > 1 else 0)
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


def match_image_source(
    source: MatchSource, config: MatchConfig, cache: MatchCache, tell: Callable[[str], None]
) -> MatchOutcome:
    """Both papers' protocols with all controls; `tell` hears what comes next."""
    matcher, pairs = matcher_of(source, config, cache), pairings(source)
    data, candidates = source.data, pairs.members.candidates
    factors = MERGE_FACTORS if config.protocol is Protocol.BUZAGLO else ()
    steps = iter(
        (
            f"matching {len(candidates.images)} candidates with {data.n} training images",
            *(["matching the untrained network's candidates"] if pairs.untrained is not None else []),
            "matching held-out images",
        )
    )

    def matched(pair: Pairing) -> Scored:
        tell(next(steps))
        return matcher.match(pair.images, data.mean, pair.candidates, factors if pair.candidates is candidates else ())

    scored = pairs.map(matched)
    members, untrained, others = scored.members, scored.untrained, scored.non_members
    by_seed = _match_seeds(source, matcher, pairs.members.images, tell)
    images = (data.train_x + data.mean).clamp(0.0, 1.0)
    window = matcher.settings.ssim
    evidence = Evidence.of(
        scored.map(lambda each: each.matching),
        score_mean_image(images, data.mean, window),
        score_mean_image_other(images, data.mean, window),
    )
    count = evidence.at(config.threshold)
    membership = None if others is None else evidence.membership()
    certain = None
    if source.confidence is not None:
        sure = candidates.images[source.confidence > CERTAIN]
        certain = judge_certain(data.train_x, data.mean, sure, matcher.settings, config.threshold)._asdict()
    result = {
        "kind": "images",
        "model": source.model_run.id,
        "fingerprint": source.data.fingerprint,
        "count": asdict(count),
        "certain": certain,
        "auc": None if membership is None else membership.auc,
        "tpr_at_1_percent_fpr": None if membership is None else membership.true_positive_rate_at(0.01),
        "seeds": _seed_summary({seed: scored.good(config.threshold) for seed, scored in by_seed.items()}),
        "settings": matcher.settings.model_dump(mode="json"),
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
        tensors["non_member_ids"] = source.data.test_ids[held_out_rows(source.data)]
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
        found = points_matched(data.train_x, data.train_labels, source, own) if own.any() else None
        by_seed[seed] = 0 if found is None else found.recovered(RADII[0])
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


def image_sentence(count: LeakCount) -> str:
    """The count with its controls, in plain words."""
    controls = [f"the mean image alone matches {count.control_mean_image}"]
    if count.control_untrained is not None:
        controls.append(f"an untrained network's candidates {count.control_untrained}")
    if count.non_members is not None:
        controls.append(f"{count.non_members} of {count.non_members_of} held-out images match")
    other = "" if count.other is None else f"; {count.other}"
    return (
        f"{count.good} of {count.of} training images reconstructed with SSIM ({count.ssim_kind}) above "
        f"{count.threshold:g}, from {count.unique} different candidates; for comparison, {', '.join(controls)}{other}"
    )


def planar_sentence(result: dict[str, Any]) -> str:
    parts = [f"{count['recovered']} of {count['of']} within {count['radius']:g}" for count in result["counts"]]
    fine = result["counts"][0]
    sentence = f"training points found: {', '.join(parts)}"
    if fine["non_members"] is not None:
        sentence += f"; for comparison, {fine['non_members']} of {fine['non_members_of']} held-out points"
        sentence += f" within {fine['radius']:g}"
    return sentence


def _match_seeds(
    source: MatchSource, matcher: CachedMatcher, members: Batch, tell: Callable[[str], None]
) -> dict[int, Matching]:
    """Each seed's candidates alone, where there are several seeds."""
    seeds = _seeds(source)
    found = {}
    for seed in seeds if len(seeds) > 1 else []:
        tell(f"matching seed {seed} alone")
        own = Batch(source.pool.candidates[source.seeds == seed])
        found[seed] = matcher.match(members, source.data.mean, own).matching
    return found


def _seeds(source: MatchInput) -> list[int]:
    return sorted(set(source.seeds.tolist()))


def _seed_summary(counts: dict[int, int]) -> dict[str, Any] | None:
    if len(counts) < 2:
        return None
    interval: SeedInterval = over_seeds(list(counts.values()))
    return {"counts": {str(seed): good for seed, good in counts.items()}, **asdict(interval)}


def _image_tensors(source: MatchSource, members: Scored, mean_image: Tensor) -> dict[str, Tensor]:
    matching = members.matching
    return {
        "images": matching.images,
        "reconstructions": matching.reconstructions,
        "ssim": matching.ssim,
        **({} if matching.other_ssim is None else {"other_ssim": matching.other_ssim}),
        "merged_counts": matching.merged_counts,
        "merged_indices": matching.merged_indices,
        "nearest": matching.nearest,
        "distances": matching.distances,
        "capped": matching.capped,
        "mean_image_ssim": mean_image,
        "labels": source.data.train_labels,
        "run_starts": torch.tensor(source.pool.starts),
    }
