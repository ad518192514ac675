"""How many runs this machine takes at once, and what share of it each one gets."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from recon_core.errors import InputError

SLOTS_VARIABLE = "AFTERIMAGE_SLOTS"
_CORES_PER_RUN = 2
_BACKGROUND = 10_000
_NICENESS = 10
_GPUS = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True)
class Slot:
    """A slot for one run, and the environment that limits it to its share of the machine."""

    number: int
    threads: int
    gpu: int | None

    @property
    def background(self) -> bool:
        """Whether it is for background work."""
        return self.number >= _BACKGROUND

    def command(self, words: list[str]) -> list[str]:
        """The command that starts `words` in this slot; background work runs at low priority."""
        polite = self.background and shutil.which("nice") is not None
        return ["nice", "-n", str(_NICENESS), *words] if polite else words

    def environment(self) -> dict[str, str]:
        found = thread_environment(self.threads)
        return found if self.gpu is None else {**found, "CUDA_VISIBLE_DEVICES": str(self.gpu)}


def thread_environment(threads: int) -> dict[str, str]:
    """What keeps a process to that many threads, and each of them from burning a core while it waits for the others.

    200 steps of an attack on two shared cores took 17 s with two threads that spin, beside one more busy process 45 s;
    with two that sleep 5.2 s and 4.6 s, with one thread 3.9 s and 4.9 s.
    """
    found = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    return found if threads == 1 else {**found, "OMP_WAIT_POLICY": "passive"}


def core_count() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def slots() -> list[Slot]:
    """One for each GPU, else one for every two cores; as many as AFTERIMAGE_SLOTS says where it is set.

    With two cores a run gets one thread: whoever waits for it has a browser open, and its controls run beside it.
    """
    cores, gpus = core_count(), _visible_gpus()
    count = _wish() or len(gpus) or max(1, cores // _CORES_PER_RUN)
    share = 1 if cores <= _CORES_PER_RUN else max(1, cores // count)
    threads = min(share, thread_limit() or cores)
    return [Slot(number, threads, gpus[number % len(gpus)] if gpus else None) for number in range(count)]


def background_slots() -> list[Slot]:
    """One for controls, searches and studies, beside those for what a person waits for."""
    return [replace(slots()[0], number=_BACKGROUND)]


def _wish() -> int | None:
    text = os.environ.get(SLOTS_VARIABLE)
    if not text:
        return None
    if not text.isdecimal() or not 1 <= int(text) <= 1024:
        raise InputError(f"{SLOTS_VARIABLE} must be a number of runs from 1 to 1024, got {text!r}")
    return int(text)


def thread_limit() -> int | None:
    """OMP_NUM_THREADS, where it is set for the app, holds for its runs too."""
    text = os.environ.get("OMP_NUM_THREADS", "")
    return int(text) if text.isdecimal() and int(text) > 0 else None


def _visible_gpus() -> list[int]:
    """Numbers of the NVIDIA cards, found without importing torch."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [int(part) for part in chosen.split(",") if part.strip().isdecimal()]
    return list(range(len(list(_GPUS.iterdir())))) if _GPUS.is_dir() else []
