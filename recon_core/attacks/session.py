"""One attack from weights to candidates: the loop, its stops, what it measures.

Like a training session it knows nothing of files: it tells an `Observer` what happens and asks it whether
to stop. Seeds run one after the other and their candidates are pooled.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import torch
from torch import Tensor

from recon_core.attacks.registry import FIRST_VERSION, find_attack, make_stepper
from recon_core.attacks.settings import AttackSettings, Prior
from recon_core.attacks.stepper import CERTAIN, Candidates, Confident, Measurement, attack_device
from recon_core.attacks.target import Target
from recon_core.errors import InputError
from recon_core.observing import Observer, Resume

# What all snapshots of a run may take; with very many candidates fewer are kept.
_SNAPSHOT_BYTES = 64 * 2**20
_QUANTILES = {"min": 0.0, "q10": 0.1, "median": 0.5, "q90": 0.9, "max": 1.0}
# Candidates of multiplier 0 have a residual of 1; an attack at this many times that has diverged.
_HOPELESS = 1e6


class StopReason(StrEnum):
    """Why an attack, or one seed of it, ended, as a sentence."""

    ITERATIONS = "finished all iterations"
    TIME = "reached its time limit"
    CANCELLED = "was stopped on request and can be resumed"
    DIVERGED = "diverged: the loss is no longer finite; try a smaller lr_x, lr_lam or alpha"

    @classmethod
    def _missing_(cls, value: object) -> StopReason | None:
        """Read the values that version 0.1 wrote into checkpoints, which may still be resumed."""
        return cls.__members__.get(_REASONS_OF_0_1.get(str(value).partition(":")[0], ""))


_REASONS_OF_0_1 = {"did all its iterations": "ITERATIONS", "used up its time": "TIME", "lost its footing": "DIVERGED"}


@dataclass(frozen=True)
class AttackOutcome:
    """The result of an attack: the candidates of each seed, one after the other.

    M = m * seeds finished, except where a recipe hands over more; then `confidence` (M,) in [0, 1] says how sure it is.

    `candidates` (M, *input_shape), centred: the training mean is not known here. `multipliers` (M,) in the
    unit of `Candidates`; `labels` (M,) class indices; `seeds` (M,) says whose each is. `snapshots` holds
    steps (S,), candidates (S, m, *input_shape), multipliers (S, m), labels (S, m).
    """

    reason: StopReason
    candidates: Tensor
    multipliers: Tensor
    labels: Tensor
    seeds: Tensor
    summary: dict[str, Any]
    snapshots: dict[str, Tensor]
    confidence: Tensor | None = None


class _Snapshot(NamedTuple):
    step: int
    x: Tensor
    multipliers: Tensor
    labels: Tensor

    @property
    def finite(self) -> bool:
        return bool(torch.isfinite(self.x).all() and torch.isfinite(self.multipliers).all())


# The tensors of a snapshot, in its order.
_SNAPSHOT = ("x", "multipliers", "labels")


class _Part(NamedTuple):
    """A seed that has ended."""

    found: _Snapshot
    facts: dict[str, Any]
    confidence: Tensor | None = None


def attack(target: Target, settings: AttackSettings, observer: Observer, resume: Resume | None = None) -> AttackOutcome:
    """Reconstruct from the weights alone.

    A resumed attack takes the same steps as one that never stopped, or starts anew where its version has changed since.
    """
    if settings.objective not in (None, target.objective):
        raise InputError(f"the settings ask for objective {settings.objective}, the target is {target.objective}")
    with torch.no_grad():
        session = _Session(target, settings, observer)
        begun = None if resume is None else resume.meta.get("attack_version", FIRST_VERSION)
        if resume is not None and begun == session.version:
            session.restore(resume)
        elif resume is not None:  # half of one version and half of another could never be repeated
            observer.log(f"begun with version {begun} of attack {settings.recipe}; starts anew with {session.version}")
        return session.run()


class _Session:
    def __init__(self, target: Target, settings: AttackSettings, observer: Observer) -> None:
        self.target, self.settings, self.observer = target, settings, observer
        self.norms = target.squared_norms().tolist()
        registered = find_attack(settings.recipe)
        self.version = registered.version
        self.measure_every = settings.measure_every or registered.measure_every
        self.snapshot_every = self._snapshot_interval()
        self.parts: list[_Part] = []
        self.snapshots: list[_Snapshot] = []
        self.iteration = 0
        self.seconds_before = 0.0
        self.started = time.monotonic()
        self.stepper = make_stepper(target, settings, settings.seed)
        self.measured: Candidates  # those of the last measurement

    def _snapshot_interval(self) -> int:
        settings = self.settings
        each = 4 * settings.m * (math.prod(self.target.architecture.input_shape) + 3)
        count = max(1, min(settings.snapshots, _SNAPSHOT_BYTES // each) // settings.seeds)
        return math.ceil(settings.iterations / count)

    @property
    def step(self) -> int:
        """Counts through all seeds; a seed's start and the end of the one before are different steps."""
        return self._part_start + self.iteration

    @property
    def _part_start(self) -> int:
        return len(self.parts) * (self.settings.iterations + 1)

    @property
    def seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.started

    @property
    def seed(self) -> int:
        return self.settings.seed + len(self.parts)

    def run(self) -> AttackOutcome:
        """The loop. What is measured depends on the iteration's number alone, so that resuming repeats it exactly."""
        while True:
            due = self.iteration % self.measure_every == 0
            row = self._measure() if due else None
            if self.iteration % self.snapshot_every == 0:
                self._snapshot()
            elif row is not None:
                self._show(self.step, _single(self.measured))
            if row is not None:
                self._report(row)
            reason = self._reason(row)
            if reason is StopReason.CANCELLED or (due and reason is None and self.observer.checkpoint_due()):
                self.observer.checkpoint(self.step, self._state(), self._meta())
            if reason is not None:
                self._end_part(reason)
                if reason is StopReason.CANCELLED or len(self.parts) == self.settings.seeds:
                    return self._finish(reason)
                self.iteration = 0
                self.stepper = make_stepper(self.target, self.settings, self.seed)
                continue
            self.stepper.step()
            self.iteration += 1

    def _reason(self, row: Mapping[str, Any] | None) -> StopReason | None:
        """The stop that is met by this seed, if any; a divergence shows at a measurement."""
        settings = self.settings
        if self.observer.stop_requested():
            return StopReason.CANCELLED
        if row is not None and (row["residual"] is None or row["residual"] > _HOPELESS):
            return StopReason.DIVERGED
        if self.iteration >= settings.iterations:
            return StopReason.ITERATIONS
        # Every seed gets an equal share of the time limit, even if earlier seeds used less than theirs.
        if settings.max_seconds is not None:
            share = (len(self.parts) + 1) / settings.seeds
            if self.seconds >= settings.max_seconds * share:
                return StopReason.TIME
        return None

    def _report(self, row: Mapping[str, Any]) -> None:
        for note in self.stepper.take_notes():
            self.observer.log(note)
        self.observer.metrics(row)
        settings = self.settings
        fraction = self.step / settings.total_steps
        if settings.max_seconds is not None:
            fraction = max(fraction, self.seconds / settings.max_seconds)
        self.observer.progress(self.step, min(1.0, fraction), self._message(row))

    def _message(self, row: Mapping[str, Any]) -> str:
        residual = "not finite" if row["residual"] is None else f"{row['residual']:.4f}"
        seed = f", seed {len(self.parts) + 1} of {self.settings.seeds}" if self.settings.seeds > 1 else ""
        return f"residual {residual}{seed}"

    def _measure(self) -> dict[str, Any]:
        measured = self.stepper.measure()
        self.measured = self.stepper.candidates()
        multipliers = self.measured.multipliers
        levels = torch.tensor(list(_QUANTILES.values()), dtype=multipliers.dtype, device=multipliers.device)
        row: dict[str, Any] = {
            "step": self.step,
            "seconds": round(self.seconds, 4),
            "seed": self.seed,
            **self._terms(measured),
            "alpha": measured.alpha,
        }
        quantiles = torch.quantile(multipliers, levels).tolist()
        row |= {f"multiplier_{name}": value for name, value in zip(_QUANTILES, quantiles, strict=True)}
        return {name: _or_none(value) for name, value in row.items()}

    def _terms(self, measured: Measurement) -> dict[str, Any]:
        """residual is |R|^2 / |theta|^2, squared like the papers' loss, over all layers and for each."""
        per_layer = measured.stationarity.per_layer.tolist()
        terms = {"residual": sum(per_layer) / sum(self.norms)}
        for index, (value, norm) in enumerate(zip(per_layer, self.norms, strict=True)):
            terms[f"residual_layer{index + 1}"] = value / norm if norm > 0 else math.nan
        return {
            **terms,
            "stationarity": float(measured.stationarity.total),
            "floor": float(measured.floor),
            "prior": float(measured.prior),
        }

    def _snapshot(self) -> _Snapshot:
        now = self.stepper.candidates()
        taken = _Snapshot(self.step, *(tensor.to("cpu", copy=True) for tensor in _single(now)))
        self.snapshots.append(taken)
        self._show(taken.step, Candidates(*taken[1:]))
        return taken

    def _show(self, step: int, now: Candidates) -> None:
        tensors = {"candidates": self._shaped(now.x), "multipliers": now.multipliers, "labels": now.labels}
        self.observer.snapshot(step, tensors)

    def _shaped(self, x: Tensor) -> Tensor:
        return x.reshape(*x.shape[:-1], *self.target.architecture.input_shape)

    def _end_part(self, reason: StopReason) -> None:
        """Keep the candidates of this seed; if it diverged, those of the last snapshot that was finite."""
        row = self._measure()
        if self.iteration % self.measure_every:
            self._report(row)
        own = [taken for taken in self.snapshots if taken.step >= self._part_start]
        found = own[-1] if own[-1].step == self.step else self._snapshot()
        confidence: Tensor | None = None
        if reason is StopReason.DIVERGED:
            found = next((taken for taken in reversed(own) if taken.finite), found)
            self.observer.log(f"seed {self.seed} at iteration {self.iteration} {reason}")
        elif isinstance(self.stepper, Confident):
            candidates, confidence = self.stepper.found()
            found = _Snapshot(self.step, *(tensor.to("cpu", copy=True) for tensor in _single(candidates)))
        facts = {name: value for name, value in row.items() if name not in ("step", "seconds")}
        self.parts.append(
            _Part(found, {**facts, "iterations": self.iteration, "reason": str(reason)}, _on_cpu(confidence))
        )

    def _meta(self) -> dict[str, Any]:
        return {
            "attack_version": self.version,
            "seconds": self.seconds,
            "iteration": self.iteration,
            "parts": [{**part.facts, "step": part.found.step} for part in self.parts],
        }

    def _state(self) -> dict[str, Tensor]:
        state = {f"recipe.{name}": tensor for name, tensor in self.stepper.state().items()}
        for index, part in enumerate(self.parts):
            state |= {f"part{index}.{name}": tensor for name, tensor in zip(_SNAPSHOT, part.found[1:], strict=True)}
            if part.confidence is not None:
                state[f"part{index}.confidence"] = part.confidence
        if self.snapshots:
            state["snapshots.steps"] = torch.tensor([taken.step for taken in self.snapshots])
            state["snapshots.x"] = torch.stack([taken.x for taken in self.snapshots])
            state["snapshots.multipliers"] = torch.stack([taken.multipliers for taken in self.snapshots])
            state["snapshots.labels"] = torch.stack([taken.labels for taken in self.snapshots])
        return {name: tensor.cpu() for name, tensor in state.items()}

    def restore(self, resume: Resume) -> None:
        """Continue exactly where `_state` was taken."""
        tensors, meta = resume.tensors, resume.meta
        for index, stored in enumerate(meta["parts"]):
            facts = {name: value for name, value in stored.items() if name != "step"}
            facts["reason"] = str(StopReason(stored["reason"]))
            found = _Snapshot(stored["step"], *(tensors[f"part{index}.{name}"] for name in _SNAPSHOT))
            self.parts.append(_Part(found, facts, tensors.get(f"part{index}.confidence")))
        self.iteration = int(meta["iteration"])
        self.seconds_before = float(meta["seconds"])
        self.stepper = make_stepper(self.target, self.settings, self.seed)
        recipe = {name.removeprefix("recipe."): t for name, t in tensors.items() if name.startswith("recipe.")}
        self.stepper.load_state(recipe)
        if "snapshots.steps" in tensors:
            # The one of the checkpoint's own iteration is taken again by the loop.
            for index, step in enumerate(tensors["snapshots.steps"].tolist()):
                if step < self.step:
                    self.snapshots.append(_Snapshot(step, *(tensors[f"snapshots.{name}"][index] for name in _SNAPSHOT)))

    def _finish(self, reason: StopReason) -> AttackOutcome:
        parts = self.parts
        steady = [part for part in parts if part.facts["reason"] != StopReason.DIVERGED] or parts
        if reason is StopReason.DIVERGED and steady is not parts:
            reason = StopReason(steady[-1].facts["reason"])  # other seeds did find something
        best = min(steady, key=lambda part: math.inf if part.facts["residual"] is None else part.facts["residual"])
        sure = [part.confidence for part in steady if part.confidence is not None]
        confidence = torch.cat(sure) if len(sure) == len(steady) else None
        m = self.settings.m
        summary = {
            **{name: value for name, value in best.facts.items() if name not in ("iterations", "reason")},
            "reason": str(reason),
            "steps": sum(part.facts["iterations"] for part in parts),
            "seconds": round(self.seconds, 4),
            "m": m,
            "candidates": sum(len(part.found.x) for part in steady),
            "seeds": [part.facts for part in parts],
            "recipe": str(self.settings.recipe),
            "attack_version": self.version,
            "prior": str(getattr(self.settings, "prior", Prior.OFF)),
            "objective": str(self.target.objective),
            "known_init": self.target.initial is not None,
            "architecture": self.target.architecture.to_json(),
            "device": str(attack_device(self.settings)),
        }
        snapshots = {
            "steps": torch.tensor([taken.step for taken in self.snapshots]),
            "candidates": self._shaped(torch.stack([taken.x for taken in self.snapshots])),
            "multipliers": torch.stack([taken.multipliers for taken in self.snapshots]),
            "labels": torch.stack([taken.labels for taken in self.snapshots]),
        }
        if confidence is not None:
            summary["certain"] = int((confidence > CERTAIN).sum())
        seeds = [torch.full_like(part.found.labels, int(part.facts["seed"])) for part in steady]
        return AttackOutcome(
            reason,
            candidates=self._shaped(torch.cat([part.found.x for part in steady])),
            multipliers=torch.cat([part.found.multipliers for part in steady]),
            labels=torch.cat([part.found.labels for part in steady]),
            seeds=torch.cat(seeds),
            summary=summary,
            snapshots=snapshots,
            confidence=confidence,
        )


def _on_cpu(values: Tensor | None) -> Tensor | None:
    return None if values is None else values.float().cpu()


def _single(candidates: Candidates) -> Candidates:
    """In float32, which is all that pictures need."""
    return Candidates(candidates.x.float(), candidates.multipliers.float(), candidates.labels)


def _or_none(value: Any) -> Any:
    """Numbers that are not finite have no place in a stored row."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
