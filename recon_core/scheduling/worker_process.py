"""A worker process seen from its parent: it is sent folders of runs and answers once for each."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from recon_core.scheduling.killed import describer
from recon_core.scheduling.protocol import Ended
from recon_core.scheduling.queue import module_environment


class WorkerProcess:
    """A process that performs one run after the other: loading the libraries takes longer than some runs.

    Runs that ended are put into `ended`; a process that dies at work says so for its run, in the words of `describe`.
    When its input closes, also because this process was killed, it writes a checkpoint and stops.
    """

    def __init__(
        self,
        ended: queue.Queue[Ended],
        environment: Mapping[str, str],
        errors: IO[bytes],
        *,
        own_session: bool = False,
        describe: Callable[[int], str] | None = None,
    ) -> None:
        """`own_session`: Ctrl-C in the terminal is meant for whoever asked, who then stops the workers."""
        self._ended, self._describe = ended, describe or describer()
        self.current: str | None = None
        """Id of the run at hand."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "recon_core.worker", "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=own_session,
            env={**module_environment(), **environment},
        )
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def busy(self) -> bool:
        return self.current is not None

    def perform(self, folder: Path) -> None:
        """Begin, or go on with, the run in this folder."""
        self.current = folder.name
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it died just now; `_listen` reports that
            self._process.stdin.write(f"{folder.absolute()}\n")
            self._process.stdin.flush()

    def close(self) -> None:
        """Ask it to stop as soon as it can."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def end(self, seconds: float) -> None:
        """Wait until it has ended; kill it if it takes longer than that to stop."""
        self.close()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _listen(self) -> None:
        """One line for each run that ended; the end of all lines is the end of the process."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(ValueError, KeyError, TypeError):  # whatever a library prints is not for us
                answer = json.loads(line)
                ended = Ended(answer["run"], answer["trouble"])
                self.current = None
                self._ended.put(ended)
        self._process.stdout.close()
        code = self._process.wait()
        if (lost := self.current) is not None:
            self.current = None
            self._ended.put(Ended(lost, self._describe(code)))
