"""The nodes of a Ray cluster, each checked by loading the engine on it."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass

from recon_core.scheduling.connection import connect

_PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Node:
    """One machine of a cluster. `trouble` says why it cannot do runs."""

    host: str
    cpus: float
    gpus: float
    python: str = "?"
    torch: str = "?"
    trouble: str | None = None


def look_at(address: str, load: Callable[[], None]) -> list[Node]:
    """All nodes that are alive; each has to `load` the engine, for which Ray sends the project there."""
    ray = connect(address)
    affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    try:
        alive = [node for node in ray.nodes() if node["Alive"]]
        asked = {
            node["NodeID"]: ray.remote(versions)
            .options(num_cpus=0, scheduling_strategy=affinity(node["NodeID"], soft=False), max_retries=0)
            .remote(load)
            for node in alive
        }
        ray.wait(list(asked.values()), num_returns=len(asked), timeout=_PATIENCE_SECONDS)
        found = []
        for node in alive:
            resources = node["Resources"]
            known = (node["NodeManagerAddress"], resources.get("CPU", 0.0), resources.get("GPU", 0.0))
            try:
                python, torch = ray.get(asked[node["NodeID"]], timeout=0.1)
                found.append(Node(*known, python, torch))
            except ray.exceptions.GetTimeoutError:
                found.append(Node(*known, trouble=f"gave no answer in {_PATIENCE_SECONDS:.0f} s"))
            except ray.exceptions.RayError as error:
                lines = str(error).strip().splitlines() or [type(error).__name__]
                found.append(Node(*known, trouble=lines[-1][:200]))
        return sorted(found, key=lambda node: node.host)
    finally:
        ray.shutdown()


def versions(load: Callable[[], None]) -> tuple[str, str]:
    """On a node: its versions of Python and torch. Raises where a package of ours is missing."""
    import torch

    load()
    return platform.python_version(), str(torch.__version__)
