"""Timing on a noisy machine: medians of repeats, both sides interleaved by the caller."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


def interleaved(
    works: dict[str, Callable[[], object]], turns: int, calls: int = 1, warmup: int = 1
) -> dict[str, float]:
    """Median wall time of one call of each work.

    The works take turns, so that a slow spell hits all alike; a turn is several `calls` in a row where the
    work is a step of a loop, which finds its own data in the caches.
    """
    for work in works.values():
        for _ in range(warmup * calls):
            work()
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(turns):
        for name, work in works.items():
            start = time.perf_counter()
            for _ in range(calls):
                work()
            times[name].append((time.perf_counter() - start) / calls)
    return {name: statistics.median(values) for name, values in times.items()}
