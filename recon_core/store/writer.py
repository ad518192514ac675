"""The one process that works on a run: it holds the lock, and what it writes survives its own death."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from recon_core.errors import AfterimageError, InputError
from recon_core.store import layout, lock
from recon_core.store.files import (
    Appender,
    DamagedError,
    encode_json,
    explaining,
    is_temporary,
    remove_tree,
    sync_folder,
    temporary,
    write_json,
)
from recon_core.store.metrics import drop_torn_line
from recon_core.store.private import private_folder
from recon_core.store.record import RunState, interrupted, now, read_status, seal, write_status
from recon_core.store.tensors import check_tensors, read_tensors, write_tensors

if TYPE_CHECKING:
    import torch

_STATUS_INTERVAL = 0.5
_CANCEL_INTERVAL = 0.2
_CHECKPOINTS_KEPT = 2
SHORT_WORDS = "not enough memory"
# The words of torch, on the CPU and on GPUs, and of numpy.
_NO_MEMORY = re.compile(
    "not enough memory|can(?:'t|not) allocate memory|out of memory|Unable to allocate", re.IGNORECASE
)
_ASKED_FOR = re.compile(r"allocate (\d+) bytes")
_LEAVING_SECONDS = 5.0
"""How long the process of a run that has ended may take from its last word to the end of its lock."""


@dataclass(frozen=True)
class Checkpoint:
    """Where a run can go on from. Tensors are on the CPU."""

    step: int
    tensors: dict[str, torch.Tensor]
    meta: dict[str, Any]


class RunWriter:
    """`with run.writer() as writer:` takes the run's lock; see `Run.writer`.

    Leaving the block with an exception records it: failed, or cancelled for Ctrl-C. Leaving a started run
    without `finish` records it as interrupted. All three can be taken up again.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._id = folder.name
        self._lock: int | None = None
        self._ended = False

    def __enter__(self) -> Self:
        path = self._folder / layout.LOCK
        if not self._folder.is_dir():
            raise InputError(f"run {self._id} has been deleted; start a new one")
        handle = lock.acquire(path)
        if handle is None and _has_ended(self._folder):
            handle = lock.acquire(path, _LEAVING_SECONDS)
        if handle is None:
            raise InputError(
                f"run {self._id} is already running in process {lock.holder(path)}; wait for it or cancel it"
            )
        self._lock = handle
        try:
            if not _is_still(path, handle):
                raise InputError(f"run {self._id} has just been deleted; start a new one")
            self._take_over()
        except BaseException:
            self._release()
            raise
        return self

    def _take_over(self) -> None:
        """Read the state that the last writer left, and remove its temporary files if it was killed."""
        try:
            self._status = read_status(self._folder)
        except DamagedError as fault:
            raise InputError(f"run {self._id} cannot continue: {fault}; delete it and repeat its command") from None
        if self._status.state is RunState.DONE:
            tidy(self._folder)
            raise InputError(f"run {self._id} is done and finished runs cannot change; start a new one instead")
        if self._status.state is RunState.RUNNING:
            self._status = interrupted(self._status)
        self._active_before = self._status.seconds
        self._started_at: float | None = None
        self._status_written_at = -float("inf")
        self._cancel_looked_at = -float("inf")
        self._cancelled = False
        _clear_temporaries(self._folder)
        with explaining(self._folder / layout.METRICS):
            torn = drop_torn_line(self._folder / layout.METRICS)
        if self._status.state is not RunState.QUEUED:
            # The flag stopped an earlier try; one put up while the run waits or starts is meant for this one.
            _lower_flag(self._folder)
        with contextlib.ExitStack() as opened:
            self._log_file = Appender(self._folder / layout.LOG)
            opened.callback(self._log_file.close)
            self._metrics_file = Appender(self._folder / layout.METRICS)
            opened.callback(self._metrics_file.close)
            if torn:
                self.log("the last line of metrics.jsonl was torn and has been dropped")
            self._files = opened.pop_all()

    @property
    def state(self) -> RunState:
        """As the last writer left it, or this one has set it since."""
        return self._status.state

    def start(self, total: int | None) -> None:
        """Mark the run as running, towards `total` steps (None where that is unknown)."""
        self._open_for_writing()
        if self._status.state is not RunState.QUEUED:
            self.log(f"resumed after it was {self._status.state} at step {self._status.step}")
        with explaining(self._folder):
            (self._folder / layout.RESULT).unlink(missing_ok=True)  # of a try that was stopped
        self._started_at = time.monotonic()
        self._status = replace(
            self._status,
            state=RunState.RUNNING,
            total=total,
            message="",
            started=self._status.started or now(),
            pid=os.getpid(),
        )
        self._write_status()

    def progress(self, step: int, message: str = "", *, total: int | None = None, force: bool = False) -> None:
        """Say how far the work is, and towards how many steps if the estimate has changed.

        Written at most twice a second unless forced, so call it at every step.
        """
        self._open_for_writing()
        self._status = replace(self._status, step=step, message=message, total=total or self._status.total)
        if force or time.monotonic() - self._status_written_at >= _STATUS_INTERVAL:
            self._write_status()

    def metrics(self, row: Mapping[str, float | int | str | list[Any]]) -> None:
        """Append one row; rows of one step count as one, the last written (see `Run.metrics`)."""
        self._open_for_writing()
        self._metrics_file.append(encode_json(dict(row)) + b"\n")

    def log(self, sentence: str) -> None:
        """Append a sentence with its time to log.txt; further lines of it are indented."""
        self._open_for_writing()
        text = sentence.rstrip().replace("\n", "\n    ")
        self._log_file.append(f"{now()} {text}\n".encode(errors="backslashreplace"))

    def checkpoint(self, step: int, tensors: Mapping[str, torch.Tensor], meta: Mapping[str, Any]) -> None:
        """Store where `step` is, whole or not at all. The last two are kept."""
        self._open_for_writing()
        self._metrics_file.sync()  # a run that resumes here finds its rows up to here
        folder = self._folder / layout.CHECKPOINTS
        if not self._folder.is_dir():
            raise AfterimageError(f"{self._folder} is gone, so no checkpoint could be written; start anew")
        with explaining(folder):
            private_folder(folder)
        metadata = {"step": str(step), "meta": encode_json(dict(meta)).decode()}
        write_tensors(folder / layout.checkpoint_file(step), tensors, metadata)
        with explaining(folder):
            sync_folder(folder)
            steps = self._checkpoint_steps()
            kept = [other for other in steps if other <= step][:_CHECKPOINTS_KEPT]
            for other in steps:  # those beyond `step` belong to a try that was given up
                if other not in kept:
                    (folder / layout.checkpoint_file(other)).unlink()

    def latest_checkpoint(self) -> Checkpoint | None:
        """The last checkpoint that is whole. A damaged one is removed, and the log says so."""
        self._open_for_writing()
        for step in self._checkpoint_steps():
            path = self._folder / layout.CHECKPOINTS / layout.checkpoint_file(step)
            try:
                return _read_checkpoint(path, step)
            except DamagedError as fault:
                self.log(f"the checkpoint of step {step} is damaged and was removed, the one before is used: {fault}")
                with explaining(path):
                    path.unlink(missing_ok=True)
        return None

    def save_tensors(self, name: str, tensors: Mapping[str, torch.Tensor]) -> None:
        """Write `<name>.safetensors`."""
        self._open_for_writing()
        write_tensors(self._folder / layout.tensors_file(name), tensors, {})

    def save_json(self, name: str, value: Any) -> None:
        """Write `<name>.json`."""
        self._open_for_writing()
        write_json(self._folder / layout.json_file(name), value)

    def reconfigure(self, config: Mapping[str, Any]) -> None:
        """Change what stands in config.json, e.g. where a run is to go on. What it computes must stay the same."""
        self._open_for_writing()
        write_json(self._folder / layout.CONFIG, dict(config))

    def cancel_requested(self) -> bool:
        """Whether somebody asked for an end; looks at the disk at most five times a second."""
        if not self._cancelled and time.monotonic() - self._cancel_looked_at >= _CANCEL_INTERVAL:
            self._cancel_looked_at = time.monotonic()
            self._cancelled = (self._folder / layout.CANCEL).exists()
        return self._cancelled

    def finish(self, state: RunState, result: Mapping[str, Any] | None, message: str = "") -> None:
        """Set the final state: done, cancelled, failed or interrupted. Done is permanent; files become read-only."""
        self._open_for_writing()
        if state in (RunState.QUEUED, RunState.RUNNING):
            raise ValueError(f"a run cannot finish as {state}")
        if result is None and state is RunState.DONE:
            result = {}
        # Done means that all of it is on the disk. Of a run that ends early the status matters more than its log.
        with contextlib.nullcontext() if state is RunState.DONE else contextlib.suppress(AfterimageError):
            self._metrics_file.sync()
            if result is not None:
                write_json(self._folder / layout.RESULT, dict(result))
            self.log(f"{state}{': ' + message if message else ''}")
            self._log_file.sync()
        self._end(state, message)
        if state is RunState.DONE:
            tidy(self._folder)

    def requeue(self, message: str = "") -> None:
        """Queue a run that ended early again, for another process to take up."""
        self._open_for_writing()
        _lower_flag(self._folder)
        self._end(RunState.QUEUED, message)

    def _end(self, state: RunState, message: str) -> None:
        self._status = replace(self._status, state=state, message=message, pid=None)
        self._write_status()
        with explaining(self._folder):
            sync_folder(self._folder)
        self._ended = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if not self._ended:
                self._record_exit(error)
        except (AfterimageError, OSError):
            # With the disk full the first error is the one to tell; the status then reads as interrupted.
            if error is None:
                raise
        finally:
            self._files.close()
            self._release()

    def _record_exit(self, error: BaseException | None) -> None:
        if error is None:
            if self._status.state is RunState.RUNNING:
                self.finish(RunState.INTERRUPTED, None, "it stopped before it was finished; resume it to continue")
        elif isinstance(error, KeyboardInterrupt):
            again = f"python -m recon_core runs resume {self._id}"
            self.finish(RunState.CANCELLED, None, f"stopped by the user; resume it with: {again}")
        elif isinstance(error, SystemExit):
            self.finish(RunState.INTERRUPTED, None, "its process was asked to stop; resume it to continue")
        else:
            if not isinstance(error, AfterimageError):  # which says all that there is to say
                with contextlib.suppress(AfterimageError):  # the status matters more than the trace
                    self.log("".join(traceback.format_exception(error)))
            self.finish(RunState.FAILED, None, _one_line(error))

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _open_for_writing(self) -> None:
        if self._lock is None or self._ended:
            raise RuntimeError(f"the writer of run {self._id} is not open: use it inside `with`, before finish")

    def _write_status(self) -> None:
        active = 0.0 if self._started_at is None else time.monotonic() - self._started_at
        self._status = replace(self._status, updated=now(), seconds=round(self._active_before + active, 3))
        write_status(self._folder, self._status)
        self._status_written_at = time.monotonic()

    def _checkpoint_steps(self) -> list[int]:
        """Steps that have a checkpoint, the last first."""
        try:
            names = os.listdir(self._folder / layout.CHECKPOINTS)
        except FileNotFoundError:
            return []
        steps = (layout.checkpoint_step(name) for name in names)
        return sorted((step for step in steps if step is not None), reverse=True)


def tidy(folder: Path) -> None:
    """A done run needs no checkpoints and no flag, and its files change no more. For whoever holds its lock."""
    _lower_flag(folder)
    _clear_temporaries(folder)
    remove_tree(folder / layout.CHECKPOINTS)
    seal(folder)


def _lower_flag(folder: Path) -> None:
    with explaining(folder):
        (folder / layout.CANCEL).unlink(missing_ok=True)


def _clear_temporaries(folder: Path) -> None:
    """Remove half-written files of a killed writer; name and notes may be being written by somebody else."""
    kept = {temporary(folder / layout.NAME), temporary(folder / layout.NOTES)}
    for place in (folder, folder / layout.CHECKPOINTS):
        if not place.is_dir():
            continue
        for path in place.iterdir():
            if is_temporary(path.name) and path not in kept:
                with explaining(path):
                    path.unlink(missing_ok=True)


def _has_ended(folder: Path) -> bool:
    """Whether a run that is still locked has said its last word, and can be taken up again in a moment."""
    try:
        return read_status(folder).state not in (RunState.QUEUED, RunState.RUNNING)
    except DamagedError:
        return False


def _is_still(path: Path, handle: int) -> bool:
    """Whether `path` is the file that is open as `handle`; a deleted run's folder has been moved away."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False


def _read_checkpoint(path: Path, step: int) -> Checkpoint:
    metadata = check_tensors(path)
    try:
        meta = json.loads(metadata["meta"])
    except (KeyError, ValueError, RecursionError):
        raise DamagedError(f"{path.name} carries no meta") from None
    if not isinstance(meta, dict):
        raise DamagedError(f"{path.name} carries meta that is no object")
    if metadata.get("step") != str(step):
        raise DamagedError(f"{path.name} holds step {metadata.get('step')}")
    return Checkpoint(step, read_tensors(path), meta)


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, AfterimageError):
        return text
    short = lack_of_memory(error)
    if short is not None:
        return f"{short}, use fewer workers, then resume it"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def lack_of_memory(error: BaseException) -> str | None:
    """The failed allocation that `error` stands for, in words; None for any other error."""
    text = " ".join(str(error).split())
    if isinstance(error, AfterimageError) or not (isinstance(error, MemoryError) or _NO_MEMORY.search(text)):
        return None
    asked = _ASKED_FOR.search(text)
    wanted = f"{int(asked[1]) / 2**30:,.1f} GiB more were asked for" if asked else "an allocation failed"
    return f"{SHORT_WORDS}: {wanted}; make the network or m smaller"
