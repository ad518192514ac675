"""A study in numbers: one row for each model, curves with their spread over seeds, images aligned across values."""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from recon_core.analysis.arrays import Flags, Floats, Integers, above
from recon_core.analysis.pairs import Images
from recon_core.errors import InputError
from recon_core.matching.controls import chance_level, over_seeds


class Measure(StrEnum):
    """What a curve can show of every model."""

    GOOD = "good"
    SHARE = "share"
    ON_MARGIN = "on_margin"
    TRAIN_ERROR = "train_error"
    TEST_ERROR = "test_error"
    TEST_ACCURACY = "test_accuracy"
    EXPLAINED = "explained"
    RESIDUAL = "residual"
    MEAN_IMAGE = "control_mean_image"
    UNTRAINED = "control_untrained"
    NON_MEMBERS = "non_members"


CONTROLS = (Measure.MEAN_IMAGE, Measure.UNTRAINED, Measure.NON_MEMBERS)
"""The controls of a count; the largest is the chance level."""


@dataclass(frozen=True)
class StudyRow:
    """One model of a study. `position` is None where its value is drawn apart from the axis."""

    cell: str
    panel: str
    point: str
    position: float | None
    reference: bool
    seed: int
    state: str
    message: str
    runs: Mapping[str, str]
    numbers: Mapping[str, Any]

    def value(self, measure: Measure) -> float | None:
        """None where this model has no such number."""
        numbers = self.numbers
        if measure is Measure.SHARE:
            return None if not numbers.get("of") else numbers["good"] / numbers["of"]
        if measure is Measure.TEST_ACCURACY:
            return None if numbers.get("test_error") is None else 1.0 - float(numbers["test_error"])
        if measure is Measure.EXPLAINED:
            left = numbers.get("kkt_layer1")
            return None if left is None else 1.0 - float(left) ** 2
        found = numbers.get(str(measure))
        return None if found is None else float(found)

    @property
    def chance(self) -> float | None:
        """The chance level of this model's count; None where no control was run."""
        found = {measure: self.value(measure) for measure in CONTROLS}
        of, held_out_of = self._among(Measure.GOOD), self._among(Measure.NON_MEMBERS)
        if of is None or all(value is None for value in found.values()):
            return None
        mean_image, untrained, held_out = (None if value is None else int(value) for value in found.values())
        return chance_level(
            int(of),
            mean_image=mean_image,
            untrained=untrained,
            held_out=held_out,
            held_out_of=None if held_out_of is None else int(held_out_of),
        )

    def most(self, measure: Measure) -> float | None:
        """The largest number that this measure can be of this model; None where there is none."""
        if measure in (Measure.GOOD, Measure.ON_MARGIN, *CONTROLS):
            return self._among(measure)
        return None if measure is Measure.RESIDUAL else 1.0

    def share(self, measure: Measure) -> float | None:
        """A count as a share of what it was counted among; None where this model has no such number."""
        count, of = self.value(measure), self._among(measure)
        return None if count is None or not of else count / of

    def _among(self, measure: Measure) -> float | None:
        """How many things a count was counted among."""
        held_out = measure is Measure.NON_MEMBERS and "non_members_of" in self.numbers
        found = self.numbers.get("non_members_of" if held_out else "of")
        return None if found is None else float(found)


@dataclass(frozen=True)
class StudyTable:
    """Every model, in the order of the study."""

    rows: tuple[StudyRow, ...]

    @property
    def finished(self) -> tuple[StudyRow, ...]:
        return tuple(row for row in self.rows if row.numbers)

    def to_frame(self) -> pd.DataFrame:
        names = list(dict.fromkeys(name for row in self.rows for name in row.numbers))
        steps = list(dict.fromkeys(step for row in self.rows for step in row.runs))
        return pd.DataFrame(
            [
                {
                    "panel": row.panel,
                    "value": row.point,
                    "position": row.position,
                    "reference": row.reference,
                    "seed": row.seed,
                    "state": row.state,
                    **{name: row.numbers.get(name) for name in names},
                    "chance": row.chance,
                    **{f"{step}_run": row.runs.get(step) for step in steps},
                    "message": row.message,
                }
                for row in self.rows
            ]
        )


FEWEST_SEEDS = 3
"""Behind an interval that may decide something: that of two numbers hangs on their one difference."""
ONE_SEED = "one seed, so no interval"
TWO_SEEDS = f"fewer than {FEWEST_SEEDS} seeds"
ALIKE = "all seeds alike"


@dataclass(frozen=True)
class Spread:
    """A number measured once for each seed: its mean and, from two seeds on, the 95% interval of that mean."""

    values: tuple[float, ...]
    mean: float
    low: float | None
    high: float | None
    undecided: str = ""
    """Why nothing can be decided by this interval; empty where something can."""

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.mean:.3g}"
        if self.low == self.high:
            return f"{self.mean:.3g} ({ALIKE})"
        return f"{self.mean:.3g} (95% interval {max(0.0, self.low):.3g} to {self.high:.3g})"

    @property
    def sign(self) -> bool | None:
        """True where the whole interval is above 0, False where it is below; None where that is not decided."""
        if self.undecided or self.low is None or self.high is None or self.low <= 0 <= self.high:
            return None
        return self.low > 0

    def surely_below(self, limit: float) -> bool:
        return not self.undecided and self.high is not None and self.high < limit


def spread(values: Sequence[float], most: float | None = None) -> Spread:
    """With `most`, of numbers that lie between 0 and that, as counts and shares do: so does the interval."""
    if not values:
        raise InputError("a spread needs at least 1 number, got none")
    if len(values) == 1:
        return Spread((values[0],), values[0], None, None, ONE_SEED)
    interval = over_seeds(values)
    low, high = interval.low, interval.high
    undecided = TWO_SEEDS if len(values) < FEWEST_SEEDS else ALIKE if low == high else ""
    if most is not None:
        low, high = max(0.0, low), min(most, high)
    return Spread(tuple(values), interval.mean, low, high, undecided)


def difference(first: Sequence[float], second: Sequence[float], confidence: float = 0.95) -> Spread:
    """Mean of `first` less mean of `second`, with Welch's t interval; without one where either was measured once."""
    if not first or not second:
        raise InputError(f"a difference needs at least 1 number on each side, got {len(first)} and {len(second)}")
    mean = statistics.fmean(first) - statistics.fmean(second)
    fewest = min(len(first), len(second))
    if fewest < 2:
        return Spread((mean,), mean, None, None, ONE_SEED)
    shares = [statistics.variance(values) / len(values) for values in (first, second)]
    if sum(shares) == 0:
        return Spread((mean,), mean, mean, mean, TWO_SEEDS if fewest < FEWEST_SEEDS else ALIKE)
    squares = sum(share**2 / (len(values) - 1) for share, values in zip(shares, (first, second), strict=True))
    freedom = sum(shares) ** 2 / squares
    reach = float(stats.t.ppf((1 + confidence) / 2, df=freedom)) * math.sqrt(sum(shares))
    return Spread((mean,), mean, mean - reach, mean + reach, TWO_SEEDS if fewest < FEWEST_SEEDS else "")


def differences(values: Sequence[Sequence[float]], control: Sequence[float]) -> list[Spread]:
    """Differences of several means from the mean of one control, with Dunnett's simultaneous 95% intervals.

    They hold all at once, so the best of many may be picked. Spreads of all are pooled, and so are their seeds: with
    two degrees of freedom in all they may decide. Without an interval where nothing was measured twice.
    """
    means = [statistics.fmean(one) - statistics.fmean(control) for one in values]
    everyone = [*values, control]
    if all(len(one) < 2 for one in everyone):
        return [Spread((mean,), mean, None, None, ONE_SEED) for mean in means]
    if all(len(set(one)) == 1 for one in everyone):
        return [Spread((mean,), mean, mean, mean, ALIKE) for mean in means]
    undecided = TWO_SEEDS if sum(map(len, everyone)) - len(everyone) < FEWEST_SEEDS - 1 else ""
    # The interval is found by integration; a fixed seed gives the same one every time.
    with warnings.catch_warnings():  # where all seeds of a value have one count, its own spread is 0, as it should be
        warnings.filterwarnings("ignore", "Precision loss", RuntimeWarning)
        # Its integration is noisy; the level is off by a few hundredths of those 5%.
        warnings.filterwarnings("ignore", "Computation of the confidence interval did not converge", UserWarning)
        found = stats.dunnett(*values, control=control, rng=0).confidence_interval(0.95)
    low, high = np.atleast_1d(found.low), np.atleast_1d(found.high)
    return [Spread((mean,), mean, float(low[i]), float(high[i]), undecided) for i, mean in enumerate(means)]


def trend(values: Sequence[Sequence[float]], confidence: float = 0.95) -> Spread:
    """Change from one value of the axis to the next: the slope over all models, with the t interval of regression.

    `values` holds the models of each value of the axis, in its order. The interval is None where there are fewer than
    three models or no value was measured twice: a line through two points always fits. It decides nothing where it
    leaves one degree of freedom, or where all models lie on the line.
    """
    places = [float(place) for place, measured in enumerate(values) for _ in measured]
    measured = [float(one) for several in values for one in several]
    if len(set(places)) < 2:
        raise InputError(f"a trend needs at least 2 values of the axis, got {len(set(places))}")
    fitted = stats.linregress(places, measured)
    slope = float(fitted.slope)
    if len(measured) < 3 or all(len(several) < 2 for several in values):
        return Spread((slope,), slope, None, None, ONE_SEED)
    reach = float(stats.t.ppf((1 + confidence) / 2, df=len(measured) - 2)) * float(fitted.stderr)
    undecided = TWO_SEEDS if len(measured) - 2 < FEWEST_SEEDS - 1 else ALIKE if reach <= 1e-9 * abs(slope) else ""
    return Spread((slope,), slope, slope - reach, slope + reach, undecided)


@dataclass(frozen=True)
class CurvePoint:
    """One value of the axis (or one reference) over its seeds."""

    label: str
    position: float | None
    spread: Spread
    rows: tuple[StudyRow, ...]
    """The models behind `spread.values`, in that order."""

    @property
    def chance(self) -> float | None:
        """The chance levels of these models, each the largest of its controls, on average; None without any."""
        found = [one for row in self.rows if (one := row.chance) is not None]
        return statistics.fmean(found) if found else None

    @property
    def of(self) -> int:
        """Training images of the largest model here."""
        return max(int(row.numbers.get("of", 0)) for row in self.rows)


@dataclass(frozen=True)
class StudyCurve:
    """One measure along the axis, for one panel."""

    panel: str
    measure: Measure
    points: tuple[CurvePoint, ...]
    references: tuple[CurvePoint, ...]

    @property
    def best(self) -> CurvePoint:
        """Where it is highest; the first of several."""
        return max(self.points, key=lambda point: point.spread.mean)

    def at(self, label: str) -> CurvePoint | None:
        return next((point for point in (*self.points, *self.references) if point.label == label), None)

    def to_frame(self) -> pd.DataFrame:
        return pd.DataFrame(
            [
                {
                    "panel": self.panel,
                    "value": point.label,
                    "position": point.position,
                    "reference": reference,
                    "measure": str(self.measure),
                    "mean": point.spread.mean,
                    "low": point.spread.low,
                    "high": point.spread.high,
                    "seeds": len(point.spread.values),
                }
                for points, reference in ((self.points, False), (self.references, True))
                for point in points
            ]
        )


def curve(table: StudyTable, panel: str, measure: Measure, *, shares: bool = False) -> StudyCurve | None:
    """The curve over the models finished so far; None where no model of the panel has this measure.

    With `shares` counts are divided by what they are counted among, see `StudyRow.share`.
    """
    points: dict[tuple[str, bool], list[tuple[StudyRow, float]]] = {}
    for row in table.rows:
        read = row.share if shares else row.value
        value = read(measure) if row.panel == panel and row.numbers else None
        if value is not None and math.isfinite(value):
            points.setdefault((row.point, row.reference), []).append((row, value))
    if not points:
        return None
    # In the order of the axis, which a study that is still going on does not finish in.
    order = {(row.point, row.reference): index for index, row in reversed(list(enumerate(table.rows)))}
    made = []
    for (label, reference), found in sorted(points.items(), key=lambda item: order[item[0]]):
        rows = tuple(row for row, _ in found)
        most = [1.0 if shares else row.most(measure) for row in rows]
        within = None if None in most else max(one for one in most if one is not None)
        made.append((reference, CurvePoint(label, rows[0].position, spread([v for _, v in found], within), rows)))
    return StudyCurve(
        panel,
        measure,
        tuple(point for reference, point in made if not reference),
        tuple(point for reference, point in made if reference),
    )


@dataclass(frozen=True, eq=False)
class AlignedRow:
    """Reconstructions of the same images at one value; `present` says which of them that model was trained on."""

    label: str
    images: Images
    ssim: Floats
    present: Flags
    run_id: str
    samples: Integers
    """Which of that model's training images each is; -1 where it was not trained on it."""


@dataclass(frozen=True, eq=False)
class AlignedGrid:
    """The same k training images across the varied value, those that come back best anywhere first."""

    ids: Integers
    """Positions in the data source."""
    originals: Images
    rows: tuple[AlignedRow, ...]
    threshold: float

    def good(self, row: AlignedRow) -> Flags:
        return above(row.ssim, self.threshold)

    def first(self, k: int) -> AlignedGrid:
        """The same of the first k images."""
        rows = [
            replace(row, images=row.images[:k], ssim=row.ssim[:k], present=row.present[:k], samples=row.samples[:k])
            for row in self.rows
        ]
        return AlignedGrid(self.ids[:k], self.originals[:k], tuple(rows), self.threshold)

    def to_frame(self) -> pd.DataFrame:
        return pd.DataFrame(
            [
                {"value": row.label, "id": int(image), "ssim": float(score), "present": bool(present)}
                for row in self.rows
                for image, score, present in zip(self.ids, row.ssim, row.present, strict=True)
            ]
        )


@dataclass(frozen=True, eq=False)
class Reconstructed:
    """One model's training images (n, C, H, W) in [0, 1], identified by `ids` (n,), and their reconstructions."""

    label: str
    ids: Integers
    images: Images
    reconstructions: Images
    ssim: Floats
    run_id: str


def align(models: Sequence[Reconstructed], most: int, threshold: float) -> AlignedGrid:
    """The `most` images that come back best at any value, followed through all of them."""
    if not models or most < 1:
        raise InputError(f"an aligned grid needs at least 1 model and 1 image, got {len(models)} and {most}")
    shape = models[0].images.shape[1:]
    models = [model for model in models if model.images.shape[1:] == shape]
    best: dict[int, float] = {}
    originals: dict[int, Images] = {}
    for model in models:
        for place, image in enumerate(model.ids.tolist()):
            best[image] = max(best.get(image, -math.inf), float(np.nan_to_num(model.ssim[place], nan=-1.0)))
            originals.setdefault(image, model.images[place])
    chosen = sorted(best, key=lambda image: (-best[image], image))[:most]
    rows = []
    for model in models:
        place_of = {image: place for place, image in enumerate(model.ids.tolist())}
        present = np.array([image in place_of for image in chosen])
        places = [place_of.get(image, 0) for image in chosen]
        images = model.reconstructions[places].copy()
        images[~present] = 1.0
        ssim = np.where(present, model.ssim[places], np.nan)
        samples = np.array([place_of.get(image, -1) for image in chosen], dtype=np.int64)
        rows.append(AlignedRow(model.label, images, ssim, present, model.run_id, samples))
    return AlignedGrid(
        np.array(chosen, dtype=np.int64), np.stack([originals[image] for image in chosen]), tuple(rows), threshold
    )
