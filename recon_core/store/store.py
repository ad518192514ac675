"""The run store: a folder of run folders."""

from __future__ import annotations

import builtins
import contextlib
import difflib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from recon_core.errors import InputError
from recon_core.store import layout, lock
from recon_core.store.archive import Judge, ZipLimits, export_runs, import_runs
from recon_core.store.check import Problem, check_store
from recon_core.store.files import explaining, remove_tree, sync_folder, write_atomic, write_json
from recon_core.store.foreign import attach_path
from recon_core.store.ids import checked_id, checked_name, is_id, new_id
from recon_core.store.notes import Notes, checked_notes, write_notes
from recon_core.store.private import link_error, private_folder, refuse_links_in
from recon_core.store.record import (
    Record,
    RunState,
    RunSummary,
    Status,
    command_line,
    current_versions,
    now,
    write_name,
    write_record,
    write_status,
)
from recon_core.store.run import Run
from recon_core.store.summaries import Summaries
from recon_core.store.workspace import clear_leftovers, gate, hidden_folder, refuse_own_links, workspace

STORE_VARIABLE = "AFTERIMAGE_STORE"
_TYPO = 0.9  # share of letters; kind and date alone are 0.7 to 0.8 of the id of another run of that day


def default_root() -> Path:
    """Where runs are kept: the folder named by AFTERIMAGE_STORE, else `runs` in the current one."""
    return Path(os.environ.get(STORE_VARIABLE) or "runs").absolute()


def dependents_among(summaries: Sequence[RunSummary], run_id: str) -> list[RunSummary]:
    """Those of `summaries` made from that run, and from those, and so on; in their order."""
    found = {run_id}
    grown = True
    while grown:
        before = len(found)
        found |= {summary.id for summary in summaries if found.intersection(summary.parents)}
        grown = len(found) > before
    return [summary for summary in summaries if summary.id in found and summary.id != run_id]


class RunStore:
    """Runs below one folder, which is made when the first run is. Several processes may use it at once."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root)
        self._summaries = Summaries(self.root)

    def create(
        self,
        kind: str,
        config: Mapping[str, Any],
        *,
        name: str | None = None,
        parents: Sequence[str] = (),
        command: Sequence[str] = (),
    ) -> Run:
        """A new run, queued. `command` is stored word by word as what repeats it."""
        checked = None if name is None else checked_name(name)
        for parent in parents:
            self._folder(parent)
        with workspace(self.root) as work:
            record = Record(new_id(kind), kind, now(), tuple(parents), tuple(command), current_versions())
            folder = work / record.id
            with explaining(folder):
                private_folder(folder)
            write_record(folder, record)
            write_json(folder / layout.CONFIG, dict(config))
            write_status(folder, Status(RunState.QUEUED, updated=record.created))
            write_atomic(folder / layout.COMMAND, [command_line(command)])
            write_atomic(folder / layout.LOCK, [])  # there from the start, so that a full disk cannot stop a deletion
            if checked is not None:
                write_name(folder, checked)
            with gate(self.root, exclusive=False), explaining(folder):
                for parent in parents:  # no run can be deleted from here on
                    self._folder(parent)
                os.rename(folder, self.root / record.id)
                sync_folder(self.root)
        return Run(self.root / record.id)

    def open(self, run_id: str) -> Run:
        return Run(self._folder(run_id))

    def summary(self, run_id: str) -> RunSummary:
        """The summary of a run. Cheap to ask for again: only what has changed is read."""
        folder = self._folder(run_id)
        try:
            return self._summaries.of(folder)
        except FileNotFoundError:
            raise InputError(f"run {run_id} has just been deleted; start a new one") from None

    def list(self, kind: str | None = None) -> builtins.list[RunSummary]:
        """All runs (of one kind), the newest first. Damaged ones are listed as failed."""
        folders = builtins.list(self._folders())
        self._summaries.open()
        summaries = []
        for folder in folders:
            try:
                summary = self._summaries.of(folder)
            except FileNotFoundError:  # deleted while we looked
                continue
            if kind is None or summary.kind == kind:
                summaries.append(summary)
        self._summaries.keep_only(folders)
        self._summaries.close()
        return sorted(summaries, key=lambda summary: (summary.created, summary.id), reverse=True)

    def rename(self, run_id: str, name: str) -> None:
        """Give a run the user's name; the one thing that may change in a finished run."""
        checked = checked_name(name)
        self._folder(run_id)
        with gate(self.root, exclusive=True):
            write_name(self._folder(run_id), checked)

    def annotate(self, run_id: str, notes: Notes) -> None:
        """Keep the user's tags and note of a run; like its name they may change at any time."""
        checked = checked_notes(notes)
        with gate(self.root, exclusive=True):
            write_notes(self._folder(run_id), checked)

    def attach(self, run_id: str, path: Path) -> None:
        """Let an imported run read `path`, its images or its file, in place of the one that was left out."""
        with gate(self.root, exclusive=True):
            attach_path(self._folder(run_id), path)

    def dependents(self, run_id: str) -> builtins.list[RunSummary]:
        """Runs made from this one, and from those, and so on; the newest first."""
        self._folder(run_id)
        return dependents_among(self.list(), run_id)

    def delete(self, run_id: str, *, with_dependents: bool = False) -> None:
        """Remove a run for good; refuses while a process works on it, or while others depend on it."""
        self._folder(run_id)
        with contextlib.ExitStack() as held:
            doomed: builtins.list[Path] = []
            with gate(self.root, exclusive=True):
                clear_leftovers(self.root)
                dependents = [summary.id for summary in self.dependents(run_id)]
                if dependents and not with_dependents:
                    some = ", ".join(dependents[:5]) + (
                        f" and {len(dependents) - 5} more" if len(dependents) > 5 else ""
                    )
                    raise InputError(f"run {run_id} is needed by {some}; delete what needs it first, or all together")
                names = [*dependents, run_id]
                for name in names:
                    held.enter_context(self._held_lock(name))
                for name in names:  # dependents first, so that no run ever lacks its parent
                    hidden = hidden_folder(self.root)
                    with explaining(self.root / name):
                        os.rename(self.root / name, hidden)
                    doomed.append(hidden)
            for hidden in doomed:
                remove_tree(hidden)

    def export(self, run_id: str, target: Path, with_parents: bool = True, with_dependents: bool = False) -> Path:
        """Write a run (and all it was made from, or that was made from it) to a zip; a folder gets `<id>.zip`."""
        ids = [run_id, *([run.id for run in self.dependents(run_id)] if with_dependents else [])]
        for known in ids:  # grows while it is walked
            run = self.open(known)
            if lock.is_held(run.dir / layout.LOCK):
                raise InputError(f"run {known} is running; wait until it ends or cancel it, then export")
            if with_parents:
                ids.extend(parent for parent in run.parents if parent not in ids)
        target = Path(target)
        if target.is_dir():
            target = target / f"{run_id}.zip"
        return export_runs([self.root / known for known in ids], target)

    def import_zip(
        self, path: Path, *, limits: ZipLimits | None = None, judge: Judge = lambda folder: ""
    ) -> builtins.list[Run]:
        """Take in the runs of a zip that `export` made, parents first.

        An id that is taken by something else is replaced by a fresh one, everywhere in the zip. A run that
        is here already, file for file, is kept as it is and returned like the others. A run in which `judge`
        finds something that makes no sense is listed as failed, and says so; see `recon_core.kinds.import_zip`.
        """
        return [Run(self.root / run_id) for run_id in import_runs(self.root, Path(path), limits or ZipLimits(), judge)]

    def check(self) -> builtins.list[Problem]:
        """What is wrong in the store; changes nothing."""
        return check_store(self.root)

    def _folders(self) -> Iterator[Path]:
        try:
            entries = builtins.list(os.scandir(self.root))
        except FileNotFoundError:
            return
        except OSError as error:
            raise InputError(
                f"the store {self.root} cannot be read ({error.strerror}); choose another folder"
            ) from None
        for entry in entries:
            if entry.is_symlink() and (is_id(entry.name) or entry.name.startswith(".")):
                raise link_error(Path(entry.path))
            if is_id(entry.name) and entry.is_dir(follow_symlinks=False):
                yield Path(entry.path)

    def _folder(self, run_id: str) -> Path:
        folder = self.root / checked_id(run_id)
        refuse_own_links(self.root)
        with explaining(self.root):
            refuse_links_in(folder)
        refuse_links_in(folder / layout.CHECKPOINTS)
        if not folder.is_dir():
            known = [path.name for path in self._folders()]
            close = difflib.get_close_matches(run_id, known, n=3, cutoff=_TYPO)
            hint = f"did you mean {' or '.join(close)}?" if close else "use an id the list shows"
            raise InputError(f"there is no run {run_id} in {self.root}, it may have been deleted; {hint}")
        return folder

    @contextlib.contextmanager
    def _held_lock(self, run_id: str) -> Iterator[None]:
        path = self.root / run_id / layout.LOCK
        handle = lock.acquire(path)
        if handle is None:
            raise InputError(f"run {run_id} is running in process {lock.holder(path)}; cancel it before deleting")
        try:
            yield
        finally:
            os.close(handle)
