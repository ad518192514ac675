"""Time left is said where a finished run of the same size knows it, and nowhere else."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from recon_core.config import TrainConfig, parse_config
from recon_core.runs.training import _known_steps
from recon_core.scheduling.time_left import (
    Course,
    Point,
    left_at_rate,
    left_by_course,
    left_by_courses,
    replay,
    time_left,
)
from recon_core.store import Run, RunState, RunStore, layout

STEPS = 100


def test_the_course_of_another_run_tells_at_this_ones_pace() -> None:
    # Ten quick steps, then ninety slow ones.
    known = Course((Point(0, 0.0), Point(10, 1.0), Point(100, 10.0)))
    assert known.at(55) == pytest.approx(5.5)
    assert left_by_course([Point(10, 2.0)], known) == pytest.approx(18.0)  # twice as slow as the other
    assert left_by_course([Point(55, 5.5)], known) == pytest.approx(4.5)
    assert left_by_course([Point(100, 9.0)], known) == 0.0
    assert left_by_course([Point(1, 0.1)], known) is None


def test_the_pace_is_that_of_late() -> None:
    # Ten seconds beside something else, then as fast as the other run.
    known = Course((Point(0, 0.0), Point(100, 10.0)))
    assert left_by_course([Point(20, 10.0)], known) == pytest.approx(40.0)
    assert left_by_course([Point(20, 10.0), Point(80, 26.0)], known) == pytest.approx(16 / 6 * 2)
    assert left_at_rate([Point(20, 10.0), Point(80, 40.0), Point(90, 41.0)], 100) == pytest.approx(31 / 7)


def test_a_limit_in_time_ends_it_sooner(store: RunStore) -> None:
    model = trained(store)
    attack(store, model, 30.0, {"max_seconds": 50.0})
    settings = {"recipe": "copies", "iterations": STEPS, "max_seconds": 50.0}
    run = store.create("reconstruct", {"settings": settings, "baseline": None}, parents=[model.id])
    with run.writer() as writer:
        writer.start(STEPS)
        writer.metrics({"step": 50, "seconds": 40.0})
        writer.progress(50, force=True)
        found = {summary.id: summary for summary in store.list()}
        assert time_left(store, found[run.id], store.list()) == pytest.approx(10.0)  # at its pace it would be 20
        writer.finish(RunState.DONE, {})


def test_courses_that_disagree_do_not_know() -> None:
    half_done = [Point(50, 10.0)]
    even, quick, slow = (
        Course((Point(0, 0.0), Point(50, 10.0), Point(100, 10.0 + left))) for left in (10.0, 6.0, 90.0)
    )
    assert left_by_courses(half_done, [even, quick]) == pytest.approx(8.0)
    assert left_by_courses(half_done, [even, slow]) is None
    assert left_by_courses(half_done, []) is None


def test_an_even_pace_needs_a_while_to_be_known() -> None:
    assert left_at_rate([Point(50, 5.0)], 100) == pytest.approx(5.0)
    assert left_at_rate([Point(1, 5.0)], 100) is None
    assert left_at_rate([Point(50, 0.5)], 100) is None


def trained(store: RunStore) -> Run:
    run = store.create("train", {})
    with run.writer() as writer:
        writer.start(1)
        writer.finish(RunState.DONE, {"architecture": {"widths": [8]}})
    return run


def attack(store: RunStore, model: Run, seconds: float, settings: dict[str, Any] | None = None) -> Run:
    """One that took so long: slow in its first half, twice as fast after it."""
    chosen = {"recipe": "copies", "iterations": STEPS, **(settings or {})}
    run = store.create("reconstruct", {"settings": chosen, "baseline": None}, parents=[model.id])
    with run.writer() as writer:
        writer.start(STEPS)
        for step in range(0, STEPS + 1, 5):
            share = step / 75 if step <= 50 else (2 / 3 + (step - 50) / 150)
            writer.metrics({"step": step, "seconds": seconds * min(1.0, share)})
        writer.progress(STEPS)
        writer.finish(RunState.DONE, {})
    status = json.loads((run.dir / layout.STATUS).read_text())
    (run.dir / layout.STATUS).chmod(0o644)
    (run.dir / layout.STATUS).write_text(json.dumps({**status, "seconds": seconds}))
    return run


def test_the_first_of_its_kind_says_nothing_and_later_ones_are_right(store: RunStore) -> None:
    model = trained(store)
    for seconds in (20.0, 24.0, 30.0):
        attack(store, model, seconds)
    attack(store, model, 50.0, {"iterations": 7})  # of another size: nobody knew
    tally = replay(store)
    assert tally == (2, 2)
    assert tally.share == 1.0


def test_a_run_twice_as_slow_in_its_second_half_counts_as_wrong(store: RunStore) -> None:
    model = trained(store)
    attack(store, model, 200.0)
    odd = attack(store, model, 200.0)
    course = ((0, 0.0), (90, 50.0), (92, 100.0), (95, 150.0), (100, 200.0))
    rows = [{"step": step, "seconds": seconds} for step, seconds in course]
    (odd.dir / layout.METRICS).chmod(0o644)
    (odd.dir / layout.METRICS).write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert replay(store) == (1, 0)


def test_a_run_at_work_is_told_by_the_one_before(store: RunStore) -> None:
    model = trained(store)
    attack(store, model, 30.0)
    settings = {"recipe": "copies", "iterations": STEPS}
    run = store.create("reconstruct", {"settings": settings, "baseline": None}, parents=[model.id])
    with run.writer() as writer:
        writer.start(STEPS)
        writer.metrics({"step": 50, "seconds": 40.0})
        writer.progress(50, force=True)
        found = {summary.id: summary for summary in store.list()}
        # The other took 20 of its 30 s to get here; this one is half as fast.
        assert time_left(store, found[run.id], store.list()) == pytest.approx(20.0)
        # Nothing heard of it for longer than half of that: nobody knows what it is at.
        later = replace(found[run.id], status=replace(found[run.id].status, seconds=51.0))
        assert time_left(store, later, store.list()) is None
        writer.finish(RunState.DONE, {})


@pytest.mark.parametrize(
    ("training", "known"),
    [
        ({"recipe": "flow", "target_loss": 1e-3}, None),
        ({"recipe": "flow", "target_loss": 1e-3, "epochs": 50_000}, None),
        ({"weight_decay": 1e-4}, None),
        ({"recipe": "paper", "epochs": 500}, 500),
        ({"recipe": "paper", "epochs": 500, "max_seconds": 3}, None),
    ],
)
def test_a_training_has_a_total_only_where_it_counts_to_it(training: dict[str, Any], known: int | None) -> None:
    assert _known_steps(parse_config(TrainConfig, {"training": training})) == known
