"""A study run: its cells trained, attacked and matched by as many processes as there are places for them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from recon_core.config import parse_config
from recon_core.devices import hardware
from recon_core.errors import AfterimageError
from recon_core.observing import Listener
from recon_core.runs.commands import PROGRAM
from recon_core.runs.signals import StopFlag
from recon_core.scheduling import Executor, Places, executor_for
from recon_core.store import Run, RunState, RunStore, RunWriter, lock
from recon_core.store.files import was_full
from recon_core.studies.cells import expand
from recon_core.studies.graph import StepGraph, StepKind, StepState
from recon_core.studies.plan import StudyPlan
from recon_core.studies.record import FILE, CellRecord, StudyRecord, read_record, record_cell, recorded_runs

if TYPE_CHECKING:
    from recon_core.data import TaskData

_DOING = {
    StepKind.TRAIN: "training",
    StepKind.ATTACK: "attacking",
    StepKind.UNTRAINED: "attacking an untrained network for",
    StepKind.MATCH: "matching",
}
_NAMED = 3  # lost parts named in the final message
_POLL_SECONDS = 0.3


class StudyConfig(Places):
    """One study run, whole."""

    plan: StudyPlan


def create_study(store: RunStore, config: StudyConfig, arguments: Sequence[str] = (), name: str | None = None) -> Run:
    """A study to be done; its cells are checked first. `arguments` follow `study` in the command that repeats it."""
    expand(config.plan)
    return store.create(
        "study",
        config.model_dump(mode="json"),
        name=name or config.plan.title,
        command=[*PROGRAM, "study", *(arguments or (config.plan.name,))],
    )


def perform_study(
    run: Run,
    writer: RunWriter,
    stop: StopFlag,
    listener: Listener,
    data: TaskData | None,
    make_executor: Callable[[Run, StudyConfig], Executor] = executor_for,
) -> None:
    """Do what is left of a study, and finish its run."""
    config = parse_config(StudyConfig, run.config)
    store = RunStore(run.dir.parent)
    study = _Study(store, run, config.plan, writer, listener)

    def stopping() -> bool:
        return stop.raised or writer.cancel_requested()

    writer.start(None)
    finished = False
    with _alone(store, writer, stopping) as alone:
        if alone:
            study.lay_out()
            executor = make_executor(run, config)
            try:
                finished = study.work(executor, stopping)
            finally:
                executor.close()
    study.finish(stopped=not finished)  # a request that came after the last run has nothing left to stop


@contextlib.contextmanager
def _alone(store: RunStore, writer: RunWriter, stopping: Callable[[], bool]) -> Iterator[bool]:
    """Allow one study of a store at a time: two would compute the same runs and share the cores badly."""
    path = store.root / ".studies.lock"
    while (handle := lock.acquire(path)) is None:
        if stopping():
            yield False
            return
        writer.progress(0, "waits for another study in this store to end")
    try:
        yield True
    finally:
        os.close(handle)


class _Study:
    """The loop around a graph."""

    def __init__(self, store: RunStore, run: Run, plan: StudyPlan, writer: RunWriter, listener: Listener) -> None:
        self._store, self._run, self._plan = store, run, plan
        self._writer, self._listener = writer, listener
        self._records = {cell.id: cell for cell in read_record(run).cells}
        self._graph: StepGraph | None = None

    def lay_out(self) -> None:
        """Look at what the store has already."""
        recorded = {**recorded_runs(self._store), **read_record(self._run).steps}
        cells = expand(self._plan)
        graph = StepGraph(
            self._store, self._plan.name, cells, untrained_control=self._plan.untrained_control, recorded=recorded
        )
        self._graph = graph
        if graph.done:
            self._writer.log(f"{graph.done} of {graph.total} runs were in the store already")
        self._save()
        self._tell(graph)

    def work(self, executor: Executor, stopping: Callable[[], bool]) -> bool:
        """Work until nothing is left that can be done. Returns False where it was stopped before."""
        graph = self._graph
        assert graph is not None
        while not graph.finished:
            if stopping():
                self._stop(graph, executor)
                return False
            changed = False
            for step in graph.ready():
                if not executor.free():
                    break
                run = graph.begin(step)
                changed = True
                if run is not None:
                    self._save()  # before the work begins: a study that is killed finds its runs again
                    executor.submit(run)
            self._tell(graph)
            at_once = changed and not graph.running  # what has just been found done may make others ready
            ended = [] if at_once else executor.wait(_POLL_SECONDS)
            for end in ended:
                step_ended = graph.end(end)
                if step_ended is not None and was_full(step_ended.message):
                    raise AfterimageError(step_ended.message)  # or all that is left would fail likewise
                if step_ended is not None and step_ended.state is not StepState.DONE:
                    said = step_ended.message or end.trouble or "its process ended"
                    self._writer.log(f"{_DOING[step_ended.kind]} {step_ended.cell.label}: {said}")
                    if step_ended.lacked_memory and executor.reduce():
                        self._writer.log(f"goes on with {executor.places()} at a time: there was not enough memory")
            graph.look_elsewhere()
            if ended:
                self._save()
        self._save()
        self._tell(graph)
        return True

    def _stop(self, graph: StepGraph, executor: Executor) -> None:
        for step in graph.running:
            self._store.open(step.run_id or "").request_cancel()
        executor.close()
        graph.put_back()
        self._save()

    def _save(self) -> None:
        graph = self._graph
        assert graph is not None
        finished = {cell.id for cell in self._records.values() if cell.done}
        self._records = {
            steps.cell.id: record_cell(self._store, steps, self._records.get(steps.cell.id)) for steps in graph.cells
        }
        record = StudyRecord(tuple(self._records.values()), graph.recorded())
        self._writer.save_json(FILE, record.to_json())
        for cell in self._records.values():
            if cell.done and cell.id not in finished:
                self._writer.metrics(_row(graph.done, cell))

    def _tell(self, graph: StepGraph) -> None:
        cells = list(self._records.values())
        done = sum(cell.done for cell in cells)
        doing = "; ".join(f"{_DOING[step.kind]} {step.cell.label}" for step in graph.running)
        message = f"{done} of {len(cells)} models" + (f"; {doing}" if doing else "")
        self._writer.progress(graph.done, message, total=graph.total)
        self._listener(graph.done / max(1, graph.total), message)

    def finish(self, *, stopped: bool) -> None:
        """The last word. What failed by itself would fail again; what was stopped can go on."""
        cells = list(self._records.values())
        done = [cell for cell in cells if cell.done]
        again = f"python -m recon_core runs resume {self._run.id}"
        if stopped:
            self._writer.finish(RunState.CANCELLED, None, f"was stopped on request and can be resumed: {again}")
            return
        halted = [cell for cell in cells if cell.state is StepState.STOPPED]
        lost = [cell for cell in cells if cell.state is StepState.LOST]
        failed = [cell for cell in cells if not cell.done and cell.state is not StepState.STOPPED]
        result: dict[str, Any] = {
            "name": self._plan.name,
            "size": self._plan.size,
            "models": len(cells),
            "done": len(done),
            "failed": [{"cell": cell.id, "message": cell.message} for cell in failed],
            "shared": sum(bool(cell.shared) for cell in cells),
            "hardware": hardware(),
        }
        message = f"{len(done)} of {len(cells)} models trained, attacked and matched"
        if halted:
            some = f"{message}; {len(halted)} were cancelled one by one, go on with: {again}"
            self._writer.finish(RunState.CANCELLED, None, some)
        elif lost:
            parts = "; ".join(f"{cell.id} ({cell.message})" for cell in lost[:_NAMED])
            more = f" and {len(lost) - _NAMED} more" if len(lost) > _NAMED else ""
            self._writer.finish(
                RunState.FAILED, result, f"incomplete, {message}; lost: {parts}{more}; go on with: {again}"
            )
        elif not done:
            self._writer.finish(RunState.FAILED, None, f"no model finished; {failed[0].message}")
        else:
            if failed:
                message += f"; {len(failed)} failed, e.g. {failed[0].id}: {failed[0].message}"
            self._writer.progress(len(self._graph.steps) if self._graph else 0, message, force=True)
            self._writer.finish(RunState.DONE, result, message)


def _row(step: int, cell: CellRecord) -> dict[str, Any]:
    """One finished cell, for whoever follows a study."""
    shown = ("good", "of", "on_margin", "train_error", "test_error")
    numbers = {name: cell.numbers[name] for name in shown if name in cell.numbers}
    return {"step": step, "cell": cell.id, **numbers}
