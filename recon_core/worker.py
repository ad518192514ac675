"""The one worker program, which outlives whoever started it.

`python -m recon_core.worker RUN_DIR` performs one run. `python -m recon_core.worker --serve` performs the runs whose
folders come in on standard input, one after the other, and answers each with one line of JSON; when its input closes,
because whoever asked is done or was killed, the run at hand writes a checkpoint and stops.

`python -m recon_core.worker STORE --ready LINE` loads what a training needs and performs the one that it is then told,
see `recon_core.scheduling.ready`.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import sys
import time
from pathlib import Path
from threading import Thread

from recon_core.errors import AfterimageError
from recon_core.kinds import KINDS, perform, perform_in
from recon_core.runs import StopFlag, stopping_on_signals
from recon_core.store import Run, RunState, RunStore

_GRACE_SECONDS = 3.5
"""From the request to stop to the end of the process: a user waits no longer than five seconds."""


def main(arguments: list[str]) -> int:
    """Exit code 0 done, 1 not finished, 2 a request that cannot be met."""
    if arguments == ["--serve"]:
        return serve()
    if arguments[1:2] == ["--ready"]:
        return wait(int(arguments[2]))
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m recon_core.worker RUN_DIR, or --serve\n")
        return 2
    return _perform_one(Path(arguments[0]).absolute())


def _perform_one(folder: Path) -> int:
    try:
        run = RunStore(folder.parent).open(folder.name)
        Thread(target=_end_after_cancel, args=(run,), daemon=True).start()
        with stopping_on_signals() as stop:
            return 0 if perform(run, stop) is RunState.DONE else 1
    except AfterimageError as error:
        sys.stderr.write(f"{error}\n")
        return 2


def wait(line: int) -> int:
    """Load what a training needs, wait for one, perform it."""
    from recon_core.scheduling.ready import wait_until_needed, write_to

    with contextlib.suppress(Exception):  # it is loaded again for the run, whose log then says what is wrong
        KINDS["train"]()
    needed = wait_until_needed(line)
    if needed is None:
        return 0
    _, log = needed.files  # the other one is the lock of its slot, which it holds until it ends
    write_to(log)
    return _perform_one(Path(needed.words))


def _end_after_cancel(run: Run) -> None:
    """End this process if it does not stop when asked to: a step may take minutes, and the store survives it."""
    while not run.cancel_requested():
        time.sleep(0.2)
    time.sleep(_GRACE_SECONDS)
    os._exit(1)


def serve() -> int:
    """Perform runs until the input closes. Importing torch takes longer than some runs, so the process is kept."""
    # Answers go where nothing else is ever printed: what libraries write to standard output joins the log.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    stop = StopFlag()
    folders: queue.Queue[str | None] = queue.Queue()
    Thread(target=_read_folders, args=(stop, folders), daemon=True).start()
    while (folder := folders.get()) is not None:
        trouble = perform_in(Path(folder), stop)
        try:
            answers.write(json.dumps({"run": Path(folder).name, "trouble": trouble}) + "\n")
            answers.flush()
        except OSError:  # nobody listens any more
            return 1
    return 0


def _read_folders(stop: StopFlag, folders: queue.Queue[str | None]) -> None:
    for line in sys.stdin:
        folders.put(line.rstrip("\n"))
    stop.raised = True
    folders.put(None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
