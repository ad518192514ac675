"""The real app as processes that can be killed, small disks, and short runs whose end is known."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from benchmarks.visitors import Visitor
from recon_core.scheduling import queue
from recon_core.store import Run, RunState, RunStore, lock
from tests.processes import reserved_port, wait_for

PROJECT = Path(__file__).resolve().parents[2]
_IMAGES: Mapping[str, Any] = {"data": {"source": "cifar10", "n": 8, "test_n": 16}, "model": {"widths": [60, 60]}}
SHORT: Mapping[str, Any] = {**_IMAGES, "training": {"recipe": "flow", "target_loss": 1e-6}}
# Reports every EACH steps, so that a gate can hold it at any of them.
EACH = 20
STEPWISE: Mapping[str, Any] = {**_IMAGES, "training": {"recipe": "paper", "epochs": 400, "measure_every": EACH}}
ATTACK: Mapping[str, Any] = {"m": 16, "iterations": 200, "seeds": 2, "measure_every": EACH}


class App:
    """`streamlit run app.py` in a process group of its own."""

    def __init__(self, log: Path, environment: Mapping[str, str] | None = None) -> None:
        self._reserved = contextlib.ExitStack()
        port = self._reserved.enter_context(reserved_port())
        self.url, self.log = f"http://127.0.0.1:{port}", log
        command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.headless", "true"]
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [*command, "--server.port", str(port)],
                cwd=PROJECT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **(environment or {})},
            )
        try:
            wait_for(self._answers, what="an answer of the app")
        except BaseException:
            self.kill()
            raise

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            with urllib.request.urlopen(f"{self.url}/_stcore/health", timeout=2):
                return True
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            return False

    def visit(self, page: str = "", query: str = "") -> Visitor:
        return Visitor(self.url, page, query)

    def kill(self) -> None:
        """-9, with whatever else is in its process group."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._reserved.close()


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A real disk of its own. Needs the right to mount."""
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={size}", "none"]
    if subprocess.run(["mount", *options, str(folder)], capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine does not let us mount a small disk")
    try:
        yield folder
    finally:
        try:  # a process that was killed a moment ago may still have a file open
            wait_for(lambda: _unmounted(folder), what=f"unmounting {folder}")
        except AssertionError:
            _unmounted(folder, "--lazy")  # gone once the last file is closed
            raise


def _unmounted(folder: Path, *options: str) -> bool:
    return subprocess.run(["umount", *options, str(folder)], capture_output=True, check=False).returncode == 0


def waiting_to_be_resumed(store: RunStore, config: Mapping[str, Any], name: str) -> Run:
    """A run whose button in the app puts it in line."""
    run = store.create("train", config, name=name)
    assert run.request_cancel()
    return run


def attack_on(store: RunStore, model: Run) -> Run:
    return store.create("reconstruct", {"model": model.id, "settings": ATTACK}, parents=[model.id])


def resume_in(app: App, run: Run) -> None:
    with app.visit(query=f"run={run.id}") as visitor:
        visitor.wait_until(lambda page: "Resume" in page.words)
        visitor.press("Resume")
        visitor.wait_until(lambda page: "Resume" not in page.words)


def state(run: Run) -> RunState:
    return run.status().state


def scheduler_of(store: RunStore) -> int:
    return int(lock.holder(queue.scheduler_lock(store.root)))


def processes_of(store: RunStore, module: str) -> set[int]:
    """Processes that run this module of ours on this store."""
    found = {}
    for process in psutil.process_iter(["cmdline", "ppid"]):
        words = process.info["cmdline"] or []
        if module in words and any(word.startswith(str(store.root)) for word in words):
            found[process.pid] = process.info["ppid"]
    # One that has just been forked, to become another program in a moment, still bears its parent's name.
    return {pid for pid, parent in found.items() if parent not in found}


def unhealed(store: RunStore) -> list[str]:
    return [problem.sentence for problem in store.check() if not problem.heals]


def assert_as_undisturbed(run: Run, undisturbed: Run, tensors: str) -> None:
    """The same tensors, to the last bits that a restart may round otherwise."""
    expected, found = undisturbed.tensors(tensors), run.tensors(tensors)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-5, atol=1e-6, msg=f"{name} of {run.id} changed")
