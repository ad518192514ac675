"""Places for runs on a Ray cluster: one task for each run, on whatever node has room.

Ray moves nothing but the name of a run's folder: every node must see the store under the same path, as on a
shared disk. A run whose node dies is given to another node by Ray and goes on from its last checkpoint. Ray is
an extra (requirements-cluster.txt) and is imported only when a cluster is asked for.
"""

from __future__ import annotations

import contextlib
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import recon_core
from recon_core.errors import InputError
from recon_core.jobs import StopFlag
from recon_core.store import Run
from recon_core.studies.executor import Ended
from recon_core.studies.worker import do_run

_RETRIES = 3
_PATIENCE = 10.0
_PROJECT = Path(recon_core.__file__).parent.parent
# What a node needs of this project is its code and its embedded images.
_NOT_SENT = [".git", ".venv", ".*_cache", "runs", "tests", "benchmarks", "*.gif", "**/__pycache__"]


@dataclass(frozen=True)
class RunNeeds:
    """What one run takes of a node. A part of a GPU lets several runs share it."""

    cpus: float = 1.0
    gpus: float = 0.0

    def __post_init__(self) -> None:
        if self.cpus <= 0 or self.gpus < 0:
            raise InputError(f"a run needs more than 0 CPUs and at least 0 GPUs, got {self.cpus:g} and {self.gpus:g}")


class RayExecutor:
    """See `Executor`. `address` is `auto`, `local` or `ray://host:port`."""

    def __init__(self, address: str, needs: RunNeeds | None = None) -> None:
        self._ray = _connected(address)
        self._needs = needs or RunNeeds()
        self._tasks: dict[Any, str] = {}
        task = self._ray.remote(_on_node)
        self._task = task.options(num_cpus=self._needs.cpus, num_gpus=self._needs.gpus, max_retries=_RETRIES)
        if self._places() < 1:
            self.close()
            raise InputError(
                f"no node of the cluster {address} has {self._needs.cpus:g} CPUs and {self._needs.gpus:g} GPUs for a "
                "run; ask for less or add a node"
            )

    def free(self) -> int:
        """Nodes may come and go, so this is asked anew; what is submitted beyond it would wait in Ray."""
        return max(0, self._places() - len(self._tasks))

    def submit(self, run: Run) -> None:
        self._tasks[self._task.remote(str(run.dir.absolute()))] = run.id

    def wait(self, seconds: float) -> list[Ended]:
        if not self._tasks:
            return []
        ready, _ = self._ray.wait(list(self._tasks), num_returns=1, timeout=seconds)
        more, _ = self._ray.wait(list(self._tasks), num_returns=len(self._tasks), timeout=0)
        return [self._collect(task) for task in {*ready, *more}]

    def close(self) -> None:
        """Runs were asked to stop by their own flags; what does not stop in time is ended by force."""
        if self._tasks:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.wait(list(self._tasks), num_returns=len(self._tasks), timeout=_PATIENCE)
            for task in self._tasks:
                with contextlib.suppress(self._ray.exceptions.RayError):
                    self._ray.cancel(task, force=True)
            self._tasks.clear()
        self._ray.shutdown()

    def _places(self) -> int:
        """Runs that fit on the nodes that live, node by node: a run cannot be spread over two."""
        total = 0
        for node in self._ray.nodes():
            if not node["Alive"]:
                continue
            has = node["Resources"]
            fits = has.get("CPU", 0.0) / self._needs.cpus
            if self._needs.gpus:
                fits = min(fits, has.get("GPU", 0.0) / self._needs.gpus)
            total += math.floor(fits + 1e-9)
        return total

    def _collect(self, task: Any) -> Ended:
        run_id = self._tasks.pop(task)
        try:
            return Ended(run_id, self._ray.get(task))
        except self._ray.exceptions.RayError as error:
            first = str(error).strip().partition("\n")[0][:200]
            return Ended(run_id, f"its node was lost {_RETRIES + 1} times ({first})")


def _connected(address: str) -> Any:
    try:
        import ray
    except ImportError:
        raise InputError(
            "a cluster needs Ray, which is not installed; install it with: pip install -r requirements-cluster.txt"
        ) from None
    where = None if address == "local" else address
    environment = {"working_dir": str(_PROJECT), "excludes": _NOT_SENT}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray.init(
            where, runtime_env=environment, log_to_driver=False, include_dashboard=False if where is None else None
        )
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        first = str(error).strip().partition("\n")[0][:200]
        raise InputError(
            f"no Ray cluster answers at {address!r} ({first}); start one with `ray start --head`, or name no cluster"
        ) from None
    return ray


def _on_node(folder: str) -> str | None:
    """Runs on some node. What kept the run from being worked on, if anything did."""
    path = Path(folder)
    if not path.is_dir():
        return f"{folder} is not there on {os.uname().nodename}; put the store on a disk that every node sees"
    return do_run(path, StopFlag())
