"""Ctrl-C, SIGTERM and the end of the terminal (SIGHUP) as a request: the run writes a checkpoint first."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType


class StopFlag:
    """A flag that is raised once and read by the loop at every step."""

    def __init__(self) -> None:
        self.raised = False


@contextlib.contextmanager
def stopping_on_signals(*numbers: signal.Signals) -> Iterator[StopFlag]:
    """The first signal (SIGINT, SIGTERM or SIGHUP unless named) raises the flag, a second one interrupts at once."""
    flag = StopFlag()

    def handle(number: int, frame: FrameType | None) -> None:
        if flag.raised:
            raise KeyboardInterrupt
        flag.raised = True

    usual = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # which is what nohup is for
        usual.append(signal.SIGHUP)
    before = {number: signal.signal(number, handle) for number in numbers or usual}
    try:
        yield flag
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
