"""Runs to and from a zip. A zip is untrusted: measured, unpacked aside, checked, then moved in."""

from __future__ import annotations

import contextlib
import filecmp
import os
import re
import secrets
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, BinaryIO

from recon_core.errors import InputError
from recon_core.store import layout
from recon_core.store.check import content_faults, content_files
from recon_core.store.files import (
    DamagedError,
    explaining,
    read_object,
    sync_folder,
    write_atomic,
    write_json,
)
from recon_core.store.foreign import Imported, drop_addresses, write_mark
from recon_core.store.ids import is_id, new_id
from recon_core.store.private import open_fresh, private_folder, refuse_links_in
from recon_core.store.record import (
    Record,
    RunState,
    command_line,
    now,
    read_record,
    read_status,
    seal,
    write_record,
    write_status,
)
from recon_core.store.workspace import gate, workspace

_CHUNK = 2**20
_MOST_FAULT = 1000
_TAIL = struct.Struct("<4s4H2LH")  # end of central directory
_TAIL64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR64_BYTES = 20
_MOST_TABLE_BYTES = 512  # for each file in a zip
_KINDS_OF_FILE = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
# What zipfile and zlib raise on hostile bytes.
_UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    struct.error,
    OverflowError,
)


Judge = Callable[[Path], str]
"""Says what in an unpacked run makes no sense; empty where all of it does."""


@dataclass(frozen=True)
class ZipLimits:
    """Limits on the size of a zip and of what it unpacks to."""

    entries: int = 10_000
    total_bytes: int = 4 * 2**30
    ratio: int = 200
    """Times an entry (and the whole) may grow when unpacked, beyond the first MiB."""
    text_bytes: int = 64 * 2**20
    """Of any one file that is neither tensors nor metrics: it is read into memory."""
    metrics_bytes: int = 2**30
    """Of the metrics of one run, which are read line by line: some ten million rows."""


def export_runs(folders: Sequence[Path], target: Path) -> Path:
    """Write the content of run folders to `target`, whole or not at all."""
    # A name of its own: unlike inside the store, no lock keeps two exports to one target apart.
    beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    with explaining(target):
        try:
            with open(beside, "xb") as file:
                with zipfile.ZipFile(file, "w", strict_timestamps=False) as archive:
                    for folder in folders:
                        for relative in content_files(folder):
                            tensors = relative.endswith(".safetensors")  # hardly get smaller
                            method = zipfile.ZIP_STORED if tensors else zipfile.ZIP_DEFLATED
                            archive.write(folder / relative, f"{folder.name}/{relative}", method)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, target)
        except FileNotFoundError as error:
            raise InputError(
                f"{target} could not be written: {error.filename} is not there; choose an existing folder"
            ) from None
        finally:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
    return target


def import_runs(root: Path, path: Path, limits: ZipLimits, judge: Judge) -> list[str]:
    """Take the runs of the zip at `path` into the store; their ids there, parents first."""
    with _plain_file(path, limits) as file, contextlib.ExitStack() as opened:
        with _readable(path):
            archive = opened.enter_context(_opened(file, path, limits))
            entries = _checked_entries(archive, path, limits)
        unpacked = opened.enter_context(workspace(root)) / "unpacked"
        with _readable(path):
            _unpack(archive, entries, unpacked, path)
        return _take_in(root, unpacked, path, judge)


def _unreadable(path: Path, error: OSError) -> InputError:
    return InputError(f"{path} cannot be read ({error.strerror}); name a zip of exported runs")


def _plain_file(path: Path, limits: ZipLimits) -> BinaryIO:
    """`path`, opened. What has no size is not read: a device never ends, and a pipe may never begin."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # else a pipe waits for somebody to write
    except (OSError, ValueError) as error:
        raise _unreadable(path, error if isinstance(error, OSError) else OSError(0, str(error))) from None
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            what = _KINDS_OF_FILE.get(stat.S_IFMT(found.st_mode), "something else")
            raise InputError(f"{path} cannot be read: it is not a plain file but {what}; name a zip of exported runs")
        most = limits.total_bytes + _MOST_TABLE_BYTES * limits.entries
        if found.st_size > most:
            raise _refuse(path, f"it has {found.st_size} bytes, more than {most}")
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except _UNREADABLE as error:
        said = " ".join(str(error).split())[:200]  # zipfile quotes names from the file, of any length
        raise InputError(f"{path.name} is not a readable zip ({said}); export the runs again") from None


def _refuse(path: Path, reason: str) -> InputError:
    return InputError(f"{path.name} was refused, nothing was imported: {reason}")


def _opened(file: BinaryIO, path: Path, limits: ZipLimits) -> zipfile.ZipFile:
    """The zip, after a look at the size of its table of contents, which zipfile reads into memory whole."""
    size = file.seek(0, os.SEEK_END)
    start = max(0, size - 2**16 - _TAIL.size - _LOCATOR64_BYTES - _TAIL64.size)
    file.seek(start)
    data = file.read()
    at = data.rfind(b"PK\x05\x06")
    if at < 0 or len(data) - at < _TAIL.size:
        raise zipfile.BadZipFile("it has no table of contents")
    table_bytes = _TAIL.unpack_from(data, at)[5]
    at64 = at - _LOCATOR64_BYTES - _TAIL64.size
    if data[max(0, at - _LOCATOR64_BYTES) : at].startswith(b"PK\x06\x07") and at64 >= 0:
        table_bytes = max(table_bytes, _TAIL64.unpack_from(data, at64)[8])
    if table_bytes > _MOST_TABLE_BYTES * limits.entries:
        raise _refuse(path, f"its table of contents has {table_bytes} bytes, too many for {limits.entries} files")
    return zipfile.ZipFile(file)


def _checked_entries(archive: zipfile.ZipFile, path: Path, limits: ZipLimits) -> list[zipfile.ZipInfo]:
    """The files in the zip, if each belongs to a run and together they keep within the limits."""
    entries = archive.infolist()
    if len(entries) > limits.entries:
        raise _refuse(path, f"it has {len(entries)} files, more than {limits.entries}")
    seen = set()
    for entry in entries:
        shown = repr(entry.filename[:120])
        mode = entry.external_attr >> 16
        run_id, _, relative = entry.filename.partition("/")
        if entry.filename.endswith("/") and is_id(run_id) and relative in ("", f"{layout.CHECKPOINTS}/"):
            continue
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            raise _refuse(path, f"{shown} is not a plain file")
        if not is_id(run_id) or not layout.is_content(relative):
            raise _refuse(path, f"{shown} does not belong into a run")
        if entry.flag_bits & 1:
            raise _refuse(path, f"{shown} is encrypted")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _refuse(path, f"{shown} is packed in an unusual way")
        if entry.file_size > limits.ratio * entry.compress_size + 2**20:
            raise _refuse(path, f"{shown} would grow from {entry.compress_size} to {entry.file_size} bytes")
        most = limits.metrics_bytes if relative == layout.METRICS else limits.text_bytes
        if entry.file_size > most and not relative.endswith(".safetensors"):
            raise _refuse(path, f"{shown} has {entry.file_size} bytes, more than {most}")
        if entry.header_offset < 0:
            raise _refuse(path, f"{shown} would begin before the zip itself")
        if entry.filename in seen:
            raise _refuse(path, f"{shown} is there twice")
        seen.add(entry.filename)
    files = [entry for entry in entries if not entry.filename.endswith("/")]
    total = sum(entry.file_size for entry in files)
    packed = os.fstat(archive.fp.fileno()).st_size if archive.fp else 0
    if total > limits.total_bytes:
        raise _refuse(path, f"it would unpack to {total} bytes, more than {limits.total_bytes}")
    if total > limits.ratio * packed + 2**20:  # entries that share their packed bytes
        raise _refuse(path, f"it would grow from {packed} to {total} bytes")
    if not files:
        raise _refuse(path, "it holds no run")
    return files


def _unpack(archive: zipfile.ZipFile, entries: Sequence[zipfile.ZipInfo], work: Path, path: Path) -> None:
    for entry in entries:
        target = work / entry.filename
        with explaining(target), archive.open(entry) as packed:
            for folder in (work, *reversed(target.relative_to(work).parents[:-1])):
                private_folder(work / folder)
            with os.fdopen(open_fresh(target), "wb") as file:
                left = entry.file_size
                while chunk := packed.read(_CHUNK):
                    left -= len(chunk)
                    if left < 0:
                        raise _refuse(path, f"{entry.filename!r} is larger than it says")
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())


def _take_in(root: Path, work: Path, path: Path, judge: Judge) -> list[str]:
    """Check the unpacked runs, give them ids that are free, and rename them into the store."""
    records = {folder.name: _checked_run(folder, path) for folder in sorted(work.iterdir())}
    try:
        order = list(TopologicalSorter({record.id: record.parents for record in records.values()}).static_order())
    except CycleError:
        raise _refuse(path, "its runs are each other's parents") from None
    new_ids: dict[str, str] = {}
    imported: list[str] = []
    published: list[Path] = []
    try:
        with gate(root, exclusive=True):
            for run_id in order:
                taken = os.path.lexists(root / run_id)
                refuse_links_in(root / run_id)
                if run_id not in records:
                    if not taken:
                        raise _refuse(path, f"the parent {run_id} is neither in it nor in the store; export it as well")
                    continue
                repointed = not new_ids.keys().isdisjoint(records[run_id].parents)
                same = taken and not repointed and _same_content(work / run_id, root / run_id)
                if not same:
                    _make_foreign(work / run_id, path, judge)
                    same = taken and not repointed and _same_content(work / run_id, root / run_id)
                if same:
                    imported.append(run_id)
                    continue
                if taken:
                    new_ids[run_id] = new_id(records[run_id].kind)
                if taken or repointed:
                    try:
                        _rewrite(work / run_id, records[run_id], new_ids)
                    except RecursionError:
                        raise _refuse(path, f"the config of run {run_id} is nested too deeply") from None
                if read_status(work / run_id).state is RunState.DONE:
                    seal(work / run_id)
                target = root / new_ids.get(run_id, run_id)
                with explaining(target):
                    os.rename(work / run_id, target)
                published.append(target)
                imported.append(target.name)
            with explaining(root):
                sync_folder(root)
    except BaseException:
        for folder in published:
            os.rename(folder, work / f"withdrawn-{folder.name}")
        raise
    return imported


def _checked_run(folder: Path, path: Path) -> Record:
    """An unpacked run that is sound. One that had not ended counts as interrupted, so that nothing starts it."""
    (folder / layout.IMPORTED).unlink(missing_ok=True)  # who it was foreign to does not matter here
    try:
        record, status = read_record(folder), read_status(folder)
    except DamagedError as error:
        raise _refuse(path, f"in run {folder.name}, {error}") from None
    finished = status.state is RunState.DONE
    for fault in content_faults(folder, finished=finished):
        if not fault.heals:
            raise _refuse(path, f"in run {folder.name}, {fault.sentence}")
    if status.state in (RunState.QUEUED, RunState.RUNNING):
        message = "it had not ended when it was exported; resume it to continue"
        write_status(folder, replace(status, state=RunState.INTERRUPTED, message=message, pid=None))
    write_atomic(folder / layout.LOCK, [])
    return record


def _make_foreign(folder: Path, path: Path, judge: Judge) -> None:
    """Remove addresses and paths from an unpacked run, and mark it as imported."""
    config = read_object(folder / layout.CONFIG)
    dropped = drop_addresses(config)
    if dropped:
        try:
            write_json(folder / layout.CONFIG, config)
        except RecursionError:
            raise _refuse(path, f"the config of run {folder.name} is nested too deeply") from None
    write_mark(folder, Imported(now(), dropped, judge(folder)[:_MOST_FAULT]))


def _same_content(one: Path, other: Path) -> bool:
    """Whether two run folders agree in every byte but for the user's name, the status and the mark of an import."""
    changing = (layout.NAME, layout.NOTES, layout.STATUS, layout.IMPORTED)
    ours, theirs = ([name for name in content_files(folder) if name not in changing] for folder in (one, other))
    return ours == theirs and all(filecmp.cmp(one / name, other / name, shallow=False) for name in ours)


def _rewrite(folder: Path, record: Record, new_ids: Mapping[str, str]) -> None:
    """Let run.json, config.json and command.txt speak of the new ids. Results stay the record they are."""

    def renamed(text: str) -> str:
        return re.sub(r"[a-z0-9][a-z0-9_-]*", lambda found: new_ids.get(found[0], found[0]), text)

    command = tuple(renamed(part) for part in record.command)
    parents = tuple(new_ids.get(parent, parent) for parent in record.parents)
    write_record(folder, replace(record, id=new_ids.get(record.id, record.id), parents=parents, command=command))
    write_json(folder / layout.CONFIG, _exchanged(read_object(folder / layout.CONFIG), new_ids))
    write_atomic(folder / layout.COMMAND, [command_line(command)])


def _exchanged(value: Any, new_ids: Mapping[str, str]) -> Any:
    """`value` with every text that is an old id replaced by the new one."""
    if isinstance(value, str):
        return new_ids.get(value, value)
    if isinstance(value, list):
        return [_exchanged(part, new_ids) for part in value]
    if isinstance(value, dict):
        return {key: _exchanged(part, new_ids) for key, part in value.items()}
    return value
