"""Reading and writing files so that a crash, a full disk or a read-only folder costs at most the last write.

A file is replaced as a whole: written beside its place under a fixed hidden name, synced, renamed. The
fixed name means that what a killed process leaves is overwritten by the next write. It also means that
two processes must not write the same file at once; callers hold a lock.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from recon_core.errors import AfterimageError, InputError
from recon_core.store.private import link_error, open_fresh, open_private, open_to_read

JSON_LIMIT = 8 * 2**20
"""Bytes of the largest JSON document read or written. Parsed, one may take 30 times that in memory."""

_FULL = (errno.ENOSPC, errno.EDQUOT)
FULL_WORDS = "the disk is full"
_ROOM = 2**14
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)


class DamagedError(InputError):
    """A stored file does not read as it should; the message names the file and the fault."""


@contextlib.contextmanager
def explaining(path: Path) -> Iterator[None]:
    """Turn the failures a user can mend (disk full, no permission) into a sentence about `path`."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise AfterimageError(
                f"{FULL_WORDS}: {path} could not be written; free some space, then resume or try again"
            ) from error
        if error.errno == errno.EFBIG:
            raise AfterimageError(
                f"{path} could not be written: it exceeds this system's file size limit; raise it (ulimit -f)"
            ) from error
        if error.errno in _READ_ONLY:
            raise InputError(
                f"the store is read-only: {path} could not be written; make it writable or choose another folder"
            ) from error
        if error.errno == errno.ENAMETOOLONG:
            raise InputError(f"the name {str(path)[:80]!r}... is too long for this system; shorten it") from error
        if error.errno == errno.ELOOP:
            raise link_error(Path(error.filename or path)) from error
        if error.errno in (errno.ENOTDIR, errno.EEXIST):
            raise InputError(f"{path} is a file or lies below one; choose a folder for the store") from error
        raise


def was_full(message: str) -> bool:
    """Whether a run that another process worked on says that it ended for want of space."""
    return FULL_WORDS in message


def is_full(path: Path) -> bool:
    """Whether the disk below `path` is too full even for a status, so that a dying process could not report it."""
    try:
        found = os.statvfs(path)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < _ROOM


def temporary(path: Path) -> Path:
    """Where `path` is prepared before it is renamed into place."""
    return path.with_name(f".{path.name}.tmp")


def is_temporary(file_name: str) -> bool:
    return file_name.startswith(".") and file_name.endswith(".tmp")


def write_atomic(path: Path, parts: Iterable[bytes | memoryview]) -> None:
    """Replace `path` by the joined `parts`, or leave it exactly as it was."""
    beside = temporary(path)
    with explaining(path):
        try:
            handle = open_fresh(beside)
            try:
                for part in parts:
                    write_all(handle, part)
                os.fsync(handle)
            finally:
                os.close(handle)
            os.replace(beside, path)
        except FileNotFoundError as error:
            raise AfterimageError(f"{path.parent} is gone, so {path.name} could not be written; start anew") from error
        except InputError:  # there is a link, which is not ours to remove
            raise
        except BaseException:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
            raise


def write_all(handle: int, data: bytes | memoryview) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]


def write_json(path: Path, value: Any) -> None:
    data = encode_json(value, indent=2) + b"\n"
    if len(data) > JSON_LIMIT:
        raise AfterimageError(
            f"{path.name} would have {len(data)} bytes, more than the {JSON_LIMIT} that are read back; "
            "save large arrays as tensors"
        )
    write_atomic(path, [data])


def encode_json(value: Any, indent: int | None = None) -> bytes:
    """JSON as Python reads it back: non-finite numbers are NaN and Infinity, arrays and scalars become lists."""

    def dump(ascii_only: bool) -> bytes:
        return json.dumps(value, indent=indent, ensure_ascii=ascii_only, default=_plain).encode()

    try:
        return dump(ascii_only=False)
    except UnicodeEncodeError:  # a path that is not valid Unicode survives as an escape
        return dump(ascii_only=True)


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # numpy and torch scalars and arrays, without importing either
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"{type(value).__name__} cannot be stored as JSON: {value!r}")


def read_json(path: Path) -> Any:
    """The value in `path`; `DamagedError` when it is missing, too large or not JSON."""
    try:
        with open_to_read(path) as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read() if size <= JSON_LIMIT else b""
    except FileNotFoundError:
        raise DamagedError(f"{path.name} is missing") from None
    except OSError as error:
        raise DamagedError(unreadable(path, error)) from None
    if size > JSON_LIMIT:
        raise DamagedError(f"{path.name} has more than {JSON_LIMIT} bytes")
    return decode_json(data, path.name)


def unreadable(path: Path, error: OSError) -> str:
    """Why a stored file could not be opened."""
    if error.errno == errno.ELOOP:
        return f"{path.name} is a link; put the file itself there"
    return f"{path.name} cannot be read ({error.strerror})"


def decode_json(data: bytes, file_name: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise DamagedError(f"{file_name} is not readable JSON ({reason})") from None


def read_object(path: Path) -> dict[str, Any]:
    """Like `read_json`, for files that must hold one object."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise DamagedError(f"{path.name} must hold an object, got {type(value).__name__}")
    return value


def sync_folder(path: Path) -> None:
    """Make renames inside `path` survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_tree(path: Path) -> None:
    """Remove a folder as far as possible; somebody else may be removing it too."""
    shutil.rmtree(path, ignore_errors=True)


def last_bytes(path: Path, count: int) -> bytes:
    """The last `count` bytes of a file (all of a shorter one); nothing where there is no file."""
    try:
        with open_to_read(path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - count))
            return file.read(count)
    except FileNotFoundError:
        return b""


def last_lines(path: Path, count: int) -> list[bytes]:
    """The last `count` lines of a file, reading little more than those."""
    length = 2**14
    while True:
        data = last_bytes(path, length)
        lines = data.splitlines()
        if len(data) < length:
            return lines[-count:] if count > 0 else []
        if len(lines) > count:  # one more than asked for, because the first may be cut
            return lines[len(lines) - count :]
        length *= 4


class Appender:
    """A file that only grows, a whole line per write() call."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with explaining(path):
            self._handle = open_private(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def append(self, data: bytes) -> None:
        """Append all of `data` or nothing: a write cut short by a full disk is undone."""
        with explaining(self._path):
            before = os.fstat(self._handle).st_size
            try:
                write_all(self._handle, data)
            except OSError:
                os.ftruncate(self._handle, before)
                raise

    def sync(self) -> None:
        with explaining(self._path):
            os.fsync(self._handle)

    def close(self) -> None:
        os.close(self._handle)
