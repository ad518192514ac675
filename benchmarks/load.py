"""What load costs: 200 queued runs, a store of 2,000, 20 visitors of a run at work, a pool of 200 runs in Match."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import torch
from streamlit.testing.v1 import AppTest

from benchmarks.visitors import Visitor
from recon_core.config import TrainConfig, parse_config
from recon_core.data import load_task
from recon_core.kinds import perform
from recon_core.runs import StopFlag
from recon_core.scheduling import queue
from recon_core.store import Run, RunState, RunStore, lock

PROJECT = Path(__file__).resolve().parent.parent
RUNS, IN_LINE, VISITORS, POOLED, CANDIDATES = 2_000, 200, 20, 200, 20
WATCHED_SECONDS = 10.0
START_SECONDS = 60.0
REPEATS = 5
NETWORK = {
    "data": {"source": "cifar10", "n": 8, "test_n": 16},
    "model": {"widths": [60, 60]},
    "training": {"recipe": "flow", "target_loss": 1e-6},
}
# Long enough to be watched; the limit is for a benchmark that is killed and cannot clear up.
ENDLESS = {**NETWORK, "training": {"recipe": "paper", "epochs": 10**9, "max_seconds": 300.0}}


def measure() -> dict[str, float]:
    """Seconds, shares of one core and counts; the store is on the disk that holds temporary files."""
    logging.getLogger("streamlit").setLevel(logging.ERROR)
    os.environ.update(OMP_NUM_THREADS="1", AFTERIMAGE_SLOTS="1")
    found: dict[str, float] = {}
    for part in (_store_of_many_runs, _line, _visitors, _pool):
        with tempfile.TemporaryDirectory(prefix="afterimage-") as folder:
            root = Path(folder) / "runs"
            os.environ["AFTERIMAGE_STORE"] = str(root)
            found |= part(RunStore(root))
    return found


def fill(store: RunStore, model: Run, count: int) -> list[str]:
    """Copies of a finished run of `model`'s, made without waiting for the disk; their ids, the oldest first."""
    first = candidates(store, model, torch.randn(2, 3, 32, 32))
    ids = [f"reconstruct-20260101-{number:06d}" for number in range(count)]
    record = json.loads((first.dir / "run.json").read_text())
    for number, run_id in enumerate(ids):
        folder = store.root / run_id
        shutil.copytree(first.dir, folder)
        (folder / "run.json").chmod(0o644)
        created = f"2026-01-01T{number // 3600:02d}:{number // 60 % 60:02d}:{number % 60:02d}.000000+00:00"
        (folder / "run.json").write_text(json.dumps({**record, "id": run_id, "created": created}))
    store.delete(first.id)
    return ids


def network(store: RunStore) -> Run:
    """A small network, really trained, so that every page finds what it looks for."""
    run = store.create("train", parse_config(TrainConfig, NETWORK).model_dump(mode="json"), name="network")
    if perform(run, StopFlag()) is not RunState.DONE:
        raise RuntimeError(f"the network was not trained: {run.status().message}")
    return run


def candidates(store: RunStore, model: Run, images: torch.Tensor) -> Run:
    """A finished reconstruction that left these images (m, C, H, W)."""
    count = len(images)
    run = store.create("reconstruct", {"model": model.id, "settings": {"m": count}}, parents=[model.id])
    with run.writer() as writer:
        writer.start(1)
        numbers = torch.zeros(count, dtype=torch.long)
        tensors = {"candidates": images, "multipliers": torch.ones(count), "labels": numbers, "seeds": numbers + 0}
        writer.save_tensors("candidates", tensors)
        writer.finish(RunState.DONE, {"candidates": count})
    return run


def opened(page: str | None = None, /, **query: str | Sequence[str]) -> AppTest:
    """A page of the app, drawn for the first time."""
    app = AppTest.from_file(str(PROJECT / "app.py"), default_timeout=START_SECONDS)
    if page is not None:
        app.switch_page(f"pages/{page}.py")
    for key, value in query.items():
        app.query_params[key] = value if isinstance(value, str) else list(value)
    return drawn(app)


def drawn(app: AppTest) -> AppTest:
    """The page drawn again, once what is opened beside it is there."""
    deadline = time.monotonic() + START_SECONDS
    app.run()
    while any(info.value.startswith("Opening") for info in app.info) and time.monotonic() < deadline:
        app.run()
    if app.exception or app.error:
        raise RuntimeError(f"the page failed: {[element.value for element in (*app.exception, *app.error)]}")
    return app


def _store_of_many_runs(store: RunStore) -> dict[str, float]:
    model = network(store)
    ids = fill(store, model, RUNS - 1)
    store = RunStore(store.root)  # which has read nothing yet
    first, again = _seconds(store.list), statistics.median(_seconds(store.list) for _ in range(REPEATS))
    pages = {
        "home_seconds": opened(),
        "run_seconds": opened(run=ids[0]),
        "model_seconds": opened(run=model.id),  # whose deletion would take all others along
        "analyze_page_seconds": opened("4_Analyze"),
        "reconstruct_page_seconds": opened("2_Reconstruct"),
        "match_page_seconds": opened("3_Match"),
    }
    return {
        "runs": RUNS,
        "list_first_seconds": first,
        "list_again_seconds": again,
        **{name: statistics.median(_seconds(page.run) for _ in range(REPEATS)) for name, page in pages.items()},
    }


def _line(store: RunStore) -> dict[str, float]:
    first = store.create("train", ENDLESS)
    children = [store.create("reconstruct", {"model": first.id}, parents=[first.id]) for _ in range(IN_LINE)]
    try:
        queue.submit(first)
        half = IN_LINE // 2
        early = _seconds(lambda: _submit(children[:half]))
        late = _seconds(lambda: _submit(children[half:]))
        _wait_until_at_work(first)
        scheduler = psutil.Process(int(lock.holder(queue.scheduler_lock(store.root))))
        share = _processor_share(scheduler)
    finally:
        _end(store, first)
    return {
        "in_line": IN_LINE,
        "submit_first_half_seconds": early,
        "submit_second_half_seconds": late,
        "dispatcher_core_share": share,
    }


def _submit(runs: Sequence[Run]) -> None:
    for run in runs:
        queue.submit(run)


def _visitors(store: RunStore) -> dict[str, float]:
    run = store.create("train", ENDLESS)
    with _app(store.root.parent / "app.log") as (process, url):
        try:
            queue.submit(run)
            _wait_until_at_work(run)
            steps: list[set[str]] = [set() for _ in range(VISITORS)]
            scripts = [0] * VISITORS
            failures: list[str] = []
            ready, leave = threading.Barrier(VISITORS + 1), threading.Event()

            def watch(number: int) -> None:
                with Visitor(url, query=f"run={run.id}") as visitor:
                    visitor.wait_until(lambda page: page.of_kind("progress"))
                    ready.wait(START_SECONDS)
                    before = visitor.scripts
                    while not leave.is_set():
                        visitor.stay(0.5)
                        steps[number] |= {bar.text for bar in visitor.of_kind("progress")}
                    scripts[number] = visitor.scripts - before
                    failures.extend(visitor.failures)

            threads = [threading.Thread(target=watch, args=(number,)) for number in range(VISITORS)]
            for thread in threads:
                thread.start()
            ready.wait(2 * START_SECONDS)
            share = _processor_share(psutil.Process(process.pid))
            leave.set()
            for thread in threads:
                thread.join()
        finally:
            _end(store, run)
        memory = psutil.Process(process.pid).memory_info().rss / 2**20
    return {
        "visitors": VISITORS,
        "server_core_share": share,
        "server_megabytes": memory,
        "fresh_pages_per_second": sum(scripts) / WATCHED_SECONDS,
        "fresh_pages_per_second_of_the_slowest": min(scripts) / WATCHED_SECONDS,
        "changes_seen_by_the_slowest": min(map(len, steps)),
        "visitors_with_failures": len(failures),
        "failures_in_the_log": (store.root.parent / "app.log").read_text().count("Traceback"),
    }


def _pool(store: RunStore) -> dict[str, float]:
    model = network(store)
    images = load_task(parse_config(TrainConfig, NETWORK).data).train_x
    generator = torch.Generator().manual_seed(0)
    ids = []
    for number in range(POOLED):
        chosen = images[number % len(images)] + 0.4 * torch.randn(CANDIDATES, 3, 32, 32, generator=generator)
        ids.append(candidates(store, model, chosen).id)
    began = time.perf_counter()
    page = opened("3_Match", m_runs=ids)
    seconds = time.perf_counter() - began
    moves = []
    for factor in (1.02, 1.07, 1.13, 1.24, 1.36):
        page.slider(key="m_b").set_value(factor)
        moves.append(_seconds(lambda: drawn(page)))
    return {
        "pooled_runs": POOLED,
        "pooled_candidates": POOLED * CANDIDATES,
        "pool_open_seconds": seconds,
        "pool_slider_seconds": statistics.median(moves),
    }


def _seconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def _processor_share(process: psutil.Process) -> float:
    """Of one core, over the next seconds."""
    before = sum(process.cpu_times()[:2])
    time.sleep(WATCHED_SECONDS)
    return float(sum(process.cpu_times()[:2]) - before) / WATCHED_SECONDS


def _wait_until_at_work(run: Run) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not (run.status().state is RunState.RUNNING and run.status().step > 0):
        if time.monotonic() > deadline:
            raise RuntimeError(f"run {run.id} did not start: {run.status()}")
        time.sleep(0.1)


def _end(store: RunStore, run: Run) -> None:
    """Kill what was started here: the scheduler first, so that nothing new starts."""
    for pid in (lock.holder(queue.scheduler_lock(store.root)), str(run.status().pid)):
        if pid.isdecimal():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


@contextlib.contextmanager
def _app(log: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """The dashboard in a process of its own, and its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.headless", "true"]
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [*command, "--server.port", str(port)], cwd=PROJECT, stdout=output, stderr=subprocess.STDOUT
        ) as process,
    ):
        try:
            _wait_until_healthy(f"http://127.0.0.1:{port}", log)
            yield process, f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def _wait_until_healthy(url: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(urllib.error.URLError, TimeoutError, ConnectionError):
            urllib.request.urlopen(f"{url}/_stcore/health", timeout=2).close()
            return
        time.sleep(0.1)
    raise RuntimeError(f"the app did not start within {START_SECONDS:g} s:\n{log.read_text()}")
