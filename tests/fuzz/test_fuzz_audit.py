"""Whatever is asked of an audit, or stands in a report from elsewhere, is read or refused in a sentence."""

from __future__ import annotations

import contextlib
import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import recon_core as rc
from recon_core.auditing.normalisation import NAMES, normalisations
from recon_core.data import TaskData
from recon_core.errors import InputError
from recon_core.kinds import perform
from recon_core.runs import StopFlag
from recon_core.runs.attached import attached_data
from recon_core.runs.audit import AuditConfig, create_audit
from recon_core.runs.models import model_of
from recon_core.runs.reconstruction import attack_settings
from recon_core.runs.requests import create_import
from recon_core.store import RunStore
from recon_core.views.audits import most_exposed, read_audit
from tests.foreign_training import train_elsewhere

NUMBERS = st.lists(st.floats(width=32), min_size=0, max_size=4).map(tuple)
VALUES = st.one_of(
    st.none(), st.integers(), st.floats(), st.text(max_size=12), st.lists(st.one_of(st.text(max_size=3), st.floats()))
)
KEYS = ("n", "per_class", "partition", "classes", "selection", "seed", "test_n", "held_out", "normalisation", "mean",
        "std", "task", "path", "source", "colour")  # fmt: skip
RELAXED = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def four() -> TaskData:
    return rc.load_data("cifar10", n=4, test_n=4, progress=False).samples


@RELAXED
@given(name=st.one_of(st.sampled_from(NAMES), st.text(max_size=10)), mean=st.none() | NUMBERS, std=st.none() | NUMBERS)
def test_normalisation_is_usable_or_refused(four: TaskData, name: str, mean: Any, std: Any) -> None:
    try:
        found = normalisations(four, name, mean, std)
    except InputError:
        return
    for choice in found:
        assert torch.isfinite(choice.inputs(choice.attach(four).train_x)).all()
        assert choice.describe()


@RELAXED
@given(
    source=st.one_of(st.sampled_from(["cifar10", "mnist", "haim2022-cifar10", "circle"]), st.text(max_size=12)),
    outputs=st.sampled_from([1, 2, 10]),
    values=st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4),
)
def test_attachment_is_a_config_or_a_sentence(source: str, outputs: int, values: dict[str, Any]) -> None:
    with contextlib.suppress(InputError):
        assert attached_data(source, outputs, values).data.source


def test_report_from_elsewhere_reads_or_is_a_sentence(tmp_path: Path) -> None:
    """Each value of a real report replaced by something else."""
    foreign, store = train_elsewhere(tmp_path), RunStore(tmp_path / "runs")
    model = create_import(store, foreign.file, (1, 12, 12))
    perform(model, StopFlag())
    chosen = attack_settings(model_of(model), {"m": 16, "iterations": 10})
    config = AuditConfig(model=model.id, settings=chosen, attached=attached_data(foreign.photos, 1, {}), anyway=True)
    run = create_audit(store, config)
    perform(run, StopFlag())
    whole = run.result()
    assert whole is not None
    assert read_audit(run).to_html()
    refused = 0
    for path in _paths(whole):
        for value in ("<script>", -1, 1e308):
            broken = copy.deepcopy(whole)
            _put(broken, path, value)
            run.result = lambda found=broken: found  # type: ignore[method-assign, misc]
            try:
                audit = read_audit(run)
            except InputError:
                refused += 1
                continue
            assert "<script>" not in audit.to_html()
            assert len(most_exposed(audit, 4).images) == min(4, len(audit.report.images))
    assert refused > 100


def _paths(values: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Of every value; of a list, of its first."""
    if isinstance(values, dict):
        return (
            [path, *(each for key in values for each in _paths(values[key], (*path, key)))]
            if path
            else [each for key in values for each in _paths(values[key], (key,))]
        )
    if isinstance(values, list) and values:
        return [path, *_paths(values[0], (*path, 0))]
    return [path]


def _put(values: Any, path: tuple[Any, ...], value: Any) -> None:
    for step in path[:-1]:
        values = values[step]
    values[path[-1]] = value
