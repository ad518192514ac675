"""Before a study starts: whether it was begun before, and whether its images are there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recon_core.config import parse_config
from recon_core.data import load_task
from recon_core.data.torchvision_sets import FULL_SETS
from recon_core.errors import AfterimageError, InputError
from recon_core.runs.keys import find_run
from recon_core.store import Run, RunState, RunStore
from recon_core.studies.cells import expand
from recon_core.studies.plan import StudyPlan, Variant
from recon_core.studies.record import read_record
from recon_core.studies.study import StudyConfig


def begun_before(store: RunStore, plan: StudyPlan) -> Run | None:
    """The newest run of the same study: running or stopped, or finished with all its runs still in the store."""
    for summary in store.list("study"):
        run = store.open(summary.id)
        try:
            if not parse_config(StudyConfig, run.config).plan.trains_like(plan):
                continue
        except AfterimageError:  # written by another version
            continue
        if summary.status.state is not RunState.DONE:
            return run
        cells = read_record(run).cells
        if all(find_run(store, run_id) is not None for cell in cells for run_id in cell.runs.values()):
            return run
    return None


def check_data(plan: StudyPlan) -> None:
    """Raise an `InputError` where images are missing, before any run is created. Full sets are not checked."""
    wanted = {cell.training.data.model_dump_json(): cell.training.data for cell in expand(plan)}
    for data in wanted.values():
        if data.source not in FULL_SETS:
            load_task(data)


def own_values(plan: StudyPlan) -> dict[str, Any]:
    """The reverse of `own_plan` for studies that vary a setting or two; others are a sentence."""
    axis = _varied(plan.points)
    beside = _varied(plan.panels) if any(panel.settings for panel in plan.panels) else {}
    if axis is None or beside is None:
        raise InputError(
            f"study {plan.name} varies several settings at once, which this form cannot; write it as a file"
        )
    return {
        "name": plan.name,
        "title": plan.title,
        "set": dict(plan.base),
        "vary": {**axis, **beside},
        "references": {reference.label: dict(reference.settings) for reference in plan.references},
        "seeds": len(plan.seeds),
        "untrained_control": plan.untrained_control,
    }


def _varied(variants: Sequence[Variant]) -> dict[str, list[Any]] | None:
    """The one setting in which they differ, with its values; None where there are several."""
    keys = {key for variant in variants for key in variant.settings}
    if len(keys) != 1 or any(len(variant.settings) != 1 for variant in variants):
        return None
    (key,) = keys
    return {key: [variant.settings[key] for variant in variants]}
