"""Reads of the run store for pages: cached where pages ask again and again, with failures as sentences."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from recon_core.errors import InputError
from recon_core.runs import baseline_runs
from recon_core.runs.titles import own_name, title_of, titles
from recon_core.store import Run, RunStore, RunSummary, Status, default_root
from recon_core.store.foreign import lacks_path
from ui.shared.cached import store_read

LOG_LINES = 20


@dataclass(frozen=True)
class RunDetails:
    """What a page shows of one run. What its folder should hold but does not is a sentence in `faults`."""

    id: str
    name: str
    """The user's, or one made from what the run was asked for; never the id."""
    own_name: str
    """What the user called it; empty where nobody did."""
    kind: str
    created: str
    parents: tuple[str, ...]
    command: tuple[str, ...]
    versions: dict[str, str]
    status: Status
    config: dict[str, Any]
    result: dict[str, Any]
    last_metrics: dict[str, Any]
    log: tuple[str, ...]
    lacks_path: bool
    """What it reads was left out at import, and nothing was attached since."""
    faults: tuple[str, ...]


def recent_runs() -> list[RunSummary]:
    """All runs in the store by names for people, the newest first, at most a second old."""
    return list(_list())


# A second is what a viewer does not notice, and makes twenty open tabs cost as much as one. Summaries cannot be
# changed, so all pages may have the same ones: a copy of two thousand for each question would cost more than the list.
@store_read(keep=4, seconds=1, shared=True)
def _list(store: RunStore) -> tuple[RunSummary, ...]:
    found = store.list()
    names = titles(store, found)
    return tuple(replace(run, name=names[run.id]) for run in found)


def baseline_of(run_id: str) -> str | None:
    """Which baseline a reconstruct run is; None for an attack, and where that cannot be read."""
    return baseline_runs.baseline_of(default_root(), run_id)


def forget() -> None:
    """Read anew what a page has just changed."""
    _list.clear()
    run_details.clear()


@store_read(keep=64, seconds=1)
def run_details(store: RunStore, run_id: str) -> RunDetails:
    """One run, whatever state its folder is in, at most a second old. `run_id` may come from an address."""
    try:
        run = store.open(run_id)
        summary = store.summary(run_id)
        listed = next((other.name for other in _list() if other.id == run_id), None)
        # The list may be a second older than the run, or than its name.
        own = own_name(summary)
        name = listed if listed is not None and (own is None or listed.startswith(own)) else title_of(store, summary)
        return _read(run, name, own or "")
    except OSError as error:
        raise InputError(
            f"run {run_id} in {store.root} cannot be read ({error.strerror}); check who may read it"
        ) from None


def _read(run: Run, name: str, own: str) -> RunDetails:
    faults: list[str] = []

    def whole(read: Callable[[], dict[str, Any] | None]) -> dict[str, Any]:
        try:
            return read() or {}
        except InputError as fault:
            faults.append(str(fault))
            return {}

    fault = run.imported.fault if run.imported is not None else ""
    if fault:  # nothing of it is drawn
        faults.append(f"run {run.id} was imported and makes no sense: {fault}")
    rows = run.metrics(tail=1) if not fault else []
    config = {} if fault else whole(lambda: run.config)
    return RunDetails(
        id=run.id,
        name=name,
        own_name=own,
        kind=run.kind,
        created=run.created,
        parents=run.parents,
        command=run.command,
        versions=run.versions,
        status=run.status(),
        config=config,
        result={} if fault else whole(run.result),
        last_metrics=rows[-1] if rows else {},
        log=tuple(run.log_tail(LOG_LINES)),
        lacks_path=lacks_path(config),
        faults=tuple(faults),
    )


def exported_zip(run_id: str) -> bytes:
    """The run, and all it was made from, as a zip that another store can take in."""
    with tempfile.TemporaryDirectory(prefix="afterimage-") as folder:
        return RunStore(default_root()).export(run_id, Path(folder)).read_bytes()
