"""Runs that wait where a test wants them, in whichever process they are: what is interrupted or looked at then is the
same on every machine.

    gate = gates.close("train", step=3)
    queue.submit(run)
    gate.wait()              # it has reported step 3, or the first it reports after that, and goes no further
    ...                      # look, kill, cancel
    gate.open()

A held run still hears a request to stop. The hook is in `tests/gate_hooks`; it reaches processes through their
environment, so that a gate holds the runs of a scheduler, of a study or of a Ray node as well as those of a thread.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from recon_core import kinds
from recon_core.runs import observer
from recon_core.store import writer
from tests.gate_hooks import held
from tests.processes import wait_for

_HOOKS = Path(__file__).parent / "gate_hooks"


class Arrival(NamedTuple):
    """A run that waits at a gate, or has waited there."""

    run_id: str
    step: int
    pid: int


class Gate:
    """Holds the runs of one kind that report `step` or a later one."""

    def __init__(self, path: Path, kind: str, step: int, words: tuple[str, ...], *, deaf: bool) -> None:
        self._path, self._kind, self._step = path, kind, step
        self._words, self._deaf = words, deaf
        self._write()

    def _write(self) -> None:
        scratch = self._path.with_suffix(".new")
        told = {"kind": self._kind, "step": self._step, "words": self._words, "deaf": self._deaf}
        scratch.write_text(json.dumps(told))
        scratch.replace(self._path)

    def arrivals(self) -> list[Arrival]:
        """The last of each run, since the gate stands where it does."""
        found = self._path.parent.glob(f"{self._path.stem}.*.reached")
        arrived = [Arrival(**json.loads(path.read_text())) for path in sorted(found)]
        return [arrival for arrival in arrived if arrival.step >= self._step]

    def wait(self, count: int = 1, seconds: float = 120.0) -> list[Arrival]:
        """Until as many runs have come this far."""
        wait_for(lambda: len(self.arrivals()) >= count, seconds, f"{count} at a gate of {self._kind}")
        return self.arrivals()

    def wait_one(self) -> Arrival:
        return self.wait()[0]

    def move(self, step: int) -> None:
        """Let them go as far as another step."""
        self._step = step
        self._write()

    def forget(self) -> None:
        """Those that came so far were killed; whoever comes now is somebody else."""
        for path in self._path.parent.glob(f"{self._path.stem}.*.reached"):
            path.unlink(missing_ok=True)

    def open(self) -> None:
        self._path.unlink(missing_ok=True)


class Gates:
    """All gates of a test. They reach this process, and those it starts while `standing`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count()
        folder.mkdir(parents=True, exist_ok=True)

    def close(self, kind: str, step: int = 1, *, words: tuple[str, ...] = (), deaf: bool = False) -> Gate:
        """A gate for runs of `kind` ("train", "trial", ...) whose id and name hold all `words`.

        One that is `deaf` does not let go of a run that is asked to stop: a step that takes for ever.
        """
        return Gate(self._folder / f"{next(self._numbers)}.gate", kind, step, words, deaf=deaf)

    def open_all(self) -> None:
        for path in self._folder.glob("*.gate"):
            path.unlink(missing_ok=True)

    def environment(self) -> dict[str, str]:
        """What a process is to be started with that is held here."""
        paths = [str(_HOOKS), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {held.VARIABLE: str(self._folder), "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}


@contextlib.contextmanager
def standing(folder: Path) -> Iterator[Gates]:
    """Gates for this process and all that it starts meanwhile; all are open afterwards."""
    gates = Gates(folder)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in gates.environment().items():
            patch.setenv(name, value)
        # The hooks change these; what they were is put back.
        patch.setattr(writer.RunWriter, "progress", writer.RunWriter.progress)
        patch.setattr(kinds, "KINDS", kinds.KINDS)
        patch.setattr(observer.StoreObserver, "__init__", observer.StoreObserver.__init__)
        held.hold_writers(writer)
        held.note_flags_of_jobs(kinds)
        held.note_flags_of_observers(observer)
        try:
            yield gates
        finally:
            gates.open_all()


@pytest.fixture
def gates(tmp_path: Path) -> Iterator[Gates]:
    with standing(tmp_path / "gates") as found:
        yield found
