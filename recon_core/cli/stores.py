"""Which store a command works on."""

from __future__ import annotations

import os
from pathlib import Path

import typer

from recon_core.store import RunStore, default_root


def store_of(context: typer.Context) -> RunStore:
    """The one given by --store or AFTERIMAGE_STORE, else the default."""
    root = context.find_root().obj
    return RunStore(Path(os.fspath(root)) if root is not None else default_root())
