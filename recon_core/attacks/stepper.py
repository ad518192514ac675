"""What every recipe of attack offers the session: steps, measurements, candidates, a state to resume from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from recon_core.attacks.autograd_loss import AutogradStationarity
from recon_core.attacks.settings import AttackSettings, Engine, StationaritySettings
from recon_core.attacks.stationarity import DenseStationarity, StationarityEngine, StationarityLoss
from recon_core.attacks.target import Target
from recon_core.devices import DTYPES, pick_device
from recon_core.errors import InputError


class Candidates(NamedTuple):
    """Where the candidates are: x (m, d) centred, in input space; multipliers (m,); labels (m,), class indices.

    Multipliers are in the unit of the authors' code, m times those of Eq. 6: c_i = y_i multiplier_i / m.
    They carry a sign only where signs are learnt.
    """

    x: Tensor
    multipliers: Tensor
    labels: Tensor


class Measurement(NamedTuple):
    """The three terms of Eq. 8 at the current point, unweighted, and the gate's sharpness there."""

    stationarity: StationarityLoss
    floor: Tensor
    prior: Tensor
    alpha: float


class Stepper(Protocol):
    """One start of one recipe. Its next step depends on its state alone, so a restored one repeats it exactly."""

    def step(self) -> None: ...

    def measure(self) -> Measurement:
        """At the current point. Work shared with the next step is kept, so measuring costs nothing extra."""
        ...

    def candidates(self) -> Candidates: ...

    def take_notes(self) -> list[str]:
        """Sentences for the log since the last call, e.g. that the step size was halved."""
        ...

    def state(self) -> dict[str, Tensor]: ...

    def load_state(self, tensors: Mapping[str, Tensor]) -> None: ...


CERTAIN = 0.87
"""Confidence above which a candidate is called certain. Chosen on 14 CIFAR-10 models of development draws, with weight
decay and without, where 0.98 of those were real; on two of the models less than 0.95. On six models of other draws
0.97 to 1.00 were, 507 of 511 together, and they show 0.42 to 0.66 of the training images."""


class Found(NamedTuple):
    """The result of such a recipe: k candidates, and its confidence in each, (k,) in [0, 1]."""

    candidates: Candidates
    confidence: Tensor | None


@runtime_checkable
class Confident(Protocol):
    """A recipe that returns more at its end than the m candidates it shows while it runs."""

    def found(self) -> Found: ...


def attack_device(settings: AttackSettings) -> torch.device:
    """Where this attack runs; MPS has no float64, so a float64 run that left the choice open takes the CPU."""
    device = pick_device(settings.device)
    if device.type != "mps" or settings.dtype == "float32":
        return device
    if settings.device == "mps":
        raise InputError("dtype float64 does not exist on device mps; use dtype=float32 or device=cpu")
    return torch.device("cpu")


def make_engine(target: Target, settings: StationaritySettings, engine: Engine | None = None) -> StationarityEngine:
    """The engine asked for, or the closed form wherever it applies, in full input space."""
    dense = target.architecture.dense
    chosen = engine or (Engine.CLOSED if dense else Engine.AUTOGRAD)
    if chosen is Engine.CLOSED and not dense:
        raise InputError(f"engine closed needs a dense network, got {target.architecture}; use engine=autograd")
    kind = DenseStationarity if chosen is Engine.CLOSED else AutogradStationarity
    return kind(
        target,
        dtype=DTYPES[settings.dtype],
        device=attack_device(settings),
        layer_weights=settings.layer_weights,
        block_size=settings.block_size,
    )


class Start(NamedTuple):
    """Where a seed begins: x (m, d) ~ N(0, scale^2), lam (m,) ~ U[0, 1], or N(0, 1) where signs are learnt,
    as in the code of Buzaglo et al. 2023 for regression."""

    x: Tensor
    lam: Tensor


def draw_start(m: int, d: int, scale: float, seed: int, *, signed: bool) -> Start:
    """Drawn in float32 on the CPU whatever the run's type and device, so that a seed means one start."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(m, d, generator=generator).mul_(scale)
    draw = torch.randn if signed else torch.rand
    return Start(x, draw(m, generator=generator))
