"""The record of a study's cells: the runs of each, and the numbers they gave.

The numbers stay when runs are deleted; pictures are read from the runs themselves.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import TypeAdapter, ValidationError

from recon_core.errors import AfterimageError, InputError
from recon_core.matching.roc import roc
from recon_core.runs.stored_names import with_current_names
from recon_core.store import Run, RunStore
from recon_core.studies.graph import CellSteps, StepState

FILE = "cells"
"""`cells.json` in the study's run."""
MEMBERSHIP_RATE = 0.01
"""False positives at which membership tests are judged."""

_TRAINED = (
    "n", "on_margin", "train_error", "test_error", "test_loss", "log_loss", "log10_epochs", "margin_min", "kkt",
    "kkt_layer1", "gradient_norm", "epsilon", "delta", "noise_multiplier",
)  # fmt: skip
_COUNTED = (
    "good", "unique", "of", "control_mean_image", "control_untrained", "non_members", "non_members_of", "threshold",
    "merge_factor", "ssim_kind", "candidates", "other_good", "other_chance", "other_ssim_kind",
)  # fmt: skip

_STEPS = {"floor": "untrained"}
"""Steps that 0.1.0 called otherwise."""


@dataclass(frozen=True)
class CellRecord:
    """The present state of one cell. `runs` are ids by step: train, attack, untrained, match."""

    id: str
    panel: str
    point: str
    reference: bool
    seed: int
    state: StepState
    message: str = ""
    runs: Mapping[str, str] = field(default_factory=dict)
    shared: tuple[str, ...] = ()
    numbers: Mapping[str, float | int | str] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        return self.state is StepState.DONE

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "state": str(self.state), "runs": dict(self.runs), "shared": list(self.shared)}


@dataclass(frozen=True)
class StudyRecord:
    """All cells, and the id of every run this study has requested, by key."""

    cells: tuple[CellRecord, ...]
    steps: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        return {"cells": [cell.to_json() for cell in self.cells], "steps": dict(self.steps)}


_WRITTEN = TypeAdapter(StudyRecord)
_TEXTS = ("ssim_kind", "other_ssim_kind")
_MOST = 2.0**53


def read_record(run: Run) -> StudyRecord:
    """The record of a study run; empty before it has started."""
    kept = run.read_json(FILE)
    if kept is None:
        return StudyRecord((), {})
    try:
        record = _WRITTEN.validate_json(json.dumps(kept), strict=True)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part)[:40] for part in fault["loc"][:4])
        raise _nonsense(run, f"{where}: {' '.join(fault['msg'].split())[:200]}") from None
    for cell in record.cells:
        for name, value in cell.numbers.items():
            if not _is_sound(name, value):
                raise _nonsense(run, f"{cell.id[:40]}: {name[:40]} is {str(value)[:40]}")
    return replace(record, cells=tuple(map(_with_current_names, record.cells)))


def _is_sound(name: str, value: float | str) -> bool:
    if isinstance(value, str):
        return name in _TEXTS
    return name not in _TEXTS and abs(value) < _MOST


def _with_current_names(cell: CellRecord) -> CellRecord:
    """Steps and numbers may have names from before 0.2.0."""
    return replace(
        cell,
        runs={_STEPS.get(step, step): run_id for step, run_id in cell.runs.items()},
        shared=tuple(_STEPS.get(step, step) for step in cell.shared),
        numbers=with_current_names(cell.numbers),
    )


def _nonsense(run: Run, why: str) -> InputError:
    return InputError(f"{FILE}.json of run {run.id} makes no sense ({why}); start the study anew")


def recorded_runs(store: RunStore) -> dict[str, str]:
    """Ids of the runs that studies of this store have requested, by key; newer studies override older ones."""
    found: dict[str, str] = {}
    for summary in store.list("study"):
        try:
            steps = read_record(store.open(summary.id)).steps
        except (AfterimageError, KeyError, TypeError, ValueError):
            continue
        found = {**steps, **found}
    return found


def record_cell(store: RunStore, steps: CellSteps, before: CellRecord | None) -> CellRecord:
    """Record the present state of a cell; its numbers are read once, when it is done."""
    cell, state = steps.cell, steps.state
    runs = {str(step.kind): step.run_id for step in steps if step.run_id is not None}
    numbers: Mapping[str, float | int | str] = {}
    if state is StepState.DONE:
        kept = before is not None and before.done and dict(before.runs) == runs
        numbers = before.numbers if kept and before is not None else read_numbers(store, runs)
    return CellRecord(
        id=cell.id,
        panel=cell.panel,
        point=cell.point,
        reference=cell.reference,
        seed=cell.seed,
        state=state,
        message="" if state is StepState.DONE else steps.message,
        runs=runs,
        shared=tuple(str(step.kind) for step in steps if step.shared),
        numbers=numbers,
    )


def read_numbers(store: RunStore, runs: Mapping[str, str]) -> dict[str, Any]:
    """The numbers of one finished cell, by name; those that a run does not report are left out."""
    trained, attacked, matched = (store.open(runs[step]) for step in ("train", "attack", "match"))
    facts, found, count = trained.result() or {}, attacked.result() or {}, _count(matched.result() or {})
    numbers = {name: facts.get(name) for name in _TRAINED}
    numbers |= {name: count.get(name) for name in _COUNTED}
    judged = matched.result() or {}
    numbers |= {"residual": found.get("residual"), "auc": judged.get("auc"), "tpr": judged.get("tpr_at_1_percent_fpr")}
    certain = judged.get("certain") or {}
    numbers |= {"certain": certain.get("certain"), "certain_real": certain.get("real")}
    numbers |= _loss_membership(trained)
    for step, run in (("train", trained), ("attack", attacked), ("match", matched)):
        numbers[f"{step}_seconds"] = run.status().seconds
    return {name: value for name, value in numbers.items() if value is not None and _is_finite(value)}


def _loss_membership(trained: Run) -> dict[str, float]:
    """How well a threshold on the loss tells training images from test images (Yeom et al. 2018)."""
    samples = trained.tensors("samples") if trained.has_tensors("samples") else {}
    if "losses" not in samples or "held_out_losses" not in samples:  # of an earlier version, or without test images
        return {}
    curve = roc(-samples["losses"], -samples["held_out_losses"])
    return {"loss_auc": curve.auc, "loss_tpr": curve.true_positive_rate_at(MEMBERSHIP_RATE)}


def _count(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """Images count by SSIM, points of the plane by whether a candidate is near."""
    if result.get("kind") == "images":
        count = with_current_names(result["count"])
        other = count.get("other") or {}
        return {**count, **{f"other_{name}": value for name, value in other.items()}}
    near = result["counts"][0]
    return {**with_current_names(near), "good": near["recovered"], "candidates": result["candidates"]}


def _is_finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)
