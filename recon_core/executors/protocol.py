"""What a study and a search ask of whoever does their runs."""

from __future__ import annotations

import os
from typing import NamedTuple, Protocol

from pydantic import Field

from recon_core.config import Frozen
from recon_core.store import Run

CLUSTER_VARIABLE = "AFTERIMAGE_CLUSTER"
# Attacks have a process of their own, which has never loaded the code that reads data.
ATTACKS = ("reconstruct", "search", "trial")
PATIENCE = 4.0
"""Seconds that runs get to write their checkpoints when they are left: a cancelled run is to stop within 5."""


class Places(Frozen):
    """Where runs are done, and how many at once."""

    workers: int | None = Field(None, ge=1, le=1024, description="runs at once; one for each core or GPU if unset")
    cluster: str | None = Field(None, max_length=500, description="a Ray cluster: auto, or ray://host:port")
    cpus: float = Field(1.0, gt=0, le=1024, description="cores for each run on a cluster")
    gpus: float = Field(0.0, ge=0, le=64, description="GPUs for each run on a cluster; 0.25 lets four share one")


def usual_places() -> Places:
    """This machine, unless AFTERIMAGE_CLUSTER names a cluster."""
    return Places(cluster=os.environ.get(CLUSTER_VARIABLE) or None)


class Ended(NamedTuple):
    """A run that nobody works on any more; its own status says how far it came."""

    run_id: str
    trouble: str | None
    """A sentence where the run could not be worked on at all, or its process died."""


class Executor(Protocol):
    """Places for runs."""

    def free(self) -> int:
        """How many more runs could be submitted now."""
        ...

    def places(self) -> int:
        """How many runs it has room for at once, as far as it can tell now; at least 1."""
        ...

    def submit(self, run: Run) -> None:
        """Begin, or go on with, a run whose parents are done. Needs a free place."""
        ...

    def wait(self, seconds: float) -> list[Ended]:
        """Runs that ended since the last call; comes back at the first of them, or with none after `seconds`."""
        ...

    def close(self) -> None:
        """Stop everything that is still going on, leaving runs that can be taken up again."""
        ...
