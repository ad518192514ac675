"""How long a run will still take, said only where it is known.

An attack changes its pace from stage to stage, so its rate so far tells little. What tells is the course of a finished
run of the same size: how long that one took from the same step to its end, at the pace this one has kept so far.
Gradient descent over a fixed number of epochs and the trials of a search go at one pace. Of everything else, such as a
training that ends at a loss, nobody knows.
"""

from __future__ import annotations

import contextlib
import json
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from recon_core.errors import AfterimageError
from recon_core.store import Run, RunState, RunStore, RunSummary

LEAST_SECONDS = 2.0
"""Below this nobody needs to be told, and a rate is mostly the start."""
_LEAST_SHARE = 0.05
_COURSES_LOOKED_AT = 40
_MOMENTS = (0.25, 0.5, 0.75)
"""Shares of a run's time at which the benchmark asks."""
_SHARED = ("recipe", "m", "iterations", "seeds", "dtype", "device", "rounds", "unmix_starts", "prior")


class Point(NamedTuple):
    """A run had done `step` after `seconds`."""

    step: int
    seconds: float


@dataclass(frozen=True)
class Course:
    """How a finished run went, in order; the last point is its end."""

    points: tuple[Point, ...]

    @property
    def seconds(self) -> float:
        return self.points[-1].seconds

    def at(self, step: float) -> float:
        """Seconds after which it had done so many steps, straight between measurements."""
        place = bisect_right(self.points, step, key=lambda point: point.step)
        if place == 0:
            return self.points[0].seconds
        if place == len(self.points):
            return self.seconds
        before, after = self.points[place - 1], self.points[place]
        share = (step - before.step) / max(1, after.step - before.step)
        return before.seconds + share * (after.seconds - before.seconds)


def time_left(store: RunStore, run: RunSummary, others: Iterable[RunSummary]) -> float | None:
    """Seconds a run at work has to go, by what `others` have taken; None where that is not known."""
    status = run.status
    if status.state is not RunState.RUNNING or not status.total:
        return None
    try:
        opened = store.open(run.id)
        if _is_even(opened):
            return left_at_rate(Point(status.step, status.seconds), status.total)
        key = cost_key(store, opened)
        known = None if key is None else newest_course(store, key, run.id, others)
        rows = opened.metrics(tail=1)
    except (AfterimageError, KeyError, TypeError):
        return None
    if known is None or not rows:
        return None
    newest = Point(int(rows[-1]["step"]), float(rows[-1].get("seconds", status.seconds)))
    return left_by_course(newest, known)


def left_at_rate(now: Point, total: int) -> float | None:
    """Of work that goes at one pace; None before there is one."""
    if now.seconds < LEAST_SECONDS or not _LEAST_SHARE * total <= now.step <= total:
        return None
    return now.seconds / now.step * (total - now.step)


def left_by_course(now: Point, known: Course) -> float | None:
    """What the other run still had to go here, at this one's pace; None before there is a pace."""
    there = known.at(now.step)
    if now.seconds < LEAST_SECONDS or there < _LEAST_SHARE * known.seconds:
        return None
    return now.seconds / there * max(0.0, known.seconds - there)


def cost_key(store: RunStore, run: Run) -> str | None:
    """All that decides what an attack costs; None for other runs."""
    if run.kind != "reconstruct" or not run.parents:
        return None
    config = run.config
    settings: dict[str, Any] = config["settings"]
    model = (store.open(run.parents[0]).result() or {})["architecture"]
    # Of the untrained network as well: it is attacked in as many dimensions, with the same steps.
    baseline = config.get("baseline")
    kind = None if baseline == "untrained" else baseline
    return json.dumps([kind, model, {name: settings.get(name) for name in _SHARED}], sort_keys=True)


def newest_course(store: RunStore, key: str, run_id: str, others: Iterable[RunSummary]) -> Course | None:
    """Of the newest finished run of that key."""
    done = [run for run in others if run.kind == "reconstruct" and run.status.state is RunState.DONE]
    for run in done[:_COURSES_LOOKED_AT]:
        if run.id != run_id:
            with contextlib.suppress(AfterimageError, KeyError, TypeError):  # of another version
                opened = store.open(run.id)
                if cost_key(store, opened) == key and (found := course_of(opened)) is not None:
                    return found
    return None


def course_of(run: Run) -> Course | None:
    """None of a run without measurements, and of one that was interrupted: its clock stood still meanwhile."""
    points = _points(run)
    if not points:
        return None
    status = run.status()
    return Course((*points, Point(max(status.step, points[-1].step), max(status.seconds, points[-1].seconds))))


def _points(run: Run) -> list[Point]:
    rows = [row for row in run.metrics() if isinstance(row.get("seconds"), int | float)]
    points = [Point(int(row["step"]), float(row["seconds"])) for row in rows]
    rising = all(a.seconds <= b.seconds for a, b in pairwise(points))
    return points if rising else []


def _is_even(run: Run) -> bool:
    """Whether each step takes as long as the others."""
    if run.kind == "search":
        return True
    recipe = run.config.get("training", {}).get("recipe")
    return run.kind == "train" and recipe in ("paper", "sgd")


class Tally(NamedTuple):
    """Finished runs whose time left was shown, and of those the ones where all that was shown was about right."""

    shown: int
    right: int

    @property
    def share(self) -> float | None:
        """None where nothing was shown, which is neither right nor wrong."""
        return self.right / self.shown if self.shown else None

    def figures(self) -> dict[str, float]:
        """For a benchmark; without a share where there is none."""
        share = {} if self.share is None else {"time_left_within_factor_two": self.share}
        return {**share, "time_left_runs": self.shown}


def replay(store: RunStore, factor: float = 2.0) -> Tally:
    """What finished runs would have said at a quarter, half and three quarters of their time, by those before them."""
    done = [run for run in store.list() if run.status.state is RunState.DONE]
    shown = right = 0
    for place, run in enumerate(done):
        with contextlib.suppress(AfterimageError, KeyError, TypeError):
            said = _said(store, store.open(run.id), done[place + 1 :])
            shown += bool(said)
            right += bool(said) and all(truth / factor <= told <= truth * factor for told, truth in said)
    return Tally(shown, right)


def _said(store: RunStore, run: Run, before: Sequence[RunSummary]) -> list[tuple[float, float]]:
    """Pairs of what was said and what was true."""
    own, total = course_of(run), run.status().total
    if own is None or not total:
        return []
    even = _is_even(run)
    key = None if even else cost_key(store, run)
    known = None if key is None else newest_course(store, key, run.id, before)
    found = []
    for moment in _MOMENTS:
        passed = [point for point in own.points if point.seconds <= moment * own.seconds]
        if not passed or not (even or known):
            continue
        now = passed[-1]
        told = left_at_rate(now, total) if even else left_by_course(now, known) if known is not None else None
        if told is not None:
            found.append((told, own.seconds - now.seconds))
    return found
