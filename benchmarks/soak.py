"""A small store under everything at once, for as many minutes as asked for.

Runs are submitted, cancelled and resumed at random; workers, the scheduler and the app are killed; a real Chromium
opens pages; now and then the disk is full. Then whatever did not end is resumed, and it is looked whether the store
checks clean, every result equals that of an uninterrupted twin in every bit, the memory of app and scheduler is flat,
and nothing is left running. What was not so is a sentence in `failures`.

The seed decides which things are done in which order; how far each run is by then is the machine's. Nothing but
127.0.0.1 is spoken to.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import torch
from playwright.sync_api import Browser, Page, Route
from playwright.sync_api import Error as BrowserError

from benchmarks.browsers import App, chromium
from recon_core.errors import AfterimageError
from recon_core.scheduling import queue
from recon_core.store import Run, RunState, RunStore, lock

DISK_MIB = 192
SLOTS = 2
MOST_RUNS, MOST_UNFINISHED = 60, 30
"""Runs in the store at once. From there on, or with half of the disk full, the oldest finished ones are deleted."""
SETTLE_SECONDS = 900.0
"""What the end may take at most, when nothing is disturbed any more."""
FULL_SECONDS = (1.0, 6.0)
PAUSE_SECONDS = (0.1, 1.5)
WARM_SECONDS = 45.0
"""A process loads what it needs first; its memory is judged from there on."""
FLAT_MIB_PER_MINUTE, FLAT_SHARE = 4.0, 0.25
"""Growth that is still called flat: slower than this, or no more than this part of the start over the whole life."""
VISIT_SECONDS = 120.0
# Something stands there, and the server has answered all that was asked.
SHOWN = """() => document.querySelector('[data-testid=stMain] [data-testid=stElementContainer]')
  && document.querySelector('[data-testid=stApp]')?.dataset.testScriptState === 'notRunning'"""
PAGES = ("", "Train", "Reconstruct", "Match", "Analyze", "Studies", "Experiments", "Audit", "Results", "Glossary")

_NETWORK = {"data": {"source": "cifar10", "n": 8, "test_n": 16}, "model": {"widths": [60, 60]}}
_ATTACK = {"m": 16, "iterations": 150, "seeds": 2}
# What is submitted, by name: kind, the name of what it is made from, and settings.
WORK: dict[str, tuple[str, str | None, dict[str, Any]]] = {
    "flow": ("train", None, {**_NETWORK, "training": {"recipe": "flow", "target_loss": 1e-6}}),
    "paper": ("train", None, {**_NETWORK, "training": {"recipe": "paper", "epochs": 400, "measure_every": 20}}),
    "fast": ("reconstruct", "model", {"settings": {"recipe": "fast", **_ATTACK}}),
    "papers-attack": ("reconstruct", "model", {"settings": {"recipe": "paper", **_ATTACK}}),
    "search": ("search", "model", {"workers": 1, "settings": {"trials": 3, "attack": {**_ATTACK, "seeds": 1}}}),
    "match": ("match", "attack", {}),
}
TENSORS = {"train": "weights", "reconstruct": "candidates", "search": "candidates", "match": "match"}
# How often each thing is done, in parts.
ACTIONS = {
    "submit": 10, "cancel": 3, "resume": 5, "kill_worker": 4, "kill_scheduler": 3, "kill_app": 1, "visit": 10,
    "fill_disk": 2, "delete": 1,
}  # fmt: skip
_RESUMABLE = (RunState.CANCELLED, RunState.FAILED, RunState.INTERRUPTED)


def measure(minutes: float = 3.0, seed: int | None = None) -> dict[str, Any]:
    """Counts of what was done, what was found at the end, and memory in MiB."""
    seed = secrets.randbelow(10**6) if seed is None else seed
    sys.stderr.write(f"soak: seed {seed}, {minutes:g} minutes\n")
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", AFTERIMAGE_SLOTS=str(SLOTS))
    with tempfile.TemporaryDirectory(prefix="afterimage-soak-") as folder, _disk(Path(folder) / "disk") as disk:
        root = disk.folder / "runs"
        os.environ["AFTERIMAGE_STORE"] = str(root)
        twins = _twins(RunStore(Path(folder) / "twins"))
        soak = Soak(RunStore(root), disk, random.Random(seed), twins)
        try:
            with chromium() as browser:
                soak.disturb(minutes * 60, browser)
                soak.settle(browser)
        finally:
            soak.end()
        return {"seed": seed, "minutes": minutes, "disk": disk.kind, **soak.report()}


# -- a disk that can be full -----------------------------------------------------------------------


@dataclass
class Disk:
    """Where the store is. `fill` leaves it without room until `free`."""

    folder: Path
    mounted: bool

    @property
    def kind(self) -> str:
        limit = "a limit on the size of files of workers (no right to mount)"
        return f"a tmpfs of {DISK_MIB} MiB" if self.mounted else limit

    def fill(self, workers: list[psutil.Process]) -> None:
        if self.mounted:
            with contextlib.suppress(OSError), open(self._ballast, "ab", buffering=0) as file:
                for size in (2**20, 4096):  # the last page counts too
                    with contextlib.suppress(OSError):
                        while file.write(b"x" * size) == size:
                            pass
        for worker in workers if not self.mounted else []:
            with contextlib.suppress(psutil.Error):
                worker.rlimit(psutil.RLIMIT_FSIZE, (1024, psutil.RLIM_INFINITY))

    def free(self, workers: list[psutil.Process]) -> None:
        self._ballast.unlink(missing_ok=True)
        for worker in workers if not self.mounted else []:
            with contextlib.suppress(psutil.Error):
                worker.rlimit(psutil.RLIMIT_FSIZE, (psutil.RLIM_INFINITY, psutil.RLIM_INFINITY))

    @property
    def crowded(self) -> bool:
        """Whether runs fill half of it: what follows would be a disk that nothing can free."""
        if not self.mounted:
            return False
        ballast = self._ballast.stat().st_size if self._ballast.exists() else 0
        return shutil.disk_usage(self.folder).used - ballast > DISK_MIB * 2**20 / 2

    @property
    def _ballast(self) -> Path:
        return self.folder / "ballast"


@contextlib.contextmanager
def _disk(folder: Path) -> Iterator[Disk]:
    folder.mkdir()
    options = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "none", str(folder)]
    mounted = shutil.which("mount") is not None and not subprocess.run(options, capture_output=True).returncode
    try:
        yield Disk(folder, mounted)
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], capture_output=True, check=False)


# -- what runs should come to ----------------------------------------------------------------------


@dataclass
class Twins:
    """Finished runs that nobody disturbed, by the names of `WORK`; `model` and `attack` are what others are made of."""

    store: RunStore
    tensors: dict[str, dict[str, torch.Tensor]]
    results: dict[str, dict[str, Any]]
    archive: Path
    """A zip of the model and the attack."""
    made_from: dict[str, str]


def _twins(store: RunStore) -> Twins:
    made_from: dict[str, str] = {}
    for name, work in (("model", "flow"), ("attack", "fast")):
        made_from[name] = _done(_create(store, work, made_from)).id
    runs = {}
    for work in WORK:
        began = time.monotonic()
        runs[work] = _done(_create(store, work, made_from))
        sys.stderr.write(f"soak: the twin of {work} took {time.monotonic() - began:.1f} s\n")
    return Twins(
        store,
        {work: run.tensors(TENSORS[run.kind]) for work, run in runs.items()},
        {work: run.result() or {} for work, run in runs.items()},
        store.export(made_from["attack"], store.root / "twins.zip"),
        made_from,
    )


def _create(store: RunStore, work: str, made_from: Mapping[str, str]) -> Run:
    kind, above, config = WORK[work]
    parents = [] if above is None else [made_from[above]]
    asked = {"runs": parents} if kind == "match" else {"model": parents[0]} if parents else {}
    return store.create(kind, {**asked, **config}, name=work, parents=parents)


def _done(run: Run) -> Run:
    """By the same program that does queued runs, with as many threads: another number may round otherwise."""
    command = [sys.executable, "-m", "recon_core.worker", str(run.dir)]
    subprocess.run(command, env=queue.module_environment(), capture_output=True, check=False)
    if run.status().state is not RunState.DONE:
        raise RuntimeError(f"{run.name} was not done without any disturbance: {run.status().message}")
    return run


# -- the soak itself -------------------------------------------------------------------------------


@dataclass
class Memory:
    """MiB of one process over the seconds of its life."""

    samples: list[tuple[float, float]] = field(default_factory=list)

    def add(self, process: psutil.Process) -> None:
        with contextlib.suppress(psutil.Error):
            self.samples.append((time.time() - process.create_time(), process.memory_info().rss / 2**20))

    @property
    def peak(self) -> float:
        return max((mib for _, mib in self.samples), default=0.0)

    @property
    def warm(self) -> list[tuple[float, float]]:
        return [(seconds, mib) for seconds, mib in self.samples if seconds >= WARM_SECONDS]

    @property
    def seconds(self) -> float:
        return self.warm[-1][0] - self.warm[0][0] if self.warm else 0.0

    @property
    def slope(self) -> float:
        """MiB a minute by the median of all slopes between two samples (Theil and Sen): one jump does not decide."""
        warm = self.warm[:: max(1, len(self.warm) // 200)]
        slopes = [
            60 * (later - sooner) / (end - begin)
            for index, (begin, sooner) in enumerate(warm)
            for end, later in warm[index + 1 :]
            if end > begin
        ]
        return statistics.median(slopes) if slopes else 0.0

    @property
    def flat(self) -> bool:
        growth = self.slope * self.seconds / 60
        return self.slope < FLAT_MIB_PER_MINUTE or growth < FLAT_SHARE * self.warm[0][1]


class Soak:
    """One store, one app, one browser."""

    def __init__(self, store: RunStore, disk: Disk, chance: random.Random, twins: Twins) -> None:
        self._store, self._disk, self._chance, self._twins = store, disk, chance, twins
        store.import_zip(twins.archive)
        self._counts: Counter[str] = Counter(dict.fromkeys(ACTIONS, 0))
        self._failures: list[str] = []
        self._memory: dict[str, dict[int, Memory]] = {"app": {}, "scheduler": {}}
        self._freed_at: float | None = None
        self._app_may_die = True
        self._compared: set[str] = set()
        self._app = App(store.root)

    def disturb(self, seconds: float, browser: Browser) -> None:
        """Things at random; in the second half the app lives on, so that its memory can be judged."""
        page = self._page(browser)
        began = time.monotonic()
        names, weights = list(ACTIONS), list(ACTIONS.values())
        while (elapsed := time.monotonic() - began) < seconds:
            self._app_may_die = elapsed < seconds / 2
            (name,) = self._chance.choices(names, weights)
            if name == "visit":
                self._visit(page)
            else:
                with self._sentences(name):
                    done = getattr(self, f"_{name}")()
                    self._counts[name] += done is not False
            self._look()
            time.sleep(self._chance.uniform(*PAUSE_SECONDS))
        self._free_disk()
        sys.stderr.write(f"soak: {dict(self._counts)}\n")

    def settle(self, browser: Browser) -> None:
        """Nothing is disturbed any more: all that did not end is resumed until everything is done."""
        page = self._page(browser)
        deadline = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < deadline:
            states = Counter(summary.status.state for summary in self._store.list())
            if set(states) <= {RunState.DONE}:
                break
            for summary in self._store.list():
                if summary.status.state in _RESUMABLE:
                    with self._sentences("resume"):
                        queue.resume(self._store.open(summary.id))
            self._visit(page)
            self._look()
            time.sleep(0.5)
        else:
            for summary in self._store.list():
                if summary.status.state is not RunState.DONE:
                    said = f"{summary.status.state}: {summary.status.message}"
                    self._failures.append(f"{summary.name} did not end within {SETTLE_SECONDS:g} s, {said}")
        while queue.tickets(self._store.root) or lock.is_held(queue.scheduler_lock(self._store.root)):
            if time.monotonic() > deadline + 60:
                self._failures.append("the scheduler did not leave although nothing was queued")
                break
            time.sleep(0.1)
        for summary in self._store.list():
            if summary.status.state is RunState.DONE:
                self._compare(self._store.open(summary.id))
        self._failures += [f"runs check: {problem.run_id}: {problem.sentence}" for problem in self._store.check()]

    def end(self) -> None:
        """Whatever happened, nothing is left behind."""
        self._app.close()
        deadline = time.monotonic() + 20
        while (left := self._processes()) and time.monotonic() < deadline:
            time.sleep(0.2)
        self._failures += [f"left running: {' '.join(process.cmdline())}" for process in left]
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()

    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = {f"did_{name}": count for name, count in self._counts.items()}
        found |= {"results_compared": len(self._compared)}
        for name, lives in self._memory.items():
            longest = max(lives.values(), key=lambda memory: memory.seconds, default=Memory())
            found |= {
                f"{name}_lives": len(lives),
                f"{name}_peak_mib": max((memory.peak for memory in lives.values()), default=0.0),
                f"{name}_watched_seconds": longest.seconds,
                f"{name}_slope_mib_per_minute": longest.slope,
            }
            if not longest.flat:
                self._failures.append(f"the memory of the {name} grows by {longest.slope:.1f} MiB a minute")
        return {**found, "failures": self._failures}

    # -- things that are done ----------------------------------------------------------------------

    def _submit(self) -> bool:
        unfinished = sum(run.status.state is not RunState.DONE for run in self._store.list())
        while self._disk.crowded and self._delete_oldest():
            pass
        if unfinished >= MOST_UNFINISHED or self._disk.crowded:
            return False
        work = self._chance.choice(list(WORK))
        queue.submit(_create(self._store, work, self._twins.made_from))
        return True

    def _cancel(self) -> bool:
        run = self._any(RunState.QUEUED, RunState.RUNNING)
        return run is not None and queue.cancel(run)

    def _resume(self) -> bool:
        run = self._any(*_RESUMABLE)
        if run is None:
            return False
        queue.resume(run)
        return True

    def _delete(self) -> bool:
        """The oldest that is done, once there are many."""
        done = [run for run in self._store.list() if run.status.state is RunState.DONE and run.name in WORK]
        return len(done) >= MOST_RUNS and self._delete_oldest()

    def _delete_oldest(self) -> bool:
        done = [run for run in self._store.list() if run.status.state is RunState.DONE and run.name in WORK]
        if not done:
            return False
        self._compare(self._store.open(done[-1].id))
        self._store.delete(done[-1].id)
        self._counts["made_room"] += 1
        return True

    def _kill_worker(self) -> bool:
        workers = self._processes("recon_core.worker")
        if not workers:
            return False
        self._chance.choice(workers).kill()
        return True

    def _kill_scheduler(self) -> bool:
        found = self._scheduler()
        if found is None:
            return False
        found.kill()
        return True

    def _kill_app(self) -> bool:
        if not self._app_may_die:
            return False
        self._app.kill()
        self._app.start()
        return True

    def _fill_disk(self) -> bool:
        if self._freed_at is not None:
            return False
        self._disk.fill(self._processes("recon_core.worker"))
        self._freed_at = time.monotonic() + self._chance.uniform(*FULL_SECONDS)
        return True

    def _free_disk(self) -> None:
        self._freed_at = None
        self._disk.free(self._processes("recon_core.worker"))

    def _visit(self, page: Page) -> None:
        """A page of the app, or one run's. A page that the killing of the app breaks off is no fault."""
        runs = self._store.list()
        where = self._chance.choice(PAGES)
        if self._chance.random() < 0.3 and runs:
            where = f"?run={self._chance.choice(runs).id}"
        self._counts["visit"] += 1
        try:
            page.goto(f"{self._app.url}/{where}", wait_until="domcontentloaded", timeout=1000 * VISIT_SECONDS)
            page.wait_for_function(SHOWN, timeout=1000 * VISIT_SECONDS)
        except BrowserError as error:
            self._counts["visits_not_shown"] += 1
            self._failures.append(f"/{where} was not shown within {VISIT_SECONDS:g} s: {str(error).splitlines()[0]}")
            return
        for box in page.locator('[data-testid="stException"]').all_inner_texts():
            self._failures.append(f"/{where} shows an exception: {' '.join(box.split())[:300]}")

    # -- looking on --------------------------------------------------------------------------------

    def _look(self) -> None:
        if self._freed_at is not None and time.monotonic() > self._freed_at:
            self._free_disk()
        watched = {"app": psutil.Process(self._app.process.pid), "scheduler": self._scheduler()}
        for name, process in watched.items():
            if process is not None:
                self._memory[name].setdefault(process.pid, Memory()).add(process)

    def _compare(self, run: Run) -> None:
        """With its twin, in every bit; times differ, and so may what a cache has spared."""
        if run.name not in WORK or run.id in self._compared:
            return
        self._compared.add(run.id)
        expected, found = self._twins.tensors[run.name], run.tensors(TENSORS[run.kind])
        if expected.keys() != found.keys():
            self._failures.append(f"{run.name} {run.id} has {sorted(found)}, its twin {sorted(expected)}")
        for name in expected.keys() & found.keys():
            if not torch.equal(expected[name], found[name]):
                far = (expected[name].double() - found[name].double()).abs().max() if found[name].numel() else 0.0
                self._failures.append(f"{name} of {run.name} {run.id} differs from its twin's by {float(far):.3g}")

    def _any(self, *states: RunState) -> Run | None:
        found = [summary for summary in self._store.list() if summary.status.state in states]
        return self._store.open(self._chance.choice(found).id) if found else None

    def _scheduler(self) -> psutil.Process | None:
        held = queue.scheduler_lock(self._store.root)
        holder = lock.holder(held)
        if not lock.is_held(held) or not holder.isdecimal():
            return None
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(int(holder))
            if "recon_core.scheduling.scheduler" in process.cmdline():
                return process
        return None

    def _processes(self, module: str | None = None) -> list[psutil.Process]:
        """That work for this store, by what their command line or their environment says."""
        found = []
        root = str(self._store.root)
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                words = process.cmdline()
                ours = any(word.startswith("recon_core.") for word in words) and (
                    any(word.startswith(root) for word in words) or process.environ().get("AFTERIMAGE_STORE") == root
                )
                if ours and module in (None, *words) and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return sorted(found, key=lambda process: process.pid)

    def _page(self, browser: Browser) -> Page:
        page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
        page.route("**/*", self._stay_here)
        return page

    def _stay_here(self, route: Route) -> None:
        """Nothing but this machine is asked for anything."""
        if urllib.parse.urlsplit(route.request.url).hostname == "127.0.0.1":
            route.continue_()
        else:
            self._failures.append(f"a page asked for {route.request.url[:100]}")
            route.abort()

    @contextlib.contextmanager
    def _sentences(self, action: str) -> Iterator[None]:
        """A sentence is an answer; anything else is a fault."""
        try:
            yield
        except AfterimageError:
            self._counts[f"refused_{action}"] += 1
        except Exception as error:
            self._failures.append(f"{action} raised {type(error).__name__}: {str(error)[:200]}")
