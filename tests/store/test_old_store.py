"""A store written by version 0.1.0 still opens: every run is read, attacked and matched again as one of today's."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from recon_core.config import TrainConfig, parse_config
from recon_core.errors import InputError
from recon_core.kinds import perform
from recon_core.runs import StopFlag
from recon_core.runs.match_source import MatchConfig
from recon_core.runs.models import model_of
from recon_core.runs.reconstruction import ReconstructConfig
from recon_core.runs.stored_names import with_current_names
from recon_core.store import RunState, RunStore
from recon_core.studies.custom import own_plan
from recon_core.studies.plan import Check, StudyPlan
from recon_core.studies.record import read_record
from recon_core.studies.search import SearchConfig

CONFIGS: dict[str, type[BaseModel]] = {
    "train": TrainConfig,
    "reconstruct": ReconstructConfig,
    "match": MatchConfig,
    "search": SearchConfig,
}


@pytest.fixture
def old(own_store: Path) -> RunStore:
    with zipfile.ZipFile(Path(__file__).with_name("store_0_1_0.zip")) as archive:
        archive.extractall(own_store)
    return RunStore(own_store)


def test_every_run_is_whole_and_its_config_is_understood(old: RunStore) -> None:
    runs = old.list()
    assert {run.kind for run in runs} == set(CONFIGS)
    assert {run.status.state for run in runs} == {RunState.DONE}
    assert old.check() == []
    for summary in runs:
        run = old.open(summary.id)
        parse_config(CONFIGS[run.kind], run.config)
        assert run.result()


def test_its_networks_can_be_attacked_and_its_candidates_counted_again(old: RunStore) -> None:
    (match,) = (old.open(run.id) for run in old.list("match"))
    again = old.create("match", match.config, parents=list(match.config["runs"]))
    assert perform(again, StopFlag()) is RunState.DONE
    before, after = match.result() or {}, again.result() or {}
    counted = with_current_names(before["count"])
    assert {name: after["count"][name] for name in counted} == counted
    attacked = old.open(match.config["runs"][0])
    assert model_of(old.open(attacked.config["model"])).architecture.dense
    repeated = old.create("reconstruct", attacked.config, parents=[attacked.config["model"]])
    assert perform(repeated, StopFlag()) is RunState.DONE
    assert (repeated.result() or {})["candidates"] == (attacked.result() or {})["candidates"]


def test_a_study_is_read_under_the_names_of_today(own_store: Path) -> None:
    run = RunStore(own_store).create("study", {})
    cell: dict[str, Any] = {"id": "/a/0", "panel": "", "point": "a", "reference": False, "seed": 0, "state": "done",
                            "message": "", "runs": {"train": "train-1", "floor": "reconstruct-2"}, "shared": ["floor"],
                            "numbers": {"good": 3, "floor_mean_image": 1, "floor_untrained": 2}}  # fmt: skip
    (run.dir / "cells.json").write_text(json.dumps({"cells": [cell], "steps": {}}))
    (read,) = read_record(run).cells
    assert read.runs == {"train": "train-1", "untrained": "reconstruct-2"}
    assert read.shared == ("untrained",)
    assert read.numbers == {"good": 3, "control_mean_image": 1, "control_untrained": 2}


def test_the_settings_of_a_study_are_read_under_the_names_of_today() -> None:
    plan = {"name": "own", "title": "Own", "axis": "n", "points": [{"label": "10", "settings": {"data.n": 10}}]}
    assert not parse_config(StudyPlan, {**plan, "floor": False}).untrained_control
    assert not own_plan({"name": "own", "vary": {"data.n": [4, 8]}, "floor": False}).untrained_control
    claims = [{"text": "inversion fails", "check": "at the reference nothing comes back beyond its floors"}]
    assert parse_config(StudyPlan, {**plan, "claims": claims}).claims[0].check is Check.REFERENCE_FAILS
    with pytest.raises(InputError, match="shape"):
        parse_config(StudyPlan, {**plan, "shape": False})
