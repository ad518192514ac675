"""A run folder kept the same in two places, one of which is being worked in: what changed is sent, in pieces.

Nodes of a cluster so need no disk in common with whoever asked. A piece replaces a file as a whole or adds to its
end; the status is looked at first and sent last, so that a run never says more than its files hold.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from recon_core.store import layout
from recon_core.store.check import content_files
from recon_core.store.files import explaining, write_atomic

_GROWING = (layout.METRICS, layout.LOG)
# A checkpoint of a large network is tens of megabytes; losing this much work with a node is cheaper than sending more.
_CHECKPOINT_SECONDS = 15.0


class Piece(NamedTuple):
    """A change of one file, named by its path inside the run folder."""

    path: str
    start: int | None
    """Where `data` begins in a file that grows; None where it is the whole file."""
    data: bytes | None
    """None where the file is gone."""


def whole(folder: Path, *, checkpoints: bool = True) -> list[Piece]:
    """A run folder as pieces; without `checkpoints`, what a run made from it reads."""
    names = [name for name in _in_order(folder) if checkpoints or not _is_checkpoint(name)]
    pieces = []
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            pieces.append(Piece(name, None, (folder / name).read_bytes()))
    return pieces


def apply(folder: Path, pieces: Iterable[Piece]) -> None:
    """Make `folder` what the other one was. A file that is not content of a run is not touched."""
    for path, start, data in pieces:
        if not layout.is_content(path):
            continue
        target = folder / path
        if data is None:
            with explaining(target):
                target.unlink(missing_ok=True)
        elif start is None:
            with explaining(target.parent):
                target.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(target, [data])
        else:
            with explaining(target), target.open("r+b" if target.exists() else "wb") as file:
                file.truncate(start)
                file.seek(start)
                file.write(data)


class Watch:
    """Looks at a folder again and again, and says what changed since the last time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, tuple[int, int, int]] = {}
        self._checkpoint_sent = time.monotonic()
        for name in _in_order(folder):
            self._known[name] = _mark(folder / name)

    def forget(self) -> None:
        """Whoever got the pieces has lost them: all of it is news again."""
        self._known.clear()

    def changes(self, *, last: bool = False) -> list[Piece]:
        """`last` sends checkpoints too that are not due yet."""
        due = last or time.monotonic() - self._checkpoint_sent >= _CHECKPOINT_SECONDS
        status = self._piece(layout.STATUS)
        pieces = []
        present = _in_order(self._folder)
        for name in present:
            if name == layout.STATUS or (_is_checkpoint(name) and not due):
                continue
            if (piece := self._piece(name)) is not None:
                pieces.append(piece)
        if due:
            self._checkpoint_sent = time.monotonic()
            for name in self._known.keys() - set(present):
                del self._known[name]
                pieces.append(Piece(name, None, None))
        return [*pieces, *([status] if status is not None else [])]

    def _piece(self, name: str) -> Piece | None:
        path = self._folder / name
        try:
            mark = _mark(path)
            before = self._known.get(name)
            if mark == before:
                return None
            grown = name in _GROWING and before is not None and mark[0] == before[0] and mark[1] >= before[1]
            start = before[1] if grown and before is not None else None
            with path.open("rb") as file:
                file.seek(start or 0)
                data = file.read(mark[1] - (start or 0))
        except FileNotFoundError:
            return None
        self._known[name] = mark
        return Piece(name, start, data)


def _mark(path: Path) -> tuple[int, int, int]:
    """Inode, size and time: a replaced file has another inode, one that grew another size."""
    found = os.stat(path)
    return found.st_ino, found.st_size, found.st_mtime_ns


def _in_order(folder: Path) -> list[str]:
    """Files of a run, the status last."""
    return sorted(content_files(folder), key=lambda name: name == layout.STATUS)


def _is_checkpoint(name: str) -> bool:
    return name.startswith(f"{layout.CHECKPOINTS}/")
