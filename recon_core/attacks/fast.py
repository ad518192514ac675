"""The fast recipe: two stages, nothing tuned per task.

Candidates live in the row space of the first layer (`rowspace`), x = V z, and are drawn, labelled and weighted as
in the papers, with two scales that the papers search for taken from the weights instead: the multipliers'
(`_unit`, then kept such that candidates have the norm of an input) and the step size (from the curvature
K_x = (c u_1)(c u_1)^T of the loss in x).

Search: momentum on the stationarity residual, alpha annealed, multipliers kept nearly uniform.

Refine: the same residual in another metric. Gradient flow makes W_1 = sum_i Ubar_i x_i^T exactly, Ubar_i being the
time integral of c_i u_i; the KKT point only asks Ubar_i = c_i u_i, which holds to 10-30% after any finite training.
So the error of the equation lies along the samples themselves: its covariance is that of the candidates weighted
by their share, C = sum_i p_i x_i x_i^T, and least squares must be taken in its inverse. The refined loss is that of
a Gaussian of covariance s^2 C, tr(R_1 C^-1 R_1^T) + s^2 logdet C in units of the mean of C^-1, by Adam.
Measured on the same searches this takes good CIFAR reconstructions from 15-19 to 23-28 of 50.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from recon_core.attacks.adam import adam_direction
from recon_core.attacks.autograd_loss import AutogradStationarity
from recon_core.attacks.fast_conv import FastConvRecipe
from recon_core.attacks.fast_module import FastModuleRecipe
from recon_core.attacks.labels import assign_labels
from recon_core.attacks.registry import Attack, Cost, NetworkSize, autograd_cost, closed_form_cost, register
from recon_core.attacks.rowspace import row_space
from recon_core.attacks.settings import LabelPolicy, StationaritySettings
from recon_core.attacks.stationarity import DenseStationarity, Evaluation
from recon_core.attacks.stepper import Candidates, Measurement, Stepper, attack_device, make_engine
from recon_core.attacks.target import Target
from recon_core.config import Task
from recon_core.devices import DTYPES
from recon_core.errors import InputError
from recon_core.models import Architecture

_MOMENTUM = 0.9
_LR_LOG_MULTIPLIER = 0.02
# Curvature, and whether all is well, are looked at this often: the only time a step asks the device for numbers.
_REVIEW_EVERY = 10
# A loss this many times the last good one is a jump: back to that state, at half the pace.
_JUMP = 4.0
# A step size from before a change of scale may let the loss rise this much until it is measured anew.
_USUAL_RISE = 1000.0
_GROW, _SHRINK, _FASTEST = 1.02, 0.5, 1.5
# When, in parts of the search, the candidates' size is compared with that of an input. Earlier they still grow.
_RESCALE_AT = (0.3, 0.42, 0.54, 0.66)
_RESCALE_BY = 2.0
# mean(lam) n |W_L| |x| came out near 14 in all models of depth 3 looked at; lam ~ U[0, 1] has half its scale as mean.
_MULTIPLIER_CONSTANT = 28.0
_PLANAR_INPUTS = 8
# Of a centred pixel, root mean square over images.
PIXEL_NORM = 0.24
_POWER_ITERATIONS = 4
# Of the multipliers' unit in one step.
_LARGEST_TURN = 0.05


# With several classes a candidate's rival changes under way, and the usual pace may jump: on five models of ten
# classes of 5 it had 4 to 30 good and diverged on one, where this had 31 to 38.
PACE_OF_CLASSES = 0.05
# A step through autograd takes a few tenths of a second on a CPU, where one in closed form takes milliseconds.
_FEATURE_ITERATIONS = 150
# Written out, a step behind one convolution moves a quarter of the candidates in 0.01 s. On two development draws 1,200
# found 24 to 27 and 40 images where 600 found 20 to 26 and 35 to 38; 2,400 found 26 to 28 on the first.
_CONVOLUTION_ITERATIONS = 1200
MODULE_ITERATIONS = 600


class FastSettings(StationaritySettings):
    """The two stages: momentum at a pace taken from the curvature, then Adam in the candidates' own metric."""

    pace: float = Field(
        0.2,
        gt=0.0,
        lt=1.0,
        description="step of the candidates as a part of 1/curvature; left out, 0.05 with several classes",
    )
    pace_lam: float = Field(0.02, gt=0.0, lt=1.0, description="relative step of the multipliers")
    search_share: float = Field(0.33, gt=0.0, lt=1.0, description="share of the iterations in the first stage")
    lr_refine: float = Field(0.1, gt=0.0, description="Adam's step on the candidates in the second stage")
    ridge: float = Field(0.1, gt=0.0, description="ridge of the candidates' covariance, of its mean variance")
    weight_upper: float = Field(0.3, ge=0.0, description="weight of the layers above the first, second stage")
    rank: int | None = Field(
        None, ge=1, description="dimensions of the first layer's row space; left out, those above its noise"
    )
    input_norm: float | None = Field(
        None, gt=0.0, description="expected norm of a centred input; left out, 0.24 sqrt(d), 1 in the plane"
    )


class ScaledStart(NamedTuple):
    """Where a seed begins, with the two scales read off the weights.

    x (m, d), lam (m,) in units of `scale`, labels (m,) class indices, signs (m,) of the coefficients;
    c = signs * scale * lam / m. `input_norm` is the norm a centred input is expected to have.
    """

    x: Tensor
    lam: Tensor
    labels: Tensor
    signs: Tensor
    scale: float
    input_norm: float


def scaled_start(target: Target, settings: FastSettings, seed: int) -> ScaledStart:
    """Drawn in float32 on the CPU whatever the run's type and device, so that a seed means one start."""
    d, m = math.prod(target.architecture.input_shape), settings.m
    planar = d <= _PLANAR_INPUTS
    input_norm = settings.input_norm or (1.0 if planar else PIXEL_NORM * math.sqrt(d))
    scale = settings.lam_scale or _MULTIPLIER_CONSTANT / (target.output_scale() * input_norm)
    policy = settings.label_policy(target.objective)
    # Signs that are learnt start half and half: with decay a sample's multiplier has the sign of its target.
    policy = LabelPolicy.HALF if policy is LabelPolicy.LEARNT else policy
    labels = assign_labels(policy, m, target.architecture.outputs)
    signs = torch.ones(m) if target.objective is Task.MULTICLASS else (labels * 2 - 1).float()
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(m, d, generator=generator) * (1.0 if planar else settings.x_init_scale)
    lam = torch.rand(m, generator=generator).clamp_min(settings.lam_min)
    return ScaledStart(x, lam, labels, signs, scale, input_norm)


class _Good(NamedTuple):
    """A state to fall back to, and the loss it had."""

    loss: float
    tensors: dict[str, Tensor]


class _Steady(NamedTuple):
    """z (m, r), q, signs and labels (m,)."""

    z: Tensor
    q: Tensor
    signs: Tensor
    labels: Tensor


class _Metric(NamedTuple):
    """C^-1 in units of its mean over the candidates' coordinates, and that unit."""

    inverse: Tensor
    unit: Tensor


class FastRecipe:
    """State: coordinates z (m, r), magnitudes q (m,) of the coefficients, the optimiser's memory of both."""

    def __init__(self, target: Target, settings: FastSettings, seed: int) -> None:
        if not target.architecture.dense_first:
            raise InputError(f"a search in the first layer's row space needs a dense one, got {target.architecture}")
        self.settings = settings
        device, dtype = attack_device(settings), DTYPES[settings.dtype]
        first, closed = target.anchored(), target.architecture.dense
        self.basis = row_space(first.weight, settings.rank).basis.to(device, dtype)
        depth = target.architecture.depth

        def engine(upper: float) -> DenseStationarity | AutogradStationarity:
            weights = settings.layer_weights or (1.0, *[upper] * (depth - 1))
            if closed:
                return DenseStationarity(target, dtype=dtype, device=device, basis=self.basis, layer_weights=weights)
            return AutogradStationarity(
                target,
                dtype=dtype,
                device=device,
                basis=self.basis,
                layer_weights=weights,
                block_size=settings.block_size,
            )

        self.search_engine, self.refine_engine = engine(1.0), engine(settings.weight_upper)
        self.has_bias = first.bias is not None
        self.learns_signs = settings.label_policy(target.objective) is LabelPolicy.LEARNT
        start = scaled_start(target, settings, seed)
        m = settings.m
        self.input_norm = start.input_norm
        self.labels = start.labels.to(device)
        self.signs = start.signs.to(device, dtype)
        self.z = start.x.to(device, dtype) @ self.basis
        self.unit = torch.tensor(start.scale / m, dtype=dtype, device=device)
        self.q = start.lam.to(device, dtype) * self.unit
        self.z_memory, self.q_memory = torch.zeros_like(self.z), torch.zeros_like(self.q)
        self.z_square, self.q_square = torch.zeros_like(self.z), torch.zeros_like(self.q)
        self.z_rate, self.q_rate = torch.zeros_like(self.unit), torch.zeros_like(self.unit)
        self.shares = torch.full_like(self.q, 1.0 / m)
        self.iteration = 0
        self.pace = 1.0
        self.search_steps = max(1, round(settings.iterations * settings.search_share))
        self.rescale_at = {round(part * self.search_steps) for part in _RESCALE_AT}
        self.good: _Good | None = None
        self.notes: list[str] = []
        self._known: Evaluation | None = None

    @property
    def refining(self) -> bool:
        return self.iteration >= self.search_steps

    def step(self) -> None:
        """One step of whichever stage this iteration belongs to."""
        if self.iteration == self.search_steps:
            self._begin_refining()
        point = self._point()
        if self.good is not None and math.isinf(self.good.loss):
            self._remember_loss(point)
        if self.iteration % _REVIEW_EVERY == 0:
            point = self._review(point)
        if self.refining:
            self._refine(point)
        else:
            self._search(point)
            if self.iteration in self.rescale_at:
                self._rescale()
        self.iteration += 1
        self._known = None

    def _alpha(self) -> float:
        settings = self.settings
        end = settings.alpha_end or settings.alpha
        if self.refining:
            return end
        share = self.iteration / max(1, self.search_steps - 1)
        return float(settings.alpha * (end / settings.alpha) ** share)

    def _point(self) -> Evaluation:
        if self._known is None:
            engine = self.refine_engine if self.refining else self.search_engine
            if self.refining:
                engine.metric, self._metric_unit = self._metric()
            self._known = engine.evaluate(self.z, self.signs * self.q, self.labels, self._alpha())
            if self.refining:
                assert self._known.first_deltas is not None
                # The weights of the next metric; within one evaluation they are held fixed.
                share = self._known.first_deltas.square().mean(1).mul_(self.q.square())
                self._next_shares = share / share.sum().clamp_min(torch.finfo(share.dtype).tiny)
        return self._known

    def _review(self, point: Evaluation) -> Evaluation:
        """Return to the last good state if the loss jumped; else save this state and measure the curvature."""
        loss = float(point.loss.total)
        if self._jumped(loss):
            self._fall_back(loss)
            return self._point()
        self.pace = min(_FASTEST, self.pace * _GROW)
        self.good = _Good(loss, {name: tensor.clone() for name, tensor in self._tensors().items()})
        if not self.refining:
            assert point.first_deltas is not None
            cu = point.first_deltas * self.q[:, None]
            self.z_rate.copy_(0.5 / _largest_eigenvalue(cu @ cu.T))
            gram = self.search_engine.gradient_gram(self.z, self.labels, self._alpha())
            self.q_rate.copy_(0.5 / _largest_eigenvalue(gram.abs_()))
        return point

    def _jumped(self, loss: float) -> bool:
        return self.good is not None and not loss <= _JUMP * self.good.loss

    def _loss(self) -> float:
        """Where it compares with that of the last good state: until refining has begun, in the search's metric."""
        if self.iteration != self.search_steps:
            return float(self._point().loss.total)
        return float(self.search_engine.evaluate(self.z, self.signs * self.q, self.labels, self._alpha()).loss.total)

    def steady(self) -> _Steady:
        """The present candidates, or the last good ones where the next review will go back to them.

        Where the layers above the first bend the loss more than the curvature tells, as in a network of noise, ten
        steps are enough for a jump by many orders. That is not the end of the attack, and nothing to show.
        """
        if self.good is None or not self._jumped(self._loss()):
            return _Steady(self.z, self.q, self.signs, self.labels)
        kept = self.good.tensors
        return _Steady(kept["z"], kept["q"], kept.get("signs", self.signs), kept.get("labels", self.labels))

    def _fall_back(self, loss: float) -> None:
        assert self.good is not None
        for name, tensor in self._tensors().items():
            tensor.copy_(self.good.tensors[name])
        self.z_memory.zero_()
        self.q_memory.zero_()
        self.pace *= _SHRINK
        told = f"rose to {loss:.3g}" if math.isfinite(loss) else "became non-finite"
        self.notes.append(
            f"the loss {told} at iteration {self.iteration}; went back to the last good state at pace {self.pace:.3g}"
        )
        self._known = None

    def _cosine(self) -> float:
        done, span = (
            (self.iteration - self.search_steps, self.settings.iterations - self.search_steps)
            if self.refining
            else (self.iteration, self.search_steps)
        )
        return 0.5 * (1 + math.cos(math.pi * done / max(1, span - 1)))

    def _search(self, point: Evaluation) -> None:
        """One momentum step; multipliers move slowly and stay above their lower bound."""
        settings, factor = self.settings, self.pace * self._cosine()
        rate = self.z_rate * (settings.pace * factor) if settings.lr_x is None else settings.lr_x * factor
        self.z_memory.mul_(_MOMENTUM).sub_(rate * point.gradients.x)
        self.z.add_(self.z_memory)
        slope = point.gradients.coefficients * self.signs
        self.q_memory.mul_(_MOMENTUM).sub_(self.q_rate * (settings.pace_lam * factor) * slope)
        # Without a bias, candidates near zero have no gradient and so no curvature to be careful about.
        limit = _LARGEST_TURN * self.unit
        self.q_memory.clamp_(-limit, limit)
        self.q.add_(self.q_memory)
        if self.learns_signs:
            self._turn()
            return
        floor = settings.lam_min * self.unit
        self.q_memory.mul_(self.q >= floor)
        torch.maximum(self.q, floor, out=self.q)

    def _turn(self) -> None:
        """A multiplier that passed zero goes on with the other sign; there is no lower bound then, as in the papers."""
        passed = self.q < 0
        self.q.abs_()
        self.q_memory.mul_(torch.where(passed, -1.0, 1.0))
        self.signs.mul_(torch.where(passed, -1.0, 1.0))
        self.labels.copy_(torch.where(passed, 1 - self.labels, self.labels))

    def _settle(self) -> None:
        """Leave a state that the next review would."""
        loss = float(self.search_engine.evaluate(self.z, self.signs * self.q, self.labels, self._alpha()).loss.total)
        if self._jumped(loss):
            self._fall_back(loss)

    def _rescale(self) -> None:
        """Layer 1 fixes only c x, so the unit of the multipliers is the one that gives x the norm of an input."""
        self._settle()
        size = self.z.square().sum(1).mean().sqrt() / self.input_norm
        factor = size.clamp(1 / _RESCALE_BY, _RESCALE_BY)
        for tensor in (self.z, self.z_memory):
            tensor.div_(factor)
        for tensor in (self.q, self.q_memory, self.unit):
            tensor.mul_(factor)
        self._forget_loss()

    def _forget_loss(self) -> None:
        """The state to fall back to stays; its loss no longer compares. Call `_settle` before what makes it so."""
        if self.good is not None:
            self.good = self.good._replace(loss=math.inf)

    def _remember_loss(self, point: Evaluation) -> None:
        """Right after a change of scale. Until the next review the step size is of before, so the loss may rise."""
        loss = float(point.loss.total)
        if self.good is not None and math.isfinite(loss):
            self.good = self.good._replace(loss=loss * _USUAL_RISE)

    def _begin_refining(self) -> None:
        self._settle()
        for tensor in (self.z_memory, self.q_memory, self.z_square, self.q_square):
            tensor.zero_()
        u = self._point_deltas()
        share = u.square().mean(1) * self.q.square()
        self.shares.copy_(share / share.sum())
        self.z_rate.copy_(self.z.square().mean().sqrt().clamp_max(1.0) * self.settings.lr_refine)
        self.pace = 1.0
        self._forget_loss()
        self._known = None

    def _point_deltas(self) -> Tensor:
        found = self.search_engine.evaluate(self.z, self.signs * self.q, self.labels, self._alpha()).first_deltas
        assert found is not None
        return found

    def _metric(self) -> _Metric:
        z, rank = self._augmented(), self.z.shape[1]
        covariance = (z * self.shares[:, None]).T @ z
        covariance.diagonal().add_(self.settings.ridge * covariance.diagonal()[:rank].mean())
        inverse = torch.linalg.inv_ex(covariance)[0]
        unit = inverse.diagonal()[:rank].mean()
        return _Metric(inverse / unit, unit)

    def _augmented(self) -> Tensor:
        """[z, 1]: the bias is the weight of an input that is always 1."""
        return torch.cat([self.z, torch.ones_like(self.z[:, :1])], 1) if self.has_bias else self.z

    def _refined_slope(self, point: Evaluation) -> Tensor:
        """d loss/dz. The metric moves with z, so its own gradient is added to the residual's."""
        residual, rank = point.first_residual, self.z.shape[1]
        assert residual is not None
        B = self.refine_engine.metric
        assert B is not None
        S = residual.T @ residual
        variance = (S * B).sum() / B.shape[0]
        weighted = self._augmented() * self.shares[:, None]
        return point.gradients.x + 2 * (weighted @ (variance * B - B @ S @ B))[:, :rank] * self._metric_unit

    def _refine(self, point: Evaluation) -> None:
        """Adam on z and log q."""
        z_slope = self._refined_slope(point)
        q_slope = point.gradients.coefficients * self.signs * self.q
        done = self.iteration - self.search_steps + 1
        factor = self.pace * self._cosine()
        z_step = adam_direction(self.z_memory, self.z_square, z_slope, done)
        self.z.sub_(z_step * (self.z_rate * factor))
        q_step = adam_direction(self.q_memory, self.q_square, q_slope, done)
        self.q.mul_(torch.exp(q_step * (-_LR_LOG_MULTIPLIER * factor)))
        self.shares.copy_(self._next_shares)

    def measure(self) -> Measurement:
        """The papers' residual, in their metric, whatever the stage works with."""
        z, q, signs, labels = self.steady()
        if self.refining or z is not self.z:
            found = self.search_engine.evaluate(z, signs * q, labels, self._alpha())
        else:
            found = self._point()
        zero = torch.zeros_like(self.unit)
        return Measurement(found.loss, zero, zero, self._alpha())

    def candidates(self) -> Candidates:
        z, q, _, labels = self.steady()
        return Candidates(z @ self.basis.T, q * self.settings.m, labels)

    def take_notes(self) -> list[str]:
        notes, self.notes = self.notes, []
        return notes

    def _tensors(self) -> dict[str, Tensor]:
        names = ("z", "q", "z_memory", "q_memory", "z_square", "q_square", "z_rate", "q_rate", "unit", "shares")
        turning = ("signs", "labels") if self.learns_signs else ()
        return {name: getattr(self, name) for name in (*names, *turning)}

    def state(self) -> dict[str, Tensor]:
        state = {**self._tensors(), "progress": torch.tensor([self.iteration, self.pace], dtype=torch.float64)}
        if self.good is not None:
            state["good.loss"] = torch.tensor(self.good.loss, dtype=torch.float64)
            state |= {f"good.{name}": tensor for name, tensor in self.good.tensors.items()}
        return state

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        for name, tensor in self._tensors().items():
            tensor.copy_(tensors[name])
        iteration, self.pace = tensors["progress"].tolist()
        self.iteration = int(iteration)
        self.good = None
        if "good.loss" in tensors:
            kept = {name: tensors[f"good.{name}"].to(self.z.device) for name in self._tensors()}
            self.good = _Good(float(tensors["good.loss"]), kept)
        self._known = None


def _largest_eigenvalue(matrix: Tensor) -> Tensor:
    """lmax of a symmetric positive semi-definite matrix, from below, without leaving the device."""
    v = torch.ones(len(matrix), dtype=matrix.dtype, device=matrix.device)
    for _ in range(_POWER_ITERATIONS):
        v = matrix @ v
        v = v / v.norm().clamp_min(torch.finfo(v.dtype).tiny)
    length: Tensor = (matrix @ v).norm()
    return length.clamp_min(torch.finfo(v.dtype).tiny)


def fast_cost(settings: FastSettings, size: NetworkSize) -> Cost:
    """Dense networks are attacked in the row space of their first layer, others through autograd."""
    return closed_form_cost(settings, size, in_span=True) if size.dense else autograd_cost(settings, size)


def _make(target: Target, settings: FastSettings, seed: int) -> Stepper:
    if target.architecture.dense_first:
        return FastRecipe(target, settings, seed)
    if target.network.anchor() is not None:
        return FastConvRecipe(target, settings, seed)
    return FastModuleRecipe(target, settings, seed)


def _check(target: Target, settings: FastSettings) -> None:
    make_engine(target, settings)


def _network_defaults(architecture: Architecture) -> dict[str, Any]:
    if architecture.dense:
        return {}
    if architecture.dense_first:
        return {"iterations": MODULE_ITERATIONS}
    written_out = architecture.conv_kernel is not None and architecture.activation == "relu"
    return {"iterations": _CONVOLUTION_ITERATIONS if written_out else _FEATURE_ITERATIONS}


register(
    Attack(
        name="fast",
        description="two stages in the row space of the first layer, nothing to tune; seconds to a minute",
        settings=FastSettings,
        make=_make,
        defaults={"alpha_end": 200.0, "iterations": 1200},
        task_defaults={Task.MULTICLASS: {"pace": PACE_OF_CLASSES}},
        network_defaults=_network_defaults,
        measure_every=10,
        cost=fast_cost,
        check=_check,
    )
)
