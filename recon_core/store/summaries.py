"""Summaries of runs read again and again: what cannot have changed since the last look is not read anew."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from recon_core.store import layout
from recon_core.store.files import DamagedError
from recon_core.store.index import Stamp, read_index, stamp_of, write_index
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
_WORTH_KEEPING = 100
"""Runs that had to be read: from so many on, the next process is spared that."""


@dataclass(frozen=True)
class _Seen:
    stamp: Stamp
    summary: RunSummary
    """With the status as it stands in its file."""


class Summaries:
    """Remembered summaries by run folder. Threads may share one: entries are replaced as a whole."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen: dict[str, _Seen] = {}
        self._opened = False
        self._unkept = 0

    def open(self) -> None:
        """Load what an earlier process has kept; called before many summaries are needed."""
        if not self._opened:
            self._opened = True
            for name, (stamp, summary) in read_index(self._root).items():
                self._seen.setdefault(f"{self._root}/{name}", _Seen(stamp, summary))

    def close(self) -> None:
        """Write new summaries to the index for the next process, if there are enough of them."""
        if self._unkept >= _WORTH_KEEPING:
            self._unkept = 0
            write_index(
                self._root,
                {os.path.basename(path): (seen.stamp, seen.summary) for path, seen in list(self._seen.items())},
            )

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
            self._unkept += 1
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
    return tuple(stamp_of(f"{path}/{name}") for name in _FILES)
