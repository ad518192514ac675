"""The list of a large store, kept in one hidden file between processes. The folders are the truth.

Each line stands for a run folder and carries the stamp of the files it was read from. A line whose stamp is not that
of the files as they are now counts for nothing, and an index that does not read is as good as none: runs are then read
from their folders and the index is written anew. It can be deleted at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

from recon_core.errors import AfterimageError
from recon_core.store import lock
from recon_core.store.files import write_atomic
from recon_core.store.record import RunState, RunSummary, Status

FILE = ".index.json"
_LOCK = ".index.lock"
_FORMAT = 1
_LARGEST = 256 * 2**20
_SETTLED_SECONDS = 2.0
"""A file changed later than this before it was read could change again within the same tick of the clock."""

Stamp = tuple[tuple[int, int, int] | None, ...]
"""Inode, time of the last change and size of each file that a summary is read from."""
Line = tuple[Stamp, RunSummary]


def read_index(root: Path) -> dict[str, Line]:
    """Folder name -> line; empty where there is no index, or none that reads as it should."""
    try:
        return {name: (stamp, _summary(*rest)) for name, stamp, *rest in read_kept(root, FILE)}
    except (ValueError, TypeError):
        return {}


def read_kept(root: Path, name: str) -> list[tuple[Any, ...]]:
    """Entries of a hidden file that `write_kept` left: of what, the stamp, and more; none where it does not read."""
    try:
        with open(os.open(root / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            if os.fstat(file.fileno()).st_size > _LARGEST:
                return []
            head, body = file.readline(200), file.read()
        if head != _head(body):
            return []
        return [(about, _stamp(stamp), *rest) for about, stamp, *rest in json.loads(body)]
    except (OSError, ValueError, TypeError, RecursionError):
        return []


def write_index(root: Path, lines: Mapping[str, Line]) -> None:
    """Replace the index, unless another process is at it, or the store cannot be written: then it is done without."""
    write_kept(root, FILE, [(name, stamp, *_values(summary)) for name, (stamp, summary) in lines.items()])


def write_kept(root: Path, name: str, entries: Sequence[tuple[Any, ...]]) -> None:
    """Replace a hidden file by those entries whose stamp, the second part of each, has settled."""
    latest = time.time_ns() - int(_SETTLED_SECONDS * 1e9)
    settled = [entry for entry in entries if all(part is None or part[1] < latest for part in entry[1])]
    body = json.dumps(settled, separators=(",", ":")).encode()
    with contextlib.suppress(AfterimageError, OSError):
        handle = lock.acquire(root / _LOCK, patience=0)
        if handle is not None:
            try:
                write_atomic(root / name, [_head(body), body])
            finally:
                os.close(handle)


def stamp_of(path: str) -> tuple[int, int, int] | None:
    """Of one file; None where there is none."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    # Not the time of modification, which anybody may set.
    return found.st_ino, found.st_ctime_ns, found.st_size


def _head(body: bytes) -> bytes:
    return f"afterimage index {_FORMAT} {hashlib.blake2b(body, digest_size=16).hexdigest()}\n".encode()


def _stamp(values: list[list[int] | None]) -> Stamp:
    return tuple(None if part is None else (part[0], part[1], part[2]) for part in values)


def _values(summary: RunSummary) -> tuple[Any, ...]:
    return (
        summary.id,
        summary.name,
        summary.kind,
        summary.created,
        astuple(summary.status),
        summary.parents,
        summary.imported,
    )


def _summary(
    run_id: str, name: str, kind: str, created: str, status: list[Any], parents: list[str], imported: bool
) -> RunSummary:
    state, *rest = status
    return RunSummary(run_id, name, kind, created, Status(RunState(state), *rest), tuple(parents), imported)
