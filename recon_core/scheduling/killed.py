"""Why a process ended: its exit code, or the signal that killed it, and whether memory ran out."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

from recon_core.store.writer import SHORT_WORDS

_COUNTERS = Path("/proc/vmstat")
_GUARD_WORDS = "had run out of memory"


def lacked_memory(message: str) -> bool:
    """Whether a run that another process worked on says that it ended for want of memory."""
    return SHORT_WORDS in message or _GUARD_WORDS in message


def killed_for_memory(counters: Path = _COUNTERS) -> int:
    """How many processes this system has killed for want of memory; 0 where it does not say."""
    try:
        lines = counters.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return 0
    counts = [line.split()[1] for line in lines if line.startswith("oom_kill ")]
    return int(counts[0]) if counts and counts[0].isdecimal() else 0


def describer(count: Callable[[], int] = killed_for_memory) -> Callable[[int], str]:
    """A function that describes, for a process started now, the exit code it will end with."""
    before = count()

    def describe(code: int) -> str:
        if code >= 0:
            return f"its process ended with code {code}"
        if -code != signal.SIGKILL:
            return f"its process was killed by signal {-code}"
        if count() > before:
            return f"its process was killed by the system, which {_GUARD_WORDS}; use fewer workers or less of it"
        return "its process was killed by signal 9"

    return describe
