"""Files and folders with access for their owner only, which are never links to somewhere else."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from recon_core.errors import InputError

FILE_MODE = 0o600
SEALED_MODE = 0o400
FOLDER_MODE = 0o700
_OTHERS = 0o077


def open_private(path: Path, flags: int) -> int:
    """`path` opened for its owner alone. A link there is an error (ELOOP), wherever it leads; so is a pipe."""
    handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, FILE_MODE)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a plain file", str(path))
    return handle


def open_to_read(path: Path) -> BinaryIO:
    """Like `open(path, "rb")`, for a plain file: a link is not followed, and a pipe not waited for."""
    return os.fdopen(open_private(path, os.O_RDONLY), "rb")


def open_to_append(path: Path) -> BinaryIO:
    """What other processes write to as well, e.g. a log."""
    return os.fdopen(open_private(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab")


def touch_private(path: Path) -> None:
    """An empty file there, if there is none."""
    os.close(open_private(path, os.O_WRONLY | os.O_CREAT))


def open_fresh(path: Path) -> int:
    """A new file at `path`, in place of what a killed process left there; that is removed, never written through."""
    refuse_link(path)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    return open_private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)


def private_folder(path: Path, *, parents: bool = False) -> Path:
    """Make a folder, if it is not there, and close it to others. Those above it keep their rights."""
    if parents:
        path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=FOLDER_MODE)
    refuse_link(path)
    close_to_others(path)
    return path


def close_to_others(path: Path) -> None:
    """Remove the access rights of all others from a file or folder we own; a link is left alone."""
    found = os.lstat(path)
    if stat.S_ISLNK(found.st_mode) or not found.st_mode & _OTHERS or found.st_uid != os.geteuid():
        return
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.fchmod(handle, stat.S_IMODE(found.st_mode) & ~_OTHERS)
    finally:
        os.close(handle)


def is_closed(path: Path) -> bool:
    """Whether nobody but the owner has any right to it."""
    return not os.lstat(path).st_mode & _OTHERS


def refuse_link(path: Path) -> None:
    if path.is_symlink():
        raise link_error(path)


def refuse_links_in(folder: Path) -> None:
    """Refuse a folder that is a link or has one in it."""
    refuse_link(folder)
    for link in links_in(folder):
        raise link_error(link)


def links_in(folder: Path) -> Iterator[Path]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                yield Path(entry.path)


def link_error(path: Path) -> InputError:
    return InputError(
        f"{path} is a link, and nothing in a store may lead elsewhere; remove it, or put there what it points to"
    )
