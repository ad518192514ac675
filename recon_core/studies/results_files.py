"""Where the results page of a store is; apart, so that a page can ask without loading what builds it."""

from __future__ import annotations

from pathlib import Path

from recon_core.store import RunStore


def default_target(store: RunStore) -> Path:
    """Beside the runs, where the dashboard looks first."""
    return store.root / ".results" / "results.md"
