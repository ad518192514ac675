"""Processes held ready before there is anything to do: what they will need has been loaded when they are needed.

A scheduler is held by whoever shows a page from which runs are started (`recon_core.scheduling.queue.hold_ready`), and
holds a worker that has loaded torch and the training. Both wait for one message, which brings along open files: the
locks that they will hold, and a log. Nothing is written before that, and a process whose holder ends leaves.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from threading import Lock, Thread
from typing import NamedTuple

FLAG = "--ready"
_MOST_WORDS, _MOST_FILES = 4096, 8


class Held:
    """A process that waits, seen from its holder."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """`command` gets FLAG and the number of its end of the line as further words."""
        self._line, theirs = socket.socketpair()
        self._taken = Lock()
        with theirs:
            self._process = subprocess.Popen(
                [*command, FLAG, str(theirs.fileno())],
                start_new_session=True,  # it will outlive its holder
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env=dict(environment),
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def waits(self) -> bool:
        return self._line.fileno() >= 0 and self._process.poll() is None

    def need(self, words: str, files: Sequence[int]) -> subprocess.Popen[bytes] | None:
        """Hand over what it has waited for. The process; None if it does not wait any more."""
        with self._taken, self._line:
            if not self.waits:
                return None
            try:
                socket.send_fds(self._line, [words.encode()], files)
            except OSError:  # it has just left
                return None
        return self._process

    def dismiss(self) -> None:
        """Let it go: its line ends, and so it does."""
        with self._taken:
            self._line.close()
        Thread(target=self._process.wait, daemon=True).start()  # or it would stay behind as a zombie


class Needed(NamedTuple):
    """The message: words, and open files of this process from now on."""

    words: str
    files: list[int]


def wait_until_needed(number: int, seconds: float | None = None) -> Needed | None:
    """The message that comes in on the open socket `number`; None if the holder has ended, or after `seconds`."""
    with socket.socket(fileno=number) as line:
        line.settimeout(seconds)
        try:
            return _received(line)
        except (TimeoutError, BlockingIOError):
            # Closed first, then looked at once more: whoever sends from now on learns that nobody is there.
            line.shutdown(socket.SHUT_RDWR)
            return _received(line)


def _received(line: socket.socket) -> Needed | None:
    words, files, _, _ = socket.recv_fds(line, _MOST_WORDS, _MOST_FILES)
    return Needed(words.decode(), files) if words else None


def write_to(log: int) -> None:
    """From now on, what this process prints, and what a library says when it dies, goes into the open file `log`."""
    for stream in (1, 2):
        os.dup2(log, stream)
    with contextlib.suppress(OSError):
        os.close(log)
