"""metrics.jsonl: one JSON object a line, appended while a run goes on, so its last line may be torn."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from recon_core.store.files import last_bytes
from recon_core.store.private import open_private, open_to_read

_FIRST_LOOK = 2**16


def read_metrics(path: Path, tail: int | None = None) -> list[dict[str, Any]]:
    """The rows in order of their `step`, or the last `tail` of them read from the end of the file.

    A resumed run repeats the steps after its checkpoint: of several rows with one step the last written
    counts. Lines that are not whole are left out.
    """
    if tail is None:
        try:
            with open_to_read(path) as file:
                return _merge(_rows(file.read().split(b"\n")))
        except FileNotFoundError:
            return []
    if tail < 1:
        return []
    length = _FIRST_LOOK
    while True:
        data = last_bytes(path, length)
        whole = len(data) < length
        lines = data.split(b"\n")
        merged = _merge(_rows(lines if whole else lines[1:]))  # the first line may have been cut by our look
        if whole or len(merged) >= tail:
            return merged[-tail:]
        length *= 4


def _rows(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    rows = []
    for line in lines:
        row = parse_row(line)
        if row is not None:
            rows.append(row)
    return rows


def parse_row(line: bytes) -> dict[str, Any] | None:
    """The object in one line; None where there is none."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _merge(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    places: dict[Any, int] = {}
    merged: list[dict[str, Any]] = []
    for row in rows:
        step = row.get("step")
        if not isinstance(step, int | float):
            merged.append(row)
        elif step in places:
            merged[places[step]] = row
        else:
            places[step] = len(merged)
            merged.append(row)
    # A row without a step stays behind the one it was written after.
    keys: list[float] = []
    for row in merged:
        step = row.get("step")
        keys.append(step if isinstance(step, int | float) else (keys[-1] if keys else -math.inf))
    order = sorted(range(len(merged)), key=keys.__getitem__)
    return [merged[index] for index in order]


def drop_torn_line(path: Path) -> bool:
    """Cut off a last line without its end, so that the next row starts on its own line. Whether there was one."""
    length = _FIRST_LOOK
    while True:
        data = last_bytes(path, length)
        if not data or data.endswith(b"\n"):
            return False
        cut = data.rfind(b"\n")
        if cut >= 0 or len(data) < length:
            break
        length *= 4
    handle = open_private(path, os.O_WRONLY)
    try:
        os.truncate(handle, os.fstat(handle).st_size - len(data) + cut + 1)
    finally:
        os.close(handle)
    return True
