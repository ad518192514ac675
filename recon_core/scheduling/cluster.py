"""Runs on a Ray cluster: one task for each, which is sent to a node and copied back file by file.

Nodes need Ray and the packages of requirements.txt, no disk in common with us and no copy of the project: Ray brings
it along. While a run is on a node this process holds its lock, so that it reads as running here and nobody else takes
it up. What a node did is copied back every second; when a node dies its runs go on elsewhere from what was copied last.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from recon_core.errors import AfterimageError, InputError
from recon_core.scheduling import sync
from recon_core.scheduling.connection import connect
from recon_core.scheduling.protocol import ATTACKS, PATIENCE, Ended, Places
from recon_core.scheduling.remote import RunFiles, perform_on_node
from recon_core.scheduling.slots import thread_environment
from recon_core.store import Run, RunState, layout, lock
from recon_core.store.nested import ancestors, home_store
from recon_core.store.private import open_to_append
from recon_core.store.record import now, stopped, write_status
from recon_core.store.writer import tidy

_CAPACITY_SECONDS = 5.0
_ANSWER_SECONDS = 1.0
_ACTOR_SECONDS = 120.0
"""How long `_ReportActor` may take to answer: it may have to be started first, on a busy machine."""
_MOST_KEPT = 8
"""Models held for the tasks to come."""
_MOST_NODES_LOST = 5
"""By one run, before it is given up: by then it is likelier that the run kills its nodes."""


class Collected(NamedTuple):
    """Changes that nodes reported, by task; `version` is acknowledged once they are on disk."""

    actor_id: str
    version: int
    changes: dict[str, list[sync.FileChange]]


class _ReportActor:
    """Nodes report to this actor, on the machine that submitted the runs.

    A restarted actor has lost all earlier reports; nodes and the executor notice by its new `actor_id`.
    """

    def __init__(self) -> None:
        self._actor_id = uuid.uuid4().hex
        self._pending = sync.Pending()
        self._unwanted: set[str] = set()

    def report(self, task: str, actor_id: str | None, changes: list[sync.FileChange]) -> tuple[bool, str]:
        """Whether to stop, and this actor's id.

        Changes that build on a report to an earlier actor are not accepted; the node then sends everything again.
        """
        if actor_id in (None, self._actor_id):
            self._pending.add(task, changes)
        return task in self._unwanted, self._actor_id

    def collect(self, actor_id: str, arrived: int, unwanted: list[str]) -> Collected:
        """All changes after version `arrived`, which is acknowledged by this call; `unwanted` are the tasks to stop."""
        if actor_id == self._actor_id:
            self._pending.arrived(arrived)
        self._unwanted = set(unwanted)
        return Collected(self._actor_id, *self._pending.all())


@dataclass
class _RemoteRun:
    """A run on a node."""

    run: Run
    handle: int
    """Of its lock."""
    task: str
    reference: Any
    reported: bool = False
    """Whether its present node has reported anything."""
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
            self._reports = self._start_reports()
        except BaseException:
            self._ray.shutdown()
            raise
        self._sent: dict[str, Any] = {}
        self._remote: dict[str, _RemoteRun] = {}
        self._refused: list[Ended] = []
        self._capacity, self._looked_at = 1, -float("inf")
        self._actor_id, self._arrived = "", 0
        self._asked: Any = None
        """Of `_ReportActor`, and not answered yet."""
        self._asked_at = 0.0
        self._closed = False

    def free(self) -> int:
        return max(0, self.places() - len(self._remote))

    def places(self) -> int:
        if time.monotonic() - self._looked_at > _CAPACITY_SECONDS:
            self._looked_at = time.monotonic()
            with contextlib.suppress(Exception):  # it is asked again; what matters is whether runs come back
                self._capacity = self._room()
        return self._capacity

    def reduce(self) -> bool:
        """No effect: the cluster decides how many runs a node takes; --cpus-per-run makes them fewer."""
        return False

    def submit(self, run: Run) -> None:
        path = run.dir / layout.LOCK
        handle = lock.acquire(path)
        if handle is None:
            trouble = f"run {run.id} is already running in process {lock.holder(path)}"
            self._refused.append(Ended(run.id, trouble))
            return
        remote = _RemoteRun(run, handle, "", None)
        try:
            if run.status().state is not RunState.QUEUED:  # of an earlier try
                (run.dir / layout.CANCEL).unlink(missing_ok=True)
            with self._asking():
                self._send(remote)
        except BaseException:
            self._remote.pop(remote.task, None)
            os.close(handle)
            raise

    def wait(self, seconds: float) -> list[Ended]:
        refused, self._refused = self._refused, []
        self._stop([remote for remote in self._remote.values() if remote.run.cancel_requested()])
        if not self._remote:
            time.sleep(0 if refused else seconds)
            return refused
        with self._asking():
            ready = self._ready(0 if refused else seconds)
        if not self._collect():
            return refused  # a run that has ended is judged once its last changes are here
        ended = [self._end(remote) for remote in ready]
        return [*refused, *(one for one in ended if one is not None)]

    def close(self) -> None:
        """Never raises: it may be called because the cluster is gone."""
        if self._closed:
            return
        self._closed = True
        deadline = time.monotonic() + PATIENCE
        self._stop(list(self._remote.values()))
        while self._remote and time.monotonic() < deadline:
            try:
                self.wait(0.2)
            except Exception:  # this may concern one run only; the others may still come back
                time.sleep(0.2)
        for remote in list(self._remote.values()):
            with contextlib.suppress(Exception):
                self._ray.cancel(remote.reference, force=True)
            with contextlib.suppress(Exception):
                self._let_go(remote)
        with contextlib.suppress(Exception):
            self._ray.kill(self._reports)
        with contextlib.suppress(Exception):
            self._ray.shutdown()

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        """Turns the many ways in which a request to Ray can fail into one error."""
        try:
            yield
        except AfterimageError:
            raise
        except Exception as error:
            here = f"python -m recon_core runs resume {self._log.parent.name} --cluster none"
            raise AfterimageError(
                f"the cluster at {self._places.cluster!r} does not answer any more ({_short(error)}); resume this when "
                f"it does, or on this machine with: {here}"
            ) from error

    # -- sending -----------------------------------------------------------------------------------------------------

    def _start_reports(self) -> Any:
        here = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            self._ray.get_runtime_context().get_node_id(), soft=False
        )
        made = self._ray.remote(_ReportActor).options(
            num_cpus=0, max_restarts=-1, max_task_retries=-1, scheduling_strategy=here
        )
        return made.remote()

    def _check_that_a_run_fits(self) -> None:
        """Raise where no node is large enough for a run; Ray would wait forever for such a node to join."""
        shares = self._shares()
        if any(self._fitting(share) for share in shares):
            return
        asked, has = (
            _resources_text(self._places.cpus, self._places.gpus),
            " and ".join(_resources_text(*share) for share in shares[:3]),
        )
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
        room = max(1, sum(map(self._fitting, self._shares())))  # without a node we wait for one to join
        return min(room, self._places.workers or room)

    def _send(self, remote: _RemoteRun) -> None:
        root = home_store(remote.run).root
        others = [self._put(other, root) for other in ancestors(remote.run)]
        folder = remote.run.dir
        own = RunFiles(folder.relative_to(root).as_posix(), sync.whole(folder), remote.run.kind in ATTACKS)
        task = self._ray.remote(perform_on_node).options(
            num_cpus=self._places.cpus,
            num_gpus=self._places.gpus,
            max_retries=0,  # we resume from the last checkpoint, Ray's retries would start again
            name=remote.run.id,
            scheduling_strategy="SPREAD",
        )
        name = uuid.uuid4().hex
        shares = thread_environment(max(1, int(self._places.cpus)))
        reference = task.remote(name, own, others, self._reports, shares)
        self._remote.pop(remote.task, None)
        remote.task, remote.reference, remote.reported = name, reference, False
        self._remote[name] = remote

    def _put(self, run: Run, root: Path) -> Any:
        """Models are attacked many times and sent to a node once; tasks at work keep theirs when it is dropped here."""
        if run.id not in self._sent:
            while len(self._sent) >= _MOST_KEPT:
                del self._sent[next(iter(self._sent))]
            files = RunFiles(run.dir.relative_to(root).as_posix(), sync.whole(run.dir, checkpoints=False))
            self._sent[run.id] = self._ray.put(files)
        return self._sent[run.id]

    # -- copying back --------------------------------------------------------------------------------------------

    def _stop(self, unwanted: list[_RemoteRun]) -> None:
        """Nodes learn of a cancellation from the answer to their next report."""
        for remote in unwanted:
            if not remote.unwanted and not remote.reported:  # it may still be queued by Ray
                with contextlib.suppress(Exception):
                    self._ray.cancel(remote.reference)
            remote.unwanted = True

    def _ready(self, seconds: float) -> list[_RemoteRun]:
        """Runs whose task has ended, as soon as there is one."""
        by_reference = {remote.reference: remote for remote in self._remote.values()}
        ready, _ = self._ray.wait(list(by_reference), num_returns=1, timeout=seconds)
        if ready:
            ready, _ = self._ray.wait(list(by_reference), num_returns=len(by_reference), timeout=0)
        return [by_reference[reference] for reference in ready]

    def _collect(self) -> bool:
        """Write reported changes to disk in order; True if that is everything reported before this call.

        A change that cannot be written, on a full disk say, ends the executor: later ones build on it.
        """
        fresh = self._asked is None
        with self._asking():
            if fresh:
                unwanted = [task for task, remote in self._remote.items() if remote.unwanted]
                self._asked = self._reports.collect.remote(self._actor_id, self._arrived, unwanted)
                self._asked_at = time.monotonic()
            if not self._ray.wait([self._asked], timeout=_ANSWER_SECONDS)[0]:
                if time.monotonic() - self._asked_at > _ACTOR_SECONDS:
                    raise TimeoutError
                return False
            asked, self._asked = self._asked, None
            collected = Collected(*self._ray.get(asked))
        for task, changes in collected.changes.items():
            if (remote := self._remote.get(task)) is None:  # somebody else has taken the run up
                continue
            remote.reported = True
            if remote.run.dir.is_dir():
                sync.apply(remote.run.dir, changes)
            else:
                remote.unwanted = True
        self._actor_id, self._arrived = collected.actor_id, collected.version
        return fresh

    def _end(self, remote: _RemoteRun) -> Ended | None:
        """None where the run was sent out again."""
        lost = trouble = None
        with self._asking():
            try:
                trouble = self._ray.get(remote.reference)
            except self._ray.exceptions.RayTaskError as error:
                trouble = f"{type(error.cause).__name__}: {error.cause}"
            except self._ray.exceptions.RayError as error:  # the node, or Ray's process on it, is gone
                lost = _short(error)
        # Its result may have been copied back before the node was lost.
        unfinished = not remote.unwanted and remote.run.status().state in (RunState.QUEUED, RunState.RUNNING)
        if lost is not None and unfinished:
            remote.nodes_lost += 1
            if remote.nodes_lost < _MOST_NODES_LOST:
                self._say(f"the node that worked on {remote.run.id} was lost ({lost}); it continues on another node")
                with self._asking():
                    self._send(remote)
                return None
            trouble = f"{remote.nodes_lost} nodes were lost while they worked on it; the last: {lost}"
        self._let_go(remote)
        return Ended(remote.run.id, trouble)

    def _let_go(self, remote: _RemoteRun) -> None:
        self._remote.pop(remote.task, None)
        folder = remote.run.dir
        with contextlib.suppress(AfterimageError, OSError):
            asked = remote.run.cancel_requested()
            (folder / layout.CANCEL).unlink(missing_ok=True)
            status = remote.run.status()
            # Killed on its node, which could not say so; or never begun, and no longer wanted.
            killed = status.state is RunState.RUNNING and remote.unwanted
            unsaid = killed or (status.state is RunState.QUEUED and asked)
            if status.state is RunState.DONE:
                tidy(folder)
            elif unsaid:
                write_status(folder, stopped(status))
        os.close(remote.handle)

    def _say(self, sentence: str) -> None:
        with contextlib.suppress(OSError), open_to_append(self._log) as log:
            log.write(f"{now()} {sentence}\n".encode())


def _short(error: BaseException) -> str:
    return type(error).__name__


def _resources_text(cpus: float, gpus: float) -> str:
    return f"{cpus:g} {'core' if cpus == 1 else 'cores'}" + (f", {gpus:g} GPU" if gpus else "")
