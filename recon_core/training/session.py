"""One training run from its configuration to its weights: the loop, its stops, what it measures.

The loop knows nothing of files. It tells an `Observer` what happens and asks it whether to stop; the
run store, a progress bar or a test listens.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import torch
from torch import Tensor

from recon_core.config import Augmentation, Recipe, Task, TrainConfig
from recon_core.data import TaskData
from recon_core.data.planar import FIELD_REACH
from recon_core.devices import DTYPES, pick_device
from recon_core.models import Network, architecture_of, build_network
from recon_core.models.release import released
from recon_core.observing import Observer, Resume
from recon_core.training.descent import DescentRecipe, Regularisation
from recon_core.training.flow import FlowRecipe
from recon_core.training.kkt import kkt_residual
from recon_core.training.losses import Loss
from recon_core.training.private import PrivateRecipe, batches, noise_for, sample_rate
from recon_core.training.stationary import PLANNED_STEPS, StationaryRecipe, relative_gradient_norm
from recon_core.training.trainable import Trainable
from recon_core.units import LOG10_LOSS, log10_loss

# A sample is on the margin if its share of the loss gradient is at least this part of the largest:
# complementary slackness (Haim et al. 2022, Eq. 5), with a tolerance.
ON_MARGIN_SHARE = 0.01
# Test error and KKT residual cost more than a step, so they come with every so many measurements.
_SLOW_EVERY = 5
_MEASURE_EVERY = {Recipe.FLOW: 10, Recipe.STATIONARY: 10, Recipe.PAPER: 500, Recipe.SGD: 100, Recipe.DPSGD: 10}
_RECORD_EVERY = {Recipe.FLOW: 8, Recipe.STATIONARY: 6, Recipe.PAPER: 500, Recipe.SGD: 100, Recipe.DPSGD: 1}
MARGIN_LEVELS = 11  # the smallest margin, nine deciles, the largest
FIELD_SIDE = 48


class StopReason(StrEnum):
    """Why a run ended, as a sentence."""

    TARGET_LOSS = "reached the target loss"
    TARGET_RESIDUAL = "reached the target residual"
    STEPS = "finished all steps"
    TIME = "reached its time limit"
    CANCELLED = "was stopped on request and can be resumed"
    DIVERGED = "diverged: the loss is no longer finite; try a smaller learning rate or max_change"


@dataclass(frozen=True)
class TrainOutcome:
    """What a training run leaves: the network, a summary in numbers, per-sample tensors, and why it ended."""

    reason: StopReason
    network: Network
    summary: dict[str, Any]
    samples: dict[str, Tensor]
    recording: dict[str, Tensor]


class _Stepper(Protocol):
    def step(self) -> None: ...

    def state(self) -> dict[str, Tensor]: ...

    def load_state(self, tensors: Mapping[str, Tensor]) -> None: ...


def train(config: TrainConfig, data: TaskData, observer: Observer, resume: Resume | None = None) -> TrainOutcome:
    """Train until a stop is met. A resumed run takes the same steps as one that never stopped."""
    with torch.no_grad():
        session = _Session(config, data, observer)
        if resume is not None:
            session.restore(resume)
        return session.run()


class _Session:
    def __init__(self, config: TrainConfig, data: TaskData, observer: Observer) -> None:
        self.config, self.observer = config, observer
        settings = config.training
        device, dtype = pick_device(config.device), DTYPES[config.model.dtype]
        architecture = architecture_of(config.model, data.input_shape, data.outputs)
        network = build_network(
            architecture,
            init_scale=config.model.init_scale,
            dense_init_scale=config.model.dense_init_scale,
            seed=config.model.seed,
            dtype=dtype,
        )
        self.x = data.train_x.to(device, dtype)
        # Augmented images and the noise of DP-SGD lie outside the span of the data.
        span = settings.augmentation is Augmentation.NONE and settings.recipe is not Recipe.DPSGD
        self.net = Trainable(network.to(device), self.x, span=span)
        self.loss = Loss(settings.loss, data.train_labels.to(device), settings.huber_delta)
        self.test_loss = Loss(settings.loss, data.test_labels.to(device), settings.huber_delta)
        self.test_x = data.test_x.to(device, dtype)
        self.test = self._prepared_test()
        self.recipe = self._make_recipe(data.task)
        self.total = settings.epochs or (PLANNED_STEPS if settings.recipe is Recipe.STATIONARY else None)
        self.measure_every = settings.measure_every or _MEASURE_EVERY[settings.recipe]
        self.record_every = (settings.record_every or _RECORD_EVERY[settings.recipe]) if self._planar() else None
        self.grid = self.net.prepare(field_grid().to(device, dtype)) if self.record_every else None
        self.frames: list[Tensor] = []
        self.frame_steps: list[int] = []
        self.step = 0
        self.seconds_before = 0.0
        self.started = time.monotonic()

    def _prepared_test(self) -> tuple[Tensor, Tensor | None] | None:
        return self.net.prepare(self.test_x) if len(self.test_x) else None

    def _planar(self) -> bool:
        return self.config.data.source.planar

    def _make_recipe(self, task: Task) -> _Stepper:
        settings = self.config.training
        rate = settings.learning_rate or (0.5 if task is Task.MULTICLASS else 0.01)
        if settings.recipe is Recipe.FLOW:
            target = -math.inf if settings.log_target is None else settings.log_target
            return FlowRecipe(self.net, self.loss, settings.max_change, target, rate)
        if settings.recipe is Recipe.STATIONARY:
            return StationaryRecipe(self.net, self.loss, settings.weight_decay, settings.max_change)
        if settings.recipe is Recipe.DPSGD:
            return self._private(rate)
        batch = settings.batch_size if settings.recipe is Recipe.SGD else None
        against = Regularisation(settings.label_smoothing, settings.dropout, settings.augmentation)
        seed = self.config.model.seed
        return DescentRecipe(self.net, self.loss, rate, settings.weight_decay, batch, seed, self.x, against)

    def _private(self, rate: float) -> PrivateRecipe:
        settings, n = self.config.training, self.loss.n
        assert settings.epsilon is not None
        assert settings.epochs is not None
        share, steps = sample_rate(n, settings.batch_size), settings.epochs * batches(n, settings.batch_size)
        return PrivateRecipe(
            self.net,
            self.x,
            self.loss,
            rate=rate,
            decay=settings.weight_decay,
            batch_size=settings.batch_size,
            seed=self.config.model.seed,
            clip_norm=settings.clip_norm,
            noise_multiplier=noise_for(settings.epsilon, settings.delta, share, steps),
            delta=settings.delta,
        )

    @property
    def seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.started

    def run(self) -> TrainOutcome:
        """The loop. Measurements depend on the step's number alone, so that resuming repeats them exactly."""
        while True:
            due = self.step % self.measure_every == 0
            row = self._measure(slow=self.step % (self.measure_every * _SLOW_EVERY) == 0) if due else None
            if self.record_every and self.step % self.record_every == 0:
                self._record()
            if row is not None:
                self.observer.metrics(row)
                self.observer.progress(self.step, self._fraction(row), self._message(row))
            reason = self._reason(row)
            if reason is StopReason.CANCELLED or (due and reason is None and self.observer.checkpoint_due()):
                self.observer.checkpoint(self.step, self._state(), {"seconds": self.seconds})
            if reason is not None:
                return self._finish(reason)
            self.recipe.step()
            self.step += 1

    def _reason(self, row: Mapping[str, Any] | None) -> StopReason | None:
        """The stop that is met, if any. Those that need numbers from the device wait for a measurement."""
        settings = self.config.training
        if self.observer.stop_requested():
            return StopReason.CANCELLED
        if row is not None:
            if _diverged(row):
                return StopReason.DIVERGED
            if settings.log_target is not None and row["log_loss"] <= settings.log_target:
                return StopReason.TARGET_LOSS
            residual = row.get("gradient_norm", row.get("kkt_layer1"))
            if settings.target_residual is not None and residual is not None and residual <= settings.target_residual:
                return StopReason.TARGET_RESIDUAL
        if settings.max_seconds is not None and self.seconds >= settings.max_seconds:
            return StopReason.TIME
        if self.total is not None and self.step >= self.total:
            return StopReason.STEPS
        return None

    def _fraction(self, row: Mapping[str, Any]) -> float:
        """How far along the run is, by the stop that will be met first."""
        settings = self.config.training
        parts = [0.0]
        if self.total:
            parts.append(self.step / self.total)
        if settings.max_seconds:
            parts.append(self.seconds / settings.max_seconds)
        if settings.log_target and row["log_loss"] < 0:
            parts.append(row["log_loss"] / settings.log_target)
        return min(1.0, max(parts))

    def _message(self, row: Mapping[str, Any]) -> str:
        loss = f"{LOG10_LOSS} {log10_loss(row['log_loss']):.1f}"
        return f"{loss}, error {row['train_error']:.1%}, margin {row['margin_min']:.3g}"

    def _measure(self, slow: bool) -> dict[str, Any]:
        settings = self.config.training
        phi = self.net.forward().outputs
        q = self.loss.rows(phi).values
        margins = self.loss.margins(phi)
        shares = torch.linspace(0.0, 1.0, MARGIN_LEVELS, dtype=margins.dtype, device=margins.device)
        # One wait for the device.
        *levels, median = torch.cat([margins.quantile(shares), margins.median()[None]]).tolist()
        log_loss = float(self.loss.log_mean_loss(q))
        row: dict[str, Any] = {
            "step": self.step,
            "seconds": round(self.seconds, 4),
            "log_loss": log_loss,
            "loss": math.exp(log_loss) if math.isfinite(log_loss) else None,
            "train_error": float((~(margins > 0)).double().mean()),  # NaN counts as an error
            "margin_min": levels[0],
            "margin_median": median,
            "margin_max": levels[-1],
            "margin_levels": levels,
            "on_margin": int(self._on_margin(q).sum()),
        }
        if isinstance(self.recipe, FlowRecipe):
            row["log10_epochs"] = float(self.recipe.log_epochs) / math.log(10)
        if isinstance(self.recipe, PrivateRecipe):
            row |= self.recipe.spent()
        if settings.weight_decay > 0:
            row["gradient_norm"] = float(relative_gradient_norm(self.net, self.loss, settings.weight_decay))
        if slow and math.isfinite(log_loss):
            row.update(self._measure_slow())
        return row

    def _measure_slow(self) -> dict[str, Any]:
        kkt = kkt_residual(self.net, self.loss)
        row: dict[str, Any] = {f"kkt_layer{index + 1}": value for index, value in enumerate(kkt.per_layer)}
        row["kkt"] = kkt.overall
        if self.test is not None:
            phi = self.net.outputs(self.test)
            row["test_loss"] = float(self.test_loss.sample_losses(self.test_loss.rows(phi).values).mean())
            row["test_error"] = float((self.test_loss.margins(phi) <= 0).double().mean())
        return row

    def _on_margin(self, q: Tensor) -> Tensor:
        slopes = self.loss.log_loss(q).weights if self.loss.function.log_form else self.loss.slopes(q).abs()
        share = slopes.sum(1)
        return share >= ON_MARGIN_SHARE * share.amax()

    def _record(self) -> None:
        assert self.grid is not None
        if self.frame_steps and self.frame_steps[-1] == self.step:
            self.frames.pop()
            self.frame_steps.pop()
        field = self.net.outputs(self.grid)[:, 0].reshape(FIELD_SIDE, FIELD_SIDE).float().cpu()
        self.frames.append(field)
        self.frame_steps.append(self.step)
        self.observer.snapshot(self.step, {"fields": field})

    def _state(self) -> dict[str, Tensor]:
        state = {f"net.{name}": tensor for name, tensor in self.net.state().items()}
        state |= {f"recipe.{name}": tensor for name, tensor in self.recipe.state().items()}
        if self.frames:
            state["frames"] = torch.stack(self.frames)
            state["frame_steps"] = torch.tensor(self.frame_steps)
        return {name: tensor.cpu() for name, tensor in state.items()}

    def restore(self, resume: Resume) -> None:
        """Continue exactly where `_state` was taken."""
        tensors = resume.tensors
        self.net.load_state({name.removeprefix("net."): t for name, t in tensors.items() if name.startswith("net.")})
        recipe = {name.removeprefix("recipe."): t for name, t in tensors.items() if name.startswith("recipe.")}
        self.recipe.load_state(recipe)
        self.step = resume.step
        self.seconds_before = float(resume.meta["seconds"])
        if "frames" in tensors:
            # The frame of the checkpoint's own step is taken again by the loop.
            kept = tensors["frame_steps"] < self.step
            self.frames = list(tensors["frames"][kept])
            self.frame_steps = tensors["frame_steps"][kept].tolist()

    def _release(self) -> None:
        """From here on the network is the released one: it is what is measured, saved and attacked."""
        network = released(self.net.to_network(), self.config.release, self.config.model.seed)
        # In a span its weights would be rounded anew, and no longer be the ones that were pruned or rounded.
        self.net = Trainable(network, self.x, span=False)
        self.test = self._prepared_test()

    def _finish(self, reason: StopReason) -> TrainOutcome:
        if self.config.release.changes and reason is not StopReason.CANCELLED:
            self._release()
        row = self._measure(slow=True)
        if reason is not StopReason.CANCELLED:
            if _diverged(row):  # since the last measurement of the loop
                reason = StopReason.DIVERGED
            # A stopped run goes on as if it never had: its metrics hold no row of the stop.
            self.observer.metrics(row)
        # Judged, and recorded, as the network that will be used: exact ReLU, whatever helped on the way.
        self.net.sharpness = None
        if self.record_every and reason is not StopReason.CANCELLED:
            self._record()
        kkt = kkt_residual(self.net, self.loss)
        phi = self.net.forward().outputs
        network = self.net.to_network().cpu()
        margins = self.loss.margins(phi)
        on_margin = self._on_margin(self.loss.rows(phi).values)
        first = network.layers[0].get_parameter("weight").detach().flatten(1)
        summary = {
            **{name: value for name, value in row.items() if name not in ("step", "margin_levels")},
            "steps": self.step,
            "reason": str(reason),
            "n": self.loss.n,
            "on_margin": int(on_margin.sum()),
            "architecture": self.net.architecture.to_json(),
            "parameters": sum(parameter.numel() for parameter in network.parameters()),
            "device": str(self.x.device),
        }
        samples = {
            "outputs": phi.cpu(),
            "losses": self.loss.sample_losses(self.loss.rows(phi).values).cpu(),
            "margins": margins.cpu(),
            "multipliers": torch.from_numpy(kkt.multipliers),
            "on_margin": on_margin.cpu(),
            "singular_values": _singular_values(first),
        }
        if self.test is not None:
            others = self.test_loss.rows(self.net.outputs(self.test)).values
            samples["held_out_losses"] = self.test_loss.sample_losses(others).cpu()
        recording = {}
        if self.frames:
            recording = {"fields": torch.stack(self.frames), "steps": torch.tensor(self.frame_steps)}
        return TrainOutcome(reason, network, summary, samples, recording)


def _diverged(row: Mapping[str, Any]) -> bool:
    """The loss is no number any more; one that became too small for a float is."""
    return not math.isfinite(row["log_loss"]) and row["log_loss"] != -math.inf


def _singular_values(weight: Tensor) -> Tensor:
    """Of a matrix, largest first, from its smaller Gram matrix: several times sooner than an SVD."""
    w = weight.double() if weight.shape[0] <= weight.shape[1] else weight.double().T
    if not torch.isfinite(w).all():  # a run that diverged ends with that sentence, not with the solver's
        return torch.full((len(w),), torch.nan)
    squares: Tensor = torch.linalg.eigvalsh(w @ w.T)
    return squares.clamp_min(0).sqrt().flip(0).float()


def field_grid() -> Tensor:
    """The square grid of points (side * side, 2) on which planar networks are drawn, rows from top to bottom."""
    axis = torch.linspace(-FIELD_REACH, FIELD_REACH, FIELD_SIDE)
    y, x = torch.meshgrid(-axis, axis, indexing="ij")
    return torch.stack([x, y], -1).reshape(-1, 2)
