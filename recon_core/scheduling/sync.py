"""Synchronise a run folder from the node that writes it: changes are sent as they happen.

Nodes of a cluster therefore need no shared disk. A change replaces a file as a whole or adds to its
end; the status is looked at first and sent last, so that a run never says more than its files hold.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from recon_core.errors import AfterimageError
from recon_core.store import layout
from recon_core.store.check import content_files
from recon_core.store.files import explaining, write_all, write_atomic
from recon_core.store.private import open_private, private_folder

_GROWING = (layout.METRICS, layout.LOG)
# A checkpoint of a large network is tens of megabytes; losing this much work with a node is cheaper than sending more.
_CHECKPOINT_SECONDS = 15.0


class FileChange(NamedTuple):
    """A change of one file, named by its path inside the run folder."""

    path: str
    start: int | None
    """Where `data` begins in a file that grows; None where it is the whole file."""
    data: bytes | None
    """None where the file is gone."""


def whole(folder: Path, *, checkpoints: bool = True) -> list[FileChange]:
    """A run folder as changes; without `checkpoints`, what a run made from it reads."""
    names = [name for name in _in_order(folder) if checkpoints or not _is_checkpoint(name)]
    changes = []
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            changes.append(FileChange(name, None, (folder / name).read_bytes()))
    return changes


def apply(folder: Path, changes: Iterable[FileChange]) -> None:
    """Make `folder` what the other one was. A file that is not content of a run is not touched."""
    for path, start, data in changes:
        if not layout.is_content(path):
            continue
        target = folder / path
        if data is None:
            with explaining(target):
                target.unlink(missing_ok=True)
        elif start is None:
            with explaining(target.parent):
                private_folder(target.parent)
            write_atomic(target, [data])
        else:
            _grow(target, start, data)


def _grow(target: Path, start: int, data: bytes) -> None:
    """Make `data` the end of a file from `start` on; on a full disk what came before stays."""
    with explaining(target), os.fdopen(open_private(target, os.O_RDWR | os.O_CREAT), "r+b", buffering=0) as file:
        if os.fstat(file.fileno()).st_size < start:
            raise AfterimageError(f"{target} lacks what came before byte {start}; resume its run")
        file.truncate(start)
        file.seek(start)
        try:
            write_all(file.fileno(), data)
        except OSError:
            file.truncate(start)
            raise


class Pending:
    """Changes of many folders that are not acknowledged yet: of a file only the newest, or all it has grown by.

    They are held until acknowledged, so that they may be delivered twice; applying a change twice does no harm.
    """

    def __init__(self) -> None:
        self._held: dict[str, dict[str, tuple[int, FileChange]]] = {}
        self._version = 0

    def add(self, folder: str, changes: Iterable[FileChange]) -> None:
        held = self._held.setdefault(folder, {})
        self._version += 1
        for change in changes:
            before = held.pop(
                change.path, None
            )  # reinserted last, so that a status never precedes the files it speaks of
            joined = change if before is None else _joined(before[1], change)
            held[change.path] = (self._version, joined)

    def all(self) -> tuple[int, dict[str, list[FileChange]]]:
        """The version to acknowledge with `arrived`, and the changes by folder.

        Deletions come last: whatever replaces a deleted file must be there first.
        """
        changes = {
            folder: sorted((change for _, change in held.values()), key=lambda change: change.data is None)
            for folder, held in self._held.items()
        }
        return self._version, changes

    def arrived(self, version: int) -> None:
        for folder, held in list(self._held.items()):
            left = {path: entry for path, entry in held.items() if entry[0] > version}
            if left:
                self._held[folder] = left
            else:
                del self._held[folder]


def _joined(before: FileChange, change: FileChange) -> FileChange:
    if change.start is None or change.data is None or before.data is None:
        return change
    begin = before.start or 0
    if not begin <= change.start <= begin + len(before.data):
        return change
    return FileChange(change.path, before.start, before.data[: change.start - begin] + change.data)


class Watch:
    """Finds what changed in a folder since the last look."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, tuple[int, int, int]] = {}
        self._checkpoint_sent = time.monotonic()
        for name in _in_order(folder):
            self._known[name] = _mark(folder / name)

    def forget(self) -> None:
        """Send everything again: the receiver has lost what was sent."""
        self._known.clear()

    def changes(self, *, last: bool = False) -> list[FileChange]:
        """`last` sends checkpoints too that are not due yet. Raises FileNotFoundError where the folder is lost."""
        due = last or time.monotonic() - self._checkpoint_sent >= _CHECKPOINT_SECONDS
        status = self._change(layout.STATUS)
        if not (self._folder / layout.STATUS).exists():
            raise FileNotFoundError(f"{self._folder} was removed while a run was at work in it")
        changes = []
        present = _in_order(self._folder)
        for name in present:
            if name == layout.STATUS or (_is_checkpoint(name) and not due):
                continue
            if (change := self._change(name)) is not None:
                changes.append(change)
        if due:
            self._checkpoint_sent = time.monotonic()
        # A finished run has deleted all its checkpoints; the receiver does the same when it sees the final status.
        if due and any(map(_is_checkpoint, present)):
            for name in filter(
                _is_checkpoint, self._known.keys() - set(present)
            ):  # no other file is deleted while it runs
                del self._known[name]
                changes.append(FileChange(name, None, None))
        return [*changes, *([status] if status is not None else [])]

    def _change(self, name: str) -> FileChange | None:
        try:
            file = (self._folder / name).open("rb")
        except FileNotFoundError:
            return None
        with file:  # an open file stays the same even if it is replaced meanwhile
            mark = _mark(file.fileno())
            before = self._known.get(name)
            if mark == before:
                return None
            grown = name in _GROWING and before is not None and mark[0] == before[0] and mark[1] >= before[1]
            start = before[1] if grown and before is not None else None
            file.seek(start or 0)
            data = file.read(mark[1] - (start or 0))
        self._known[name] = mark
        return FileChange(name, start, data)


def _mark(path: Path | int) -> tuple[int, int, int]:
    """Inode, size and time: a replaced file has another inode, one that grew another size."""
    found = os.stat(path)
    return found.st_ino, found.st_size, found.st_mtime_ns


def _in_order(folder: Path) -> list[str]:
    """Files of a run, the status last."""
    return sorted(content_files(folder), key=lambda name: name == layout.STATUS)


def _is_checkpoint(name: str) -> bool:
    return name.startswith(f"{layout.CHECKPOINTS}/")
