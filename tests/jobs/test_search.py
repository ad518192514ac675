"""Searches: the same trials whether stopped, killed or neither; the residual as judge; everything pooled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from recon_core.attack import SEARCH_RANGES, AttackSettings
from recon_core.attack.search import Sampler, SearchSettings
from recon_core.config import parse_config
from recon_core.errors import InputError
from recon_core.jobs import StopFlag, perform
from recon_core.models import Architecture, build_network
from recon_core.store import Run, RunState, RunStore

PROJECT = Path(__file__).parents[2]
ATTACK = {"recipe": "paper", "m": 4, "iterations": 32, "engine": "closed", "dtype": "float32", "measure_every": 2,
          "snapshots": 2, "device": "cpu"}  # fmt: skip


@pytest.fixture
def model(store: RunStore, tmp_path: Path) -> Run:
    network = build_network(Architecture((1, 8, 8), (10, 6), 1), init_scale="kaiming", seed=1)
    torch.save(network.state_dict(), tmp_path / "theirs.pth")
    run = store.create("model", {"path": str(tmp_path / "theirs.pth"), "input_shape": None})
    perform(run, StopFlag())
    return run


def asked(store: RunStore, model: Run, *, attack: dict[str, Any] | None = None, **settings: Any) -> Run:
    chosen = parse_config(SearchSettings, {"trials": 5, **settings, "attack": {**ATTACK, **(attack or {})}})
    config = {"model": model.id, "settings": chosen.model_dump(mode="json"), "known_init": False}
    return store.create("search", config, parents=[model.id])


def trials(run: Run) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != "seconds"} for row in run.read_json("trials")]


@pytest.mark.parametrize("sampler", list(Sampler))
def test_search_pools_all_trials(store: RunStore, model: Run, sampler: Sampler) -> None:
    run = asked(store, model, sampler=sampler, trials=13)
    assert perform(run, StopFlag()) is RunState.DONE
    table, result = trials(run), run.result() or {}
    assert [row["number"] for row in table] == list(range(13))
    for row in table:
        for name, span in SEARCH_RANGES["haim2022"].items():
            assert span.low <= row["params"][name] <= span.high
    complete = [row for row in table if row["state"] == "complete"]
    assert result["best"]["value"] == min(row["value"] for row in complete)
    pooled = run.tensors("candidates")
    assert pooled["candidates"].shape == (4 * len(complete), 1, 8, 8)
    order = sorted(complete, key=lambda row: row["value"])
    assert pooled["trials"].tolist() == [row["number"] for row in order for _ in range(4)]
    assert pooled["seeds"].equal(pooled["trials"])  # every trial starts from its own number
    assert (result["pruned"] > 0) == (sampler is Sampler.HALVING)
    assert len(run.metrics()) == 13
    assert not (run.dir / "checkpoints").exists()
    assert store.check() == []


def test_trial_is_the_attack_its_numbers_say(store: RunStore, model: Run) -> None:
    run = asked(store, model, trials=2, sampler="random", ranges="buzaglo2023")
    perform(run, StopFlag())
    row = trials(run)[1]
    assert row["params"]["x_init_scale"] <= 0.1
    settings = parse_config(AttackSettings, {**ATTACK, **row["params"], "seed": 1})
    config = {"model": model.id, "settings": settings.model_dump(mode="json")}
    alone = store.create("reconstruct", config, parents=[model.id])
    perform(alone, StopFlag())
    pooled = run.tensors("candidates")
    assert pooled["candidates"][pooled["trials"] == 1].equal(alone.tensors("candidates")["candidates"])
    assert row["value"] == (alone.result() or {})["residual"]


def test_tpe_learns_from_the_trials_before(store: RunStore, model: Run) -> None:
    drawn = {}
    for sampler in ("random", "tpe"):
        run = asked(store, model, sampler=sampler, trials=12, seed=7)
        perform(run, StopFlag())
        drawn[sampler] = [row["params"] for row in trials(run)]
    assert drawn["random"][:10] == drawn["tpe"][:10]  # it starts at random
    assert drawn["random"][11] != drawn["tpe"][11]


@pytest.mark.parametrize("sampler", list(Sampler))
def test_stopped_search_goes_on_where_it_was(store: RunStore, model: Run, sampler: Sampler) -> None:
    whole = asked(store, model, sampler=sampler, trials=7)
    perform(whole, StopFlag())
    run = asked(store, model, sampler=sampler, trials=7)
    made: list[str] = []
    for calls in (20, 30):
        flag, heard = StopFlag(), []

        def listen(fraction: float | None, message: str, flag=flag, heard=heard, calls=calls) -> None:
            heard.append(message)
            flag.raised = len(heard) >= calls

        assert perform(run, flag, listen) is RunState.CANCELLED
        assert heard[0].startswith("trial ")
        assert trials(run)[-1]["state"] == "running"
        made += heard
    assert perform(run, StopFlag(), lambda fraction, message: made.append(message)) is RunState.DONE
    assert trials(run) == trials(whole)
    for name, tensor in run.tensors("candidates").items():
        assert tensor.equal(whole.tensors("candidates")[name]), name
    starts = [message.split(",")[0] for message in made]
    assert sorted(set(starts), key=starts.index) == [f"trial {number} of 7" for number in range(1, 8)]
    assert sorted(starts) == starts  # no trial came back after its end


def test_diverged_trials_are_told_but_not_pooled(store: RunStore, model: Run) -> None:
    run = asked(store, model, trials=3, attack={"lr_lam": 1e12, "weight_floor": 1e6})
    assert perform(run, StopFlag()) is RunState.FAILED
    assert {row["state"] for row in trials(run)} == {"diverged"}
    assert {row["value"] for row in trials(run)} == {None}
    assert "none of 3 trials" in run.status().message


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"trials": 0}, "trials must be greater than or equal to 1, got 0"),
        ({"sampler": "grid"}, "sampler must be 'random', 'tpe' or 'halving', got 'grid'"),
        ({"ranges": "mine"}, "ranges must be 'haim2022' or 'buzaglo2023', got 'mine'"),
        ({"attack": {"m": 0}}, "attack.m must be greater"),
        ({"trails": 3}, "unknown key 'trails'"),
    ],
)
def test_what_does_not_fit_is_said(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        parse_config(SearchSettings, values)


def test_killed_search_does_not_repeat_what_ended(store: RunStore, model: Run) -> None:
    """A process killed in the middle of a trial, its journal torn; the next one goes on."""
    long = {"iterations": 600, "measure_every": 50}
    whole = asked(store, model, trials=4, attack=long)
    run = asked(store, model, trials=4, attack=long)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "recon_core.worker", str(run.dir)]
    with subprocess.Popen(command, cwd=PROJECT, env=environment) as process:
        deadline = time.monotonic() + 60
        while len(run.metrics()) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    assert run.status().state is RunState.INTERRUPTED
    ended = len(run.metrics())
    assert 2 <= ended < 4
    with open(run.dir / "checkpoints" / "trials.journal", "ab") as journal:
        journal.write(b'{"op_code": 4, "tri')
    heard: list[str] = []
    assert perform(run, StopFlag(), lambda fraction, message: heard.append(message)) is RunState.DONE
    assert heard[0].startswith(f"trial {ended + 1} of 4")
    perform(whole, StopFlag())
    assert [row["params"] for row in trials(run)] == [row["params"] for row in trials(whole)]
    assert run.tensors("candidates")["candidates"].equal(whole.tensors("candidates")["candidates"])
