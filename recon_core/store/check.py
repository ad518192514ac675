"""What is wrong in a store, in sentences. Reads everything, changes nothing, needs no torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from recon_core.errors import InputError
from recon_core.store import layout, lock
from recon_core.store.files import JSON_LIMIT, DamagedError, is_temporary, read_json, read_object
from recon_core.store.foreign import is_marked, read_mark
from recon_core.store.ids import is_id
from recon_core.store.metrics import parse_row
from recon_core.store.private import links_in, open_to_read
from recon_core.store.record import RunState, read_name, read_record, read_status, resolved_status
from recon_core.store.tensors import check_tensors
from recon_core.store.workspace import leftovers

_NOT_CONTENT = frozenset({layout.LOCK, layout.CANCEL, layout.CHECKPOINTS})


@dataclass(frozen=True)
class Problem:
    """Something wrong with a run, or with the folder of that name."""

    run_id: str
    sentence: str
    heals: bool = False
    """The trace of an interruption: nothing is lost, and it goes away when the work is taken up again."""


class Fault(NamedTuple):
    sentence: str
    heals: bool = False


def check_store(root: Path) -> list[Problem]:
    """Problems run by run in order of their ids, then what killed processes left in the store itself."""
    problems = []
    try:
        entries = sorted(os.scandir(root), key=lambda entry: entry.name)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f"the store {root} cannot be read ({error.strerror}); choose another folder") from None
    for entry in entries:
        if entry.is_symlink():
            sentence = "is a link, and nothing in a store may lead elsewhere; remove it, or put there what it points to"
            problems.append(Problem(entry.name, f"{entry.name!r} {sentence}"))
            continue
        if entry.name.startswith(".") or not entry.is_dir():
            continue
        folder = Path(entry.path)
        if not is_id(entry.name):
            problems.append(Problem(entry.name, f"{entry.name!r} is not a run folder; move it out of the store"))
            continue
        try:
            found = [Problem(entry.name, *fault) for fault in _run_faults(root, folder)]
        except OSError as error:
            found = [Problem(entry.name, f"{error.filename} cannot be read ({error.strerror})")]
        if folder.exists():  # nobody deleted it while we looked
            problems.extend(found)
    for folder in leftovers(root):
        sentence = f"an interrupted operation left {folder.name} behind; the next change to the store removes it"
        problems.append(Problem(folder.name, sentence, heals=True))
    return problems


def content_files(folder: Path) -> list[str]:
    """The plain files that make up a run, as paths inside its folder."""
    inside = [folder, folder / layout.CHECKPOINTS]
    names = [
        Path(entry.path).relative_to(folder).as_posix()
        for place in inside
        if place.is_dir()
        for entry in os.scandir(place)
        if entry.is_file(follow_symlinks=False)
    ]
    return sorted(name for name in names if layout.is_content(name))


def content_faults(folder: Path, *, finished: bool) -> Iterator[Fault]:
    """What is wrong with the files of a run by themselves."""
    readers: dict[str, Callable[[Path], Any]] = {
        layout.RUN: read_record,
        layout.CONFIG: lambda folder: read_object(folder / layout.CONFIG),
        layout.STATUS: read_status,
        layout.NAME: read_name,
        **({layout.IMPORTED: read_mark} if is_marked(folder) else {}),
    }
    for reader in readers.values():
        yield from _damage(reader, folder)
    if finished and not (folder / layout.RESULT).exists():
        yield Fault(f"it is done but has no {layout.RESULT}")
    for relative in content_files(folder):
        path = folder / relative
        if relative == layout.RESULT:
            yield from _damage(read_object, path)
        elif relative == layout.METRICS:
            yield from _metrics_faults(path, finished)
        elif relative.endswith(".safetensors"):
            is_checkpoint = relative.startswith(f"{layout.CHECKPOINTS}/")
            for fault in _damage(check_tensors, path):
                yield Fault(fault.sentence + "; the checkpoint before it is used", True) if is_checkpoint else fault
        elif relative.endswith(".json") and relative not in readers:
            yield from _damage(read_json, path)


def _run_faults(root: Path, folder: Path) -> Iterator[Fault]:
    held = lock.is_held(folder / layout.LOCK)
    status = resolved_status(folder)
    busy = held or status.state is RunState.RUNNING  # it may have started in between
    done = status.state is RunState.DONE
    if status.state is RunState.INTERRUPTED:
        yield Fault(f"interrupted: {status.message}", heals=True)
    for fault in content_faults(folder, finished=done):
        if not (busy and fault.heals):  # being written at this moment
            yield fault
    for name in sorted(os.listdir(folder)) if folder.is_dir() else []:
        if is_temporary(name):
            if not busy and status.state is not RunState.INTERRUPTED:
                yield Fault(f"an interrupted write left {name} behind; it does no harm", heals=True)
        elif name not in _NOT_CONTENT and not layout.is_content(name):
            yield Fault(f"{name!r} does not belong into a run folder; move it elsewhere")
        elif (folder / name).is_symlink():
            yield Fault(f"{name} is a link; put the file itself there")
    for link in links_in(folder / layout.CHECKPOINTS):
        yield Fault(f"{layout.CHECKPOINTS}/{link.name} is a link; put the file itself there")
    if done and not busy and (folder / layout.CHECKPOINTS).exists():
        yield Fault("it was interrupted while tidying up when done; its checkpoints do no harm", heals=True)
    try:
        parents = read_record(folder).parents
    except DamagedError:
        return  # said above
    for parent in parents:
        if not (root / parent).is_dir():
            yield Fault(f"the run {parent} it was made from is missing")


def _damage(reader: Callable[[Path], Any], path: Path) -> Iterator[Fault]:
    try:
        reader(path)
    except DamagedError as fault:
        yield Fault(str(fault))


def _metrics_faults(path: Path, finished: bool) -> Iterator[Fault]:
    number = 0
    with open_to_read(path) as file:
        while line := file.readline(JSON_LIMIT + 1):
            number += 1
            if len(line) > JSON_LIMIT:
                yield Fault(f"line {number} of {layout.METRICS} has more than {JSON_LIMIT} bytes")
                return
            if not line.endswith(b"\n"):
                if finished:
                    yield Fault(f"the last line of {layout.METRICS} is torn")
                else:
                    yield Fault(f"interrupted in a write: the last line of {layout.METRICS} is torn", heals=True)
            elif parse_row(line) is None:
                yield Fault(f"line {number} of {layout.METRICS} is not a row")
