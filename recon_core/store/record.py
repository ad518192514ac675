"""The contents of run.json, status.json and name.json, checked key by key when read."""

from __future__ import annotations

import contextlib
import importlib.metadata
import math
import platform
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from recon_core.errors import InputError
from recon_core.store import layout, lock
from recon_core.store.files import FULL_WORDS, DamagedError, is_full, read_object, write_json
from recon_core.store.foreign import is_marked, mark_of
from recon_core.store.ids import checked_name, is_id, is_kind
from recon_core.store.private import SEALED_MODE
from recon_core.version import __version__

FORMAT = 1
"""Version of the folder layout. A reader refuses what is newer than itself."""


class RunState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Record:
    """run.json: what a run is. Written once, never changed."""

    id: str
    kind: str
    created: str
    parents: tuple[str, ...]
    command: tuple[str, ...]
    versions: Mapping[str, str]
    format: int = FORMAT


@dataclass(frozen=True)
class Status:
    """How far a run is. Times are ISO 8601 in UTC and for display; `seconds` counts work only, over all resumes."""

    state: RunState
    step: int = 0
    total: int | None = None
    message: str = ""
    started: str | None = None
    updated: str | None = None
    seconds: float = 0.0
    pid: int | None = None


@dataclass(frozen=True)
class RunSummary:
    """One line of the list. `name` is the id where the user gave none."""

    id: str
    name: str
    kind: str
    created: str
    status: Status
    parents: tuple[str, ...]
    imported: bool = False
    """Whether it came in a zip, from somebody else."""


def now() -> str:
    """The wall clock, in one width so that times sort as text."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def current_versions() -> dict[str, str]:
    """Versions that bear on a run's numbers, found without importing the packages."""
    versions = {"afterimage": __version__, "python": platform.python_version()}
    for package in ("torch", "numpy"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "absent"
    return versions


def write_record(folder: Path, record: Record) -> None:
    write_json(folder / layout.RUN, asdict(record))


def read_record(folder: Path, run_id: str | None = None) -> Record:
    """run.json of `folder`, which must carry the folder's own name (or `run_id`) as its id."""
    values = read_object(folder / layout.RUN)
    written = values.get("format")
    if isinstance(written, int) and written > FORMAT:
        raise DamagedError(
            f"{layout.RUN} has format {written} and this version reads up to {FORMAT}; use a newer Afterimage"
        )
    values = _fields(values, layout.RUN, Record)
    _expect(values, layout.RUN, "id", isinstance(values["id"], str) and is_id(values["id"]))
    _expect(values, layout.RUN, "kind", isinstance(values["kind"], str) and is_kind(values["kind"]))
    _expect(values, layout.RUN, "created", _is_time(values["created"]))
    _expect(values, layout.RUN, "parents", _is_texts(values["parents"]) and all(map(is_id, values["parents"])))
    _expect(values, layout.RUN, "command", _is_texts(values["command"]))
    versions = values["versions"]
    _expect(values, layout.RUN, "versions", isinstance(versions, dict) and _is_texts(list(versions.values())))
    _expect(values, layout.RUN, "format", values["format"] == FORMAT)
    if values["id"] != (run_id or folder.name):
        raise DamagedError(f"{layout.RUN} says its id is {values['id']!r} but the folder is {run_id or folder.name!r}")
    return Record(**{**values, "parents": tuple(values["parents"]), "command": tuple(values["command"])})


def command_line(command: Sequence[str]) -> bytes:
    """command.txt: the command as one types it."""
    return f"{shlex.join(command)}\n".encode(errors="backslashreplace")


def seal(folder: Path) -> None:
    """Make the files of a done run read-only, all but what its user says about it."""
    for path in folder.iterdir():
        if layout.is_content(path.name) and path.name not in (layout.NAME, layout.NOTES) and not path.is_symlink():
            with contextlib.suppress(OSError):  # a file of somebody else's is not ours to change
                path.chmod(SEALED_MODE)


def write_status(folder: Path, status: Status) -> None:
    write_json(folder / layout.STATUS, asdict(status))


def read_status(folder: Path) -> Status:
    """status.json as written; `DamagedError` where it does not make sense."""
    values = _fields(read_object(folder / layout.STATUS), layout.STATUS, Status)
    _expect(values, layout.STATUS, "state", values["state"] in list(RunState))
    _expect(values, layout.STATUS, "step", _is_count(values["step"]))
    _expect(values, layout.STATUS, "total", values["total"] is None or _is_count(values["total"]))
    _expect(values, layout.STATUS, "message", isinstance(values["message"], str))
    for key in ("started", "updated"):
        _expect(values, layout.STATUS, key, values[key] is None or _is_time(values[key]))
    seconds = values["seconds"]
    fits = isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds < math.inf
    _expect(values, layout.STATUS, "seconds", fits)
    _expect(values, layout.STATUS, "pid", values["pid"] is None or _is_count(values["pid"]))
    return Status(**{**values, "state": RunState(values["state"]), "seconds": float(seconds)})


def resolved_status(folder: Path) -> Status:
    """The effective status: running without a living process means interrupted; a damaged file means failed."""
    try:
        status = understood(read_status(folder), folder)
        if status.state is RunState.RUNNING and not lock.is_held(folder / layout.LOCK):
            # A run that ends writes its status before it frees the lock, so it may have ended in between.
            status = read_status(folder)
            if status.state is RunState.RUNNING:
                # A worker that was asked to stop and took too long ends itself, see recon_core.worker.
                if (folder / layout.CANCEL).exists():
                    return stopped(status)
                return interrupted(status, full=is_full(folder))
        return status
    except DamagedError as fault:
        return broken_status(fault)


def understood(status: Status, folder: Path) -> Status:
    """The status, but failed for an imported run that was found invalid, whatever its status file says."""
    mark = mark_of(folder)
    if mark is None or not mark.fault:
        return status
    message = f"it was imported and makes no sense: {mark.fault}; delete it"
    return replace(status, state=RunState.FAILED, message=message, pid=None)


def interrupted(status: Status, *, full: bool = False) -> Status:
    """The status of a run whose process ended without writing one, perhaps because the disk was full."""
    reached = f"step {status.step}" + (f" of {status.total}" if status.total is not None else "")
    message = f"its process ended unexpectedly at {reached}; resume it to continue"
    if full:
        message = f"{FULL_WORDS}, and its process ended at {reached}; free some space, then resume it"
    return replace(status, state=RunState.INTERRUPTED, message=message, pid=None)


def stopped(status: Status) -> Status:
    """The status of a run that was ended on request before it could save where it was."""
    message = "stopped on request in the middle of a step; resuming continues from its last checkpoint"
    return replace(status, state=RunState.CANCELLED, message=message, pid=None)


def broken_status(fault: DamagedError) -> Status:
    return Status(RunState.FAILED, message=f"the run folder is damaged: {fault}")


def write_name(folder: Path, name: str) -> None:
    write_json(folder / layout.NAME, {"name": name})


def read_name(folder: Path) -> str | None:
    """The user's name for a run; None where none was given."""
    if not (folder / layout.NAME).exists():
        return None
    values = read_object(folder / layout.NAME)
    if set(values) != {"name"} or not isinstance(values["name"], str):
        raise DamagedError(f"{layout.NAME} must hold one text under 'name', got {list(values)[:5]}")
    try:
        return checked_name(values["name"])
    except InputError as error:
        raise DamagedError(f"{layout.NAME}: {error}") from None


def summarise(folder: Path) -> RunSummary:
    """One line for the list, from at most three small files. A damaged run is listed as failed."""
    try:
        name = read_name(folder)
    except DamagedError:
        name = None
    try:
        record = read_record(folder)
    except DamagedError as fault:
        changed = datetime.fromtimestamp(folder.stat().st_mtime, UTC).isoformat(timespec="microseconds")
        kind = folder.name.split("-")[0]
        return RunSummary(folder.name, name or folder.name, kind, changed, broken_status(fault), (), is_marked(folder))
    return RunSummary(
        record.id,
        name or record.id,
        record.kind,
        record.created,
        resolved_status(folder),
        record.parents,
        is_marked(folder),
    )


def _fields(values: dict[str, Any], file_name: str, kind: type) -> dict[str, Any]:
    known = kind.__dataclass_fields__  # type: ignore[attr-defined]
    for key in values:
        if key not in known:
            raise DamagedError(f"{file_name} has the unknown key {key[:80]!r}")
    for key in known:
        if key not in values:
            raise DamagedError(f"{file_name} lacks the key {key!r}")
    return values


def _expect(values: Mapping[str, Any], file_name: str, key: str, fits: bool) -> None:
    if not fits:
        raise DamagedError(f"{file_name} has an impossible {key}: {str(values[key])[:80]!r}")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(part, str) for part in value)


def _is_time(value: Any) -> bool:
    try:
        return datetime.fromisoformat(value).tzinfo is not None
    except (TypeError, ValueError):
        return False
