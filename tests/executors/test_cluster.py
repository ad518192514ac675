"""Runs on a Ray cluster of two nodes: Ray's own processes, one of them killed without a word."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from recon_core.errors import InputError
from recon_core.executors import Places, cluster
from recon_core.executors.inline import InlineExecutor
from recon_core.jobs import StopFlag
from recon_core.jobs.search import SearchConfig, perform_search
from recon_core.jobs.study import StudyConfig, perform_study, queue_study
from recon_core.store import Run, RunState, RunStore
from recon_core.store.nested import trial_store
from recon_core.studies.record import read_record
from tests.small_models import imported_model
from tests.studies.tiny_studies import do_study, tiny_plan

pytestmark = [
    # Ray leaves sockets and log files to the end of the process.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
# Not 127.0.0.1, which Ray takes for "this machine as others see it": tests stay on the loopback.
LOOPBACK, SECOND = "127.0.0.2", "127.0.0.3"
ATTACK = {"recipe": "paper", "m": 4, "iterations": 400, "engine": "closed", "dtype": "float32", "measure_every": 50,
          "snapshots": 2, "device": "cpu"}  # fmt: skip


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """A head with one core; tests add nodes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        from ray.cluster_utils import Cluster

        started = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 1,
                "node_ip_address": LOOPBACK,
                "include_dashboard": False,
                "_system_config": {"health_check_period_ms": 1000},  # or a dead node is mourned for half a minute
            },
        )
        yield started
        started.shutdown()


@pytest.fixture
def second(nodes: Any) -> Iterator[Any]:
    node = nodes.add_node(num_cpus=1, node_ip_address=SECOND)
    yield node
    if node in nodes.worker_nodes:
        nodes.remove_node(node)


@pytest.fixture
def model(store: RunStore, tmp_path: Path) -> Run:
    return imported_model(store, tmp_path)


def asked(store: RunStore, model: Run, trials: int, **places: Any) -> Run:
    settings = {"trials": trials, "sampler": "random", "attack": ATTACK}
    config = SearchConfig.model_validate({"model": model.id, "settings": settings, **places})
    return store.create("search", config.model_dump(mode="json"), parents=[model.id])


def trials_of(run: Run) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != "seconds"} for row in run.read_json("trials")]


def search(run: Run, listener: Callable[..., None] = lambda *told: None, executor: Any = None) -> RunState:
    with run.writer() as writer:
        make = None if executor is None else lambda *asked: executor
        perform_search(run, writer, StopFlag(), listener, None, make)
    return run.status().state


def test_a_node_killed_in_a_search_of_twenty_loses_nothing(
    nodes: Any, second: Any, store: RunStore, model: Run
) -> None:
    here = asked(store, model, 20)
    search(here, executor=InlineExecutor())
    run = asked(store, model, 20, cluster=nodes.address)
    done_at_the_kill: dict[str, int] = {}

    def kill_in_the_middle(fraction: float | None, message: str) -> None:
        ended = int(message.split()[0])
        if ended >= 6 and not done_at_the_kill:
            for found in trial_store(run).list("trial"):
                if found.status.state is RunState.DONE:
                    done_at_the_kill[found.id] = (trial_store(run).root / found.id / "result.json").stat().st_mtime_ns
            nodes.remove_node(second, allow_graceful=False)
        for trial, written in done_at_the_kill.items():  # until the search tidies up, none is done again
            result = trial_store(run).root / trial / "result.json"
            assert not result.exists() or result.stat().st_mtime_ns == written

    assert search(run, kill_in_the_middle) is RunState.DONE
    assert 6 <= len(done_at_the_kill) < 20
    assert trials_of(run) == trials_of(here)
    for name, tensor in here.tensors("candidates").items():
        torch.testing.assert_close(run.tensors("candidates")[name], tensor)
    assert len(run.metrics()) == 20
    assert store.check() == []


def test_a_run_on_a_node_that_dies_goes_on_from_its_checkpoint_elsewhere(
    nodes: Any, second: Any, store: RunStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One long training, told by its log where it was and where it went on."""
    monkeypatch.setattr(cluster, "_MIRROR_SECONDS", 0.3)
    long = {
        "data": {"source": "circle", "n": 6},
        "model": {"widths": [30, 30]},
        "training": {"recipe": "paper", "epochs": 10**9},
    }
    runs = [store.create("train", long) for _ in range(2)]
    executor = cluster.RayExecutor(Places(cluster=nodes.address), tmp_path / "log.txt")
    try:
        for run in runs:
            executor.submit(run)
        assert executor.free() == 0
        deadline = time.monotonic() + 60
        while not all((run.dir / "checkpoints").is_dir() for run in runs):  # the copy here
            assert executor.wait(0.2) == []
            assert time.monotonic() < deadline
        assert [run.status().state for run in runs] == [RunState.RUNNING] * 2
        reached = min(run.status().step for run in runs)
        nodes.remove_node(second, allow_graceful=False)
        lost = None
        while lost is None:
            assert executor.wait(0.2) == []
            assert time.monotonic() < deadline + 60
            if (tmp_path / "log.txt").exists():
                lost = next(run for run in runs if run.id in (tmp_path / "log.txt").read_text())
        other = next(run for run in runs if run is not lost)
        assert other.request_cancel()  # so that there is room for the one that was lost
        while not any("taken up again" in line for line in lost.log_tail(50)) or lost.status().step <= reached:
            executor.wait(0.2)
            assert time.monotonic() < deadline + 120
        assert other.status().state is RunState.CANCELLED
    finally:
        began = time.monotonic()
        executor.close()
    assert time.monotonic() - began < 8
    assert lost.status().state is RunState.CANCELLED
    assert store.check() == []


def test_a_study_on_a_cluster_comes_to_what_it_comes_to_here(
    nodes: Any, second: Any, store: RunStore, tmp_path: Path
) -> None:
    one = {"references": [], "floor": False}
    away = queue_study(store, StudyConfig(plan=tiny_plan(**one), cluster=nodes.address))
    with away.writer() as writer:
        perform_study(away, writer, StopFlag(), lambda *told: None, None)
    assert away.status().state is RunState.DONE
    here = queue_study(RunStore(tmp_path / "here"), StudyConfig(plan=tiny_plan(**one)))
    do_study(here)
    for found, expected in zip(read_record(away).cells, read_record(here).cells, strict=True):
        known = {name: value for name, value in expected.numbers.items() if not name.endswith("_seconds")}
        assert known.items() <= found.numbers.items()
    assert store.check() == []


@pytest.mark.parametrize("address", [f"{LOOPBACK}:9", f"ray://{LOOPBACK}:9"])
def test_an_address_where_nobody_answers_is_a_sentence(address: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"no Ray cluster answers at '{address}'.*ray start --head"):
        cluster.RayExecutor(Places(cluster=address), tmp_path / "log.txt")
