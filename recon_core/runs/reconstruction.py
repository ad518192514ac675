"""A reconstruction run: weights from the store, candidates back into it. No data is read here."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from pydantic import SerializeAsAny
from torch import Tensor

from recon_core.attacks import (
    AttackOutcome,
    AttackSettings,
    StopReason,
    Target,
    attack,
    regression_warning,
)
from recon_core.attacks.baselines import (
    INVERSION_RANGES,
    invert,
    kernel_tiles,
    untrained_network,
    weight_images,
    weight_points,
)
from recon_core.attacks.circle import PAPER_DISTANCE, PAPER_THRESHOLD, circle_stages
from recon_core.attacks.fast import PIXEL_NORM
from recon_core.attacks.labels import assign_labels
from recon_core.attacks.priors import describes_images
from recon_core.attacks.registry import FIRST_VERSION, find_attack
from recon_core.attacks.settings import check_settings
from recon_core.config import Frozen, parse_config
from recon_core.errors import InputError
from recon_core.models.modules import ModuleNetwork
from recon_core.observing import Listener
from recon_core.runs.models import AttackModel, model_of
from recon_core.runs.observer import StoreObserver, last_checkpoint
from recon_core.runs.signals import StopFlag
from recon_core.store import Run, RunState, RunStore, RunWriter

if TYPE_CHECKING:
    pass

STATES = {StopReason.CANCELLED: RunState.CANCELLED, StopReason.DIVERGED: RunState.FAILED}
# The path of a few points is cheap to keep and is played back.
_PLANAR_SNAPSHOTS = 240
_USUAL_CANDIDATES = 100
_PER_DIMENSION = 2
INVERSION_STEPS = 500
"""Of model inversion, as the papers run it."""
# Of the largest multiplier, where the paper's threshold would leave nothing.
_THRESHOLD_SHARE = 0.1


class Baseline(StrEnum):
    """What the papers compare reconstruction with."""

    INVERSION = "inversion"
    WEIGHTS = "weights"
    KERNELS = "kernels"
    UNTRAINED = "untrained"


class ReconstructConfig(Frozen):
    """One reconstruction, or a baseline in its place, whole.

    Model inversion takes `m`, `iterations` and `seed` from the settings; weights and kernels take none.
    """

    model: str
    """Id of the run that holds the model."""
    settings: SerializeAsAny[AttackSettings] = AttackSettings()
    m_from_rank: bool = False
    """Whether m follows from the model's weights and was not chosen; see `usual_candidates`."""
    known_init: bool = False
    baseline: Baseline | None = None
    inversion_ranges: Literal["inversion", "reconstruction"] = "inversion"

    @property
    def attacks(self) -> bool:
        """Whether the attack of the settings is made, on whichever network."""
        return self.baseline in (None, Baseline.UNTRAINED)


def default_attack(model: AttackModel) -> str:
    """The default attack: `copies` where inputs are images and it applies, else `fast`."""
    dense = model.architecture.dense_first
    return "copies" if dense and describes_images(model.architecture.input_shape) else "fast"


def usual_candidates(model: AttackModel) -> int:
    """m where it is left out: twice the rank of the first layer, as the papers take twice the number of samples.

    The weights tell the rank and not the number. It says nothing in the plane, where it is 2 whatever was trained on,
    behind a convolution, where it is that of features, and where nothing stands above the noise.
    """
    if model.planar or model.rank == 1:
        return _USUAL_CANDIDATES
    least = 0 if model.architecture.dense_first else _USUAL_CANDIDATES
    return max(_PER_DIMENSION * model.rank, 2 * model.architecture.outputs, least)


def attack_version(run: Run, recipe: str) -> int:
    """Of the attack that a finished reconstruction was made by; the present one where it is still to be made.

    A run that is taken up again starts anew where the version has changed, so its checkpoints do not count.
    """
    result = run.result()
    if result is None:
        return find_attack(recipe).version
    return int(result.get("attack_version", FIRST_VERSION))


def attack_settings(
    model: AttackModel, given: Mapping[str, Any], preset: Mapping[str, Any] | None = None
) -> AttackSettings:
    """Settings for this model: the preset, then what follows from the model, then what was given; later ones win."""
    recipe = given.get("recipe") or (preset or {}).get("recipe") or default_attack(model)
    attack = find_attack(str(recipe))
    check_settings(attack.name, given)
    follows: dict[str, Any] = {"objective": model.task}
    if model.planar:
        follows |= {"prior": "off", "snapshots": _PLANAR_SNAPSHOTS}
    if model.normalisation is not None:
        # Inputs are larger than pixels by 1 / std.
        std = model.normalisation.std
        d = math.prod(model.architecture.input_shape)
        follows["input_norm"] = PIXEL_NORM * math.sqrt(d) * len(std) / sum(std)
    follows |= attack.network_defaults(model.architecture)
    if given.get("m") is None and "m" not in (preset or {}):
        follows["m"] = usual_candidates(model)
    follows = {name: value for name, value in follows.items() if name in attack.setting_names}
    return parse_config(AttackSettings, {**(preset or {}), **follows, **given, "recipe": attack.name})


def target_of(model: AttackModel, config: ReconstructConfig) -> Target:
    """What is attacked: the model, its change since the known start, or in its place an untrained network."""
    objective = config.settings.objective or model.task
    if config.baseline is not Baseline.UNTRAINED:
        return Target.of(model.network, objective, model.initial() if config.known_init else None)
    if config.known_init:
        raise InputError("an untrained network has not moved from its start; leave out --known-init")
    seed = 0 if model.training is None else model.training.model.seed
    if isinstance(model.network, ModuleNetwork):
        return Target.of(model.network.untrained(seed), objective)
    network = untrained_network(
        model.architecture,
        seed=seed,
        init_scale=model.init_scale,
        dense_init_scale=model.dense_init_scale,
        dtype=next(model.network.parameters()).dtype,
    )
    return Target.of(network, objective)


def comparable(settings: AttackSettings, model: AttackModel, config: ReconstructConfig) -> AttackSettings:
    """Settings of the attack on an untrained network: in as many dimensions as the trained network's row space has."""
    if config.baseline is not Baseline.UNTRAINED or getattr(settings, "rank", 0) is not None:
        return settings
    return settings.model_copy(update={"rank": model.rank})


def check_request(model: AttackModel, config: ReconstructConfig) -> None:
    """Raise an `InputError` for what would end the run at its start, before anything is written."""
    if config.baseline is Baseline.WEIGHTS or config.baseline is Baseline.KERNELS:
        _pictures(model, config.baseline)
        return
    target, settings = target_of(model, config), config.settings
    assign_labels(settings.label_policy(target.objective), settings.m, target.architecture.outputs)
    if config.baseline is not Baseline.INVERSION:
        find_attack(settings.recipe).check(target, settings)
    elif target.architecture.outputs == 1 and settings.m % 2:
        raise InputError(f"m must be even, half to maximise and half to minimise the output, got {settings.m}")


def warning_for(model: AttackModel, settings: AttackSettings) -> str | None:
    """A warning where it is known beforehand that this attack will not work, or only in part."""
    if (warning := regression_warning(settings.objective or model.task, model.weight_decay)) is not None:
        return warning
    if not model.planar and settings.m < model.rank:
        return (
            f"m = {settings.m} is below the rank {model.rank} of the first layer, so not every training sample can "
            f"come back; leave m out, or give at least {_PER_DIMENSION * model.rank}"
        )
    return None


def perform_reconstruction(run: Run, writer: RunWriter, stop: StopFlag, listener: Listener) -> None:
    """Reconstruct, or go on reconstructing, and finish the run. From weights alone, so it is never handed data."""
    config = parse_config(ReconstructConfig, run.config)
    model = model_of(RunStore(run.dir.parent).open(config.model))
    match config.baseline:
        case Baseline.WEIGHTS | Baseline.KERNELS:
            _show_weights(writer, model, config.baseline, config)
        case Baseline.INVERSION:
            _invert(run, writer, StoreObserver(writer, stop, listener), model, config)
        case _:
            _attack(run, writer, StoreObserver(writer, stop, listener), model, config)


def _attack(
    run: Run, writer: RunWriter, observer: StoreObserver, model: AttackModel, config: ReconstructConfig
) -> None:
    settings = config.settings
    target = target_of(model, config)
    writer.start(settings.total_steps)
    if (warning := warning_for(model, settings)) is not None:
        writer.log(warning)
    outcome = attack(target, comparable(settings, model, config), observer, last_checkpoint(writer))
    outcome = in_pixels(outcome, model)
    state = STATES.get(outcome.reason, RunState.DONE)
    if state is RunState.CANCELLED:
        writer.finish(state, None, f"{outcome.reason}: python -m recon_core runs resume {run.id}")
        return
    writer.save_tensors("candidates", candidate_tensors(outcome))
    writer.save_tensors("snapshots", outcome.snapshots)
    result = {**outcome.summary, "model": config.model, "baseline": config.baseline, "warning": warning}
    if model.planar:
        stages = planar_stages(outcome, settings)
        writer.save_tensors("stages", stages.masks)
        result["circle"] = stages.counts
    writer.finish(state, result, f"{outcome.reason}")


def in_pixels(outcome: AttackOutcome, model: AttackModel) -> AttackOutcome:
    """Candidates as centred pixels, where the model's inputs are known to be normalised ones."""
    if model.normalisation is None:
        return outcome
    shots = {**outcome.snapshots, "candidates": model.normalisation.centred(outcome.snapshots["candidates"])}
    return replace(outcome, candidates=model.normalisation.centred(outcome.candidates), snapshots=shots)


def candidate_tensors(outcome: AttackOutcome) -> dict[str, Tensor]:
    return {
        "candidates": outcome.candidates,
        "multipliers": outcome.multipliers,
        "labels": outcome.labels,
        "seeds": outcome.seeds,
        **({} if outcome.confidence is None else {"confidence": outcome.confidence}),
    }


class PlanarStages(NamedTuple):
    """Haim et al. 2022, Fig. 2 c-f: masks over the pooled candidates and where they started; the counts of each."""

    masks: dict[str, Tensor]
    counts: dict[str, Any]


def planar_stages(outcome: AttackOutcome, settings: AttackSettings) -> PlanarStages:
    """What is left of candidates in the plane after filtering by multiplier and removing duplicates."""
    starts = outcome.snapshots["steps"].tolist()
    places = [
        outcome.snapshots["candidates"][starts.index((seed - settings.seed) * (settings.iterations + 1))]
        for seed in dict.fromkeys(outcome.seeds.tolist())
    ]
    multipliers = outcome.multipliers.abs()  # learnt signs
    largest = float(multipliers.max())
    threshold = PAPER_THRESHOLD if largest >= PAPER_THRESHOLD else _THRESHOLD_SHARE * largest
    stages = circle_stages(
        torch.cat(places), outcome.candidates, multipliers, unit=1.0, threshold=threshold, seed=settings.seed
    )
    masks = {"initial": stages.initial, "filtered": stages.filtered, "deduplicated": stages.deduplicated}
    counts = {
        "threshold": threshold,
        "distance": PAPER_DISTANCE,
        "candidates": len(stages.final),
        "filtered": int(stages.filtered.sum()),
        "kept": len(stages.kept),
    }
    return PlanarStages(masks, counts)


class _StoppedError(Exception):
    """Ends model inversion, which has no loop of its own to ask."""


def _invert(
    run: Run, writer: RunWriter, observer: StoreObserver, model: AttackModel, config: ReconstructConfig
) -> None:
    """Model inversion. It takes seconds, so a stopped one starts anew, with the same result."""
    settings = config.settings
    writer.start(settings.iterations)
    started = time.monotonic()

    def progress(fraction: float) -> None:
        if observer.stop_requested():
            raise _StoppedError
        observer.progress(round(fraction * settings.iterations), fraction, f"inverting, {fraction:.0%}")

    ranges = INVERSION_RANGES[config.inversion_ranges]
    try:
        inverted = invert(
            model.network,
            count=settings.m,
            seed=settings.seed,
            steps=settings.iterations,
            ranges=ranges,
            progress=progress,
        )
    except _StoppedError:
        reason = StopReason.CANCELLED
        writer.finish(RunState.CANCELLED, None, f"{reason}: python -m recon_core runs resume {run.id}")
        return
    tensors = {**_as_candidates(inverted.candidates, inverted.labels), "outputs": inverted.outputs}
    tensors |= {"learning_rates": inverted.learning_rates, "sigmas": inverted.sigmas, "at_bound": inverted.at_bound}
    writer.save_tensors("candidates", tensors)
    outputs = inverted.outputs.tolist()
    facts = {
        **_baseline_facts(model, config, inverted.candidates),
        "seconds": round(time.monotonic() - started, 4),
        "output_min": min(outputs),
        "output_max": max(outputs),
        "at_bound": int(inverted.at_bound.sum()),
    }
    writer.finish(RunState.DONE, facts, f"{StopReason.ITERATIONS}")


def _show_weights(writer: RunWriter, model: AttackModel, baseline: Baseline, config: ReconstructConfig) -> None:
    writer.start(1)
    pictures = _pictures(model, baseline)
    writer.save_tensors("candidates", _as_candidates(pictures, torch.zeros(len(pictures), dtype=torch.long)))
    writer.progress(1)
    writer.finish(RunState.DONE, _baseline_facts(model, config, pictures), f"{len(pictures)} pictures of {baseline}")


def _pictures(model: AttackModel, baseline: Baseline) -> Tensor:
    architecture = model.architecture
    if baseline is Baseline.KERNELS:
        if architecture.dense_first:
            raise InputError(f"baseline kernels needs a convolution, got {architecture}; use --kind weights")
        return kernel_tiles(model.network)
    if not architecture.dense_first:
        raise InputError(f"baseline weights needs a dense first layer, got {architecture}; use --kind kernels")
    points = len(architecture.input_shape) == 1
    return weight_points(model.network) if points else weight_images(model.network)


def _as_candidates(candidates: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Baselines have no multipliers, so each candidate gets 1."""
    count = len(candidates)
    return {
        "candidates": candidates.float(),
        "multipliers": torch.ones(count),
        "labels": labels,
        "seeds": torch.zeros(count, dtype=torch.long),
    }


def _baseline_facts(model: AttackModel, config: ReconstructConfig, candidates: Tensor) -> dict[str, Any]:
    return {
        "model": config.model,
        "baseline": config.baseline,
        "candidates": len(candidates),
        "candidate_shape": list(candidates.shape[1:]),
        "architecture": model.architecture.to_json(),
    }
