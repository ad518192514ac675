"""The executor protocol: how studies and searches have their runs performed."""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple, Protocol, Self

from pydantic import Field, model_validator

from recon_core.config import Frozen, parse_config
from recon_core.store import Run

CLUSTER_VARIABLE = "AFTERIMAGE_CLUSTER"
# Attacks have a process of their own, which has never loaded the code that reads data.
ATTACKS = ("reconstruct", "search", "trial")
NOWHERE = "none"
"""What takes a run back from a cluster, where leaving the name out would leave it there."""
PATIENCE = 3.0
"""Seconds that runs get to write their checkpoints when they are left. Their own process is ended after 3.5."""
_ADDRESS = re.compile(r"auto|(ray://)?([^\s/:\[\]]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}")
_PLACE_OPTIONS = {"workers": "--workers", "cluster": "--cluster", "cpus": "--cpus-per-run", "gpus": "--gpus-per-run"}
_LEAST = 0.001
"""Of a core or a GPU; Ray does not count finer than a tenth of that."""


class Places(Frozen):
    """Where runs are done, and how many at once."""

    workers: int | None = Field(None, ge=1, le=1024, description="runs at once; one for each core or GPU if unset")
    cluster: str | None = Field(None, max_length=500, description="a Ray cluster: auto, or ray://host:port")
    cpus: float = Field(1.0, ge=_LEAST, le=1024, description="cores for each run on a cluster")
    gpus: float = Field(0.0, ge=0, le=64, description="GPUs for each run on a cluster; 0.25 lets four share one")

    @model_validator(mode="before")
    @classmethod
    def _here(cls, values: Any) -> Any:
        return {**values, "cluster": None} if isinstance(values, dict) and values.get("cluster") == NOWHERE else values

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if self.cluster is not None and not _ADDRESS.fullmatch(self.cluster):
            raise ValueError(
                f"cluster must be auto, host:6379, or ray://host:10001 from outside, got {self.cluster[:100]!r}"
            )
        return self

    @model_validator(mode="after")
    def _countable(self) -> Self:
        if 0 < self.gpus < _LEAST or (self.gpus > 1 and self.gpus != int(self.gpus)):
            raise ValueError(f"gpus must be 0, a part of one from {_LEAST} on, or a whole number, got {self.gpus:g}")
        return self


def usual_places() -> Places:
    """This machine, unless AFTERIMAGE_CLUSTER names a cluster."""
    return parse_config(Places, {"cluster": os.environ.get(CLUSTER_VARIABLE) or None})


def place_arguments(places: Places) -> list[str]:
    """Options that ask for these places, where they are not the usual ones."""
    usual = Places()
    arguments = []
    for name in Places.model_fields:
        value = getattr(places, name)
        if value != getattr(usual, name):
            arguments += [_PLACE_OPTIONS[name], f"{value:g}" if isinstance(value, float) else str(value)]
    return arguments


class Ended(NamedTuple):
    """A run that no process works on any more; its status says how far it came."""

    run_id: str
    trouble: str | None
    """A sentence where the run could not be worked on at all, or its process died."""


class Executor(Protocol):
    """Performs runs, several at once."""

    def free(self) -> int:
        """How many more runs could be submitted now."""
        ...

    def places(self) -> int:
        """How many runs it has room for at once, as far as it can tell now; at least 1."""
        ...

    def submit(self, run: Run) -> None:
        """Start or resume a run whose parents are done. There must be a free place."""
        ...

    def wait(self, seconds: float) -> list[Ended]:
        """Runs that ended since the last call; returns as soon as there is one, or none after `seconds`."""
        ...

    def reduce(self) -> bool:
        """Halve the number of runs at once from now on. Returns whether that is fewer than before."""
        ...

    def close(self) -> None:
        """Stop all runs that are still at work; they can be resumed."""
        ...
