"""Results as tables in files."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import pandas as pd

_FORMULA_SIGNS = ("=", "+", "-", "@")


def csv_text(frame: pd.DataFrame) -> str:
    """A table as CSV in which no text is a formula to a spreadsheet: one that could be begins with an apostrophe.

    Numbers stay numbers, negative ones too.
    """
    safe = frame.rename(columns=_as_text)
    for place, kind in enumerate(safe.dtypes):
        if not pd.api.types.is_numeric_dtype(kind):
            safe.isetitem(place, [_as_text(cell) for cell in safe.iloc[:, place]])
    written: str = safe.to_csv(index=False)
    return written


def _as_text(cell: object) -> object:
    if not isinstance(cell, str):
        return cell
    text = cell.replace("\r", " ")  # pandas would not quote it, and what follows would begin a row
    return f"'{text}" if text.lstrip().startswith(_FORMULA_SIGNS) else text


class Tabular(Protocol):
    """Every result of this package."""

    def to_frame(self) -> pd.DataFrame: ...


def write_frame(result: Tabular, stem: Path) -> list[Path]:
    """`<stem>.csv` for people and spreadsheets, `<stem>.parquet` with types; numbers read back exactly."""
    frame = result.to_frame()
    paths = [stem.with_name(f"{stem.name}.csv"), stem.with_name(f"{stem.name}.parquet")]
    paths[0].write_text(csv_text(frame), encoding="utf-8")
    frame.to_parquet(paths[1], index=False)
    return paths
