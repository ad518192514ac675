"""The controls of a count: what would match although nothing leaked, and the chance level that follows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from scipy import stats
from torch import Tensor

from recon_core.errors import InputError
from recon_core.matching.protocol import Matching, check_threshold
from recon_core.matching.roc import Roc, roc
from recon_core.matching.scaling import stretch
from recon_core.matching.ssim import SsimKind, fits, ssim


def chance_level(
    of: int, *, mean_image: int | None, untrained: int | None, held_out: int | None, held_out_of: int | None
) -> int:
    """Of `of` training samples, how many would count as reconstructed although nothing leaked.

    The largest of the controls that were run: samples matched by the mean image alone, by the candidates of an
    untrained network, and the held-out samples that the same candidates match, as a share of the training set.
    """
    levels = [mean_image or 0, untrained or 0]
    if held_out is not None and held_out_of:
        levels.append(math.ceil(held_out * of / held_out_of))
    return max(levels)


@dataclass(frozen=True)
class WindowCount:
    """The same reconstructions counted with the other SSIM window; a count depends on it, most of all on digits."""

    ssim_kind: SsimKind
    good: int
    chance: int
    """The chance level with this window."""

    def __str__(self) -> str:
        return f"{self.good} with the {self.ssim_kind.window} (chance level {self.chance})"


@dataclass(frozen=True)
class LeakCount:
    """A count and its controls, all at one threshold. None means that a control was not run."""

    good: int
    unique: int
    """Distinct candidates behind the good ones."""
    of: int
    """Training images."""
    control_mean_image: int
    """Training images that the mean image alone would match."""
    control_untrained: int | None
    """Training images that the candidates of an untrained network match."""
    non_members: int | None
    """Images outside the training set that the candidates match."""
    non_members_of: int | None
    threshold: float
    merge_factor: float
    ssim_kind: SsimKind
    capped: int
    """Training images whose merge reached its limit; see `MatchSettings.max_merged`."""
    candidates: int
    """Larger pools match more by chance, so this control is only as good as its pool is large."""
    untrained_candidates: int | None
    other: WindowCount | None = None
    """None where the images are too small for the other window."""

    @property
    def chance(self) -> int:
        return chance_level(
            self.of,
            mean_image=self.control_mean_image,
            untrained=self.control_untrained,
            held_out=self.non_members,
            held_out_of=self.non_members_of,
        )


T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, eq=False)
class Controlled(Generic[T]):
    """A value for the training images, and the same for each control that is run."""

    members: T
    untrained: T | None = None
    """The same training images with candidates of an untrained network."""
    non_members: T | None = None
    """Images outside the training set with the same candidates."""

    def map(self, make: Callable[[T], U]) -> Controlled[U]:
        """In this order: the training images, the untrained network, the held-out images."""
        return Controlled(
            make(self.members),
            None if self.untrained is None else make(self.untrained),
            None if self.non_members is None else make(self.non_members),
        )


@dataclass(frozen=True)
class Evidence:
    """Scores of a matching and of its controls, from which counts at any threshold follow without matching again."""

    matching: Matching
    mean_image: Tensor
    """(N,), SSIM of each training image with the mean image; see `score_mean_image`."""
    untrained: Matching | None = None
    """The same training images matched with candidates of an untrained network."""
    non_members: Matching | None = None
    """Images outside the training set, centred with the training mean, matched with the same candidates."""
    mean_image_other: Tensor | None = None
    """(N,), as `mean_image`, with the other window."""

    def __post_init__(self) -> None:
        for name, control in (("untrained", self.untrained), ("non-member", self.non_members)):
            if control is not None and control.settings != self.matching.settings:
                raise InputError(
                    f"the {name} control was matched with {control.settings}, the count with {self.matching.settings}; "
                    "match both with the same settings"
                )
        if len(self.mean_image) != len(self.matching.ssim):
            raise InputError(
                f"the mean image was scored on {len(self.mean_image)} images, the count is of {len(self.matching.ssim)}"
            )
        if self.untrained is not None and len(self.untrained.ssim) != len(self.matching.ssim):
            raise InputError(
                f"the untrained control matched {len(self.untrained.ssim)} training images, "
                f"the count is of {len(self.matching.ssim)}; use the same training images"
            )

    @property
    def matchings(self) -> Controlled[Matching]:
        return Controlled(self.matching, self.untrained, self.non_members)

    @classmethod
    def of(cls, matchings: Controlled[Matching], mean_image: Tensor, other: Tensor | None = None) -> Evidence:
        """`other` are the mean image's scores with the other window."""
        return cls(matchings.members, mean_image, matchings.untrained, matchings.non_members, other)

    def at(self, threshold: float) -> LeakCount:
        check_threshold(threshold)
        return LeakCount(
            good=self.matching.good(threshold),
            unique=self.matching.unique_good(threshold),
            of=len(self.matching.ssim),
            control_mean_image=int((self.mean_image > threshold).sum()),
            control_untrained=None if self.untrained is None else self.untrained.good(threshold),
            non_members=None if self.non_members is None else self.non_members.good(threshold),
            non_members_of=None if self.non_members is None else len(self.non_members.ssim),
            threshold=threshold,
            merge_factor=self.matching.settings.merge_factor,
            ssim_kind=self.matching.settings.ssim,
            capped=int(self.matching.capped.sum()),
            candidates=self.matching.candidates,
            untrained_candidates=None if self.untrained is None else self.untrained.candidates,
            other=self._other_window(threshold),
        )

    def _other_window(self, threshold: float) -> WindowCount | None:
        scores = self.matching.other_ssim
        if scores is None:
            return None

        def good(matching: Matching | None) -> int | None:
            known = None if matching is None else matching.other_ssim
            return None if known is None else int((known > threshold).sum())

        mean_image = self.mean_image_other
        chance = chance_level(
            len(scores),
            mean_image=None if mean_image is None else int((mean_image > threshold).sum()),
            untrained=good(self.untrained),
            held_out=good(self.non_members),
            held_out_of=None if self.non_members is None else len(self.non_members.ssim),
        )
        return WindowCount(self.matching.settings.ssim.other, int((scores > threshold).sum()), chance)

    def membership(self) -> Roc:
        """SSIM as a test for membership: training images against images outside the training set."""
        if self.non_members is None:
            raise InputError("a ROC curve needs non-members; match images outside the training set as well")
        return roc(self.matching.ssim, self.non_members.ssim)


def score_mean_image(images: Tensor, mean: Tensor, kind: SsimKind = SsimKind.WANG) -> Tensor:
    """SSIM of every image (N, C, H, W) in [0, 1] with the stretched mean image (C, H, W): -> (N,).

    It is the reconstruction that a candidate of all zeros would give, so no attack is needed to score it.
    """
    flat_out = stretch(mean.to(images).reshape(1, *images.shape[1:]))
    return ssim(images, flat_out.expand_as(images), kind)


def score_mean_image_other(images: Tensor, mean: Tensor, kind: SsimKind) -> Tensor | None:
    """`score_mean_image` with the other window than `kind`; None where it does not fit."""
    return score_mean_image(images, mean, kind.other) if fits(images, kind.other) else None


@dataclass(frozen=True)
class SeedInterval:
    """Mean over seeds and the interval that holds the true mean with the given confidence."""

    mean: float
    low: float
    high: float
    seeds: int
    confidence: float


def over_seeds(values: Sequence[float], confidence: float = 0.95) -> SeedInterval:
    """Student's t interval of a number measured once per seed."""
    if len(values) < 2:
        raise InputError(f"an interval needs at least 2 seeds, got {len(values)}; run again with another seed")
    if not 0 < confidence < 1:
        raise InputError(f"confidence must lie between 0 and 1, got {confidence}; 0.95 is customary")
    mean = statistics.fmean(values)
    error = statistics.stdev(values) / math.sqrt(len(values))
    reach = float(stats.t.ppf((1 + confidence) / 2, df=len(values) - 1)) * error
    return SeedInterval(mean, mean - reach, mean + reach, len(values), confidence)
