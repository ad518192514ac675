"""The line of runs, kept moving by whoever opens a page."""

from __future__ import annotations

from recon_core.scheduling import queue
from recon_core.store import default_root
from ui.shared.faults import told


def keep_line_moving() -> None:
    """Runs put in line before the machine was switched off go on, whichever page is opened first.

    Where that is not possible, on a read-only store or a full disk, the page says so and shows what there is.
    """
    with told():
        queue.ensure_dispatcher(default_root())
