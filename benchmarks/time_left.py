"""Whether the time left that a store's runs were shown was right: replayed from their own measurements.

At a quarter, half and three quarters of each finished run, by what had finished before it; a run counts as right if all
that it would have said there was within a factor of two of what was true.
"""

from __future__ import annotations

from recon_core.scheduling.time_left import replay
from recon_core.store import RunStore, default_root


def measure() -> dict[str, float]:
    """Of the default store; AFTERIMAGE_STORE names another."""
    return replay(RunStore(default_root())).figures()
