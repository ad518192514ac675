"""What is said of processes that were killed, and of memory that was not there."""

from __future__ import annotations

import queue
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import recon_core as rc
from recon_core.errors import AfterimageError
from recon_core.scheduling.killed import describer, killed_for_memory
from recon_core.scheduling.protocol import Ended
from recon_core.scheduling.worker_process import WorkerProcess
from recon_core.store import RunState, RunStore


def test_a_kill_by_the_memory_guard_is_told_from_others() -> None:
    counts = iter([3, 3, 4])
    describe = describer(lambda: next(counts))
    assert describe(1) == "its process ended with code 1"
    assert describe(-15) == "its process was killed by signal 15"
    assert describe(-9) == "its process was killed by signal 9"
    assert "had run out of memory" in describe(-9)


def test_the_count_is_read_from_the_system(tmp_path: Path) -> None:
    counters = tmp_path / "vmstat"
    assert killed_for_memory(counters) == 0
    counters.write_text("nr_free_pages 12\noom_kill 7\n")
    assert killed_for_memory(counters) == 7


def test_a_killed_worker_says_so_for_its_run(tmp_path: Path) -> None:
    ended: queue.Queue[Ended] = queue.Queue()
    with (tmp_path / "log").open("wb") as log:
        worker = WorkerProcess(ended, {}, log, own_session=True)
    worker.current = "some-run"
    worker._process.kill()
    assert ended.get(timeout=240) == Ended("some-run", "its process was killed by signal 9")
    worker.close()


def _by_torch() -> None:
    torch.empty(2**60, dtype=torch.uint8)


def _by_python() -> None:
    raise MemoryError


def test_in_the_foreground_too(cli: Callable[..., tuple[int, str, str]], own_store: Path) -> None:
    """By the command line and by the library: a sentence, and a run that says the same."""
    widths = 2**34  # 192 TiB, more than any process has addresses for
    code, _, said = cli("train", "-s", f"widths={widths}", "-s", "data.n=4", "-s", "epochs=2", "--anyway", "--quiet")
    assert code == 1
    assert "not enough memory: " in said
    assert "make the network or m smaller" in said
    assert "Traceback" not in said
    (run,) = RunStore(own_store).list()
    assert run.status.state is RunState.FAILED
    assert run.status.message in said
    data = rc.load_data("cifar10", n=4, progress=False)
    with pytest.raises(AfterimageError, match=r"not enough memory: .* GiB more were asked for"):
        rc.train(data, widths=widths, epochs=2, progress=False, anyway=True)


@pytest.mark.parametrize(
    ("allocate", "words"),
    [(_by_torch, "1,073,741,824.0 GiB more were asked for"), (_by_python, "an allocation failed")],
)
def test_an_allocation_that_fails_is_named(store: RunStore, allocate: Callable[[], None], words: str) -> None:
    run = store.create("train", {})

    def work() -> None:
        with run.writer() as writer:
            writer.start(1)
            allocate()

    with pytest.raises((RuntimeError, MemoryError)):
        work()
    assert run.status().state is RunState.FAILED
    assert run.status().message.startswith(f"not enough memory: {words}; make the network or m smaller")
