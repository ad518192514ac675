"""Everything in `examples` runs, as a reader would run it, only smaller."""

from __future__ import annotations

import ast
import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

PROJECT = Path(__file__).parents[2]
EXAMPLES = PROJECT / "examples"


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """The value of a cell's last expression, as a notebook shows it."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)


def script(name: str, *words: str, folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    command = [sys.executable, str(EXAMPLES / name), *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_story_runs_and_shows_something(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERIMAGE_SMALL", "1")
    monkeypatch.chdir(tmp_path)
    notebook = json.loads((EXAMPLES / "story.ipynb").read_text())
    assert notebook["nbformat"] == 4
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] for cell in cells)  # no pictures of an older version
    names: dict[str, Any] = {}
    shown = [run_cell("".join(cell["source"]), names) for cell in cells]
    pictures = [value for value in shown if hasattr(value, "_repr_html_")]
    assert len(pictures) >= 7
    assert all(value._repr_html_() for value in pictures)
    assert names["score"].good(0.4) > names["score"].chance_at(0.4)
    assert [point.weight_decay for point in names["curve"].points] == list(names["DECAYS"])
    assert list(tmp_path.iterdir()) == []


def test_images_of_ones_own(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("left", "right"):
        (tmp_path / "mine" / name).mkdir(parents=True)
        for number in range(6):
            pixels = rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "mine" / name / f"{number}.png")
    out = script("own_images.py", "mine", "--n", "8", "--width", "60", "--iterations", "60", folder=tmp_path)
    assert "of 8 training images" in out
    rows = list(csv.DictReader((tmp_path / "images.csv").read_text().splitlines()))
    assert len(rows) == 8
    assert "plotly" in (tmp_path / "pairs.html").read_text().lower()


def test_a_module_of_ones_own(tmp_path: Path) -> None:
    out = script("own_module.py", "--n", "6", "--steps", "300", "--iterations", "60", folder=tmp_path)
    assert "trained to a loss of" in out
    assert "of 6 training images" in out
