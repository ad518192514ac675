"""How long a run will still take, said only where it is known.

An attack changes its pace from stage to stage, so its rate so far tells little. What tells are the courses of finished
runs of the same size: how long each took from the same step to its end, at the pace this one has kept of late; the
median of them, and nothing where they disagree. Gradient descent over a fixed number of epochs and the trials of a
search go at one pace. Of everything else, such as a training that ends at a loss, nobody knows.
"""

from __future__ import annotations

import contextlib
import json
import statistics
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, NamedTuple

from recon_core.errors import AfterimageError
from recon_core.store import Run, RunState, RunStore, RunSummary

LEAST_SECONDS = 2.0
"""So far and still to go: below this nobody needs to be told, and a rate is mostly the start."""
_LEAST_SHARE = 0.05
_COURSES_LOOKED_AT = 40
_COURSES_USED = 5
_DISAGREEMENT = 4.0
"""Courses whose answers differ by more than this do not know."""
_OVERDUE = 0.5
_LATE = 0.5
"""The pace is that of the time after this share of the time so far: whatever else the machine does comes and goes."""
_MOMENTS = (0.25, 0.5, 0.75)
"""Shares of a run's time at which the benchmark asks."""
_SHARED = ("recipe", "m", "iterations", "seeds", "dtype", "device", "rounds", "unmix_starts", "prior")


class Point(NamedTuple):
    """A run had reached `step` after `seconds`."""

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
    """Seconds until a running run ends, predicted from the finished runs `others`; None where that is not known."""
    status = run.status
    if status.state is not RunState.RUNNING or not status.total:
        return None
    try:
        opened = store.open(run.id)
        passed = _points(opened)
        if not passed or (status.step > passed[-1].step and status.seconds > passed[-1].seconds):
            passed.append(Point(status.step, status.seconds))
        now = status.seconds + _since(status.updated)
        if _is_even(opened):
            return _in_time(opened, passed[-1], now, left_at_rate(passed, status.total))
        key = cost_key(store, opened)
        known = [] if key is None else newest_courses(store, key, run.id, others)
    except (AfterimageError, KeyError, TypeError):
        return None
    return _in_time(opened, passed[-1], now, left_by_courses(passed, known))


def left_at_rate(passed: Sequence[Point], total: int) -> float | None:
    """For work at a constant rate; None before there is a rate."""
    now, start = passed[-1], _lately(passed)
    if now.seconds < LEAST_SECONDS or not _LEAST_SHARE * total <= now.step <= total or start.step >= now.step:
        return None
    return (now.seconds - start.seconds) / (now.step - start.step) * (total - now.step)


def left_by_courses(passed: Sequence[Point], known: Sequence[Course]) -> float | None:
    """The median of what other runs still had to go here, at this one's pace; None where they do not tell."""
    said = [found for course in known if (found := left_by_course(passed, course)) is not None]
    if not said or max(said) > _DISAGREEMENT * min(said):
        return None
    return statistics.median(said)


def left_by_course(passed: Sequence[Point], known: Course) -> float | None:
    """What the other run still had to go here, at this one's pace; None before there is a pace."""
    now, start = passed[-1], _lately(passed)
    there, since = known.at(now.step), known.at(start.step)
    if now.seconds < LEAST_SECONDS or there < _LEAST_SHARE * known.seconds or since >= there:
        return None
    return (now.seconds - start.seconds) / (there - since) * max(0.0, known.seconds - there)


def _lately(passed: Sequence[Point]) -> Point:
    """Where the pace is measured from: the last point before the later part of the time so far, else the start."""
    early = [point for point in passed[:-1] if point.seconds <= _LATE * passed[-1].seconds]
    return early[-1] if early else Point(0, 0.0)


def _since(updated: str | None) -> float:
    """Seconds since a run last wrote."""
    return 0.0 if updated is None else max(0.0, (datetime.now(UTC) - datetime.fromisoformat(updated)).total_seconds())


def _in_time(run: Run, newest: Point, now: float, left: float | None) -> float | None:
    """What is left `now` of what was left at the `newest` point, and no more than the run's own limit allows.

    None where nothing was heard of the run for longer than half of that: it is at something nobody expected.
    """
    waited = max(0.0, now - newest.seconds)
    if left is None or waited > _OVERDUE * left:
        return None
    left -= waited
    if left < LEAST_SECONDS:
        return None
    asked = run.config.get("settings", {}) if run.kind == "reconstruct" else run.config.get("training", {})
    limit = asked.get("max_seconds")
    return left if limit is None else min(left, max(0.0, limit - newest.seconds - waited))


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


def newest_courses(store: RunStore, key: str, run_id: str, others: Iterable[RunSummary]) -> list[Course]:
    """Of the newest finished runs of that key."""
    done = [run for run in others if run.kind == "reconstruct" and run.status.state is RunState.DONE]
    courses: list[Course] = []
    for run in done[:_COURSES_LOOKED_AT]:
        if run.id != run_id:
            with contextlib.suppress(AfterimageError, KeyError, TypeError):  # of another version
                opened = store.open(run.id)
                if cost_key(store, opened) == key and (found := course_of(opened)) is not None:
                    courses.append(found)
                    if len(courses) == _COURSES_USED:
                        break
    return courses


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
    """What finished runs would have shown at 1/4, 1/2 and 3/4 of their time, predicted from the runs before them."""
    done = [run for run in store.list() if run.status.state is RunState.DONE]
    shown = right = 0
    for place, run in enumerate(done):
        with contextlib.suppress(AfterimageError, KeyError, TypeError):
            said = _said(store, store.open(run.id), done[place + 1 :])
            shown += bool(said)
            right += bool(said) and all(truth / factor <= told <= truth * factor for told, truth in said)
    return Tally(shown, right)


def _said(store: RunStore, run: Run, before: Sequence[RunSummary]) -> list[tuple[float, float]]:
    """Pairs of predicted and true seconds left."""
    own, total = course_of(run), run.status().total
    if own is None or not total:
        return []
    even = _is_even(run)
    key = None if even else cost_key(store, run)
    known = [] if key is None else newest_courses(store, key, run.id, before)
    found = []
    for moment in _MOMENTS:
        passed = [point for point in own.points if point.seconds <= moment * own.seconds]
        if not passed:
            continue
        left = left_at_rate(passed, total) if even else left_by_courses(passed, known)
        now = moment * own.seconds
        told = _in_time(run, passed[-1], now, left)
        if told is not None:
            found.append((told, own.seconds - now))
    return found
