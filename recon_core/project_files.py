"""Paths of the project's files beside the engine: app.py, ui, pages, assets.

In a checkout all of it stands next to `recon_core`. A wheel keeps it in one folder of its own, so that an installed
`ui` or `app` gets in nobody's way.
"""

from __future__ import annotations

from pathlib import Path

INSTALLED = "afterimage_app"


def project_file(name: str) -> Path:
    """The file or folder of that name, e.g. `assets`."""
    beside = Path(__file__).resolve().parents[1]
    installed = beside / INSTALLED
    return (installed if installed.is_dir() else beside) / name
