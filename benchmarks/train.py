"""Training: `flow` against the papers' gradient descent, on the same machine in the same run.

How the papers' side is obtained: one of its steps (autograd, full batch, float32, the whole first layer)
is timed here; the number of its steps to the target loss is the flow's own clock (the papers' time is
the integral of dt / loss along the same path, one epoch being 0.01 of it), and that clock is checked
here by really running gradient descent down to a loss it reaches in seconds.
"""

from __future__ import annotations

import math
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

import torch
from torch.nn import functional

from benchmarks.timing import interleaved
from recon_core.config import TrainConfig, parse_config
from recon_core.data import TaskData, load_task
from recon_core.models import Network, architecture_of, build_network
from recon_core.presets import find_preset
from recon_core.training import StopReason, TrainOutcome, train
from recon_core.training.descent import DescentRecipe
from recon_core.training.flow import FlowRecipe
from recon_core.training.losses import Loss
from recon_core.training.trainable import Trainable

TARGET = 1e-6
RATE = 0.01
CHECK_LOSS = 0.05
# What flow takes to the target (see flow_steps).
FLOW_STEPS = 150


class _Silent:
    """Listens to nothing, so that training is all that is timed."""

    def metrics(self, row: Mapping[str, Any]) -> None: ...

    def progress(self, step: int, fraction: float, message: str) -> None: ...

    def snapshot(self, step: int, tensors: Mapping[str, torch.Tensor]) -> None: ...

    def checkpoint(self, step: int, tensors: Mapping[str, torch.Tensor], meta: Mapping[str, Any]) -> None: ...

    def checkpoint_due(self) -> bool:
        return False

    def stop_requested(self) -> bool:
        return False


def measure() -> dict[str, Any]:
    """All figures of the training side."""
    config = parse_config(
        TrainConfig, {"data": {"source": "cifar10", "n": 50}, "training": {"target_loss": TARGET, "measure_every": 5}}
    )
    data = load_task(config.data)
    # Once to warm up, three times to measure; the median run is the one reported.
    runs = sorted((_timed(config, data) for _ in range(4)), key=lambda run: run[1])
    outcome, seconds = runs[1]
    steps = _step_times(config, data)
    clock = _clock_check(config, data)
    # Before anything else, the deeper model of the default preset, for its own sake.
    far, far_seconds = _timed(find_preset("cifar10-50").config(), data)
    circle_config = find_preset("circle").config()
    circle, circle_seconds = _timed(circle_config, load_task(circle_config.data))
    paper_epochs = 10 ** outcome.summary["log10_epochs"]
    paper_seconds = paper_epochs * steps["autograd"]
    return {
        "threads": torch.get_num_threads(),
        "flow_steps": outcome.summary["steps"],
        "flow_seconds": seconds,
        "flow_loss": outcome.summary["loss"],
        "flow_train_error": outcome.summary["train_error"],
        "flow_layer1_residual": outcome.summary["kkt_layer1"],
        "paper_step_ms": 1e3 * steps["autograd"],
        "paper_epochs_to_target": paper_epochs,
        "paper_epochs_from": "flow clock at rate 0.01; see epochs_clock_over_descent for its check",
        "epochs_clock_over_descent": clock,
        "times_sooner_than_paper": paper_seconds / seconds,
        "times_sooner_than_closed_form_descent": paper_epochs * steps["descent"] / seconds,
        "flow_step_ms": 1e3 * steps["flow"],
        "flow_step_over_autograd_step": steps["flow"] / steps["autograd"],
        "default_preset_log_loss": far.summary["log_loss"],
        "default_preset_seconds": far_seconds,
        "default_preset_layer1_residual": far.summary["kkt_layer1"],
        "circle_train_error": circle.summary["train_error"],
        "circle_margin": circle.summary["margin_min"],
        "circle_seconds": circle_seconds,
        "circle_time_over_cifar_time": circle_seconds / seconds,
        **_mnist_500(),
    }


def _timed(config: TrainConfig, data: TaskData) -> tuple[TrainOutcome, float]:
    start = time.perf_counter()
    outcome = train(config, data, _Silent())
    return outcome, time.perf_counter() - start


def _network(config: TrainConfig, data: TaskData) -> Network:
    architecture = architecture_of(config.model, data.input_shape, data.outputs)
    return build_network(architecture, init_scale=config.model.init_scale, seed=config.model.seed)


def _step_times(config: TrainConfig, data: TaskData) -> dict[str, float]:
    """Median seconds of one step: flow (on its way to the target), closed-form descent, plain autograd."""
    loss = Loss("logistic", data.train_labels)
    descent = DescentRecipe(Trainable(_network(config, data), data.train_x), loss, RATE, 0.0, None, 0)
    network = _network(config, data)
    optimiser = torch.optim.SGD(network.parameters(), lr=RATE)
    targets = data.train_labels.float()

    @torch.no_grad()
    def flow_steps() -> None:
        """From the start to the target, so that cheap early and dear late steps count as they come."""
        for _ in range(FLOW_STEPS):
            flow.step()

    def autograd_steps() -> None:
        for _ in range(FLOW_STEPS):
            optimiser.zero_grad()
            functional.binary_cross_entropy_with_logits(network(data.train_x)[:, 0], targets).backward()
            optimiser.step()

    @torch.no_grad()
    def descent_steps() -> None:
        for _ in range(FLOW_STEPS):
            descent.step()

    times: dict[str, list[float]] = {"flow": [], "descent": [], "autograd": []}
    for _ in range(9):
        flow = FlowRecipe(Trainable(_network(config, data), data.train_x), loss, 0.1, math.log(TARGET), RATE)
        works = {"flow": flow_steps, "descent": descent_steps, "autograd": autograd_steps}
        for name, seconds in interleaved(works, turns=1, warmup=0).items():
            times[name].append(seconds / FLOW_STEPS)
    return {name: statistics.median(values) for name, values in times.items()}


def _clock_check(config: TrainConfig, data: TaskData) -> float:
    """Epochs by the flow's clock over epochs really run, from the start to a loss of CHECK_LOSS."""
    values = {**config.model_dump(), "training": {"recipe": "paper", "target_loss": CHECK_LOSS, "measure_every": 100}}
    descent = train(parse_config(TrainConfig, values), data, _Silent())
    values["training"] = {"target_loss": descent.summary["loss"], "measure_every": 1, "max_change": 0.03}
    flow = train(parse_config(TrainConfig, values), data, _Silent())
    return float(10 ** flow.summary["log10_epochs"] / descent.summary["steps"])


def _mnist_500() -> dict[str, float]:
    """250 + 250 digits in a process of their own, for an honest peak of memory."""
    code = "from benchmarks.train import mnist_500; mnist_500()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loss, steps, seconds, peak = map(float, done.stdout.split())
    return {"mnist500_loss": loss, "mnist500_steps": steps, "mnist500_seconds": seconds, "mnist500_peak_gib": peak}


def mnist_500() -> None:
    """Child process of `_mnist_500`: prints loss, steps, seconds, peak GiB."""
    values = {"data": {"source": "mnist", "n": 500}, "training": {"target_loss": TARGET, "measure_every": 5}}
    config = parse_config(TrainConfig, values)
    outcome, seconds = _timed(config, load_task(config.data))
    if outcome.reason is not StopReason.TARGET_LOSS:
        raise SystemExit(f"mnist 500 {outcome.reason}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    sys.stdout.write(f"{outcome.summary['loss']} {outcome.summary['steps']} {seconds} {peak}\n")
