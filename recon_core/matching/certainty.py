"""Precision and recall of the candidates that an attack calls certain, measured against the training images."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from recon_core.matching.protocol import GOOD_SSIM, MatchSettings
from recon_core.matching.scaling import stretch
from recon_core.matching.ssim import ssim


class Certainty(NamedTuple):
    """Of the candidates called certain: how many, how many are real, and how many training images they show."""

    certain: int
    real: int
    recalled: int
    of: int
    """Training images."""

    @property
    def precision(self) -> float | None:
        """The share of certain candidates that are real; None without any."""
        return self.real / self.certain if self.certain else None

    @property
    def recall(self) -> float:
        """The share of training images that a certain candidate shows."""
        return self.recalled / self.of if self.of else 0.0


def judge_certain(
    train_x: Tensor, mean: Tensor, candidates: Tensor, settings: MatchSettings, threshold: float = GOOD_SSIM
) -> Certainty:
    """Each certain candidate (k, C, H, W) by itself against the training image it resembles most; nothing is merged.

    train_x (n, C, H, W) and candidates are centred, as in `protocol.prepare`. Real means an SSIM above `threshold`.
    """
    if not len(candidates):
        return Certainty(0, 0, 0, len(train_x))
    found = match_alone(train_x, mean, candidates, settings)
    real = found.ssim > threshold
    return Certainty(len(candidates), int(real.sum()), len(torch.unique(found.nearest[real])), len(train_x))


class AloneMatches(NamedTuple):
    """Candidates by themselves, nothing merged; all (k, ...)."""

    nearest: Tensor
    """The training image that each resembles most, by correlation."""
    ssim: Tensor
    shown: Tensor
    """(k, C, H, W) in [0, 1], what was scored: the mean added, then stretched."""


def match_alone(train_x: Tensor, mean: Tensor, candidates: Tensor, settings: MatchSettings) -> AloneMatches:
    """Each candidate (k, C, H, W) beside the training image (n, C, H, W) it resembles most; all centred."""
    near = (_standardised(candidates) @ _standardised(train_x).T).argmax(1)
    shown = stretch(candidates.float() + mean)
    return AloneMatches(near, ssim((train_x + mean)[near].clamp(0.0, 1.0), shown, settings.ssim), shown)


def _standardised(images: Tensor) -> Tensor:
    flat = images.flatten(1).float()
    return normalize(flat - flat.mean(1, keepdim=True))
