"""Imported runs: the addresses and paths that are removed from their config, and the mark they carry.

Addresses and storages are set to None. Where a path was, `LEFT_OUT` stands until the user attaches one of this machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from recon_core.errors import InputError
from recon_core.settings_text import LEFT_OUT
from recon_core.store import layout
from recon_core.store.files import DamagedError, read_object, write_json

# Where to connect, what to write to and what to read, at whatever depth it stands. Nobody on this machine chose these.
_ADDRESSES = ("cluster", "storage", "held_out")
_PATH = "path"
_WITH_A_STORAGE = "share"  # means nothing without one
_MOST_LISTED = 50
_MOST_CHARACTERS = 200


@dataclass(frozen=True)
class Imported:
    """imported.json, which marks a run as imported."""

    at: str
    """When it came; empty where the mark itself is damaged, which makes a run no less foreign."""
    dropped: tuple[str, ...] = ()
    """What was left out of its config, as `name: value`."""
    fault: str = ""
    """What in it makes no sense, if anything: it is then kept to be looked at, and used for nothing."""
    attached: str = ""
    """The path that a user of this machine has given in place of the one left out."""


def write_mark(folder: Path, mark: Imported) -> None:
    """Write the mark, replacing one that came in the zip."""
    write_json(folder / layout.IMPORTED, asdict(mark))


def read_mark(folder: Path) -> Imported:
    """imported.json as written; `DamagedError` where it does not make sense."""
    values = read_object(folder / layout.IMPORTED)
    values = {"fault": "", "attached": "", **values}
    if set(values) != {"at", "dropped", "fault", "attached"}:
        raise DamagedError(f"{layout.IMPORTED} must hold 'at' and 'dropped', got {list(values)[:5]}")
    at, dropped = values["at"], values["dropped"]
    if not isinstance(dropped, list) or not all(isinstance(part, str) for part in dropped):
        raise DamagedError(f"{layout.IMPORTED} has an impossible dropped: {str(dropped)[:80]!r}")
    try:
        datetime.fromisoformat(at)
    except (TypeError, ValueError):
        raise DamagedError(f"{layout.IMPORTED} has an impossible at: {str(at)[:80]!r}") from None
    for name in ("fault", "attached"):
        if not isinstance(values[name], str):
            raise DamagedError(f"{layout.IMPORTED} has an impossible {name}")
    return Imported(at, tuple(dropped), values["fault"], values["attached"])


def mark_of(folder: Path) -> Imported | None:
    """None for a run of our own."""
    if not is_marked(folder):
        return None
    try:
        return read_mark(folder)
    except DamagedError:
        return Imported("")


def is_marked(folder: Path) -> bool:
    return (folder / layout.IMPORTED).exists()


def drop_addresses(config: dict[str, Any]) -> tuple[str, ...]:
    """Take every address and path out of `config`; says which there were."""
    found = []
    for place, holder in _objects(config):
        names = [name for name in holder if _last(name) in _ADDRESSES and holder[name] is not None]
        if "storage" in names and holder.get(_WITH_A_STORAGE) is not None:
            names.append(_WITH_A_STORAGE)
        for name in names:
            found.append(f"{place}{name}: {holder[name]}"[:_MOST_CHARACTERS])
            holder[name] = None
        for name in _paths(holder):
            if holder[name] != LEFT_OUT:
                found.append(f"{place}{name}: {holder[name]}"[:_MOST_CHARACTERS])
            holder[name] = LEFT_OUT
    if len(found) > _MOST_LISTED:
        found[_MOST_LISTED:] = [f"{len(found) - _MOST_LISTED} more"]
    return tuple(found)


def lacks_path(config: dict[str, Any]) -> bool:
    """Whether a path was left out of it and none was attached since."""
    return any(holder[name] == LEFT_OUT for _, holder in _objects(config) for name in _paths(holder))


def with_path(config: dict[str, Any], path: str) -> dict[str, Any]:
    """`config` itself, with `path` wherever one was left out."""
    for _, holder in _objects(config):
        for name in _paths(holder):
            if holder[name] == LEFT_OUT:
                holder[name] = path
    return config


def attach_path(folder: Path, path: Path) -> None:
    """Let an imported run read `path` where its own was left out."""
    mark = mark_of(folder)
    if mark is None or not lacks_path(read_object(folder / layout.CONFIG)):
        raise InputError(f"nothing was left out of run {folder.name} at import that {str(path)!r} could stand for")
    gone = {entry.split(": ", 1)[1] for entry in mark.dropped if _last(entry.split(": ", 1)[0]) == _PATH}
    if len(gone) > 1:
        raise InputError(f"run {folder.name} read from {len(gone)} paths, which one cannot stand for; start a new one")
    if not path.exists():
        raise InputError(f"there is nothing at {str(path)!r}; give the folder or file that run {folder.name} reads")
    write_mark(folder, replace(mark, attached=str(path.absolute())))


def _last(name: str) -> str:
    """Plans of studies have whole ways as names: `data.path`."""
    return name.rpartition(".")[2]


def _paths(holder: dict[str, Any]) -> list[str]:
    return [name for name in holder if _last(name) == _PATH and holder[name] is not None]


def _objects(config: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object in it with the way there, the outer ones first. Without recursion: a stranger chose the depth."""
    waiting: list[tuple[str, Any]] = [("", config)]
    for way, value in waiting:  # grows while it is walked
        if isinstance(value, dict):
            yield way, value
        inside = value.items() if isinstance(value, dict) else enumerate(value)
        waiting.extend(
            (f"{way}{key}."[-_MOST_CHARACTERS:], part) for key, part in inside if isinstance(part, dict | list)
        )
