"""Reconstruction: good reconstructions beside the chance level, and how much sooner than the papers' recipe.

Everything is trained, attacked and scored in this run, with fixed seeds and the defaults: nothing is set per task. Keys
that end in `_draws` are means over seeded draws of images, none of which was used to develop the attack; `decay_*`,
`cifar_good*` and `conv_good*` are means over three attack seeds; `_no_prior` is recipe fast, without a prior on images.
`conv_*` is a network whose dense layer starts far smaller than the papers' does (preset cifar10-conv-small-start);
`conv_standard_start_*` starts as theirs.
Counts are training images with SSIM > 0.4 (gaussian, sigma 1.5) after merging with B = 1.1 (1.5 for the convolution).
The papers' side is their code's loop: float64, autograd's double backward, the hyper-parameters released for CIFAR-10.
Scoring never counts as time: it happens between the snapshots' clocks.

`--only decay,n500` measures these of `PARTS` alone, where half an hour at a time is too much. `flow` stands for the
`cifar_*` means over attack seeds and draws; `certain_*` are over those of `decay` and `flow` that ran.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from benchmarks import attack_step
from recon_core.attacks import AUTHORS_PRESETS, CERTAIN, AttackSettings, Target, attack
from recon_core.attacks.baselines import invert, untrained_network, weight_images
from recon_core.attacks.circle import PAPER_DISTANCE, deduplicate, filter_multipliers
from recon_core.config import Task, TrainConfig, parse_config
from recon_core.data import TaskData, load_task
from recon_core.matching.certainty import Certainty, judge_certain
from recon_core.matching.controls import score_mean_image
from recon_core.matching.planar import match_points
from recon_core.matching.protocol import GOOD_SSIM, MatchSettings, match
from recon_core.matching.ssim import SsimKind
from recon_core.models import Network
from recon_core.presets import FAR, FAR_MANY, find_preset
from recon_core.runs.models import AttackModel
from recon_core.runs.reconstruction import Baseline, ReconstructConfig, attack_settings, comparable
from recon_core.training import train

THRESHOLD = GOOD_SSIM
PAPER_BUDGET = 360.0
_CONV_FACTOR = 1.5


@dataclass
class _Listener:
    """Keeps candidates by the time they were there; the clock stands still while nobody attacks."""

    taken: list[tuple[float, Tensor]] = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)

    def metrics(self, row: Mapping[str, Any]) -> None: ...

    def progress(self, step: int, fraction: float, message: str) -> None: ...

    def log(self, sentence: str) -> None: ...

    def snapshot(self, step: int, tensors: Mapping[str, Tensor]) -> None:
        if "candidates" in tensors:  # a planar training shows fields instead
            self.taken.append((time.perf_counter() - self.started, tensors["candidates"].clone()))

    def checkpoint(self, step: int, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None: ...

    def checkpoint_due(self) -> bool:
        return False

    def stop_requested(self) -> bool:
        return False


@dataclass(frozen=True)
class _Model:
    config: TrainConfig
    data: TaskData
    network: Network

    @property
    def target(self) -> Target:
        return Target.of(self.network, self.data.task)


def _trained(values: Mapping[str, Any]) -> _Model:
    config = parse_config(TrainConfig, values)
    data = load_task(config.data)
    return _Model(config, data, train(config, data, _Listener()).network)


def _settings(model: _Model, **more: Any) -> AttackSettings:
    return attack_settings(AttackModel(model.network, model.config), more)


def _good(
    model: _Model,
    candidates: Tensor,
    threshold: float = THRESHOLD,
    ssim: SsimKind = SsimKind.WANG,
    images: Tensor | None = None,
) -> int:
    settings = MatchSettings(merge_factor=1.1 if model.network.architecture.dense else _CONV_FACTOR, ssim=ssim)
    return match(model.data.train_x if images is None else images, model.data.mean, candidates, settings).good(
        threshold
    )


def _floors(model: _Model, candidates: Tensor, **more: Any) -> dict[str, int]:
    """What would count as good without anything leaked; `candidates` are the attack's, for the held-out images."""
    return _floors_by_window(model, candidates, (SsimKind.WANG,), **more)[SsimKind.WANG]


def _floors_by_window(
    model: _Model, candidates: Tensor, windows: Iterable[SsimKind], **more: Any
) -> dict[SsimKind, dict[str, int]]:
    untrained = untrained_network(
        model.network.architecture,
        seed=model.config.model.seed,
        init_scale=model.config.model.init_scale,
        dense_init_scale=model.config.model.dense_init_scale,
    )
    attacked = AttackModel(model.network, model.config)
    control = ReconstructConfig(model="", settings=_settings(model, **more), baseline=Baseline.UNTRAINED)
    settings = comparable(control.settings, attacked, control)
    found = attack(Target.of(untrained, model.data.task), settings, _Listener())
    images = model.data.train_x + model.data.mean
    held_out = model.data.test_x[: len(images)]
    floors: dict[SsimKind, dict[str, int]] = {}
    for ssim in windows:
        floors[ssim] = {
            "mean_image": int((score_mean_image(images, model.data.mean, ssim) > THRESHOLD).sum()),
            "untrained": _good(model, found.candidates, ssim=ssim),
            "held_out": _good(model, candidates, ssim=ssim, images=held_out),
        }
        if model.network.architecture.dense:
            floors[ssim]["first_layer_weights"] = _good(model, weight_images(model.network), ssim=ssim)
    return floors


def _say(sentence: str) -> None:
    sys.stderr.write(sentence + "\n")
    sys.stderr.flush()


PARTS = (
    *("cifar", "cifar_other_draw", "mnist", "faces", "multiclass", "regression"),
    *("decay", "flow", "n500", "mnist500", "multiclass500"),
    *("conv", "circle", "paper", "step"),
)


def measure(only: str | None = None) -> dict[str, Any]:
    """All figures of the reconstruction side, or `only` some parts, with commas between them.

    About half an hour, six minutes of it the papers' recipe.
    """
    parts = PARTS if only is None else tuple(only.split(","))
    if unknown := [part for part in parts if part not in PARTS]:
        raise SystemExit(f"--only: there is no part {unknown[0]!r}; choose from {', '.join(PARTS)}")
    found: dict[str, Any] = {"threads": torch.get_num_threads()}
    floors: dict[str, Any] = {}
    tasks: dict[str, Mapping[str, Any]] = {
        "cifar": find_preset("cifar10-50").config().model_dump(),
        "cifar_other_draw": {
            "data": {"source": "cifar10", "n": 50, "selection": "seeded", "seed": 1},
            "training": {"target_log_loss": FAR},
        },
        "mnist": find_preset("mnist-50").config().model_dump(),
        "faces": find_preset("faces-50").config().model_dump(),
        "multiclass": find_preset("cifar10-multiclass").config().model_dump(),
        "regression": find_preset("cifar10-l2").config().model_dump(),
    }
    for name, values in tasks.items():
        if name not in parts:
            continue
        model = _trained(values)
        start = time.perf_counter()
        outcome = attack(model.target, _settings(model), _Listener())
        found[f"{name}_seconds"] = time.perf_counter() - start
        found[f"{name}_good"] = _good(model, outcome.candidates)
        found[f"{name}_good_at_0.7"] = _good(model, outcome.candidates, 0.7)
        chance = _floors_by_window(model, outcome.candidates, SsimKind)
        floors[f"{name}_good"] = chance[SsimKind.WANG]
        if name in ("mnist", "faces"):  # where the window decides
            found[f"{name}_good_3x3"] = _good(model, outcome.candidates, ssim=SsimKind.AUTHORS)
            floors[f"{name}_good_3x3"] = chance[SsimKind.AUTHORS]
        if name in ("cifar", "mnist"):
            plain = attack(model.target, _settings(model, recipe="fast"), _Listener())
            found[f"{name}_good_no_prior"] = _good(model, plain.candidates)
            floors[f"{name}_good_no_prior"] = _floors(model, plain.candidates, recipe="fast")
        if name == "cifar":
            pooled = attack(model.target, _settings(model, seeds=5), _Listener())
            found["cifar_good_pooled"] = _good(model, pooled.candidates)
            found["cifar_good_pooled_at_0.7"] = _good(model, pooled.candidates, 0.7)
            floors["cifar_good_pooled"] = _floors(model, pooled.candidates, seeds=5)
        _say(f"{name}: {found[f'{name}_good']} good, controls {floors[f'{name}_good']}")
    if {"decay", "flow"} & set(parts):
        _copies(found, floors, parts)
    if {"n500", "mnist500", "multiclass500"} & set(parts):
        _many(found, floors, parts)
    if "conv" in parts:
        _convolution(found, floors)
    if "circle" in parts:
        _circle(found, floors)
    if "paper" in parts:
        _against_paper(found, floors)
    if "step" in parts:
        step = attack_step.measure()
        for key in ("closed_form_over_autograd", "matmul_fraction"):
            found[key], floors[key] = step[key], None
    return {**found, **chance_keys(floors)}


def chance_keys(controls: Mapping[str, Mapping[str, int] | None]) -> dict[str, Any]:
    """The controls of each count by name, and its chance level; `floors` is what files of before call the controls.

    The first layer's weights are a baseline: images stand in them, so they say nothing of chance.
    """
    levels = {
        count: None if found is None else max(value for name, value in found.items() if name != "first_layer_weights")
        for count, found in controls.items()
    }
    return {"floors": controls, "controls": controls, "chance_levels": levels}


SEEDS = (0, 1, 2)
DRAWS = (11, 12, 13)
"""Seeds of images that the attack was not developed on."""
LEVELS = (THRESHOLD, 0.7, 0.9)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _key(name: str, level: float) -> str:
    return f"{name}_good" if level == THRESHOLD else f"{name}_good_at_{level:g}"


def _copies(found: dict[str, Any], floors: dict[str, Any], parts: Collection[str]) -> None:
    """50 images with and without weight decay: means over attack seeds, then over draws of other images."""
    certain: list[Certainty] = []
    for part, name, preset in (("decay", "decay", "cifar10-50-decay"), ("flow", "cifar", "cifar10-50")):
        if part not in parts:
            continue
        model = _trained(find_preset(preset).config().model_dump())
        counts: dict[float, list[float]] = {level: [] for level in LEVELS}
        for seed in SEEDS:
            listener = _Listener()
            outcome = attack(model.target, _settings(model, seed=seed), listener)
            for level in LEVELS:
                counts[level].append(_good(model, outcome.candidates, level))
            if seed == 0:
                found[f"{name}_seconds"] = time.perf_counter() - listener.started
                first = next((seconds for seconds, x in listener.taken if _good(model, x)), None)
                found[f"{name}_first_good_seconds"] = first
        for level in LEVELS:
            found[_key(name, level)] = _mean(counts[level])
        floors[f"{name}_good"] = _floors(model, outcome.candidates)
        drawn: dict[float, list[float]] = {level: [] for level in LEVELS}
        for seed in DRAWS:
            values = find_preset(preset).config().model_dump()
            values["data"] = {**values["data"], "selection": "seeded", "seed": seed}
            other = _trained(values)
            outcome = attack(other.target, _settings(other), _Listener())
            for level in LEVELS:
                drawn[level].append(_good(other, outcome.candidates, level))
            if outcome.confidence is not None:
                chosen = outcome.candidates[outcome.confidence > CERTAIN]
                certain.append(judge_certain(other.data.train_x, other.data.mean, chosen, MatchSettings()))
        for level in LEVELS:
            found[_key(name, level) + "_draws"] = _mean(drawn[level])
        floors[f"{name}_good_draws"] = _floors(other, outcome.candidates)
        _say(f"{name}: {counts}, draws {drawn}, controls {floors[f'{name}_good']}")
    found["certain_precision"] = sum(one.real for one in certain) / max(1, sum(one.certain for one in certain))
    precisions = [one.precision for one in certain if one.precision is not None]
    found["certain_precision_worst"] = min(precisions, default=None)
    found["certain_recall"] = _mean([one.recall for one in certain])
    floors["certain_precision"] = None
    _say(f"certain: {[(one.real, one.certain, one.recalled, one.of) for one in certain]}")


def _many(found: dict[str, Any], floors: dict[str, Any], parts: Collection[str]) -> None:
    """500 images: two classes of CIFAR-10, odd and even digits, ten classes of 50."""
    classes = find_preset("cifar10-multiclass").config().model_dump()
    classes["data"] = {**classes["data"], "per_class": 50}
    classes["training"] = {**classes["training"], "target_log_loss": FAR_MANY}
    tasks: dict[str, Mapping[str, Any]] = {
        "n500": find_preset("cifar10-500").config().model_dump(),
        "mnist500": find_preset("mnist-500").config().model_dump(),
        "multiclass500": classes,
    }
    for name, values in tasks.items():
        if name not in parts:
            continue
        model = _trained(values)
        start = time.perf_counter()
        outcome = attack(model.target, _settings(model), _Listener())
        found[f"{name}_seconds"] = time.perf_counter() - start
        for level in LEVELS:
            found[_key(name, level)] = _good(model, outcome.candidates, level)
        if name == "mnist500":
            found["mnist500_good_3x3"] = _good(model, outcome.candidates, ssim=SsimKind.AUTHORS)
        floors[f"{name}_good"] = _floors(model, outcome.candidates)
        _say(f"{name}: {found[f'{name}_good']} good in {found[f'{name}_seconds']:.0f} s, {floors[f'{name}_good']}")


def _convolution(found: dict[str, Any], floors: dict[str, Any]) -> None:
    """`conv_*` is the preset whose dense layer starts small, `conv_standard_start_*` the papers' start."""
    small, standard = "cifar10-conv-small-start", "cifar10-conv"
    for name, preset, seeds in (("conv", small, SEEDS), ("conv_standard_start", standard, SEEDS[:1])):
        model = _trained(find_preset(preset).config().model_dump())
        start = time.perf_counter()
        outcomes = [attack(model.target, _settings(model, seed=seed), _Listener()) for seed in seeds]
        found[f"{name}_seconds"] = (time.perf_counter() - start) / len(seeds)
        counts = {level: [float(_good(model, one.candidates, level)) for one in outcomes] for level in LEVELS}
        for level in LEVELS:
            found[_key(name, level)] = _mean(counts[level])
        floors[f"{name}_good"] = _floors(model, outcomes[0].candidates)
        _say(f"{name} ({preset}): {counts}, controls {floors[f'{name}_good']}")
    drawn: dict[float, list[float]] = {level: [] for level in LEVELS}
    for seed in DRAWS:
        values = find_preset(small).config().model_dump()
        values["data"] = {**values["data"], "selection": "seeded", "seed": seed}
        other = _trained(values)
        outcome = attack(other.target, _settings(other), _Listener())
        for level in LEVELS:
            drawn[level].append(float(_good(other, outcome.candidates, level)))
    for level in LEVELS:
        found[_key("conv", level) + "_draws"] = _mean(drawn[level])
    floors["conv_good_draws"] = None
    _say(f"conv, draws: {drawn}")


def _circle(found: dict[str, Any], floors: dict[str, Any]) -> None:
    """After filtering and de-duplication, as in Haim et al. 2022, Fig. 2f, and what model inversion finds."""
    model = _trained(find_preset("circle").config().model_dump())

    def within(candidates: Tensor, labels: Tensor) -> dict[str, int]:
        matched = match_points(model.data.train_x, model.data.train_labels, candidates, labels)
        return {"0.1": matched.recovered(0.1), "0.03": matched.recovered(0.03)}

    def attacked(target: Target) -> dict[str, int]:
        outcome = attack(target, _settings(model), _Listener())
        # The paper drops multipliers below 5; as the unit depends on the model, a part of the largest here.
        kept = filter_multipliers(
            outcome.candidates, outcome.multipliers, threshold=0.05 * float(outcome.multipliers.max())
        )
        kept = deduplicate(outcome.candidates, kept, distance=PAPER_DISTANCE, seed=0)
        return within(outcome.candidates[kept], outcome.labels[kept])

    ours = attacked(model.target)
    untrained = attacked(
        Target.of(
            untrained_network(model.network.architecture, seed=0, init_scale=model.config.model.init_scale), Task.BINARY
        )
    )
    inversion = invert(model.network, count=400, seed=0, steps=400)
    inverted = within(inversion.candidates, inversion.labels)
    for radius in ("0.1", "0.03"):
        found[f"circle_within_{radius}"], floors[f"circle_within_{radius}"] = (
            ours[radius],
            {"untrained": untrained[radius]},
        )
    found["circle_inversion_within_0.1"], floors["circle_inversion_within_0.1"] = inverted["0.1"], None
    _say(f"circle: {ours}, untrained {untrained}, inversion {inverted}")


def _against_paper(found: dict[str, Any], floors: dict[str, Any]) -> None:
    """On a model stopped at loss 1e-6: the papers' recipe for its budget, and when `fast` had as many."""
    values = {"data": {"source": "cifar10", "n": 50}, "training": {"target_loss": 1e-6, "measure_every": 5}}
    model = _trained(values)
    fast = _Listener()
    outcome = attack(model.target, _settings(model, recipe="fast", snapshots=60), fast)
    found["cifar_paper_level_good"] = _good(model, outcome.candidates)
    found["cifar_paper_level_seconds"] = fast.taken[-1][0]
    floors["cifar_paper_level_good"] = _floors(model, outcome.candidates)
    paper = _Listener()
    settings = AttackSettings(
        **{**AUTHORS_PRESETS["cifar10-a"], "m": 100, "max_seconds": PAPER_BUDGET, "measure_every": 25}
    )
    found["paper_iterations"] = attack(model.target, settings, paper).summary["steps"]
    count = _good(model, paper.taken[-1][1])
    reached = next((seconds for seconds, x in fast.taken if _good(model, x) >= count), None)
    found["paper_good"], found["paper_seconds"] = count, paper.taken[-1][0]
    found["fast_seconds_to_paper_good"] = reached
    found["times_sooner_than_paper"] = None if reached is None else paper.taken[-1][0] / max(reached, 1e-9)
    floors["times_sooner_than_paper"] = None
    _say(f"paper: {count} good after {paper.taken[-1][0]:.0f} s; fast had as many after {reached} s")
