"""How long a run will take on this machine, said before it starts.

Where the store has finished runs of the same shape, their time is the answer. Elsewhere it is arithmetic: the
floating-point operations of a step over this machine's matrix-product rate, which is measured once, plus what a step
costs however small the network is. The constants were measured on one core; expect the right order, not the right
second.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import platform
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from recon_core.config import Augmentation, DataConfig, Recipe, Task, TrainConfig
from recon_core.errors import AfterimageError, InputError
from recon_core.scheduling.slots import core_count, slots
from recon_core.store import RunState, RunStore
from recon_core.store.files import explaining, write_json
from recon_core.store.private import private_folder

if TYPE_CHECKING:
    from recon_core.attacks import AttackSettings
    from recon_core.models import Architecture

# The overhead of a step besides its arithmetic, in seconds.
_BATCHED = (Recipe.SGD, Recipe.DPSGD)
_FLOW_STEP, _STATIONARY_STEP, _DESCENT_STEP, _ATTACK_STEP = 1.3e-3, 5e-3, 0.6e-3, 4e-3
_RUN_START = 0.4
# Passes over the weights in memory, seconds per weight.
_FLOW_MEMORY, _STATIONARY_MEMORY, _DESCENT_MEMORY = 2e-9, 6e-9, 4e-9
# The KKT residual of n samples, seconds per n^2, and how often it is taken (steps).
_KKT_SECONDS, _KKT_EVERY = 1.6e-6, 50
# Steps of flow: this many, and so many for each e-fold of the target, and for each sample.
_FLOW_STEPS, _FLOW_STEPS_PER_FOLD, _FLOW_STEPS_PER_SAMPLE = 75, 28, 0.3
_PLANAR_FACTOR = 4
_RESIDUAL_STEPS = 400
_FIELD_POINTS, _FIELD_EVERY = 2304, 8
# A second core helps less than the first.
_CORE_GAIN = 0.75
_RATE_SIDE, _RATE_TRIES = 512, 6
_RATE_FALLBACK = 30e9
_RUNS_LOOKED_AT = 300
_MATCH_SECONDS = 0.5


def estimate_training(config: TrainConfig, store: RunStore, threads: int | None = None) -> float | None:
    """Seconds that training with `config` will take here; None where nobody can know."""
    return Estimator(store, threads).training(config)


def estimate_reconstruction(
    config: TrainConfig, settings: AttackSettings, store: RunStore, threads: int | None = None
) -> float | None:
    """Seconds of an attack with `settings` on a network trained with `config`; None where nobody can know."""
    return Estimator(store, threads).reconstruction(config, settings)


class Estimator:
    """Estimates that share one reading of the store. `threads` is the number for one run; by default that of a slot."""

    def __init__(self, store: RunStore, threads: int | None = None) -> None:
        place = slots()[0]
        self._gpu = place.gpu is not None
        cores = place.threads if threads is None else threads
        self._rate = matmul_rate(store) * (1 + _CORE_GAIN * (min(cores, core_count()) - 1))
        self._known = _finished_times(store)

    def training(self, config: TrainConfig) -> float | None:
        known = self._known.get(_training_key(config.model_dump(mode="json")))
        if known is None:
            known = None if self._on_gpu(config.device) else self._training_seconds(config)
        return _at_most(known, config.training.max_seconds)

    def reconstruction(self, config: TrainConfig, settings: AttackSettings) -> float | None:
        shape = shape_of_training(config)
        if shape is None:
            return settings.max_seconds
        known = self._known.get(_attack_key(_architecture(config, shape), settings.model_dump(mode="json")))
        if known is None and not self._on_gpu(settings.device):
            known = self._attack_seconds(shape, settings)
        return _at_most(known, settings.max_seconds)

    def inversion(self, config: TrainConfig, settings: AttackSettings) -> float | None:
        """Seconds of model inversion, the baseline: descent over the inputs of a network that stays as it is."""
        shape = shape_of_training(config)
        if shape is None or self._on_gpu(settings.device):
            return None
        work = 2 * (2.0 * settings.m * shape.weights(in_span=False) + shape.convolution(settings.m))
        return _RUN_START + settings.iterations * (_DESCENT_STEP + work / self._rate)

    def matching(self, config: TrainConfig, candidates: int) -> float | None:
        """Seconds of a match run over this many candidates."""
        shape = shape_of_training(config)
        if shape is None:
            return None
        # Members and as many others, at a dozen merge factors.
        return _MATCH_SECONDS + 2 * shape.n * (2.0 * shape.inputs * candidates + 2e6) / self._rate

    def _on_gpu(self, device: str) -> bool:
        """Whether a run would use a GPU, on which no cost was measured."""
        return device in ("cuda", "mps") or (device == "auto" and self._gpu)

    def _training_seconds(self, config: TrainConfig) -> float | None:
        shape, settings = shape_of_training(config), config.training
        if shape is None:
            return None
        steps = _steps(config, shape.n)
        if steps is None:
            return None
        in_span = settings.augmentation is Augmentation.NONE and settings.recipe is not Recipe.DPSGD
        weights, rows = shape.weights(in_span=in_span), shape.n * shape.groups
        dense_pass = 2.0 * shape.n * weights + shape.convolution(shape.n)
        match settings.recipe:
            case Recipe.FLOW:
                # Most of its steps take one row for each sample, whatever the number of rivals.
                work = (2.5 + 0.5 * shape.groups) * dense_pass + rows**2 * shape.neurons
                each = _FLOW_STEP + _FLOW_MEMORY * weights
            case Recipe.STATIONARY:
                work = (2 + 2 * shape.groups) * dense_pass + 2.0 * rows**2 * shape.neurons + 24.0 * rows**3
                each = _STATIONARY_STEP + _STATIONARY_MEMORY * weights
            case _:
                work = 3 * dense_pass
                batches = math.ceil(shape.n / settings.batch_size) if settings.recipe in _BATCHED else 1
                each = batches * (_DESCENT_STEP + _DESCENT_MEMORY * weights)
        double = 2.0 if config.model.dtype == "float64" else 1.0
        if shape.planar:
            work += 2.0 * _FIELD_POINTS * weights / _FIELD_EVERY
        looks = steps / _KKT_EVERY + 1
        test = 2.0 * shape.test_n * weights + shape.convolution(shape.test_n)
        start = _RUN_START + (4.0 * shape.inputs * shape.n**2 + 2.0 * shape.test_n * shape.first_weights) / self._rate
        return (
            start
            + steps * (each + double * work / self._rate)
            + looks * (_KKT_SECONDS * shape.n**2 + double * test / self._rate)
        )

    def _attack_seconds(self, shape: NetworkShape, settings: AttackSettings) -> float:
        from recon_core.attacks import find_attack

        cost = find_attack(settings.recipe).cost(settings, shape)
        double = 2.0 if settings.dtype == "float64" else 1.0
        each = _ATTACK_STEP + double * cost.step / self._rate
        return _RUN_START + settings.seeds * (cost.start / self._rate + settings.iterations * each)


@dataclass(frozen=True)
class NetworkShape:
    """Sizes that decide what a step costs."""

    n: int
    test_n: int
    inputs: int
    outputs: int
    widths: tuple[int, ...]
    groups: int
    kernel: tuple[int, int] | None
    """Weights and places of a convolution's kernel, all channels together."""
    planar: bool

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers a dense layer takes or gives, first to last."""
        return (self.inputs if self.kernel is None else self.kernel[1], *self.widths, self.outputs)

    @property
    def dense(self) -> bool:
        return self.kernel is None

    @property
    def rank(self) -> int:
        """Of the first layer, which lies in the span of its inputs."""
        return min(self.n, self.sizes[0])

    @property
    def neurons(self) -> int:
        return sum(self.sizes) + sum(self.widths)

    @property
    def first_weights(self) -> int:
        return self.sizes[0] * self.widths[0] if self.kernel is None else 0

    def weights(self, *, in_span: bool) -> int:
        """Of the dense layers; where a dense first layer comes first, only in the span of the data."""
        first = self.rank if in_span and self.dense else self.sizes[0]
        sizes = (first, *self.sizes[1:])
        return sum(before * after for before, after in itertools.pairwise(sizes))

    @property
    def patches(self) -> int:
        """Numbers that a convolution reads and writes for one sample."""
        return 0 if self.kernel is None else self.kernel[1] * 2

    @classmethod
    def of(cls, architecture: Architecture, samples: int | None = None) -> NetworkShape | None:
        """Of a network trained on so many samples, at most as many as it has neurons where nobody has counted them.

        None for one that only its own code describes.
        """
        if architecture.module is not None or architecture.stages:
            return None
        inputs = math.prod(architecture.input_shape)
        kernel = _kernel(architecture.input_shape, architecture.conv_kernel, architecture.conv_channels)
        return cls(
            n=samples or min((inputs, *architecture.widths[:1])),
            test_n=0,
            inputs=inputs,
            outputs=architecture.outputs,
            widths=architecture.widths,
            groups=1,
            kernel=kernel,
            planar=len(architecture.input_shape) == 1,
        )

    def convolution(self, samples: int) -> float:
        """Operations of its forward pass."""
        return 0.0 if self.kernel is None else 2.0 * samples * self.kernel[0] * self.kernel[1]


class DataShape(NamedTuple):
    """How many samples a task has, of how many numbers, and its sides: classes, or two."""

    n: int
    test_n: int
    shape: tuple[int, ...]
    sides: int

    @property
    def inputs(self) -> int:
        return math.prod(self.shape)


def shape_of_data(data: DataConfig) -> DataShape | None:
    """Sizes without a pixel being read; None where the data cannot be had."""
    from recon_core.data import describe_source
    from recon_core.data.tasks import plan_task, samples_per_side

    try:
        info = describe_source(data.source, data.path)
        sides = 2 if data.source.planar else len(plan_task(data, info.class_names).sides)
        n = samples_per_side(data, sides).per_side * sides
    except AfterimageError:
        return None
    test_n = min(info.test_n or max(0, info.train_n - n), data.test_n or 10**9)
    return DataShape(n, test_n, tuple(info.shape), sides)


def shape_of_training(config: TrainConfig) -> NetworkShape | None:
    """Sizes without a pixel being read; None where the data cannot be had."""
    from recon_core.training.losses import MAX_GROUPS

    model, data = config.model, shape_of_data(config.data)
    if data is None:
        return None
    outputs = data.sides if config.data.task is Task.MULTICLASS else 1
    return NetworkShape(
        n=data.n,
        test_n=data.test_n,
        inputs=data.inputs,
        outputs=outputs,
        widths=model.widths,
        groups=min(outputs - 1, MAX_GROUPS) if outputs > 1 else 1,
        kernel=_kernel(data.shape, model.conv_kernel, model.conv_channels),
        planar=config.data.source.planar,
    )


def _kernel(shape: Sequence[int], size: int | None, channels: int | None) -> tuple[int, int] | None:
    """The weights of one place, and places times channels: what the first dense layer takes."""
    if size is None or channels is None:
        return None
    return shape[0] * size**2, max(1, shape[-1] - size + 1) ** 2 * channels


def _steps(config: TrainConfig, n: int) -> float | None:
    """Steps until the first of the stops, as far as that can be known."""
    settings = config.training
    found: list[float] = [] if settings.epochs is None else [settings.epochs]
    if settings.recipe is Recipe.STATIONARY:
        from recon_core.training.stationary import PLANNED_STEPS

        found = found or [PLANNED_STEPS]
    elif settings.recipe is Recipe.FLOW:
        if settings.log_target is not None:
            folds = math.log(max(1.0, -settings.log_target))
            needed = _FLOW_STEPS + _FLOW_STEPS_PER_FOLD * folds + _FLOW_STEPS_PER_SAMPLE * n
            found.append(needed * (_PLANAR_FACTOR if config.data.source.planar else 1))
        elif settings.target_residual is not None:
            found.append(_RESIDUAL_STEPS)
    return min(found) if found else None


# -- what finished runs say ------------------------------------------------------------------------


def _at_most(known: float | None, limit: float | None) -> float | None:
    """The estimate, capped by the run's own time limit."""
    if known is None or limit is None:
        return limit if known is None else known
    return min(known, limit)


def _finished_times(store: RunStore) -> dict[str, float]:
    """Median seconds of the store's newest finished runs, by what decides how long they take."""
    times = defaultdict(list)
    done = [summary for summary in store.list() if summary.status.state is RunState.DONE]
    for summary in done[:_RUNS_LOOKED_AT]:
        with contextlib.suppress(AfterimageError, KeyError, TypeError):  # a run of another version
            run = store.open(summary.id)
            if summary.kind == "train":
                times[_training_key(run.config)].append(summary.status.seconds)
            elif summary.kind == "reconstruct" and run.config["baseline"] is None:
                architecture = (run.result() or {})["architecture"]
                times[_attack_key(architecture, run.config["settings"])].append(summary.status.seconds)
    return {key: statistics.median(seconds) for key, seconds in times.items()}


def _training_key(config: Mapping[str, Any]) -> str:
    """All settings but those that change no cost: seeds, and how strong the decay is."""
    data = {key: value for key, value in config["data"].items() if key not in ("seed", "path", "selection")}
    model = {key: value for key, value in config["model"].items() if key != "seed"}
    training = {**config["training"], "weight_decay": config["training"]["weight_decay"] > 0}
    return _key("train", data, model, training, config["device"])


def _attack_key(architecture: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    shared = ("recipe", "m", "iterations", "seeds", "dtype", "device")
    cost = {**{key: settings[key] for key in shared}, "engine": settings.get("engine")}
    sizes = {key: architecture[key] for key in ("input_shape", "widths", "outputs", "conv_kernel", "conv_channels")}
    sizes |= {key: architecture[key] for key in ("stages", "activation") if key in architecture}
    return _key("reconstruct", sizes, cost)


def _architecture(config: TrainConfig, shape: NetworkShape) -> dict[str, Any]:
    from recon_core.data import describe_source

    return {
        "input_shape": list(describe_source(config.data.source, config.data.path).shape),
        "widths": list(config.model.widths),
        "outputs": shape.outputs,
        "conv_kernel": config.model.conv_kernel,
        "conv_channels": config.model.conv_channels,
    }


def _key(*parts: object) -> str:
    return json.dumps(parts, sort_keys=True)


# -- this machine ----------------------------------------------------------------------------------


def matmul_rate(store: RunStore) -> float:
    """Floating-point operations a second of float32 matrix products on one core; measured once for a store."""
    path = store.root / ".cache" / "machine.json"
    machine = f"{platform.node()} {platform.machine()} {core_count()}"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["machine"] == machine and kept["rate"] > 0:
            return float(kept["rate"])
    rate = _measure_rate()
    if store.root.is_dir():
        with contextlib.suppress(InputError, OSError), explaining(path):
            private_folder(path.parent)
            write_json(path, {"machine": machine, "rate": rate})
    return rate


def _measure_rate() -> float:
    """Measured in a separate process, because libraries fix their number of threads when they are loaded."""
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
        answer = subprocess.run(
            [sys.executable, "-P", str(Path(__file__).with_name("matmul_rate.py")), str(_RATE_SIDE), str(_RATE_TRIES)],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
            env={**os.environ, **single},
        )
        return float(answer.stdout)
    return _RATE_FALLBACK
