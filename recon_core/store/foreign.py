"""Runs that came in a zip: what their config may not decide here, and the mark they carry from then on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from recon_core.store import layout
from recon_core.store.files import DamagedError, read_object, write_json

# Where to connect and what to write to, at whatever depth it stands. Nobody on this machine chose these.
_ADDRESSES = ("cluster", "storage")
_WITH_A_STORAGE = "share"  # means nothing without one
_MOST_LISTED = 50
_MOST_CHARACTERS = 200


@dataclass(frozen=True)
class Imported:
    """imported.json: that a run is somebody else's."""

    at: str
    """When it came; empty where the mark itself is damaged, which makes a run no less foreign."""
    dropped: tuple[str, ...] = ()
    """What was left out of its config, as `name: value`."""
    fault: str = ""
    """What in it makes no sense, if anything: it is then kept to be looked at, and used for nothing."""


def write_mark(folder: Path, mark: Imported) -> None:
    """Replaces whatever mark came in the zip."""
    write_json(folder / layout.IMPORTED, asdict(mark))


def read_mark(folder: Path) -> Imported:
    """imported.json as written; `DamagedError` where it does not make sense."""
    values = read_object(folder / layout.IMPORTED)
    values.setdefault("fault", "")
    if set(values) != {"at", "dropped", "fault"}:
        raise DamagedError(f"{layout.IMPORTED} must hold 'at' and 'dropped', got {list(values)[:5]}")
    at, dropped = values["at"], values["dropped"]
    if not isinstance(dropped, list) or not all(isinstance(part, str) for part in dropped):
        raise DamagedError(f"{layout.IMPORTED} has an impossible dropped: {str(dropped)[:80]!r}")
    try:
        datetime.fromisoformat(at)
    except (TypeError, ValueError):
        raise DamagedError(f"{layout.IMPORTED} has an impossible at: {str(at)[:80]!r}") from None
    if not isinstance(values["fault"], str):
        raise DamagedError(f"{layout.IMPORTED} has an impossible fault")
    return Imported(at, tuple(dropped), values["fault"])


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
    """Set every address in `config` to None; says which there were."""
    found = []
    for place, holder in _objects(config):
        names = [name for name in _ADDRESSES if holder.get(name) is not None]
        if "storage" in names and holder.get(_WITH_A_STORAGE) is not None:
            names.append(_WITH_A_STORAGE)
        for name in names:
            found.append(f"{place}{name}: {holder[name]}"[:_MOST_CHARACTERS])
            holder[name] = None
    if len(found) > _MOST_LISTED:
        found[_MOST_LISTED:] = [f"{len(found) - _MOST_LISTED} more"]
    return tuple(found)


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
