"""The steps of Haim et al. 2022, Fig. 2 a-f, with what to notice in each."""

from __future__ import annotations

from dataclasses import dataclass

from recon_core.views.circle_frames import RADII, CleanUp
from ui.circle.choice import Knobs
from ui.circle.player import Stage


@dataclass(frozen=True, eq=False)
class Attacked:
    """What the clean-up left, and how many candidates lie at a training point without any."""

    cleaned: CleanUp
    settled: int


def stages(n: int, train_error: float | None, attacked: Attacked | None, knobs: Knobs) -> list[Stage]:
    """Those of the training, and of the attack where there is one."""
    story = [
        Stage(
            "a",
            "Data",
            "The training set",
            f"{n} points on a circle, × and + for the two classes. The attacker never sees them; "
            "they stay in the picture for us to compare with.",
        ),
        Stage(
            "b",
            "Training",
            "The network learns",
            f"Red where it says +, blue where it says −, pale where it is unsure. Notice that {_lesson(train_error)}.",
        ),
    ]
    if attacked is None:
        return story
    result = attacked.cleaned
    m = len(result.kept)
    near, nearer = RADII
    return [
        *story,
        Stage(
            "c",
            "Start",
            "Random candidates",
            f"{m} random points, half for each class. Notice that from here on only the weights are used.",
        ),
        Stage(
            "d",
            "Attack",
            "The attack",
            "Candidates move until together they explain the weights. Notice where they stop: "
            f"{attacked.settled} of {m} end within {near:g} of a training point of their class.",
        ),
        Stage(
            "e",
            "Filter",
            "Small multipliers go",
            f"A multiplier says how much a candidate adds to the weights. {int(result.filtered.sum())} of {m} reach "
            f"{knobs.threshold:g} and stay. Notice which ones go.",
        ),
        Stage(
            "f",
            "Result",
            "Duplicates go",
            f"Of points closer than {knobs.distance:g} one stays, {int(result.kept.sum())} in all. Notice how many of "
            f"the {n} training points are among them: {result.found(near)} within {near:g}, {result.found(nearer)} "
            f"within {nearer:g}.",
        ),
    ]


def _lesson(wrong: float | None) -> str:
    if wrong is not None and wrong > 0:
        return f"{wrong:.0%} of the training points are on the wrong side: it has not learnt them all"
    return "every training point ends up in a patch of its own colour"
