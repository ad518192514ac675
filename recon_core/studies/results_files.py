"""Where the results page of a store is; in a module of its own, so that asking does not load what builds it."""

from __future__ import annotations

from pathlib import Path

from recon_core.project_files import project_file
from recon_core.store import RunStore

BOOK = "results.json"
"""Beside the pictures: all that the page says, as data."""
SHIPPED = project_file("docs") / "results.md"
"""Those that come with the project."""


def shipped_folder() -> Path | None:
    """Where the book and the pictures of those are; None where the project comes without."""
    folder = SHIPPED.with_suffix("")
    return folder if (folder / BOOK).is_file() else None


def default_target(store: RunStore) -> Path:
    """Beside the runs, where the dashboard looks first."""
    return store.root / ".results" / "results.md"
