"""One run, as a reader sees it: everything in its folder by name."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recon_core.errors import InputError
from recon_core.store import layout, lock
from recon_core.store.files import DamagedError, explaining, is_temporary, last_lines, read_json, read_object
from recon_core.store.foreign import Imported, lacks_path, mark_of, with_path
from recon_core.store.metrics import read_metrics
from recon_core.store.notes import Notes, read_notes
from recon_core.store.private import touch_private
from recon_core.store.record import Record, RunState, Status, read_name, read_record, resolved_status
from recon_core.store.tensors import read_tensors
from recon_core.store.writer import RunWriter

if TYPE_CHECKING:
    import torch


class Run:
    """A run in a store. Reading never changes anything and never waits for the process that writes."""

    def __init__(self, folder: Path) -> None:
        self.dir = folder
        with self._naming_damage():
            self._record: Record = read_record(folder)

    @contextlib.contextmanager
    def _naming_damage(self) -> Iterator[None]:
        try:
            yield
        except DamagedError as fault:
            raise InputError(
                f"run {self.dir.name} is damaged: {fault}; check the store for all that is wrong"
            ) from None

    @property
    def id(self) -> str:
        return self._record.id

    @property
    def kind(self) -> str:
        return self._record.kind

    @property
    def created(self) -> str:
        """ISO 8601, UTC, by the clock of that moment."""
        return self._record.created

    @property
    def parents(self) -> tuple[str, ...]:
        """Ids of the runs this one was made from."""
        return self._record.parents

    @property
    def command(self) -> tuple[str, ...]:
        """Arguments that repeat this run. None for an imported one, whose command is the word of somebody else."""
        return () if self.imported is not None else self._record.command

    @property
    def imported(self) -> Imported | None:
        """When it came from elsewhere and what was left out of it then; None for a run made here."""
        return mark_of(self.dir)

    @property
    def versions(self) -> dict[str, str]:
        return dict(self._record.versions)

    @property
    def name(self) -> str:
        """The user's name for it, or the id where it has none."""
        try:
            return read_name(self.dir) or self.id
        except DamagedError:
            return self.id

    @property
    def notes(self) -> Notes:
        """The user's tags and note."""
        return read_notes(self.dir)

    @property
    def config(self) -> dict[str, Any]:
        """The settings of the run; for an imported run, with the path that was attached to it."""
        with self._naming_damage():
            config = read_object(self.dir / layout.CONFIG)
        mark = mark_of(self.dir)
        return with_path(config, mark.attached) if mark is not None and mark.attached else config

    @property
    def lacks_path(self) -> bool:
        """Whether the path of its data was removed at import and none was attached since."""
        return self.imported is not None and lacks_path(self.config)

    def refuse_nonsense(self) -> None:
        """Say what makes no sense in an imported run: it is there to be looked at, and used for nothing."""
        mark = self.imported
        if mark is not None and mark.fault:
            raise InputError(f"run {self.id} was imported and makes no sense: {mark.fault}")

    def refuse_without_path(self) -> None:
        """Raise an `InputError` for an imported run whose data are missing; the message says how to attach them."""
        if self.lacks_path:
            raise InputError(
                f"what run {self.id} reads was left out when it was imported; attach your own with: "
                f"python -m recon_core runs attach {self.id} PATH"
            )

    def status(self) -> Status:
        """How far it is. A run that says running while no process holds its lock is interrupted."""
        return resolved_status(self.dir)

    def metrics(self, tail: int | None = None) -> list[dict[str, Any]]:
        """Rows in order of `step`, later lines winning over earlier ones of the same step.

        `tail` reads only the end of the file: the last rows written.
        """
        return read_metrics(self.dir / layout.METRICS, tail)

    def log_tail(self, lines: int = 20) -> list[str]:
        """The last lines of log.txt."""
        return [line.decode(errors="replace") for line in last_lines(self.dir / layout.LOG, lines)]

    def result(self) -> dict[str, Any] | None:
        path = self.dir / layout.RESULT
        with self._naming_damage():
            return read_object(path) if path.exists() else None

    def has_tensors(self, name: str) -> bool:
        return (self.dir / layout.tensors_file(name)).is_file()

    def tensors(self, name: str) -> dict[str, torch.Tensor]:
        """`<name>.safetensors`, on the CPU."""
        if not self.has_tensors(name):
            raise InputError(f"run {self.id} has no {name}.safetensors; it is {self.status().state}")
        with self._naming_damage():
            return read_tensors(self.dir / layout.tensors_file(name))

    def read_json(self, name: str) -> Any:
        """What the writer saved as `<name>.json`; None where it did not."""
        path = self.dir / layout.json_file(name)
        with self._naming_damage():
            return read_json(path) if path.exists() else None

    def content_version(self) -> str:
        """A cheap key for caches: it changes whenever a file does, but not when the writing process dies."""
        digest = hashlib.blake2b(digest_size=16)
        for entry in sorted(os.scandir(self.dir), key=lambda entry: entry.name):
            if entry.name != layout.LOCK and not is_temporary(entry.name):
                try:
                    found = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                # The inode tells two replacements within one tick of the clock apart.
                digest.update(f"{entry.name}\0{found.st_ino}\0{found.st_mtime_ns}\0{found.st_size}\0".encode())
        return digest.hexdigest()

    def writer(self) -> RunWriter:
        """The right to work on this run, for one process at a time, in a `with` block.

        Entering it fails with a sentence while another process has it, and for runs that are done.
        """
        return RunWriter(self.dir)

    def cancel_requested(self) -> bool:
        """Whether a stop was requested and has not happened yet."""
        return (self.dir / layout.CANCEL).exists()

    def request_cancel(self) -> bool:
        """Request that the run stops, or remove it from the queue. Returns whether there was anything to stop."""
        state = self.status().state
        if state is RunState.QUEUED and not lock.is_held(self.dir / layout.LOCK):
            try:
                with self.writer() as writer:
                    waits = writer.state is RunState.QUEUED  # unless it was started and ended since we looked
                    if waits:
                        writer.finish(RunState.CANCELLED, None, "cancelled before it started")
                return waits
            except InputError:  # somebody took it in between, or the store is read-only
                if self.status().state is RunState.QUEUED and not lock.is_held(self.dir / layout.LOCK):
                    raise
        if not lock.is_held(self.dir / layout.LOCK):
            return False
        with explaining(self.dir / layout.CANCEL):
            touch_private(self.dir / layout.CANCEL)
            if self.status().state is RunState.DONE:  # it ended meanwhile, and nothing would ever remove the flag
                (self.dir / layout.CANCEL).unlink(missing_ok=True)
                return False
        return True
