"""The graph: every step once, shared where it can be, waited for where others are at it."""

from __future__ import annotations

import pytest
import torch

from recon_core.config import parse_config
from recon_core.models import Architecture, build_network
from recon_core.runs.reconstruction import ReconstructConfig
from recon_core.scheduling import Ended
from recon_core.store import Run, RunState, RunStore
from recon_core.studies.cells import expand
from recon_core.studies.graph import Step, StepGraph, StepKind, StepState
from recon_core.studies.plan import StudyPlan
from tests.studies.tiny_studies import tiny_plan

ARCHITECTURE = {
    "input_shape": [3, 32, 32],
    "widths": [50, 50],
    "outputs": 1,
    "bias": "first",
    "conv_kernel": None,
    "conv_channels": None,
}


def graph_of(store: RunStore, plan: StudyPlan | None = None, recorded: dict[str, str] | None = None) -> StepGraph:
    plan = plan or tiny_plan()
    return StepGraph(store, plan.name, expand(plan), untrained_control=plan.untrained_control, recorded=recorded or {})


def weights() -> dict[str, torch.Tensor]:
    network = build_network(Architecture.from_json(ARCHITECTURE), init_scale=1e-4, seed=0)
    values = dict(network.state_dict())
    values["layers.0.weight"] = values["layers.0.weight"] + torch.randn(50, 4) @ torch.randn(4, 3072)
    return values


def end(run: Run, state: RunState = RunState.DONE, message: str = "") -> Ended:
    """Nobody computes anything here: a run ends as we say, a training with weights of rank 4."""
    with run.writer() as writer:
        writer.start(1)
        if run.kind == "train" and state is RunState.DONE:
            writer.save_tensors("weights", weights())
        result = {"architecture": ARCHITECTURE} if state is RunState.DONE else None
        writer.finish(state, result, message)
    return Ended(run.id, None)


def work_off(graph: StepGraph) -> list[str]:
    """One place, all goes well: the order in which steps are begun."""
    order = []
    while not graph.finished:
        step = graph.ready()[0]
        run = graph.begin(step)
        if run is not None:
            order.append(f"{step.kind} {step.cell.point}")
            graph.end(end(run))
    return order


def step_of(graph: StepGraph, kind: StepKind, point: str) -> Step:
    return next(step for step in graph.steps if step.kind is kind and step.cell.point == point)


def test_cells_are_finished_one_after_the_other_and_share_the_untrained_control(store: RunStore) -> None:
    graph = graph_of(store)
    assert work_off(graph) == [
        "train none",
        "untrained none",
        "attack none",
        "match none",
        "train 0.001",
        "attack 0.001",
        "match 0.001",
        "train small start",
        "attack small start",
        "match small start",
    ]
    assert graph.done == graph.total == 10
    assert all(cell.state is StepState.DONE for cell in graph.cells)
    match = store.open(graph.cells[1].match.run_id or "")
    assert match.parents == (graph.cells[1].attack.run_id, graph.cells[0].untrained.run_id)
    assert match.name == "tiny: 0.001, seed 0"
    assert match.command[:4] == ("python", "-m", "recon_core", "match")


def test_what_is_in_the_store_is_not_done_again_whoever_did_it(store: RunStore) -> None:
    work_off(graph_of(store))
    before = {summary.id for summary in store.list()}
    # Another study of other name and seeds with one value in common.
    other = tiny_plan(name="other", points=tiny_plan().points[:1], references=[], seeds=[0, 1])
    graph = graph_of(store, other)
    assert graph.cells[0].state is StepState.DONE
    assert all(step.shared for step in graph.cells[0])
    assert work_off(graph) == ["train none", "attack none", "match none"]  # of seed 1
    assert len(store.list()) == len(before) + 3


def test_a_deleted_run_is_done_again(store: RunStore) -> None:
    graph = graph_of(store)
    work_off(graph)
    doomed = graph.cells[1]
    store.delete(doomed.attack.run_id or "", with_dependents=True)
    again = graph_of(store, recorded=graph.recorded())
    assert again.cells[1].state is StepState.WAITING
    assert again.cells[1].train.run_id == doomed.train.run_id
    assert work_off(again) == ["attack 0.001", "match 0.001"]


def test_a_parent_deleted_under_way_is_done_again(store: RunStore) -> None:
    graph = graph_of(store)
    train = step_of(graph, StepKind.TRAIN, "none")
    run = graph.begin(train)
    assert run is not None
    graph.end(end(run))
    store.delete(run.id)
    assert graph.begin(step_of(graph, StepKind.ATTACK, "none")) is None
    assert train.state is StepState.WAITING
    assert work_off(graph)[0] == "train none"


def test_a_run_somebody_works_on_is_waited_for(store: RunStore) -> None:
    first = graph_of(store)
    run = first.begin(first.ready()[0])
    assert run is not None
    with run.writer() as writer:  # as its own process would
        writer.start(1)
        graph = graph_of(store)
        step = graph.ready()[0]
        assert graph.begin(step) is None
        assert step.state is StepState.ELSEWHERE
        graph.look_elsewhere()
        assert step.state is StepState.ELSEWHERE
        assert not graph.finished
        writer.finish(RunState.DONE, {"architecture": ARCHITECTURE})
    graph.look_elsewhere()
    assert (step.state, step.run_id) == (StepState.DONE, run.id)


def test_a_run_begun_before_goes_on_even_if_only_its_name_is_known(store: RunStore) -> None:
    """The study was killed in the moment between making the run and writing that down."""
    first = graph_of(store)
    run = first.begin(first.ready()[0])
    graph = graph_of(store)
    again = graph.begin(graph.ready()[0])
    assert run is not None
    assert again is not None
    assert again.id == run.id
    assert len(store.list()) == 1


def test_a_strangers_unfinished_run_is_left_alone(store: RunStore) -> None:
    first = graph_of(store)
    run = first.begin(first.ready()[0])
    assert run is not None
    store.rename(run.id, "mine, do not touch")
    graph = graph_of(store)
    own = graph.begin(graph.ready()[0])
    assert own is not None
    assert own.id != run.id


def test_a_failure_spoils_its_cell_and_no_other(store: RunStore) -> None:
    graph = graph_of(store)
    train = step_of(graph, StepKind.TRAIN, "0.001")
    run = graph.begin(train)
    assert run is not None
    graph.end(end(run, RunState.FAILED, "diverged"))
    work_off(graph)
    assert [cell.state for cell in graph.cells] == [StepState.DONE, StepState.FAILED, StepState.DONE]
    assert graph.cells[1].message == "train: diverged"
    assert graph.finished


def test_without_its_control_a_count_is_still_made(store: RunStore) -> None:
    graph = graph_of(store)
    graph.end(end(graph.begin(step_of(graph, StepKind.TRAIN, "none"))))  # type: ignore[arg-type]
    control = graph.begin(step_of(graph, StepKind.UNTRAINED, "none"))
    assert control is not None
    graph.end(end(control, RunState.FAILED, "diverged"))
    work_off(graph)
    assert all(cell.state is StepState.DONE for cell in graph.cells)
    assert store.open(graph.cells[0].match.run_id or "").config["untrained"] is None


@pytest.mark.parametrize("state", [RunState.CANCELLED, RunState.INTERRUPTED])
def test_one_cancelled_run_is_left_and_one_whose_process_died_is_tried_again(store: RunStore, state: RunState) -> None:
    graph = graph_of(store)
    step = graph.ready()[0]
    tried = []
    while step.state in (StepState.WAITING, StepState.RUNNING):
        run = graph.begin(step)
        assert run is not None
        tried.append(run.id)
        graph.end(end(run, state, "gone"))
    if state is RunState.CANCELLED:
        assert step.state is StepState.STOPPED
        assert len(tried) == 1
    else:
        assert (step.state, len(tried), len(set(tried))) == (StepState.LOST, 2, 1)
        assert "given up after 2 tries" in step.message


def test_m_follows_from_the_weights_and_is_found_again(store: RunStore) -> None:
    """Twice the rank of the trained first layer, unless the plan says how many; the control has one for each sample."""
    graph = graph_of(store)
    work_off(graph)
    first = graph.cells[0]
    attacked = parse_config(ReconstructConfig, store.open(first.attack.run_id or "").config)
    assert attacked.m_from_rank
    assert attacked.settings.m == 8
    assert first.untrained is not None
    control = parse_config(ReconstructConfig, store.open(first.untrained.run_id or "").config)
    assert (control.settings.m, control.settings.model_dump()["rank"]) == (20, 10)
    assert graph_of(store).done == graph.total  # nothing is done again
    chosen = tiny_plan(base={**tiny_plan().base, "attack.m": 30})
    other = graph_of(store, chosen)
    assert other.done == 3  # the trainings
    work_off(other)
    assert store.open(other.cells[0].attack.run_id or "").config["settings"]["m"] == 30
