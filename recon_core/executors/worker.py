"""`python -m recon_core.executors.worker`: do the runs whose folders come in on standard input, one after the other.

Each is answered by one line of JSON. When the input closes, because whoever asked is done or was killed, the run at
hand writes a checkpoint and stops.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from pathlib import Path

from recon_core.executors.one_run import do_run
from recon_core.jobs import StopFlag


def main() -> int:
    # Answers go where nothing else is ever printed: what libraries write to standard output joins the log.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    stop = StopFlag()
    orders: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_listen, args=(stop, orders), daemon=True).start()
    while (folder := orders.get()) is not None:
        trouble = do_run(Path(folder), stop)
        try:
            answers.write(json.dumps({"run": Path(folder).name, "trouble": trouble}) + "\n")
            answers.flush()
        except OSError:  # nobody listens any more
            return 1
    return 0


def _listen(stop: StopFlag, orders: queue.Queue[str | None]) -> None:
    for line in sys.stdin:
        orders.put(line.rstrip("\n"))
    stop.raised = True
    orders.put(None)


if __name__ == "__main__":
    sys.exit(main())
