"""One run on one place, whatever becomes of it."""

from __future__ import annotations

from pathlib import Path

from recon_core.errors import AfterimageError
from recon_core.jobs import StopFlag, perform
from recon_core.store import RunStore


def do_run(folder: Path, stop: StopFlag) -> str | None:
    """What kept the run from being worked on, if anything did."""
    try:
        perform(RunStore(folder.parent).open(folder.name), stop)
    except AfterimageError as error:
        return str(error)
    except Exception as error:  # the run's log has the trace; the next run may do well
        return f"{type(error).__name__}: {error}"
    return None
