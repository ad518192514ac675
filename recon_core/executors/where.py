"""From a wish to places: a cluster where one is named, else this machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recon_core.config import parse_config
from recon_core.errors import InputError
from recon_core.executors.inline import InlineExecutor
from recon_core.executors.local import LocalExecutor, local_places
from recon_core.executors.protocol import NOWHERE, Executor, Places
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


def executor_for(run: Run, places: Places, *, inline: bool = False) -> Executor:
    """Places for the runs that belong to `run`, whose log gets what they say when they die.

    `inline` says that a single place on this machine may be this process itself.
    """
    log = run.dir / layout.LOG
    if places.cluster is not None:
        from recon_core.executors.cluster import RayExecutor

        return RayExecutor(places, log)
    here = local_places(places.workers)
    return InlineExecutor() if inline and len(here) == 1 else LocalExecutor(here, log)
