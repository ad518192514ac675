"""Before a study starts: whether it was begun before, whether its images are there, and own studies from text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

import yaml

from recon_core.config import parse_config
from recon_core.data import load_task
from recon_core.data.torchvision_sets import FULL_SETS
from recon_core.errors import AfterimageError, InputError
from recon_core.jobs.study import StudyConfig
from recon_core.store import Run, RunState, RunStore
from recon_core.studies.cells import expand
from recon_core.studies.keys import find_run
from recon_core.studies.own import own_plan
from recon_core.studies.plan import StudyPlan, Variant
from recon_core.studies.record import read_record

MOST_BYTES = 1_000_000


def begun_before(store: RunStore, plan: StudyPlan) -> Run | None:
    """The newest run of this very study: one that is at work or was stopped, or one that is done and whole."""
    for summary in store.list("study"):
        run = store.open(summary.id)
        try:
            if parse_config(StudyConfig, run.config).plan != plan:
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
    """Images that are not there leave no run behind. Full sets may have to be fetched, and are not looked at."""
    wanted = {cell.training.data.model_dump_json(): cell.training.data for cell in expand(plan)}
    for data in wanted.values():
        if data.source not in FULL_SETS:
            load_task(data)


def plan_from_text(file_name: str, content: bytes) -> StudyPlan:
    """A study from a file's content; the file's name is the study's unless it says another."""
    if len(content) > MOST_BYTES:
        raise InputError(f"{file_name!r} has more than {MOST_BYTES} bytes; a study is a page of text")
    values = read_values(content, repr(file_name))
    if not isinstance(values, dict):
        raise InputError(f"{file_name!r} must hold settings by name, e.g. vary: {{data.n: [10, 50]}}")
    named = {str(key): value for key, value in values.items()}
    return own_plan({"name": PurePath(file_name).stem or "own-study", **named})


def read_values(text: str | bytes, what: str) -> Any:
    """YAML or JSON as plain values. Numbers such as 1e-3, which YAML takes for words, are numbers here."""
    try:
        decoded = text.decode("utf-8") if isinstance(text, bytes) else text
        # A few aliases of aliases make a page of text as large as the memory.
        if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(decoded)):
            raise InputError(f"{what} uses YAML's aliases (*name); write the values out")
        return _with_numbers(yaml.safe_load(decoded))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError):
        raise InputError(f"{what} is neither JSON nor YAML; check its brackets and colons") from None


def _with_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_numbers(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_with_numbers(part) for part in value]
    if isinstance(value, str) and value[:1] in "+-.0123456789" and any(letter.isdigit() for letter in value):
        try:
            return float(value)
        except ValueError:
            return value
    return value


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
        "floor": plan.floor,
    }


def _varied(variants: Sequence[Variant]) -> dict[str, list[Any]] | None:
    """The one setting in which they differ, with its values; None where there are several."""
    keys = {key for variant in variants for key in variant.settings}
    if len(keys) != 1 or any(len(variant.settings) != 1 for variant in variants):
        return None
    (key,) = keys
    return {key: [variant.settings[key] for variant in variants]}
