"""A text for each run of a large store, made from its config and kept in one hidden file between processes.

Like the index it is never believed against the folders: each text carries the stamp of the config it was made from, and
one whose stamp is not that of the file as it is now is made anew. The file can be deleted at any time.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from recon_core.store import layout
from recon_core.store.index import Stamp, read_kept, stamp_of, write_kept

_WORTH_KEEPING = 100
"""Texts that had to be made: from so many on, the next process is spared that."""


class Remembered:
    """Texts of one store, in the hidden file `name`. Threads may share it: entries are replaced whole."""

    def __init__(self, root: Path, name: str) -> None:
        self._root, self._name = root, name
        self._kept: dict[str, tuple[Stamp, str]] = {}
        self._seen: dict[str, str] = {}
        self._opened = False
        self._new = 0

    def open(self) -> None:
        """Load what an earlier process has kept; called before many texts are needed."""
        if not self._opened:
            self._opened = True
            for entry in read_kept(self._root, self._name):
                run_id, stamp, text = entry
                if isinstance(run_id, str) and isinstance(text, str):
                    self._kept[run_id] = (stamp, text)

    def of(self, run_id: str, make: Callable[[], str]) -> str:
        """Checked once in a process, because the config of a run does not change."""
        if run_id not in self._seen:
            stamp: Stamp = (stamp_of(f"{self._root}/{run_id}/{layout.CONFIG}"),)
            kept = self._kept.get(run_id)
            if kept is not None and kept[0] == stamp and stamp[0] is not None:
                self._seen[run_id] = kept[1]
            else:
                self._seen[run_id] = make()
                self._kept[run_id] = (stamp, self._seen[run_id])
                self._new += 1
        return self._seen[run_id]

    def close(self) -> None:
        """Write new texts to the file for the next process, if there are enough of them."""
        if self._new >= _WORTH_KEEPING:
            self._new = 0
            there = {entry.name for entry in os.scandir(self._root)}
            entries = [(run_id, *kept) for run_id, kept in list(self._kept.items()) if run_id in there]
            write_kept(self._root, self._name, [entry for entry in entries if entry[1][0] is not None])
