"""A training run's measurements in bounded time, however many there are: a screen asks for them every second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recon_core.store import Run, layout
from recon_core.store.metrics import parse_row

WHOLE_BYTES = 2**21
"""Files up to this size are read whole, in well under a tenth of a second."""
_PLACES = 300
# Several rows at each place: the slow measurements come with every fifth only.
_PLACE_BYTES = WHOLE_BYTES // _PLACES


def spread_rows(run: Run) -> list[dict[str, Any]]:
    """All rows of a run, or of a long one rows at equal distances from its first to its last, in order of step."""
    path = run.dir / layout.METRICS
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return []
    return run.metrics() if size <= WHOLE_BYTES else _sampled(path, size)


def _sampled(path: Path, size: int) -> list[dict[str, Any]]:
    found: dict[float, dict[str, Any]] = {}
    with path.open("rb") as file:
        for place in range(_PLACES):
            start = place * (size - _PLACE_BYTES) // (_PLACES - 1)
            file.seek(start)
            lines = file.read(_PLACE_BYTES).split(b"\n")
            # Both ends may be cut; only the file's own first line is known to begin where we look.
            for line in lines[1 if start else 0 : -1]:
                row = parse_row(line)
                if row is not None and isinstance(row.get("step"), int | float):
                    found[row["step"]] = row  # a resumed run repeats steps; what was written later counts
    return [found[step] for step in sorted(found)]
