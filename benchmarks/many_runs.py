"""What 10,000 runs cost: `runs list`, and every page, the first time it is opened and again."""

from __future__ import annotations

import json
import logging
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.load import opened
from recon_core.config import TrainConfig, parse_config
from recon_core.kinds import perform
from recon_core.runs import StopFlag
from recon_core.runs.chains import create_attack_chain
from recon_core.store import Run, RunState, RunStore

PROJECT = Path(__file__).resolve().parent.parent
RUNS = 10_000
REPEATS = 5
NETWORK = {
    "data": {"source": "cifar10", "n": 8, "test_n": 16},
    "model": {"widths": [20]},
    "training": {"recipe": "flow", "target_loss": 1e-6},
}
ATTACK = {"m": 16, "iterations": 50}
# Name -> page (None: home) and address; every page there is, and views of some.
PAGES: dict[str, tuple[str | None, dict[str, str]]] = {
    "home": (None, {}),
    "home_last": (None, {"page": "500"}),
    **{path.stem.partition("_")[2].lower(): (path.stem, {}) for path in sorted((PROJECT / "pages").glob("*.py"))},
    "trained": ("1_Train", {"t_view": "Trained networks"}),
    "analyze_several": ("4_Analyze", {"a_view": "Several models"}),
    "analyze_decay": ("4_Analyze", {"a_view": "Weight decay"}),
    "analyze_errors": ("4_Analyze", {"a_view": "Errors"}),
}


def measure() -> dict[str, float]:
    """Seconds, and of those the ones of a core (`cpu`), which a busy machine does not stretch.

    The store is on the disk that holds temporary files; pages without what a browser adds.
    """
    logging.getLogger("streamlit").setLevel(logging.ERROR)
    os.environ.update(OMP_NUM_THREADS="1")
    with tempfile.TemporaryDirectory(prefix="afterimage-") as folder:
        small, large = RunStore(Path(folder) / "small"), RunStore(Path(folder) / "large")
        chain = finished_chain(small)
        copies(chain, large.root, RUNS)
        os.environ["AFTERIMAGE_STORE"] = str(small.root)
        for page, query in PAGES.values():  # so that no figure below holds the loading of the engine
            opened(page, **query)
        os.environ["AFTERIMAGE_STORE"] = str(large.root)
        found = {"runs": float(len(large.list()))} | _command(large.root)
        sys.stderr.write(f"{found}\n")
        newest = RunStore(large.root).list()[-1].id
        for name, (page, query) in {**PAGES, "run": (None, {"run": newest})}.items():
            began, busy = time.perf_counter(), time.process_time()
            app = opened(page, **query)
            found[f"{name}_first_seconds"] = time.perf_counter() - began
            found[f"{name}_first_cpu"] = time.process_time() - busy
            found[f"{name}_again_seconds"] = statistics.median(seconds(app.run) for _ in range(REPEATS))
            found[f"{name}_again_cpu"] = statistics.median(seconds(app.run, time.process_time) for _ in range(REPEATS))
            shown = {key: round(value, 2) for key, value in found.items() if key.startswith(name)}
            sys.stderr.write(f"{shown}\n")
        slowest = max(
            (value, name) for name, value in found.items() if name.endswith(("first_seconds", "again_seconds"))
        )
        cpu = max(value for name, value in found.items() if name.endswith(("first_cpu", "again_cpu")))
        return {**found, "slowest_seconds": slowest[0], "slowest_cpu": cpu}


def finished_chain(store: RunStore) -> tuple[Run, ...]:
    """Training, attack, control and matching, really done, so that every page finds what it looks for."""
    chain = create_attack_chain(store, parse_config(TrainConfig, NETWORK), attack=ATTACK)
    for run in chain.runs:
        if perform(run, StopFlag()) is not RunState.DONE:
            raise RuntimeError(f"{run.id} was not done: {run.status().message}")
    return chain.runs


def copies(chain: Sequence[Run], root: Path, count: int) -> None:
    """`count` runs in `root`: the chain again and again, each time under other ids. Nothing waits for the disk."""
    root.mkdir(parents=True, exist_ok=True)
    texts = {
        run.id: {
            path.name: path.read_text() for path in run.dir.iterdir() if path.suffix in (".json", ".jsonl", ".txt")
        }
        for run in chain
    }
    for number in range(count):
        run, copy = chain[number % len(chain)], number // len(chain)
        folder = root / _copied_id(run.id, copy)
        folder.mkdir(mode=0o700)
        for path in run.dir.iterdir():
            if path.suffix == ".safetensors":  # shared, or it would be gigabytes; nothing writes into a done run's
                os.link(path, folder / path.name)
        for name, text in texts[run.id].items():
            for other in chain:
                text = text.replace(other.id, _copied_id(other.id, copy))
            if name == "run.json":
                text = json.dumps({**json.loads(text), "created": _created(number)})
            (folder / name).write_text(text)
            (folder / name).chmod(0o400)
        (folder / "lock").touch(0o600)
    shutil.copystat(chain[0].dir, root)


def seconds(action: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    began = clock()
    action()
    return clock() - began


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _command(root: Path) -> dict[str, float]:
    """`runs list` in processes of their own: without an index, then with the one that the first has left."""

    def listed(*options: str, clock: Callable[[], float] = time.perf_counter) -> float:
        command = [sys.executable, "-m", "recon_core", "--store", str(root), "runs", "list", *options]
        return seconds(lambda: subprocess.run(command, cwd=PROJECT, check=True, stdout=subprocess.DEVNULL), clock)

    for index in root.glob(".index*"):
        index.unlink()
    return {
        "command_without_index_seconds": listed(),
        "command_seconds": statistics.median(listed() for _ in range(REPEATS)),
        "command_cpu": statistics.median(listed(clock=_children_cpu) for _ in range(REPEATS)),
        "command_json_seconds": statistics.median(listed("--json") for _ in range(REPEATS)),
        "command_help_seconds": statistics.median(listed("--help") for _ in range(REPEATS)),
    }


def _copied_id(run_id: str, copy: int) -> str:
    return f"{run_id.rsplit('-', 1)[0]}-{run_id[-2:]}{copy:05d}"


def _created(number: int) -> str:
    return (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number)).isoformat(timespec="microseconds")
