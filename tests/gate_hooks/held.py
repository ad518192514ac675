"""The side of a gate that stands in the process which is held: see `tests.gates`.

A gate is a file of JSON in the folder that `AFTERIMAGE_TEST_GATES` names. While it is there, a run of its kind that
reports a step at or beyond the gate's says so in the folder and waits. It leaves when the gate is opened, which removes
the file, and when somebody asks this very run to stop: what is tested then is that request.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import json
import os
import sys
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

VARIABLE = "AFTERIMAGE_TEST_GATES"
_POLL_SECONDS = 0.01
_flags: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
"""Writer -> the `StopFlag` of its run, which the writer itself does not know: two runs of a process have two."""


def hold_writers(writer: ModuleType) -> None:
    """Every kind of run reports its steps to its writer."""
    report = writer.RunWriter.progress

    @functools.wraps(report)
    def progress(self: Any, step: int, message: str = "", **options: Any) -> None:
        if (gate := _shut(self, step)) is None:
            report(self, step, message, **options)
            return
        # What is on the disk while a run is held does not hang on how long ago its status was last written.
        report(self, step, message, **{**options, "force": True})
        while gate is not None:
            _arrive(gate, self._folder.name, step)
            while _is_there(gate) and not _stopping(self, gate):
                time.sleep(_POLL_SECONDS)
            gate = None if _stopping(self, gate) else _shut(self, step)

    writer.RunWriter.progress = progress


def note_flags_of_jobs(kinds: ModuleType) -> None:
    """Whoever performs a run hands its writer and its flag to the job."""

    def noting(load: Callable[[], Callable[..., None]]) -> Callable[[], Callable[..., None]]:
        def noting_job() -> Callable[..., None]:
            job = load()

            def perform(run: Any, writer: Any, stop: Any, *rest: Any) -> None:
                _flags[writer] = stop
                job(run, writer, stop, *rest)

            return perform

        return noting_job

    kinds.KINDS = {kind: noting(load) for kind, load in kinds.KINDS.items()}


def note_flags_of_observers(observer: ModuleType) -> None:
    """Of trials, which a search may perform without asking anybody else."""
    begin = observer.StoreObserver.__init__

    @functools.wraps(begin)
    def initialise(self: Any, writer: Any, stop: Any, *rest: Any, **options: Any) -> None:
        _flags[writer] = stop
        begin(self, writer, stop, *rest, **options)

    observer.StoreObserver.__init__ = initialise


def stay_near_others(slots: ModuleType) -> None:
    """Work in the background comes after the rest of the machine, here after all the other tests: for minutes."""
    slots._NICENESS = 1


PATCHES: dict[str, Callable[[ModuleType], None]] = {
    "recon_core.store.writer": hold_writers,
    "recon_core.kinds": note_flags_of_jobs,
    "recon_core.runs.observer": note_flags_of_observers,
    "recon_core.scheduling.slots": stay_near_others,
}


def _shut(writer: Any, step: int) -> tuple[Path, int, dict[str, Any]] | None:
    """The gate that holds this run at this step: its file, that file's number, what it says."""
    folder = os.environ.get(VARIABLE)
    if not folder or writer._started_at is None:
        return None
    for path in sorted(Path(folder).glob("*.gate")):
        try:
            with path.open() as file:
                inode, told = os.fstat(file.fileno()).st_ino, json.load(file)
        except FileNotFoundError:  # opened just now
            continue
        if step >= told["step"] and _is_meant(writer._folder, told):
            return path, inode, told
    return None


def _is_meant(folder: Path, told: dict[str, Any]) -> bool:
    if folder.name.split("-")[0] != told["kind"]:
        return False
    return all(word in _name(folder) for word in told["words"])


def _name(folder: Path) -> str:
    """Id and name: a run that a study makes is known by what it is called."""
    try:
        return folder.name + " " + str(json.loads((folder / "name.json").read_text())["name"])
    except FileNotFoundError:
        return folder.name


def _is_there(gate: tuple[Path, int, dict[str, Any]]) -> bool:
    """One that was moved is another file."""
    try:
        return os.stat(gate[0]).st_ino == gate[1]
    except FileNotFoundError:
        return False


def _stopping(writer: Any, gate: tuple[Path, int, dict[str, Any]]) -> bool:
    if gate[2]["deaf"]:
        return False
    flag = _flags.get(writer)
    return (flag is not None and flag.raised) or bool(writer.cancel_requested())


def _arrive(gate: tuple[Path, int, dict[str, Any]], run_id: str, step: int) -> None:
    path = gate[0].with_suffix(f".{run_id}.reached")
    scratch = path.with_suffix(f".{os.getpid()}")
    scratch.write_text(json.dumps({"run_id": run_id, "step": step, "pid": os.getpid()}))
    scratch.replace(path)


class _Patching(importlib.abc.MetaPathFinder):
    """Patches the modules above when they are imported, which most processes do late or never."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name not in PATCHES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                PATCHES[name](module)

            loader.exec_module = exec_module
        return spec


def patch_when_imported() -> None:
    sys.meta_path.insert(0, _Patching())
