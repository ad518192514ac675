"""Places on a Ray cluster: one task for each run, which is sent to a node and comes back file by file.

Nodes need Ray and the packages of requirements.txt, no disk in common with us and no copy of the project: Ray brings
it along. While a run is away this process holds its lock, so that it reads as running here and nobody else takes it
up. What a node did is copied back every second; when a node dies its runs go on elsewhere from what was copied last.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import recon_core
from recon_core.errors import AfterimageError, InputError
from recon_core.executors import mirror
from recon_core.executors.protocol import ATTACKS, PATIENCE, Ended, Places
from recon_core.jobs.queue import module_environment
from recon_core.store import Run, RunState, layout, lock
from recon_core.store.nested import ancestors, home_store
from recon_core.store.record import now, stopped, write_status
from recon_core.store.writer import tidy

_INSTALL = "pip install -r requirements-cluster.txt"
_HOW = "start one with: ray start --head, and name it auto, host:6379, or ray://host:10001 from outside"
_PROJECT = Path(recon_core.__file__).parents[1]
# What a run needs of the project is the engine and the embedded images.
_NOT_SENT = [".git", ".venv", ".ci", "runs", "tests", "benchmarks", "pages", "ui", "out", "assets/screens"]
_FOLDER_PREFIX = "afterimage-node-"
_CAPACITY_SECONDS = 5.0
_ANSWER_SECONDS = 5.0
_MIRROR_SECONDS = 1.0
_MOST_NODES_LOST = 5
"""By one run, before it is given up: by then it is likelier that the run kills its nodes."""


def _import_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise InputError(f"a cluster needs Ray, which is not installed; install it with: {_INSTALL}") from None
    return ray


def connect(address: str) -> Any:
    """Ray, connected. Raises a sentence where there is no cluster at `address`."""
    ray = _import_ray()
    _knock(address)
    environment = {"working_dir": str(_PROJECT), "excludes": _NOT_SENT}
    try:
        ray.init(
            address=address,
            runtime_env=environment,
            log_to_driver=False,
            logging_level="ERROR",
            ignore_reinit_error=True,
            namespace="afterimage",
        )
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"no Ray cluster answers at {address!r} ({reason}); {_HOW}") from None
    return ray


def _knock(address: str) -> None:
    """Ray itself tries for minutes before it says that nobody is there."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address == "auto" or not host or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise InputError(f"no Ray cluster answers at {address!r} ({error}); {_HOW}") from None


class _Home:
    """Where nodes report to: an actor beside whoever asked. It forgets all when it dies, and says so by `birth`."""

    def __init__(self) -> None:
        self._birth = uuid.uuid4().hex
        self._news: list[tuple[str, list[mirror.Piece]]] = []
        self._unwanted: set[str] = set()

    def report(self, task: str, pieces: list[mirror.Piece]) -> tuple[bool, str]:
        """Whether to stop, and who was told."""
        self._news.append((task, pieces))
        return task in self._unwanted, self._birth

    def collect(self) -> list[tuple[str, list[mirror.Piece]]]:
        news, self._news = self._news, []
        return news

    def stop(self, tasks: list[str]) -> None:
        self._unwanted.update(tasks)


class Parcel(NamedTuple):
    """A run folder on its way to a node."""

    path: str
    """Below the store."""
    pieces: list[mirror.Piece]
    attacks: bool = False


def perform_away(task: str, own: Parcel, others: Sequence[Any], home: Any, shares: dict[str, str]) -> str | None:
    """On a node: do the run in a folder of its own. What kept it from being worked on, if anything did."""
    import ray

    with _folder_of_its_own() as root:
        for parcel in [*ray.get(list(others)), own]:
            folder = root / parcel.path
            folder.mkdir(parents=True, exist_ok=True)
            mirror.apply(folder, parcel.pieces)
            (folder / layout.LOCK).touch()
        folder = root / own.path
        watch, birth = mirror.Watch(folder), None

        def report(*, last: bool) -> bool:
            nonlocal birth
            stop, told = ray.get(home.report.remote(task, watch.changes(last=last)))
            if birth not in (None, told):  # it was started anew, and knows nothing of what it was told before
                watch.forget()
                stop, told = ray.get(home.report.remote(task, watch.changes(last=True)))
            birth = told
            return bool(stop)

        trouble = _do(folder, own.attacks, shares, report)
        report(last=True)  # before the task ends: its own result could be lost with the node
        return trouble


@contextlib.contextmanager
def _folder_of_its_own() -> Iterator[Path]:
    """Gone afterwards; those of tasks that were killed go with the next one."""
    beside = Path(tempfile.gettempdir())
    for left in beside.glob(f"{_FOLDER_PREFIX}*"):
        if not lock.is_held(left / layout.LOCK):
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_FOLDER_PREFIX, ignore_cleanup_errors=True) as root:
        handle = lock.acquire(Path(root, layout.LOCK))
        try:
            yield Path(root)
        finally:
            if handle is not None:
                os.close(handle)


def _do(folder: Path, attacks: bool, shares: dict[str, str], report: Callable[..., bool]) -> str | None:
    """In a process beside Ray's, which can be killed; it is kept for the next task, as loading torch takes seconds."""
    key = (attacks, *sorted(shares.items()))
    companion = _COMPANIONS.pop(key, None)
    if companion is None or companion.process.poll() is not None:
        companion = _Companion(shares)
    companion.order(folder)
    deadline = None
    while True:
        with contextlib.suppress(queue.Empty):
            trouble = companion.answer(_MIRROR_SECONDS if deadline is None else 0.2)
            if "CUDA_VISIBLE_DEVICES" in os.environ:  # it would keep its share of the GPU, which is somebody else's now
                companion.end()
            else:
                _COMPANIONS[key] = companion
            return trouble
        if report(last=False) and deadline is None:
            (folder / layout.CANCEL).touch()
            deadline = time.monotonic() + PATIENCE - 1
        if deadline is not None and time.monotonic() > deadline:
            companion.end()
            return None  # its status says how far it came


class _Companion:
    """A process that does one run after the other. It ends with this one: its input closes then."""

    def __init__(self, shares: dict[str, str]) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (open for as long as the process)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "recon_core.executors.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            env={**module_environment(), **shares},
        )
        self._answers: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def order(self, folder: Path) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # it died just now, and the answer says so
            self.process.stdin.write(f"{folder}\n")
            self.process.stdin.flush()

    def answer(self, seconds: float) -> str | None:
        """The trouble there was, if any; raises queue.Empty when there is no answer yet."""
        line = self._answers.get(timeout=seconds)
        try:
            trouble: str | None = json.loads(line)["trouble"]
        except (ValueError, KeyError, TypeError):
            return f"its process on {socket.gethostname()} ended with code {self.process.wait()}{self._last_words()}"
        return trouble

    def _last_words(self) -> str:
        """Usually the name of a package that is missing there."""
        self._said.seek(max(0, self._said.seek(0, os.SEEK_END) - 2000))
        lines = self._said.read().decode(errors="replace").split("\n")
        said = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f": {said[:200]}" if said else ""

    def end(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(0.5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._answers.put(line)
        self._answers.put("")


_COMPANIONS: dict[tuple[object, ...], _Companion] = {}
"""Of this process, if it is one of Ray's: by whether they attack, and their share of the machine."""


@dataclass
class _Away:
    """A run that is not here."""

    run: Run
    handle: int
    """Of its lock."""
    task: str
    reference: Any
    nodes_lost: int = 0
    unwanted: bool = False


class RayExecutor:
    """Tasks of a cluster, at most as many as it has room for: what waits can so be chosen as late as possible."""

    def __init__(self, places: Places, log: Path) -> None:
        assert places.cluster is not None
        self._ray = connect(places.cluster)
        self._places, self._log = places, log
        try:
            self._check_that_a_run_fits()
            self._home = self._start_home()
        except BaseException:
            self._ray.shutdown()
            raise
        self._sent: dict[str, Any] = {}
        self._away: dict[str, _Away] = {}
        self._refused: list[Ended] = []
        self._capacity, self._looked_at = 1, -float("inf")

    def free(self) -> int:
        return max(0, self.places() - len(self._away))

    def places(self) -> int:
        if time.monotonic() - self._looked_at > _CAPACITY_SECONDS:
            self._capacity, self._looked_at = self._room(), time.monotonic()
        return self._capacity

    def submit(self, run: Run) -> None:
        path = run.dir / layout.LOCK
        handle = lock.acquire(path)
        if handle is None:
            trouble = f"run {run.id} is already being worked on by process {lock.holder(path)}"
            self._refused.append(Ended(run.id, trouble))
            return
        if run.status().state is not RunState.QUEUED:  # of an earlier try
            (run.dir / layout.CANCEL).unlink(missing_ok=True)
        away = _Away(run, handle, "", None)
        self._send(away)
        self._away[away.task] = away

    def wait(self, seconds: float) -> list[Ended]:
        if self._refused:
            refused, self._refused = self._refused, []
            return refused
        self._pass_on_wishes()
        references = {away.reference: task for task, away in self._away.items()}
        if not references:
            time.sleep(seconds)
            return []
        ready, _ = self._ray.wait(list(references), num_returns=1, timeout=seconds)
        if ready:
            ready, _ = self._ray.wait(list(references), num_returns=len(references), timeout=0)
        self._collect()
        ended = [self._end(self._away[references[reference]]) for reference in ready]
        return [one for one in ended if one is not None]

    def close(self) -> None:
        deadline = time.monotonic() + PATIENCE
        with contextlib.suppress(self._ray.exceptions.RayError, AfterimageError, OSError):
            self._stop(list(self._away.values()))
            while self._away and time.monotonic() < deadline:
                self.wait(0.2)
        for away in list(self._away.values()):
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.cancel(away.reference, force=True)
            self._let_go(away)
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.kill(self._home)
        self._ray.shutdown()

    # -- out -----------------------------------------------------------------------------------------------------

    def _start_home(self) -> Any:
        here = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            self._ray.get_runtime_context().get_node_id(), soft=False
        )
        made = self._ray.remote(_Home).options(
            num_cpus=0, max_restarts=-1, max_task_retries=-1, scheduling_strategy=here
        )
        return made.remote()

    def _check_that_a_run_fits(self) -> None:
        """Ray would keep it waiting for ever, in case such a node should join."""
        shares = self._shares()
        if any(self._fitting(share) for share in shares):
            return
        asked, has = _words(self._places.cpus, self._places.gpus), " and ".join(_words(*share) for share in shares[:3])
        raise InputError(
            f"a run is to have {asked}, but no node of the cluster at {self._places.cluster!r} has that: they have "
            f"{has}; ask for less by --cpus-per-run and --gpus-per-run, or add a larger node first"
        )

    def _shares(self) -> list[tuple[float, float]]:
        """Cores and GPUs of each node."""
        found = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        return [(resources.get("CPU", 0.0), resources.get("GPU", 0.0)) for resources in found]

    def _fitting(self, share: tuple[float, float]) -> int:
        """How many runs a node has room for; none is spread over two."""
        wanted = (self._places.cpus, self._places.gpus)
        return min(int(has / needs + 1e-6) for has, needs in zip(share, wanted, strict=True) if needs)

    def _room(self) -> int:
        room = max(1, sum(map(self._fitting, self._shares())))  # of none we wait for the next to join
        return min(room, self._places.workers or room)

    def _send(self, away: _Away) -> None:
        root = home_store(away.run).root
        others = [self._put(other, root) for other in ancestors(away.run)]
        own = Parcel(away.run.dir.relative_to(root).as_posix(), mirror.whole(away.run.dir), away.run.kind in ATTACKS)
        task = self._ray.remote(perform_away).options(
            num_cpus=self._places.cpus,
            num_gpus=self._places.gpus,
            max_retries=0,  # ours go on from the last checkpoint, Ray's would start anew
            name=away.run.id,
            scheduling_strategy="SPREAD",
        )
        away.task = uuid.uuid4().hex
        threads = str(max(1, int(self._places.cpus)))
        shares = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
        away.reference = task.remote(away.task, own, others, self._home, shares)

    def _put(self, run: Run, root: Path) -> Any:
        """Models are attacked many times and sent to a node once."""
        if run.id not in self._sent:
            parcel = Parcel(run.dir.relative_to(root).as_posix(), mirror.whole(run.dir, checkpoints=False))
            self._sent[run.id] = self._ray.put(parcel)
        return self._sent[run.id]

    # -- back ----------------------------------------------------------------------------------------------------

    def _pass_on_wishes(self) -> None:
        """Whoever cancels a run here does not know where it is."""
        self._stop([away for away in self._away.values() if away.run.cancel_requested()])

    def _stop(self, unwanted: list[_Away]) -> None:
        fresh = [away for away in unwanted if not away.unwanted]
        if fresh:
            self._ray.get(self._home.stop.remote([away.task for away in fresh]))
        for away in fresh:
            away.unwanted = True

    def _collect(self) -> None:
        for task, pieces in self._ray.get(self._home.collect.remote()):
            if task in self._away:  # else somebody else has taken the run up
                mirror.apply(self._away[task].run.dir, pieces)

    def _end(self, away: _Away) -> Ended | None:
        """None where the run was sent out again."""
        try:
            trouble = self._ray.get(away.reference)
        except self._ray.exceptions.RayTaskError as error:
            trouble = f"{type(error.cause).__name__}: {error.cause}"
        except self._ray.exceptions.RayError as error:  # the node, or Ray's process on it, is gone
            del self._away[away.task]
            away.nodes_lost += 1
            if away.nodes_lost < _MOST_NODES_LOST and not away.unwanted:
                self._say(f"the node that worked on {away.run.id} was lost ({_short(error)}); it goes on elsewhere")
                self._sent.clear()  # what was kept on that node is gone too
                self._send(away)
                self._away[away.task] = away
                return None
            trouble = f"{away.nodes_lost} nodes were lost while they worked on it; the last: {_short(error)}"
            self._away[away.task] = away
        self._let_go(away)
        return Ended(away.run.id, trouble)

    def _let_go(self, away: _Away) -> None:
        self._away.pop(away.task, None)
        folder = away.run.dir
        with contextlib.suppress(AfterimageError, OSError):
            (folder / layout.CANCEL).unlink(missing_ok=True)
            status = away.run.status()
            if status.state is RunState.DONE:
                tidy(folder)
            elif status.state is RunState.RUNNING and away.unwanted:  # killed on its node, which could not say so
                write_status(folder, stopped(status))
        os.close(away.handle)

    def _say(self, sentence: str) -> None:
        with contextlib.suppress(OSError), self._log.open("ab") as log:
            log.write(f"{now()} {sentence}\n".encode())


def _short(error: BaseException) -> str:
    return type(error).__name__


def _words(cpus: float, gpus: float) -> str:
    return f"{cpus:g} {'core' if cpus == 1 else 'cores'}" + (f", {gpus:g} GPU" if gpus else "")
