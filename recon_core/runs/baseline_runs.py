"""Which reconstruct runs are baselines, looked up often and for thousands of runs."""

from __future__ import annotations

import functools
from pathlib import Path

from recon_core.errors import InputError
from recon_core.store import layout
from recon_core.store.files import read_object
from recon_core.store.ids import checked_id

_REMEMBERED = 2**14


def baseline_of(root: Path, run_id: str) -> str | None:
    """Which baseline a reconstruct run is; None for an attack, and where that cannot be read."""
    try:
        return _baseline(root, run_id)
    except InputError:
        return None


@functools.lru_cache(maxsize=_REMEMBERED)  # the config of a run never changes
def _baseline(root: Path, run_id: str) -> str | None:
    # The one file: to open thousands of runs for it would read as many records.
    baseline = read_object(root / checked_id(run_id) / layout.CONFIG).get("baseline")
    return None if baseline is None else str(baseline)
