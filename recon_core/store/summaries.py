"""Summaries of runs read again and again: what cannot have changed since the last look is not read anew."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from recon_core.store import layout
from recon_core.store.files import DamagedError
from recon_core.store.record import (
    RunState,
    RunSummary,
    read_name,
    read_record,
    read_status,
    resolved_status,
    summarise,
    understood,
)

_FILES = (layout.RUN, layout.STATUS, layout.NAME, layout.IMPORTED)

Stamp = tuple[tuple[int, int, int] | None, ...]
"""Inode, time of change and size of each file that a summary is read from; every write of ours makes a new inode."""


@dataclass(frozen=True)
class _Seen:
    stamp: Stamp
    summary: RunSummary
    """With the status as it stands in its file."""


class Summaries:
    """What was seen of each run folder. Threads may share one: entries are replaced whole."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def of(self, folder: Path) -> RunSummary:
        """One line for the list, as `summarise` gives it."""
        path = str(folder)
        stamp = _stamp(path)
        seen = self._seen.get(path)
        if seen is None or seen.stamp != stamp:
            # Stamped before it is read: what changes in between is read again at the next look.
            seen = _read(folder, stamp)
            if seen is None:
                return summarise(folder)
            self._seen[path] = seen
        summary = seen.summary
        if summary.status.state is RunState.RUNNING:  # whether somebody is at work stands in no file
            return replace(summary, status=resolved_status(folder))
        return summary

    def keep_only(self, folders: Collection[Path]) -> None:
        """Forget all others: runs that are gone."""
        for path in self._seen.keys() - set(map(str, folders)):
            self._seen.pop(path, None)


def _read(folder: Path, stamp: Stamp) -> _Seen | None:
    """None for a damaged run, which is looked at closely every time."""
    try:
        record, status, name = read_record(folder), understood(read_status(folder), folder), read_name(folder)
    except DamagedError:
        return None
    marked = stamp[_FILES.index(layout.IMPORTED)] is not None
    return _Seen(
        stamp,
        RunSummary(record.id, name or record.id, record.kind, record.created, status, record.parents, marked),
    )


def _stamp(path: str) -> Stamp:
    return tuple(_stamp_of(f"{path}/{name}") for name in _FILES)


def _stamp_of(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
