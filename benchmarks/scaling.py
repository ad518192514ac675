"""Runs per minute of a search at 1, 2 and 4 workers, on this machine and on a Ray cluster of it; and one run's cost.

Every worker has one thread, so that workers are what is varied. The clock starts when each worker has ended a run:
loading torch is paid once, and a real search is a hundred runs.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from benchmarks.timing import interleaved
from recon_core.attacks import AutogradStationarity, DenseStationarity, Target, step_flops
from recon_core.config import Task
from recon_core.kinds import perform
from recon_core.models import Architecture, build_network
from recon_core.runs import StopFlag
from recon_core.scheduling import Ended, Executor, Places
from recon_core.scheduling.local import LocalExecutor, local_places
from recon_core.scheduling.slots import core_count
from recon_core.store import Run, RunState, RunStore
from recon_core.studies.search import SearchConfig, perform_search

WORKERS = (1, 2, 4)
RUNS_EACH = 4
"""Timed runs of each worker."""
ITERATIONS = 80
LOOPBACK = "127.0.0.2"  # 127.0.0.1 is what Ray takes for "this machine as others see it"
TRAINING = {
    "data": {"source": "cifar10", "n": 50, "test_n": 50},
    "model": {"widths": [1000, 1000]},
    "training": {"recipe": "flow", "target_loss": 1e-3},
}
ATTACK = {"recipe": "paper", "m": 100, "iterations": ITERATIONS, "engine": "closed", "dtype": "float32",
          "snapshots": 2, "device": "cpu"}  # fmt: skip
# Haim et al. 2022, App. B.1: 1000 candidates and 100,000 iterations take 30 minutes on a V100. A hundred runs: Buzaglo.
PAPER_M, PAPER_ITERATIONS, PAPER_GPU_HOURS, PAPER_RUNS = 1000, 100_000, 0.5, 100
GPUS = (1, 2, 4, 8, 16, 32, 64)


def measure() -> dict[str, Any]:
    """Rates, their ratios to one worker, and what runs of the paper's size take here and would on GPUs."""
    with tempfile.TemporaryDirectory(prefix="afterimage-") as folder:
        store = RunStore(Path(folder) / "runs")
        model = store.create("train", TRAINING)
        if perform(model, StopFlag()) is not RunState.DONE:
            raise RuntimeError(f"the model was not trained: {model.status().message}")
        log = Path(folder) / "log.txt"
        rates = {
            count: _rate(store, model, count, lambda count=count: LocalExecutor(local_places(count), log))
            for count in WORKERS
        }
        found: dict[str, Any] = {f"runs_per_minute_{count}": rate for count, rate in rates.items()}
        found |= {f"times_one_worker_{count}": rates[count] / rates[1] for count in WORKERS[1:]}
        with _cluster() as address:
            if address is not None:
                from recon_core.scheduling.cluster import RayExecutor

                places = Places(cluster=address, workers=2)
                found["runs_per_minute_ray_2"] = _rate(store, model, 2, lambda: RayExecutor(places, log))
                found["ray_over_local_2"] = found["runs_per_minute_ray_2"] / rates[2]
    return {**found, **_paper_run(), "cores": core_count()}


class _Clock:
    """An executor that notes when runs ended."""

    def __init__(self, inner: Executor) -> None:
        self._inner = inner
        self.ends: list[float] = []
        self.free, self.places, self.submit, self.close = inner.free, inner.places, inner.submit, inner.close

    def wait(self, seconds: float) -> list[Ended]:
        ended = self._inner.wait(seconds)
        self.ends += [time.perf_counter()] * len(ended)
        return ended


def _rate(store: RunStore, model: Run, workers: int, make: Callable[[], Executor]) -> float:
    settings = {"trials": (RUNS_EACH + 1) * workers, "sampler": "random", "attack": ATTACK}
    config = SearchConfig.model_validate({"model": model.id, "settings": settings})
    run = store.create("search", config.model_dump(mode="json"), parents=[model.id])
    clocks: list[_Clock] = []

    def clocked(*asked: object) -> Executor:
        clocks.append(_Clock(make()))
        return clocks[0]

    with run.writer() as writer:
        perform_search(run, writer, StopFlag(), lambda *told: None, None, clocked)
    if run.status().state is not RunState.DONE:
        raise RuntimeError(f"the search with {workers} workers ended badly: {run.status().message}")
    ends = clocks[0].ends
    return 60.0 * (len(ends) - workers) / (ends[-1] - ends[workers - 1])


@contextmanager
def _cluster() -> Iterator[str | None]:
    """Two nodes of one core each; None where Ray is not installed."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    try:
        from ray.cluster_utils import Cluster
    except ImportError:
        yield None
        return
    head = {"num_cpus": 1, "node_ip_address": LOOPBACK, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        cluster.add_node(num_cpus=1, node_ip_address="127.0.0.3")
        yield str(cluster.address)
    finally:
        cluster.shutdown()


def _paper_run() -> dict[str, float]:
    """One step of a search's trial at the paper's size beside the authors' own, with all cores; and a search on GPUs.

    A GPU is the paper's: the authors' step there took 30 minutes / 100,000, ours is taken to be as much cheaper as
    it is here. Runs are whole, so the last of a hundred on 64 GPUs waits for a second round.
    """
    generator = torch.Generator().manual_seed(0)
    shape, cpu = (3, 32, 32), torch.device("cpu")
    target = Target(build_network(Architecture(shape, (1000, 1000), 1), init_scale="kaiming", seed=0), Task.BINARY)
    x = torch.randn(PAPER_M, 3072, generator=generator)
    c = torch.rand(PAPER_M, generator=generator) / PAPER_M
    labels = torch.zeros(PAPER_M, dtype=torch.long)
    ours = DenseStationarity(target, dtype=torch.float32, device=cpu)
    authors = AutogradStationarity(target, dtype=torch.float64, device=cpu)
    wide, coefficients = x.double(), c.double()
    with torch.no_grad():
        step = interleaved(
            {
                "ours": lambda: ours.evaluate(x, c, labels, 50.0),
                "authors": lambda: authors.evaluate(wide, coefficients, labels, 50.0),
            },
            5,
        )
    ratio = step["ours"] / step["authors"]
    return {
        "paper_size_step_seconds": step["ours"],
        "paper_size_step_gflop": step_flops((3072, 1000, 1000, 1), PAPER_M) / 1e9,
        "paper_size_step_over_authors": ratio,
        "paper_size_run_hours_here": step["ours"] * PAPER_ITERATIONS / 3600,
        **{
            f"paper_size_search_hours_on_{count}_gpus": math.ceil(PAPER_RUNS / count) * PAPER_GPU_HOURS * ratio
            for count in GPUS
        },
    }
