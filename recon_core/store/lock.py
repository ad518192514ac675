"""Locks that say who is alive. The kernel frees them when their process dies, however it dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from recon_core.store.files import explaining
from recon_core.store.private import open_private, open_to_read

_PATIENCE = 0.3
"""Seconds to try before a lock counts as taken: some hold it only to write a status."""

_SIGNATURE = 20
"""Bytes of the line that names a lock's holder, the same for every number."""


def acquire(path: Path, patience: float = _PATIENCE) -> int | None:
    """Take `path`'s lock for this process and write our process number into it; None when another has it.

    Returns the open file, whose closing frees the lock.
    """
    with explaining(path):
        handle = open_private(path, os.O_RDWR | os.O_CREAT)
    deadline = time.monotonic() + patience
    while not _flock(handle, fcntl.LOCK_EX):
        if time.monotonic() > deadline:
            # Readers that only look hold it too, for as long as a busy machine lets them; they own nothing.
            if not _flock(handle, fcntl.LOCK_SH):
                os.close(handle)
                return None
            fcntl.flock(handle, fcntl.LOCK_UN)  # or two waiting processes would keep it from each other
        time.sleep(0.01)
    sign(handle, os.getpid())
    return handle


def await_lock(path: Path) -> int:
    """Take `path`'s lock as `acquire` does, however long its holder lives."""
    with explaining(path):
        handle = open_private(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(handle, fcntl.LOCK_EX)
    sign(handle, os.getpid())
    return handle


def sign(handle: int, pid: int) -> None:
    """Write the number of the process that holds the lock: the one that took it, or that inherited it."""
    line = (
        f"{pid:<{_SIGNATURE - 1}}\n"  # over the last holder's at once: emptied first, it would name nobody for a moment
    )
    with contextlib.suppress(OSError):  # only for messages; a full disk must not keep a run from being deleted
        os.pwrite(handle, line.encode(), 0)


def is_held(path: Path) -> bool:
    """Whether a living process holds the lock. Needs no right to write."""
    try:
        handle = open_private(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not _flock(handle, fcntl.LOCK_SH)
    finally:
        os.close(handle)


def holder(path: Path) -> str:
    """The process number in a lock file, for messages."""
    try:
        with open_to_read(path) as file:
            return file.read(_SIGNATURE).decode("ascii", errors="replace").strip() or "unknown"
    except OSError:
        return "unknown"


def _flock(handle: int, mode: int) -> bool:
    try:
        fcntl.flock(handle, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def gate(path: Path, *, exclusive: bool) -> Iterator[None]:
    """Wait for `path`'s lock, shared or exclusive. It is held for moments, not during work."""
    with explaining(path):
        handle = open_private(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        yield
    finally:
        os.close(handle)
