"""The steps of a study, each done once, in an order that finishes whole cells early.

A step is one run: a training, an attack, the same attack on an untrained network, a matching. A step is identified by
what it computes (`keys`), so cells that need the same one share it, and a run that is already in the store is reused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from recon_core.errors import AfterimageError, InputError
from recon_core.runs.keys import (
    RunIndex,
    attack_key,
    find_run,
    is_at_work,
    match_key,
    own_images,
    training_key,
    untrained_key,
)
from recon_core.runs.match_request import create_match
from recon_core.runs.models import model_of
from recon_core.runs.requests import create_reconstruction, create_training
from recon_core.scheduling import Ended
from recon_core.scheduling.killed import lacked_memory
from recon_core.scheduling.queue import waiting
from recon_core.store import Run, RunState, RunStore
from recon_core.studies.cells import Cell, attack_request, match_request, untrained_request

_NAME_LIMIT = 120
# A step whose process dies this often is given up.
_MOST_TRIES = 2


class StepKind(StrEnum):
    """Kinds of steps, in the order in which ready ones are started: the closer to a result, the earlier."""

    MATCH = "match"
    UNTRAINED = "untrained"
    ATTACK = "attack"
    TRAIN = "train"


class StepState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    ELSEWHERE = "another process works on it"
    DONE = "done"
    FAILED = "failed"
    """Failed by itself: it would fail again."""
    LOST = "lost"
    """Its process was killed repeatedly; it can be resumed from its last checkpoint."""
    STOPPED = "cancelled"
    """Cancelled as a single run, not with the study."""


_WENT_WRONG = (StepState.FAILED, StepState.LOST, StepState.STOPPED)
_ENDED = (StepState.DONE, *_WENT_WRONG)
_ORDER = list(StepKind)


@dataclass(eq=False)
class Step:
    """One run to be made. `cell` is the first that needs it."""

    key: str
    kind: StepKind
    cell: Cell
    rank: int
    parents: tuple[Step, ...] = ()
    state: StepState = StepState.WAITING
    run_id: str | None = None
    shared: bool = False
    """It had been computed before this study needed it."""
    message: str = ""
    tries: int = 0
    lacked_memory: bool = False
    """The last try ran out of memory."""

    @property
    def ready(self) -> bool:
        return self.state is StepState.WAITING and all(parent.state is StepState.DONE for parent in self.parents)

    @property
    def hopeless(self) -> bool:
        """Whether a step it waits for has failed, so that it cannot start."""
        return self.state is StepState.WAITING and any(
            parent.hopeless or parent.state in _WENT_WRONG for parent in self.parents
        )


@dataclass(frozen=True, eq=False)
class CellSteps:
    """The steps of one cell."""

    cell: Cell
    train: Step
    attack: Step
    untrained: Step | None
    match: Step

    def __iter__(self) -> Iterator[Step]:
        yield from (self.train, self.attack, *([self.untrained] if self.untrained else []), self.match)

    @property
    def state(self) -> StepState:
        """Done with its match; else what became of the first step that went wrong; else where it is."""
        if self.match.state is StepState.DONE:
            return StepState.DONE
        states = [step.state for step in self]
        for state in (*_WENT_WRONG, StepState.RUNNING, StepState.ELSEWHERE):
            if state in states:
                return state
        return StepState.WAITING

    @property
    def message(self) -> str:
        return next((f"{step.kind}: {step.message}" for step in self if step.message), "")


class StepGraph:
    """All steps and the state of each. It reads and creates runs in the store; an executor performs them."""

    def __init__(
        self, store: RunStore, name: str, cells: Sequence[Cell], *, untrained_control: bool, recorded: Mapping[str, str]
    ) -> None:
        self._store, self._name = store, name
        self._index = RunIndex(store)
        self._recorded = dict(recorded)
        self._steps: dict[str, Step] = {}
        self._images: dict[str, str | None] = {}
        self._untrained_steps: dict[tuple[object, ...], Step] = {}
        self.cells = [self._add(cell, rank, untrained_control) for rank, cell in enumerate(cells)]
        for steps in self.cells:
            self._take_finished(steps)

    # -- laying out --------------------------------------------------------------------------------

    def _add(self, cell: Cell, rank: int, untrained_control: bool) -> CellSteps:
        key = training_key(cell.training, self._images_of(cell))
        train = self._step(key, StepKind.TRAIN, cell, rank)
        attack = self._step(attack_key(key, attack_request(cell, "")), StepKind.ATTACK, cell, rank, train)
        untrained_step = self._untrained(cell, rank, train) if untrained_control and cell.baseline is None else None
        match = self._match(cell, rank, attack, untrained_step)
        return CellSteps(cell, train, attack, untrained_step, match)

    def _untrained(self, cell: Cell, rank: int, train: Step) -> Step:
        """One control for all cells of an architecture and attack: that of the first of them."""
        if cell.untrained_shape not in self._untrained_steps:
            key = untrained_key(untrained_request(cell, ""), cell.training, cell.architecture)
            self._untrained_steps[cell.untrained_shape] = self._step(key, StepKind.UNTRAINED, cell, rank, train)
        return self._untrained_steps[cell.untrained_shape]

    def _match(self, cell: Cell, rank: int, attack: Step, untrained: Step | None) -> Step:
        parents = (attack,) if untrained is None else (attack, untrained)
        key = match_key(
            attack.key, None if untrained is None else untrained.key, match_request(cell, "reconstruct-1", None)
        )
        return self._step(key, StepKind.MATCH, cell, rank, *parents)

    def _step(self, key: str, kind: StepKind, cell: Cell, rank: int, *parents: Step) -> Step:
        if key not in self._steps:
            self._steps[key] = Step(key, kind, cell, rank, parents)
        return self._steps[key]

    def _images_of(self, cell: Cell) -> str | None:
        data = cell.training.data
        known = data.model_dump_json()
        if known not in self._images:
            self._images[known] = own_images(data)
        return self._images[known]

    def _take_finished(self, steps: CellSteps) -> None:
        """A finished match brings its whole chain, whose runs cannot have been deleted without it."""
        match = self._index.done(steps.match.key)
        if match is not None:
            self._take(steps.match, match)
            attack, *control = (find_run(self._store, parent) for parent in match.parents)
            self._take(steps.attack, attack)
            if steps.untrained is not None:
                self._take(steps.untrained, control[0] if control else None)
        else:
            self._take(steps.attack, self._index.done(steps.attack.key))
        if steps.attack.run_id is not None:
            attacked = self._store.open(steps.attack.run_id)
            self._take(steps.train, find_run(self._store, attacked.parents[0]))
        for step in (steps.train, steps.untrained):
            if step is not None and step.state is StepState.WAITING:
                self._take(step, self._index.done(step.key))

    def _take(self, step: Step, run: Run | None) -> None:
        if run is not None and step.state is StepState.WAITING:
            step.state, step.run_id, step.message = StepState.DONE, run.id, ""
            step.shared = self._recorded.get(step.key) != run.id

    # -- how far it is -----------------------------------------------------------------------------

    @property
    def steps(self) -> list[Step]:
        return list(self._steps.values())

    @property
    def total(self) -> int:
        return len(self._steps)

    @property
    def done(self) -> int:
        return sum(step.state is StepState.DONE for step in self._steps.values())

    @property
    def running(self) -> list[Step]:
        return [step for step in self._steps.values() if step.state is StepState.RUNNING]

    @property
    def finished(self) -> bool:
        """Whether nothing is running and no step is left that could start."""
        return all(step.state in _ENDED or step.hopeless for step in self._steps.values())

    def ready(self) -> list[Step]:
        """Steps that can start now, the most urgent first."""
        found = [step for step in self._steps.values() if step.ready]
        return sorted(found, key=lambda step: (_ORDER.index(step.kind), step.rank))

    def recorded(self) -> dict[str, str]:
        """Run ids by key, stored so that the study can be resumed."""
        known = {step.key: step.run_id for step in self._steps.values() if step.run_id is not None}
        return {**self._recorded, **known}

    # -- going on ----------------------------------------------------------------------------------

    def begin(self, step: Step) -> Run | None:
        """The run to submit for a ready step; None where it is done already, or another process works on it."""
        if self._lost_parents(step):
            return None
        run = self._unfinished(step)
        # Before asking what is done: a run that ends in between is found there, not taken for one that never was.
        other = run if run is not None and is_at_work(run) else self._index.at_work(step.key)
        if (done := self._index.done(step.key)) is not None:
            self._take(step, done)
            return None
        if run is not None and run.status().state is RunState.DONE:
            self._take(step, run)
            return None
        if other is not None:
            step.state, step.run_id = StepState.ELSEWHERE, other.id
            return None
        if run is None:
            try:
                run = self._make(step)
            except InputError as error:
                step.state, step.message = StepState.FAILED, str(error)
                return None
        step.state, step.run_id, step.message = StepState.RUNNING, run.id, ""
        return run

    def end(self, ended: Ended) -> Step | None:
        """Update the step of a run that has ended, and return the step."""
        step = next((step for step in self.running if step.run_id == ended.run_id), None)
        if step is None:
            return None
        run = find_run(self._store, ended.run_id)
        if run is None:  # deleted meanwhile: try once more
            self._again(step, "was deleted")
            return step
        status = run.status()
        step.lacked_memory = lacked_memory(ended.trouble or "") or lacked_memory(status.message)
        match status.state:
            case RunState.DONE:
                step.state, step.message = StepState.DONE, ""
            case RunState.FAILED if step.lacked_memory:  # with fewer runs at once there may be enough
                self._again(step, status.message)
            case RunState.FAILED:
                self._fail(step, status.message)
            case RunState.CANCELLED:
                step.state, step.message = StepState.STOPPED, status.message
            case _ if is_at_work(run):
                step.state = StepState.ELSEWHERE
            case RunState.QUEUED if step.tries + 1 >= _MOST_TRIES:  # not the fault of this run: others would fail alike
                trouble = f"{ended.trouble}; fix that, then resume"
                raise AfterimageError(f"{step.cell.label}: could not be started, {_MOST_TRIES} times: {trouble}")
            case _:
                self._again(step, ended.trouble or status.message)
        return step

    def look_elsewhere(self) -> None:
        """Check whether the runs that other processes work on are done."""
        for step in self._steps.values():
            if step.state is StepState.ELSEWHERE:
                run = find_run(self._store, step.run_id or "")
                if run is not None and is_at_work(run):
                    continue
                finished = run is not None and run.status().state is RunState.DONE
                step.state = StepState.DONE if finished else StepState.WAITING
                step.shared = finished

    def put_back(self) -> None:
        """Put steps that were stopped with the study back to waiting."""
        for step in self.running:
            step.state = StepState.WAITING

    def _again(self, step: Step, message: str) -> None:
        step.tries += 1
        if step.tries < _MOST_TRIES:
            step.state = StepState.WAITING
        else:
            step.state, step.message = StepState.LOST, f"given up after {step.tries} tries: {message}"

    def _fail(self, step: Step, message: str) -> None:
        step.state, step.message = StepState.FAILED, message
        if step.kind is StepKind.UNTRAINED:
            self._do_without(step)

    def _do_without(self, untrained: Step) -> None:
        """A count without this control is worth more than no count."""
        for index, steps in enumerate(self.cells):
            if steps.untrained is untrained and steps.match.state is StepState.WAITING:
                self._steps.pop(steps.match.key, None)
                match = self._match(steps.cell, steps.match.rank, steps.attack, None)
                self.cells[index] = CellSteps(steps.cell, steps.train, steps.attack, None, match)

    def _lost_parents(self, step: Step) -> bool:
        """Whether a parent was deleted since it was done; it then waits to be done again."""
        lost = [parent for parent in step.parents if find_run(self._store, parent.run_id or "") is None]
        for parent in lost:
            parent.state, parent.run_id = StepState.WAITING, None
        return bool(lost)

    def _unfinished(self, step: Step) -> Run | None:
        """A run that this study, or one before it, began for this very step."""
        known = [self._recorded.get(step.key), step.run_id]
        # A run that was created just before the study was killed is not recorded; it is found by its name.
        in_line = set(waiting(self._store))
        known += [
            twin.run_id
            for twin in self._index.all(step.key)
            if twin.name == self._run_name(step) and twin.state is not RunState.DONE and twin.run_id not in in_line
        ]
        for run_id in known:
            run = None if run_id is None else find_run(self._store, run_id)
            if run is not None:
                return run
        return None

    def _make(self, step: Step) -> Run:
        name, cell = self._run_name(step), step.cell
        above = [parent.run_id or "" for parent in step.parents]
        match step.kind:
            case StepKind.TRAIN:
                return create_training(self._store, cell.training, name)
            case StepKind.ATTACK:
                model = model_of(self._store.open(above[0]))
                return create_reconstruction(self._store, attack_request(cell, above[0], model), name)
            case StepKind.UNTRAINED:
                return create_reconstruction(self._store, untrained_request(cell, above[0]), name)
            case StepKind.MATCH:
                return create_match(self._store, match_request(cell, above[0], above[1] if above[1:] else None), name)

    def _run_name(self, step: Step) -> str:
        untrained = ", untrained" if step.kind is StepKind.UNTRAINED else ""
        return f"{self._name}: {step.cell.label}{untrained}"[:_NAME_LIMIT]
