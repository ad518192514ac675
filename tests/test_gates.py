"""Gates: who is held, and who leaves when."""

from __future__ import annotations

import threading

from recon_core.kinds import perform
from recon_core.runs import StopFlag
from recon_core.store import RunState, RunStore
from tests.gates import Gates, gates  # noqa: F401
from tests.processes import wait_for

CIRCLE = {
    "data": {"source": "circle", "n": 6},
    "model": {"widths": [10]},
    "training": {"recipe": "paper", "epochs": 20, "measure_every": 5},
}


def test_a_run_leaves_its_gate_by_its_own_flag_alone(store: RunStore, gates: Gates) -> None:  # noqa: F811
    gate = gates.close("train", step=5)
    runs = [store.create("train", CIRCLE) for _ in range(2)]
    flags = [StopFlag() for _ in runs]
    threads = [threading.Thread(target=perform, args=pair) for pair in zip(runs, flags, strict=True)]
    try:
        for thread in threads:
            thread.start()
        gate.wait(2)
        flags[0].raised = True
        wait_for(lambda: runs[0].status().state is RunState.CANCELLED)
        assert (runs[1].status().state, runs[1].status().step) == (RunState.RUNNING, 5)
        gate.move(10)
        wait_for(lambda: [arrival.run_id for arrival in gate.arrivals()] == [runs[1].id])
    finally:
        gate.open()
        for thread in threads:
            thread.join()
    assert [run.status().state for run in runs] == [RunState.CANCELLED, RunState.DONE]
