"""What tests with real background runs share: waiting for them, and leaving none behind."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

from recon_core.scheduling.queue import module_environment
from recon_core.store import Run


def wait_for(condition: Callable[[], Any], seconds: float = 120.0, what: str = "it") -> None:
    """The limit tells never from late, and says nothing about how fast the machine is."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds:.0f} s"
        time.sleep(0.02)


@contextlib.contextmanager
def reserved_port(address: str = "127.0.0.1") -> Iterator[int]:
    """A port that nobody else is given meanwhile; a server that is told its number can listen there all the same."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((address, 0))
        yield int(held.getsockname()[1])


@contextlib.contextmanager
def started(command: list[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A process, and all it starts, that is gone afterwards whatever happens."""
    with subprocess.Popen(command, start_new_session=True, **options) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@contextlib.contextmanager
def worker_of(run: Run) -> Iterator[subprocess.Popen[bytes]]:
    """A process that performs `run`, with one thread."""
    command = [sys.executable, "-m", "recon_core.worker", str(run.dir)]
    try:
        with started(command, env={**module_environment(), "OMP_NUM_THREADS": "1"}) as process:
            yield process
    finally:
        end_processes(run.dir.parent)  # those that lead groups of their own


def end_processes(root: Path) -> None:
    """Kill whatever works for a store: its scheduler, workers that have not begun yet, and what those started."""
    while found := _working_for(root):
        for process in found:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(found, timeout=10)


def _working_for(root: Path) -> list[psutil.Process]:
    mine = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    found: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        try:
            if process.pid in mine or not _names(process, root) or process.status() == psutil.STATUS_ZOMBIE:
                continue
            for one in (process, *process.children(recursive=True)):
                if one.status() != psutil.STATUS_ZOMBIE:
                    found[one.pid] = one
        except psutil.Error:  # gone meanwhile, or somebody else's
            continue
    return list(found.values())


def _names(process: psutil.Process, root: Path) -> bool:
    """By its arguments, or by the store it was given as its own; an app is ended by whoever started it."""
    words = process.cmdline()
    if not any(word.split(".")[0] == "recon_core" for word in words):
        return False
    if any(Path(word) == root or root in Path(word).parents for word in words):
        return True
    return process.environ().get("AFTERIMAGE_STORE") == str(root)


def end_writers(folder: Path) -> None:
    """Kill the processes that have a file below `folder` open, e.g. a log, whatever they call themselves."""
    while found := [process for process in psutil.process_iter() if _writes(process, folder)]:
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(found, timeout=10)


def _writes(process: psutil.Process, folder: Path) -> bool:
    try:
        return process.pid != os.getpid() and any(folder in Path(file.path).parents for file in process.open_files())
    except psutil.Error:  # gone meanwhile, or somebody else's
        return False


def end_leftovers(folder: Path, seconds: float = 20.0) -> list[str]:
    """Kill the processes that work below `folder` and do not leave by themselves; their command lines."""
    deadline = time.monotonic() + seconds
    while (left := _working_below(folder)) and time.monotonic() < deadline:
        time.sleep(0.2)
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()
    return [" ".join(_command(process)) for process in left]


def _working_below(folder: Path) -> list[psutil.Process]:
    """A process is known by a path in its command line, or by the store it was started for."""
    found = []
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        with contextlib.suppress(psutil.Error):
            store = process.environ().get("AFTERIMAGE_STORE", "")
            words = [*_command(process), store]
            if any(word.startswith(f"{folder}{os.sep}") for word in words) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
