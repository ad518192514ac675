"""What a player of the circle is sent, as plain arrays, and the recording of a real run that ships with the project.

Nothing here needs torch, so that the recording is on the screen before the engine is loaded.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recon_core.project_files import project_file

Pixels = NDArray[np.uint8]
Points = NDArray[np.float32]
Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

MIDDLE = 128
"""The byte of output 0: 1 is as far below as 255 is above."""
RADII = (0.1, 0.03)
"""Distances at which a training point counts as found."""
SHIPPED = project_file("assets/circle.npz")


@dataclass(frozen=True, eq=False)
class TrainingPoints:
    """What the network was trained on, and the attacker never sees: points (n, 2) and labels 0 or 1 (n,)."""

    points: Points
    labels: Integers


@dataclass(frozen=True, eq=False)
class FieldFrames:
    """The network's output on a square grid, step by step: steps (F,), fields (F, side, side), rows top to bottom.

    A byte b stands for the output (b - MIDDLE) / 127 * scale, cut off at the ends; the grid goes from
    -reach to reach.
    """

    steps: Integers
    fields: Pixels
    scale: float
    reach: float


@dataclass(frozen=True, eq=False)
class CandidateFrames:
    """Candidates on their way: steps (A,), points (A, m, 2), labels (m,)."""

    steps: Integers
    points: Points
    labels: Integers


@dataclass(frozen=True, eq=False)
class CandidatePoints:
    """Where an attack, or a baseline, left its candidates: points (m, 2), labels (m,), multipliers (m,)."""

    points: Points
    labels: Integers
    multipliers: Points


@dataclass(frozen=True, eq=False)
class CleanUp:
    """Haim et al. 2022, Fig. 2 e and f, of one attack, and how much of the truth is left in them.

    The masks are over the attack's m candidates. The rest takes the training points to know.
    """

    filtered: Flags
    kept: Flags
    distances: Floats
    """(n,): of each training point to the nearest point of its class that was kept; inf without one."""
    settled: dict[float, int]
    """By radius: points kept that lie at a training point of their class."""

    def found(self, radius: float) -> int:
        """Training points within the radius of a point of their class that was kept."""
        return int((self.distances <= radius).sum())


@dataclass(frozen=True, eq=False)
class ShippedCircle:
    """A whole circle, recorded: what a player shows of it, and what its clean-up needs at other thresholds."""

    truth: TrainingPoints
    fields: FieldFrames
    candidates: CandidateFrames
    attack: CandidatePoints
    inversion: CandidatePoints
    untrained: CandidatePoints
    weights: Points
    """(h, 2), each first-layer neuron's weights as a point."""
    neurons: Points
    """(k, 4), see `circle_recording.neuron_lines`."""
    train_error: float
    seconds: float
    """Training and attack, where it was recorded."""
    seed: int
    """Of the clean-up, which keeps one of several alike by chance."""
    threshold: float
    distance: float
    cleaned: CleanUp
    """At this threshold and distance."""
    settled: int
    """Candidates within RADII[0] of a training point of their class, before any clean-up."""
    controls: dict[str, tuple[int, ...]]
    """By baseline: training points it finds, for each of RADII."""

    def save(self, path: Path) -> None:
        facts = {
            "scale": self.fields.scale,
            "reach": self.fields.reach,
            "train_error": self.train_error,
            "seconds": self.seconds,
            "seed": self.seed,
            "threshold": self.threshold,
            "distance": self.distance,
            "cleaned_settled": [self.cleaned.settled[radius] for radius in RADII],
            "settled": self.settled,
            "controls": {name: list(counts) for name, counts in self.controls.items()},
        }
        arrays: dict[str, Any] = {
            "points": self.truth.points,
            "labels": self.truth.labels.astype(np.uint8),
            "field_steps": self.fields.steps.astype(np.int32),
            "fields": self.fields.fields,
            "candidate_steps": self.candidates.steps.astype(np.int32),
            "candidate_paths": self.candidates.points.astype(np.float16),  # a screen shows no more
            "weights": self.weights.astype(np.float16),
            "neurons": self.neurons,
            "filtered": self.cleaned.filtered,
            "kept": self.cleaned.kept,
            "distances": self.cleaned.distances,
            "facts": np.array(json.dumps(facts)),
        }
        for name in _LEFT:
            left: CandidatePoints = getattr(self, name)
            arrays |= {f"{name}_points": left.points, f"{name}_labels": left.labels.astype(np.uint8)}
            arrays[f"{name}_multipliers"] = left.multipliers
        np.savez_compressed(path, **arrays)


_LEFT = ("attack", "inversion", "untrained")


def load_shipped(path: Path = SHIPPED) -> ShippedCircle:
    """The recording that ships with the project; `assets/make_recordings.py` makes it."""
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    facts = json.loads(str(arrays["facts"]))
    left = {
        name: CandidatePoints(
            arrays[f"{name}_points"], arrays[f"{name}_labels"].astype(np.int64), arrays[f"{name}_multipliers"]
        )
        for name in _LEFT
    }
    return ShippedCircle(
        truth=TrainingPoints(arrays["points"], arrays["labels"].astype(np.int64)),
        fields=FieldFrames(
            arrays["field_steps"].astype(np.int64), arrays["fields"], float(facts["scale"]), float(facts["reach"])
        ),
        candidates=CandidateFrames(
            arrays["candidate_steps"].astype(np.int64),
            arrays["candidate_paths"].astype(np.float32),
            left["attack"].labels,
        ),
        **left,
        weights=arrays["weights"].astype(np.float32),
        neurons=arrays["neurons"],
        train_error=float(facts["train_error"]),
        seconds=float(facts["seconds"]),
        seed=int(facts["seed"]),
        threshold=float(facts["threshold"]),
        distance=float(facts["distance"]),
        cleaned=CleanUp(
            arrays["filtered"],
            arrays["kept"],
            arrays["distances"],
            dict(zip(RADII, map(int, facts["cleaned_settled"]), strict=True)),
        ),
        settled=int(facts["settled"]),
        controls={name: tuple(map(int, counts)) for name, counts in facts["controls"].items()},
    )
