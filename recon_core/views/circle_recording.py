"""What a player of the circle shows, as arrays: output fields and candidates step by step, and what they come to.

All of it can be read while the runs go on: then there is one frame, the newest.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from recon_core.analysis.arrays import flags, floats, integers
from recon_core.attacks.baselines import weight_points
from recon_core.attacks.circle import deduplicate, filter_multipliers
from recon_core.config import TrainConfig, parse_config
from recon_core.data import load_task
from recon_core.data.planar import FIELD_REACH
from recon_core.matching.planar import match_points
from recon_core.runs.models import model_of
from recon_core.store import Run
from recon_core.views.circle_frames import (
    MIDDLE,
    RADII,
    CandidateFrames,
    CandidatePoints,
    CleanUp,
    FieldFrames,
    Points,
    TrainingPoints,
)

NEURONS_SHOWN = 60
# What a player is sent of a long training; between them it glides.
_FIELDS_SHOWN = 160
# Outputs are shown relative to those of the last frame, but no network is shown as sure of itself below this.
_LEAST_SCALE = 0.02


def training_points(config: TrainConfig) -> TrainingPoints:
    data = load_task(config.data)
    return TrainingPoints(data.train_x.numpy(), integers(data.train_labels))


def field_frames(train: Run) -> FieldFrames | None:
    """Of a training run, finished or not; None while there is nothing to see."""
    if not train.has_tensors("recording"):
        return None
    recorded = train.tensors("recording")
    steps = integers(recorded["steps"])
    shown = np.unique(np.linspace(0, len(steps) - 1, _FIELDS_SHOWN).round().astype(int))  # the first and the last, too
    fields = floats(recorded["fields"])[shown]
    finite = np.nan_to_num(fields, nan=0.0, posinf=0.0, neginf=0.0)
    # Nearly all of the last field fits in; a few far corners may be cut off.
    scale = max(_LEAST_SCALE, float(np.quantile(np.abs(finite[-1]), 0.9)))
    pixels = MIDDLE + np.clip(finite / scale, -1, 1) * 127
    return FieldFrames(steps[shown], pixels.round().astype(np.uint8), scale, FIELD_REACH)


def candidate_frames(attack: Run) -> CandidateFrames | None:
    """Of an attack in the plane, finished or not; None while there is nothing to see."""
    if not attack.has_tensors("snapshots"):
        return None
    taken = attack.tensors("snapshots")
    return CandidateFrames(integers(taken["steps"]), _points(taken["candidates"]), integers(taken["labels"][-1]))


def clean_up(attack: Run, truth: TrainingPoints, *, threshold: float, distance: float) -> CleanUp:
    """`clean_up_points` of what a finished attack left, so that the defaults give what the run itself has kept."""
    seed = int(attack.config["settings"]["seed"])
    return clean_up_points(left_points(attack), truth, threshold=threshold, distance=distance, seed=seed)


def clean_up_points(
    left: CandidatePoints, truth: TrainingPoints, *, threshold: float, distance: float, seed: int
) -> CleanUp:
    """Drop candidates with multipliers below `threshold`, then all but one of those within `distance`; compare.

    Candidates that come without multipliers, as model inversion's do, should be given a threshold of 0.
    """
    candidates, labels = torch.from_numpy(left.points), torch.from_numpy(left.labels)
    multipliers = torch.from_numpy(left.multipliers)
    filtered = filter_multipliers(candidates, multipliers.abs(), threshold=threshold)
    kept = deduplicate(candidates, filtered, distance=distance, seed=seed)
    points = torch.from_numpy(truth.points)
    distances = np.full(len(truth.points), np.inf)
    settled = dict.fromkeys(RADII, 0)
    if kept.any():
        matching = match_points(points, torch.from_numpy(truth.labels), candidates[kept], labels[kept])
        distances = floats(matching.distances)
        settled = {radius: matching.settled(radius) for radius in RADII}
    return CleanUp(flags(filtered), flags(kept), distances, settled)


def left_points(attack: Run) -> CandidatePoints:
    """Where a finished attack, or a baseline, left its candidates."""
    found = attack.tensors("candidates")
    return CandidatePoints(
        found["candidates"].float().numpy(), integers(found["labels"]), found["multipliers"].float().numpy()
    )


def final_points(attack: Run) -> CandidateFrames:
    """Where a finished attack, or a baseline, left its candidates: one frame."""
    found = attack.tensors("candidates")
    step = np.array([attack.status().step])
    return CandidateFrames(step, _points(found["candidates"])[None], integers(found["labels"]))


def first_layer_points(train: Run) -> Points:
    """Each first-layer neuron's weights as a point (h, 2) (Haim et al. 2022, Fig. 5b)."""
    return _points(weight_points(model_of(train).network))


def neuron_lines(train: Run, most: int = NEURONS_SHOWN) -> Points:
    """The lines along which the first layer bends the output: (k, 4), rows a, b, c, share with ax + by + c = 0.

    A ReLU neuron is off on one side of its line. Those that act most are kept, by the size of their weights times that
    of the weights that read them; `share` is that product over the largest, and a and b have length 1.
    """
    first, second, *_ = [layer for layer in model_of(train).network.layers if isinstance(layer, nn.Linear)]
    weight = first.weight.detach().double()
    bias = torch.zeros(len(weight)).double() if first.bias is None else first.bias.detach().double()
    length = weight.norm(dim=1).clamp_min(1e-30)
    acts = length * second.weight.detach().double().norm(dim=0)
    chosen = acts.argsort(descending=True)[:most]
    lines = torch.column_stack([weight / length[:, None], bias / length, acts / acts.max().clamp_min(1e-30)])
    found: Points = lines[chosen].float().nan_to_num(0.0).numpy()
    return found


def truth_of(train: Run) -> TrainingPoints:
    return training_points(parse_config(TrainConfig, train.config))


def _points(tensor: torch.Tensor) -> Points:
    """Nothing that a screen could not draw: candidates that ran away are put far outside."""
    points: Points = tensor.detach().cpu().float().nan_to_num(1e3, 1e3, -1e3).clamp(-1e3, 1e3).numpy()
    return points
