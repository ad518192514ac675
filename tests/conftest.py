"""What every test gets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Before torch is imported: some tests fork, and a forked child waits for ever for its parent's OpenMP threads.
os.environ["OMP_NUM_THREADS"] = "1"


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of its own for each test, not made yet: no test ever touches the user's runs."""
    root = tmp_path / "runs"
    monkeypatch.setenv("AFTERIMAGE_STORE", str(root))
    return root
