"""A store written by version 0.1.0 still opens: every run is read, attacked and matched again as one of today's."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from pydantic import BaseModel

from recon_core.config import TrainConfig, parse_config
from recon_core.kinds import perform
from recon_core.runs import StopFlag
from recon_core.runs.match_source import MatchConfig
from recon_core.runs.models import model_of
from recon_core.runs.reconstruction import ReconstructConfig
from recon_core.store import RunState, RunStore
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
    assert {name: after["count"][name] for name in before["count"]} == before["count"]
    attacked = old.open(match.config["runs"][0])
    assert model_of(old.open(attacked.config["model"])).architecture.dense
    repeated = old.create("reconstruct", attacked.config, parents=[attacked.config["model"]])
    assert perform(repeated, StopFlag()) is RunState.DONE
    assert (repeated.result() or {})["candidates"] == (attacked.result() or {})["candidates"]
