"""What can be analysed in a store: a run as one model's leakage, and all models with what was counted of them."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from recon_core.analysis.arrays import Floats, above, floats
from recon_core.analysis.counts import (
    CountByThreshold,
    RocCurve,
    SortedSsim,
    count_by_threshold,
    roc_curve,
    sorted_ssim,
)
from recon_core.analysis.decay import DecayPoint
from recon_core.analysis.leakage import LeakPanel, leak_scatter
from recon_core.analysis.models import architecture_text
from recon_core.config import parse_config
from recon_core.errors import InputError
from recon_core.matching.controls import chance_level
from recon_core.matching.protocol import MatchSettings
from recon_core.runs.baseline_runs import baseline_of
from recon_core.runs.match_source import CANDIDATE_KINDS, MatchConfig, done_run, model_run_of
from recon_core.store import Run, RunState, RunStore, RunSummary, layout
from recon_core.store.files import read_object
from recon_core.views.live_match import ImagePool, PairView

ANALYSED_KINDS = ("match", *CANDIDATE_KINDS)
_REMEMBERED = 2**14
"""Runs whose origin is kept in memory."""


@dataclass(frozen=True)
class AnalysedRun:
    """A finished run with candidates or a matching, under names a person knows."""

    run: str
    name: str
    kind: str
    model_name: str
    planar: bool
    """Points of the plane instead of images."""
    baseline: str | None
    """What was attacked instead of the trained network, or how; None for an attack proper."""


@dataclass(frozen=True)
class ModelEntry:
    """A finished training run, and the newest match run of its images."""

    run: str
    name: str
    family: str
    """Models of one family saw the same images and have the same shape and loss."""
    family_label: str
    family_id: str
    """Tells families of the same words apart."""
    weight_decay: float
    result: Mapping[str, Any]
    match_run: str | None


@dataclass(frozen=True, eq=False)
class StoredScores:
    """SSIM (n,) as a match run kept it, with its controls; None where a control was not run."""

    settings: MatchSettings
    ssim: Floats
    mean_image: Floats
    untrained: Floats | None
    held_out: Floats | None

    def good(self, threshold: float) -> int:
        return int(above(self.ssim, threshold).sum())

    def chance(self, threshold: float) -> int:
        def matched(scores: Floats | None) -> int | None:
            return None if scores is None else int(above(scores, threshold).sum())

        return chance_level(
            len(self.ssim),
            mean_image=matched(self.mean_image),
            untrained=matched(self.untrained),
            held_out=matched(self.held_out),
            held_out_of=None if self.held_out is None else len(self.held_out),
        )


def analysed_runs(store: RunStore) -> tuple[AnalysedRun, ...]:
    """What can be chosen, the likeliest first: match runs, then attacks, then baselines, the newest of each first."""
    summaries = store.list()
    known = {summary.id: summary for summary in summaries}
    found = [
        analysed
        for summary in summaries
        if summary.kind in ANALYSED_KINDS and summary.status.state is RunState.DONE
        if (analysed := _analysed(store.root, summary, known)) is not None
    ]
    # An untrained network is a control, and nothing leaks from it that could be analysed.
    shown = [run for run in found if run.baseline != "untrained"]
    return tuple(sorted(shown, key=lambda run: (run.kind != "match", run.baseline is not None)))


def match_request(store: RunStore, run_id: str) -> MatchConfig:
    """How run `run_id` is to be matched: as it was, or with the papers' settings and the newest untrained control."""
    run = done_run(store, run_id, ANALYSED_KINDS, lacks="has nothing to analyse", then="analyse")
    if run.kind == "match":
        return parse_config(MatchConfig, run.config)
    return MatchConfig(runs=(run_id,), untrained=_untrained_control(store, model_run_of(store, run)))


def leak_panel(pool: ImagePool, view: PairView) -> LeakPanel:
    """SSIM of each training image beside what its model says of it."""
    model = pool.source.model_run
    samples, result = model.tensors("samples"), model.result() or {}
    untrained = view.evidence.untrained
    scatter = leak_scatter(
        torch.from_numpy(view.ssim),
        samples["outputs"],
        torch.from_numpy(view.samples.labels),
        samples["on_margin"],
        result.get("train_error"),
        result.get("test_error"),
        ids=view.samples.ids.tolist(),
        mean_image=view.evidence.mean_image,
        untrained=None if untrained is None else untrained.ssim,
    )
    return LeakPanel(model.name, view.samples.class_names, view.settings, scatter)


def threshold_counts(view: PairView) -> CountByThreshold:
    evidence = view.evidence
    return count_by_threshold(
        evidence.matching.ssim,
        evidence.mean_image,
        None if evidence.untrained is None else evidence.untrained.ssim,
        None if evidence.non_members is None else evidence.non_members.ssim,
    )


def ranked_ssim(view: PairView) -> SortedSsim:
    return sorted_ssim(view.evidence.matching.ssim)


def membership_curve(view: PairView) -> RocCurve | None:
    """None where no image outside the training set is known."""
    return None if view.evidence.non_members is None else roc_curve(view.evidence.membership())


def decay_point(entry: ModelEntry, view: PairView, threshold: float) -> DecayPoint:
    count = view.count(threshold)
    return DecayPoint(
        model=entry.name,
        weight_decay=entry.weight_decay,
        good=count.good,
        of=count.of,
        control_mean_image=count.control_mean_image,
        control_untrained=count.control_untrained,
        non_members=count.non_members,
        non_members_of=count.non_members_of,
        train_error=entry.result.get("train_error"),
        test_error=entry.result.get("test_error"),
    )


def model_index(store: RunStore) -> tuple[ModelEntry, ...]:
    """Every model that was trained here to its end, the newest first."""
    summaries = store.list()
    known = {summary.id: summary for summary in summaries}
    done = [summary for summary in summaries if summary.status.state is RunState.DONE]
    matched: dict[str, str] = {}
    for summary in done:
        if summary.kind == "match" and (model := _matched_model(store.root, summary, known)) is not None:
            matched.setdefault(model, summary.id)  # the newest come first
    return tuple(
        replace(entry, name=summary.name, match_run=matched.get(summary.id))
        for summary in done
        if summary.kind == "train" and (entry := _entry(store.root, summary.id)) is not None
    )


def stored_scores(run: Run) -> StoredScores:
    """Scores of a finished match run of images."""
    found = run.tensors("match")
    untrained, held_out = found.get("untrained_ssim"), found.get("non_member_ssim")
    return StoredScores(
        settings=parse_config(MatchSettings, (run.result() or {})["settings"]),
        ssim=floats(found["ssim"]),
        mean_image=floats(found["mean_image_ssim"]),
        untrained=None if untrained is None else floats(untrained),
        held_out=None if held_out is None else floats(held_out),
    )


def _analysed(root: Path, run: RunSummary, known: Mapping[str, RunSummary]) -> AnalysedRun | None:
    try:
        attack = known[_first_matched(root, run.id)] if run.kind == "match" else run
        model = _model_behind(attack, known)
        planar = _is_planar(root, model.id)
        baseline = baseline_of(root, attack.id)
    except (InputError, KeyError, IndexError, TypeError):
        return None  # damaged, or of somebody else's model, whose training images nobody knows
    return AnalysedRun(run.id, run.name, run.kind, model.name, planar, baseline)


def _model_behind(attack: RunSummary, known: Mapping[str, RunSummary]) -> RunSummary:
    """By the list alone, which is there already; `model_run_of` reads the same from the folders."""
    trained = [known[parent] for parent in attack.parents if known[parent].kind == "train"]
    return trained[0]


def _is_planar(root: Path, model: str) -> bool:
    entry = _entry(root, model)
    if entry is None:
        raise InputError(f"run {model} is damaged")
    return len(entry.result["data"]["input_shape"]) == 1


def _untrained_control(store: RunStore, model: Run) -> str | None:
    for summary in store.list("reconstruct"):
        done = model.id in summary.parents and summary.status.state is RunState.DONE
        if done and baseline_of(store.root, summary.id) == "untrained":
            return summary.id
    return None


def _matched_model(root: Path, match: RunSummary, known: Mapping[str, RunSummary]) -> str | None:
    """The model behind a match run of images; None where there is none, or a file on the way is damaged."""
    try:
        # Not by the result's word: an imported run may have a new id, its results keep the old ones.
        model = _model_behind(known[_first_matched(root, match.id)], known).id
        return None if _is_planar(root, model) else model
    except (InputError, KeyError, IndexError, TypeError):
        return None


@functools.lru_cache(maxsize=_REMEMBERED)
def _first_matched(root: Path, match_id: str) -> str:
    return str(read_object(root / match_id / layout.CONFIG)["runs"][0])


# Finished runs never change but for their names, and a list of thousands is asked for again and again.
@functools.lru_cache(maxsize=_REMEMBERED)
def _entry(root: Path, run_id: str) -> ModelEntry | None:
    """As far as it never changes: without name and match run."""
    try:
        config, result = (read_object(root / run_id / name) for name in (layout.CONFIG, layout.RESULT))
    except InputError:
        return None
    data, training, about = config.get("data", {}), config.get("training", {}), result.get("data", {})
    shape = result.get("architecture", {})
    text = architecture_text(shape) if shape else "a network"
    family = f"{about.get('fingerprint')} {text} {data.get('task')} {training.get('loss')}"
    return ModelEntry(
        run=run_id,
        name=run_id,
        family=family,
        family_label=f"{text} on {result.get('n', '?')} of {data.get('source', '?')}, {data.get('task', '?')}",
        family_id=hashlib.blake2b(family.encode(), digest_size=3).hexdigest(),
        weight_decay=float(training.get("weight_decay") or 0.0),
        result=result,
        match_run=None,
    )
