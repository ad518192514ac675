"""The queue of runs, kept running by whoever opens a page."""

from __future__ import annotations

from recon_core.scheduling import queue
from recon_core.store import default_root
from ui.shared.faults import errors_shown


def keep_queue_running() -> None:
    """Runs queued before the machine was switched off go on, whichever page is opened first.

    Where that is not possible, on a read-only store or a full disk, the page says so and shows what there is.
    """
    with errors_shown():
        queue.ensure_scheduler(default_root())


def hold_scheduler_ready() -> None:
    """On pages from which a visitor starts a first run: processes take seconds to load what it needs."""
    with errors_shown():
        queue.hold_ready(default_root())
