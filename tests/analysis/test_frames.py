"""Tables as files: what a spreadsheet would take for a formula is text."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pandas as pd
import pytest

from recon_core.analysis.frames import csv_text, write_frame

FORMULAS = ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", '=HYPERLINK("http://x")']


def cells(text: str) -> list[str]:
    return [cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row]


@pytest.mark.parametrize("formula", FORMULAS)
def test_no_cell_and_no_heading_is_a_formula(formula: str) -> None:
    frame = pd.DataFrame({"label": [formula, "cat"], formula: [1, 2], "mixed": [formula, 3]})
    found = cells(csv_text(frame))
    assert not [cell for cell in found if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
    assert found.count("'" + formula.replace("\r", " ")) == 3


def test_numbers_stay_numbers(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [-1.5, 2.0], "n": [-3, 4], "name": ["a", None], "mixed": [-1, "b"]})
    assert csv_text(frame) == frame.to_csv(index=False)

    class Result:
        def to_frame(self) -> pd.DataFrame:
            return frame.assign(name=["=1", "b"], mixed=["x", "y"])

    write_frame(Result(), tmp_path / "table")
    assert "'=1" in (tmp_path / "table.csv").read_text()
    assert pd.read_parquet(tmp_path / "table.parquet")["name"][0] == "=1"  # which no spreadsheet computes
