"""An attack on images while it is at work: the best pairs so far, and their count beside its chance level."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recon_core.analysis.pairs import BestPairs, Images, best_pairs
from recon_core.config import TrainConfig
from recon_core.data import load_task
from recon_core.matching.certainty import Certainty
from recon_core.matching.controls import Evidence, LeakCount
from recon_core.matching.protocol import GOOD_SSIM
from recon_core.views.live_reconstruction import Evaluator, Picture


@dataclass(frozen=True, eq=False)
class LivePairs:
    """What a picture of an attack holds of the training images."""

    pairs: BestPairs
    count: LeakCount
    certainty: Certainty | None
    """None until the attack has ended, and where it does not say how sure it is."""
    step: int | None
    """None for what the attack was left with in the end."""


@dataclass(frozen=True, eq=False)
class TrainingImages:
    """What a network will be trained on: images (n, C, H, W) in [0, 1], and the name of each one's class."""

    images: Images
    classes: tuple[str, ...]


def training_images(config: TrainConfig) -> TrainingImages:
    data = load_task(config.data)
    images: Images = (data.train_x + data.mean).clamp(0.0, 1.0).numpy().astype(np.float32)
    return TrainingImages(images, tuple(data.class_names[label] for label in data.train_labels.tolist()))


def live_pairs(evaluator: Evaluator, picture: Picture, k: int) -> LivePairs:
    """The `k` best pairs, and the count that a match run with the usual settings gives."""
    evidence = evaluator.evidence(picture)
    assert isinstance(evidence, Evidence)
    matching = evidence.matching
    pairs = best_pairs(matching.images, matching.reconstructions, matching.ssim, min(k, len(matching.ssim)), GOOD_SSIM)
    return LivePairs(pairs, evidence.at(GOOD_SSIM), evaluator.certainty(picture), picture.step)
