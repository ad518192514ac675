"""Choose the executor: a cluster where one is named, else this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from recon_core.config import parse_config
from recon_core.errors import InputError
from recon_core.runs.signals import StopFlag
from recon_core.scheduling.inline import InlineExecutor
from recon_core.scheduling.local import LocalExecutor, local_places
from recon_core.scheduling.protocol import NOWHERE, Executor, Places
from recon_core.store import Run, layout

_MOVABLE = ("search", "study")


def move(run: Run, places: Mapping[str, Any]) -> None:
    """Have the rest of a search or a study done elsewhere; what is None stays, a cluster of "none" is this machine."""
    wanted = {name: value for name, value in places.items() if value is not None}
    if not wanted:
        return
    if run.kind not in _MOVABLE:
        raise InputError(f"run {run.id} is of kind {run.kind}; only searches and studies are spread over places")
    parse_config(Places, wanted)
    if wanted.get("cluster") == NOWHERE:
        wanted["cluster"] = None
    with run.writer() as writer:
        writer.reconfigure({**run.config, **wanted})


def executor_for(run: Run, places: Places, *, inline: Callable[[Path, StopFlag], str | None] | None = None) -> Executor:
    """Places for the runs that belong to `run`, whose log gets what they say when they die.

    `inline` performs a run in this very process, where there is a single place on this machine.
    """
    log = run.dir / layout.LOG
    if places.cluster is not None:
        from recon_core.scheduling.cluster import RayExecutor

        return RayExecutor(places, log)
    here = local_places(places.workers)
    if inline is not None and len(here) == 1:
        return InlineExecutor(inline)
    return LocalExecutor(here, log)
