"""`python -m recon_core.worker RUN_DIR`: do one run in a process of its own, and outlive whoever asked for it."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from threading import Thread

from recon_core.errors import AfterimageError
from recon_core.jobs import perform, stopping_on_signals
from recon_core.store import Run, RunState, RunStore

_GRACE_SECONDS = 3.5
"""From the request to stop to the end of the process: a user waits no longer than five seconds."""


def main(arguments: list[str]) -> int:
    """Exit code 0 done, 1 not finished, 2 a request that cannot be met."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m recon_core.worker RUN_DIR\n")
        return 2
    folder = Path(arguments[0]).absolute()
    try:
        run = RunStore(folder.parent).open(folder.name)
        Thread(target=_insist, args=(run,), daemon=True).start()
        with stopping_on_signals() as stop:
            return 0 if perform(run, stop) is RunState.DONE else 1
    except AfterimageError as error:
        sys.stderr.write(f"{error}\n")
        return 2


def _insist(run: Run) -> None:
    """End this process if it does not stop when asked to: a step may take minutes, and the store survives it."""
    while not run.cancel_requested():
        time.sleep(0.2)
    time.sleep(_GRACE_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
