"""Results as tables in files."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import pandas as pd


class Tabular(Protocol):
    """Every result of this package."""

    def to_frame(self) -> pd.DataFrame: ...


def write_frame(result: Tabular, stem: Path) -> list[Path]:
    """`<stem>.csv` for people and spreadsheets, `<stem>.parquet` with types; numbers read back exactly."""
    frame = result.to_frame()
    paths = [stem.with_name(f"{stem.name}.csv"), stem.with_name(f"{stem.name}.parquet")]
    frame.to_csv(paths[0], index=False)
    frame.to_parquet(paths[1], index=False)
    return paths
