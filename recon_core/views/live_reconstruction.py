"""An attack as a page shows it, running or finished: candidates as pictures, residuals, trials, and the count.

The attack itself never sees any of this. The count is made beside it, by whoever has the training samples.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
import safetensors
import torch
from numpy.typing import NDArray
from torch import Tensor

from recon_core.analysis.arrays import Flags, Floats, Integers, flags, floats, integers
from recon_core.analysis.multipliers import MultiplierHistogram, multiplier_histogram
from recon_core.analysis.pairs import Images
from recon_core.analysis.residuals import ResidualCurves, residual_curves
from recon_core.analysis.search import TrialTable, trial_table
from recon_core.attacks import CERTAIN, SEARCH_RANGES
from recon_core.config import TrainConfig, parse_config
from recon_core.data import TaskData, load_task
from recon_core.data.torchvision_sets import FULL_SETS
from recon_core.errors import InputError
from recon_core.matching.certainty import Certainty, judge_certain, match_alone
from recon_core.matching.controls import Evidence, LeakCount
from recon_core.matching.pool import pool
from recon_core.matching.protocol import GOOD_SSIM, MatchSettings
from recon_core.matching.scaling import stretch
from recon_core.runs.match_source import MatchConfig, MatchInput, check_fingerprint, usual_factor
from recon_core.runs.scoring import RADII, PlanarEvidence, PointCount, score
from recon_core.store import Run, RunState
from recon_core.store.files import DamagedError
from recon_core.store.layout import tensors_file
from recon_core.store.tensors import check_tensors

MOST_CANDIDATES = 2000
"""Read of a run at most: a search may leave a hundred thousand."""
_ENDED = (RunState.DONE, RunState.FAILED)


class TileOrder(StrEnum):
    """How candidates are laid out: where the attack keeps them, or by what it knows of them."""

    PLACE = "place"
    MULTIPLIER = "multiplier"
    AGREEMENT = "agreement"
    CONFIDENCE = "confidence"
    """By place where the attack does not say how sure it is, and while it runs."""


@dataclass(frozen=True, eq=False)
class Picture:
    """Candidates at one moment of an attack, as the attack knows them: centred, the training mean unknown."""

    step: int | None
    """None for what a run was left with in the end."""
    candidates: NDArray[np.float32]
    """(M, *input_shape)."""
    multipliers: Floats
    labels: Integers
    total: int
    """Candidates there are; `candidates` holds the first of them."""
    kept: Flags | None = None
    """(M,), points that an ended run's own clean-up left."""
    confidence: Floats | None = None
    """(M,) in [0, 1], how sure an ended attack is of each."""

    @property
    def planar(self) -> bool:
        return self.candidates.ndim == 2

    @property
    def weighed(self) -> bool:
        """Whether multipliers say anything: all are 1 where an attack has none, and 0 where it has fitted none yet."""
        return bool(((self.multipliers != 0) & (self.multipliers != 1)).any())

    @property
    def certain(self) -> Flags | None:
        """(M,), those an ended attack calls certain; None where it does not say."""
        return None if self.confidence is None else self.confidence > CERTAIN

    def order(self, by: TileOrder) -> Integers:
        """Rows, the first to be shown first. Learnt multipliers have signs; their size counts."""
        unsure = by is TileOrder.CONFIDENCE and self.confidence is None
        if by is TileOrder.PLACE or unsure or len(self.candidates) == 0:
            return np.arange(len(self.candidates))
        keys = self.confidence if by is TileOrder.CONFIDENCE else None
        if keys is None:
            keys = np.abs(self.multipliers) if by is TileOrder.MULTIPLIER else self.agreement()
        return np.argsort(-np.nan_to_num(keys, nan=-np.inf), kind="stable")

    def agreement(self) -> Floats:
        """(M,): correlation of each candidate with the one most like it.

        Starts that have nothing in common but the weights rarely end alike by chance, so what several candidates
        agree on is likelier to be a training sample; it takes no truth to see that.
        """
        flat = torch.from_numpy(self.candidates).flatten(1).nan_to_num(0.0, 0.0, 0.0)
        centred = flat - flat.mean(dim=1, keepdim=True)
        unit = centred / torch.linalg.vector_norm(centred, dim=1, keepdim=True).clamp(min=1e-12)
        alike = unit @ unit.T
        return floats(alike.fill_diagonal_(-1.0).amax(dim=1)) if len(alike) else np.zeros(0)

    def images(self, rows: Integers) -> Images:
        """(k, C, H, W) in [0, 1], each stretched from its own darkest to its own brightest value."""
        if self.candidates.ndim != 4:
            raise InputError(f"candidates of shape {self.candidates.shape[1:]} are no images; show them as points")
        chosen = torch.from_numpy(self.candidates[rows]).nan_to_num(0.0, 0.0, 0.0)
        pictures: Images = stretch(chosen).numpy()
        return pictures

    def histogram(self) -> MultiplierHistogram | None:
        """How the multipliers are spread; None where they say nothing, or none is a number any more."""
        if not self.weighed or not np.isfinite(self.multipliers).any():
            return None
        return multiplier_histogram(torch.from_numpy(self.multipliers))


def picture_version(run: Run) -> str:
    """A cheap key for caches: changes when `newest_picture` would."""
    name = _picture_file(run)
    if name is None:
        return ""
    try:
        found = os.stat(run.dir / tensors_file(name))
    except FileNotFoundError:
        return ""
    return f"{name} {found.st_ino} {found.st_mtime_ns} {found.st_size}"


def newest_picture(run: Run) -> Picture | None:
    """The newest candidates of a run at work, the final ones of a run that ended; None before there are any."""
    name = _picture_file(run)
    if name is None:
        return None
    return _final(run) if name == "candidates" else picture_at(run, -1)


def moments(run: Run) -> tuple[int, ...]:
    """Steps of which an ended attack kept a picture, the first to the last; empty where it kept none."""
    if run.status().state not in _ENDED or not run.has_tensors("snapshots"):
        return ()
    with _opened(run, "snapshots") as file:
        return tuple(int(step) for step in file.get_tensor("steps").tolist())


def picture_at(run: Run, index: int) -> Picture:
    """The picture of one of the `moments`; -1 for the newest."""
    with _opened(run, "snapshots") as file:
        steps = file.get_tensor("steps").tolist()
        if not -len(steps) <= index < len(steps):
            raise InputError(f"run {run.id} keeps {len(steps)} pictures along its way, got number {index}")
        place = index % len(steps)
        count = file.get_slice("candidates").get_shape()[1]

        def part(name: str) -> Tensor:
            found: Tensor = file.get_slice(name)[place : place + 1, :MOST_CANDIDATES][0]
            return found

        return _picture(int(steps[place]), part("candidates"), part("multipliers"), part("labels"), count)


def attack_residuals(run: Run) -> ResidualCurves | None:
    """The residual of every layer so far, from where the attack has begun to explain anything."""
    return residual_curves([row for row in run.metrics() if row.get("multiplier_max") != 0])


def search_trials(run: Run) -> TrialTable:
    """The trials of a search that have ended so far."""
    stored = run.read_json("trials")
    settings = run.config.get("settings", {})
    ranges = SEARCH_RANGES[settings.get("ranges", "haim2022")]
    return trial_table(run.metrics(), stored if isinstance(stored, list) else [], ranges)


@dataclass(frozen=True, eq=False)
class CandidatePairs:
    """Candidates by themselves, nothing merged, each beside the training image it resembles most."""

    images: Images
    """(n, C, H, W) in [0, 1]: all training images."""
    candidates: Images
    """(k, C, H, W) in [0, 1], with the mean of the training images, which the attack does not know."""
    samples: Integers
    """(k,), which of the images each stands beside."""
    ssim: Floats
    classes: tuple[str, ...]
    """(k,)"""


@dataclass(frozen=True, eq=False)
class Evaluator:
    """Scores candidates against the training samples, which the attack never sees."""

    data: TaskData
    merge_factor: float
    """B, usual for this kind of network."""

    def count(self, picture: Picture) -> LeakCount | tuple[PointCount, ...]:
        """Good reconstructions among a picture's images, beside the mean image's; or points found within RADII."""
        found = self.evidence(picture)
        if isinstance(found, PlanarEvidence):
            return tuple(found.at(radius) for radius in sorted(RADII, reverse=True))
        return found.at(GOOD_SSIM)

    def certainty(self, picture: Picture) -> Certainty | None:
        """How many of the candidates called certain are real; None where the attack does not say, and for points."""
        if picture.certain is None or picture.planar:
            return None
        chosen = torch.from_numpy(picture.candidates[picture.certain])
        return judge_certain(self.data.train_x, self.data.mean, chosen, MatchSettings())

    def pairs(self, picture: Picture, rows: Integers) -> CandidatePairs:
        """Candidates of an image model, those of `rows`."""
        data = self.data
        chosen = torch.from_numpy(picture.candidates[rows]).nan_to_num(0.0, 0.0, 0.0)
        found = match_alone(data.train_x, data.mean, chosen, MatchSettings())
        return CandidatePairs(
            images=(data.train_x + data.mean).clamp(0.0, 1.0).numpy(),
            candidates=found.shown.numpy(),
            samples=integers(found.nearest),
            ssim=floats(found.ssim),
            classes=tuple(data.class_names[label] for label in data.train_labels[found.nearest].tolist()),
        )

    def points(self) -> tuple[Floats, Integers]:
        """Training points (n, 2) and their classes (n,)."""
        return floats(self.data.train_x), integers(self.data.train_labels)

    def fits(self, picture: Picture) -> bool:
        """Whether candidates can be compared with training samples at all; kernels cannot."""
        return picture.candidates.shape[1:] == self.data.input_shape

    def evidence(self, picture: Picture) -> Evidence | PlanarEvidence:
        """As a match run finds it with the usual settings; held-out images, which take as long again, are left out."""
        candidates = torch.from_numpy(picture.candidates)
        source = MatchInput(
            data=self.data,
            pool=pool({"live": candidates}),
            multipliers=torch.from_numpy(picture.multipliers).float(),
            labels=torch.from_numpy(picture.labels),
            seeds=torch.zeros(len(candidates), dtype=torch.long),
            stages={} if picture.kept is None else {"live": torch.from_numpy(picture.kept)},
            untrained=None,
            untrained_labels=None,
        )
        config = MatchConfig(runs=("live",), merge_factor=self.merge_factor, device="cpu")
        return score(source, config, held_out=False)


class Truth(StrEnum):
    """Whether a page can compare with the training samples, as a sentence."""

    AT_HAND = "the training samples are at hand"
    UNKNOWN = "the training samples of an imported model are not known here, so reconstructions cannot be counted"
    FULL_SET = "the training images come from a full set, which takes a while to read; a match run counts"


def truth_of(model_run: Run) -> Truth:
    """Found out without reading a sample."""
    if model_run.kind != "train":
        return Truth.UNKNOWN
    source = parse_config(TrainConfig, model_run.config).data.source
    return Truth.FULL_SET if source in FULL_SETS else Truth.AT_HAND


def evaluator_of(model_run: Run) -> Evaluator:
    """Reads the training samples; see `truth_of`."""
    if truth_of(model_run) is Truth.UNKNOWN:
        raise InputError(f"run {model_run.id}: {Truth.UNKNOWN}")
    model = parse_config(TrainConfig, model_run.config)
    data = load_task(model.data)
    check_fingerprint(model_run, data)
    return Evaluator(data, usual_factor(model))


def _picture_file(run: Run) -> str | None:
    """Which file holds what is newest. A resumed run may still have candidates of the time before."""
    names = ("candidates", "snapshots") if run.status().state in _ENDED else ("snapshots",)
    return next((name for name in names if run.has_tensors(name)), None)


def _final(run: Run) -> Picture:
    with _opened(run, "candidates") as file:
        parts = {name: file.get_slice(name)[:MOST_CANDIDATES] for name in ("candidates", "multipliers", "labels")}
        picture = _picture(None, **parts, total=file.get_slice("candidates").get_shape()[0])
        if "confidence" in file.keys():  # noqa: SIM118 - a file, not a mapping
            picture = replace(picture, confidence=floats(file.get_slice("confidence")[:MOST_CANDIDATES]))
    if not run.has_tensors("stages"):
        return picture
    with _opened(run, "stages") as file:
        return replace(picture, kept=flags(file.get_slice("deduplicated")[:MOST_CANDIDATES]))


def _picture(step: int | None, candidates: Tensor, multipliers: Tensor, labels: Tensor, total: int) -> Picture:
    """Copied out of the file, which may be replaced meanwhile."""
    return Picture(step, candidates.float().clone().numpy(), floats(multipliers), integers(labels), total)


def _opened(run: Run, name: str) -> Any:
    """A tensor file of which only parts are to be read, checked first."""
    path = run.dir / tensors_file(name)
    try:
        check_tensors(path, checksum=False)
        return safetensors.safe_open(path, "pt")
    except (DamagedError, safetensors.SafetensorError, OSError) as fault:
        raise InputError(f"run {run.id} is damaged: {fault}; run the reconstruction again") from None
