"""The stationarity loss of a dense network and its gradients, written out: no double backward.

Haim et al. 2022, Eq. 6, and its kin in Buzaglo et al. 2023. With a_0 = x, z_l = W_l a_{l-1} + b_l,
a_l = relu(z_l), gates s_l = sigmoid(alpha z_l) in place of ReLU's derivative, e the output direction,
u_L = e, v_l = W_{l+1}^T u_{l+1}, u_l = v_l * s_l, and c_i the coefficient of candidate i:

  R_l = T_l - sum_i c_i u_l,i a_{l-1,i}^T,   r_l = t_l - sum_i c_i u_l,i,   loss = sum_l w_l (|R_l|^2 + |r_l|^2)

where (T_l, t_l) is what is to be explained: (W_l, b_l), or the change since the initial weights. Its gradient
is -2 times that of sum_i c_i sum_l w_l u_l,i . P_l,i with P_l = R_l a_{l-1} + r_l held fixed. For one candidate,
without its factor c_i, which every line would only carry along:

  up    ub_1 = P_1;  zb_l = ub_l * u_l * alpha (1 - s_l);  ub_{l+1} = P_{l+1} + W_{l+1} (ub_l * s_l)
  down  ab_l = R_{l+1}^T u_{l+1} + W_{l+1}^T zb_{l+1};  zb_l += ab_l * s_l;  xb = R_1^T u_1 + W_1^T zb_1
  d loss/dx = -2 c xb,   d loss/dc = -2 sum_l u_l . P_l

R_l need not exist. For m candidates with Gram matrices A = a a^T (+ 1 with a bias) and U = u u^T,

  P_l = z_l - A (c u_l),   R_l^T u_l = v_{l-1} - U (c a_{l-1}),
  |R_l|^2 + |r_l|^2 = |T_l|^2 + |t_l|^2 - sum_i c_i u_l,i . (z_l,i + P_l,i)

where z_l and v_{l-1} are at hand when T = W. That costs 4 m^2 (in + out) instead of 6 m in out, so it is
chosen, layer by layer, where m is small beside the layer. The two ways agree to rounding, except that the
Gram way takes the loss as a difference: in float32 values below about 1e-6 |T_l|^2 are noise.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from recon_core.attacks.labels import output_directions
from recon_core.attacks.target import Target, squared_norm
from recon_core.config import Task
from recon_core.errors import InputError

# sigmoid is 0 or 1 to float precision beyond this. Further out float32 gates, and products with them, are
# subnormal numbers, and on CPUs those make every operation they enter many times slower.
_GATE_REACH = 60.0


class StationarityLoss(NamedTuple):
    """Squared residuals per layer (L,), unweighted, and their weighted sum, a scalar."""

    per_layer: Tensor
    total: Tensor


class StationarityGradients(NamedTuple):
    """Gradients of the weighted total: x like the candidates given, coefficients (m,)."""

    x: Tensor
    coefficients: Tensor


class Evaluation(NamedTuple):
    """The loss at one point, its gradients, phi (m, C), and u_1 (m, h_1), where the engine has it.

    u_1 is the engine's own memory: read it, or copy it, before the next evaluation overwrites it. Where the first
    layer has a metric, `first_residual` is [R_1, r_1] (h_1, in + 1) before the metric.
    """

    loss: StationarityLoss
    gradients: StationarityGradients
    outputs: Tensor
    first_deltas: Tensor | None
    first_residual: Tensor | None = None


class StationarityEngine(Protocol):
    """Either way to the loss. x is (m, d), coefficients and labels are (m,); all on the engine's device."""

    def evaluate(self, x: Tensor, coefficients: Tensor, labels: Tensor, alpha: float) -> Evaluation: ...


class Form(StrEnum):
    """How residuals are held: as matrices, through Gram matrices, or whichever is cheaper for the layer."""

    AUTO = "auto"
    DIRECT = "direct"
    GRAM = "gram"


class _Layer(NamedTuple):
    weight: Tensor
    bias: Tensor | None
    aim: Tensor
    aim_bias: Tensor | None
    norm: float  # |T|^2, its part outside the basis included
    outside: float  # of which outside the basis
    loss_weight: float


class _Propagation(NamedTuple):
    inputs: list[Tensor]  # a_0 .. a_{L-1}
    z: list[Tensor]  # z_1 .. z_L
    gates: list[Tensor]  # s_1 .. s_{L-1}
    arrivals: list[Tensor]  # v_1 .. v_{L-1}
    deltas: list[Tensor]  # u_1 .. u_L


class _Matrices(NamedTuple):
    """A layer's residual as it is."""

    R: Tensor
    r: Tensor | None


class _Grams(NamedTuple):
    """A layer's residual as what acts on candidates: A (m, m) and U (m, m)."""

    A: Tensor
    U: Tensor


class _Buffers:
    """Memory that is used again: on a CPU, getting 400 kB from the system costs more than filling them."""

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self._dtype, self._device = dtype, device
        self._held: dict[tuple[str, int], Tensor] = {}

    def take(self, name: str, layer: int, rows: int, columns: int) -> Tensor:
        """An uninitialised (rows, columns), the same one whenever asked for under this name."""
        held = self._held.get((name, layer))
        if held is None or len(held) < rows or held.shape[1] != columns:
            held = torch.empty(rows, columns, dtype=self._dtype, device=self._device)
            self._held[name, layer] = held
        return held[:rows]


class DenseStationarity:
    """The loss on one dense target, ready to be evaluated again and again.

    With `basis` V (d, r), orthonormal columns, candidates are given and differentiated as coordinates z
    (m, r) of x = V z; the loss is that of x in full. More than `block_size` candidates are worked on in blocks:
    first the residuals over all of them, then the gradients, block by block.
    """

    def __init__(
        self,
        target: Target,
        *,
        dtype: torch.dtype,
        device: torch.device,
        basis: Tensor | None = None,
        layer_weights: Sequence[float] | None = None,
        block_size: int | None = None,
        form: Form = Form.AUTO,
    ) -> None:
        if not target.architecture.dense:
            raise InputError(f"the closed form needs a dense network, got {target.architecture}; use engine autograd")
        self.objective = target.objective
        self.block_size = block_size
        self.form = form
        self.explains_all = target.initial is None
        weights = checked_layer_weights(layer_weights, target)
        self.layers = []
        for index, (own, aim) in enumerate(zip(target.network.dense_layers(), target.explained(), strict=True)):
            norm = float(squared_norm(aim))
            weight, aim_weight, outside = own.weight, aim.weight, 0.0
            if index == 0 and basis is not None:
                if basis.shape[0] != weight.shape[1]:
                    raise InputError(
                        f"the basis spans inputs of {basis.shape[0]} values, the model takes {weight.shape[1]}"
                    )
                exact = basis.cpu().double()
                inside = aim_weight.cpu().double() @ exact
                outside = float((aim_weight.cpu().double().square().sum() - inside.square().sum()).clamp_min(0))
                weight, aim_weight = weight.cpu().double() @ exact, inside
            moved = weight.to(device, dtype)
            self.layers.append(
                _Layer(
                    weight=moved,
                    bias=None if own.bias is None else own.bias.to(device, dtype),
                    aim=moved if self.explains_all else aim_weight.to(device, dtype),
                    aim_bias=None if aim.bias is None else aim.bias.to(device, dtype),
                    norm=norm,
                    outside=outside,
                    loss_weight=weights[index],
                )
            )
        self.loss_weights = torch.tensor(weights, dtype=dtype, device=device)
        # B of tr(R_1 B R_1^T), over the first layer's inputs and its bias, in place of |R_1|^2.
        self.metric: Tensor | None = None
        self._buffers = _Buffers(dtype, device)

    @property
    def inputs(self) -> int:
        """Columns of the candidates as they are given here: d, or the basis's r."""
        return self.layers[0].weight.shape[1]

    @property
    def first_aim(self) -> Tensor:
        """What is to be explained of the first layer's weight (h, d or r)."""
        return self.layers[0].aim

    def evaluate(self, x: Tensor, coefficients: Tensor, labels: Tensor, alpha: float) -> Evaluation:
        """Loss and gradients at candidates x (m, d or r) with coefficients c (m,); nothing leaves the device."""
        if x.shape[1] != self.inputs:
            raise InputError(f"candidates have {x.shape[1]} values each, the model takes {self.inputs}")
        m = len(x)
        if self.block_size is not None and m > self.block_size and self.metric is None:
            return self._evaluate_blocks(x, coefficients, labels, alpha, self.block_size)
        c = coefficients
        run = self._propagate(x, labels, alpha)
        residuals: list[_Matrices | _Grams] = []
        pushed, shares, per_layer = [], [], []
        first_residual = None
        for index, layer in enumerate(self.layers):
            if index == 0 and self.metric is not None:
                matrices = self._aims(0)
                self._subtract(matrices, run, 0, c)
                first_residual = _with_bias(matrices)
                seen = first_residual @ self.metric
                matrices = _Matrices(seen, None) if matrices.r is None else _Matrices(seen[:, :-1], seen[:, -1])
                per_layer.append(torch.dot(first_residual.view(-1), seen.view(-1)) + layer.outside)
                P = self._push(0, run, matrices)
                shares.append(self._dots(run.deltas[0], P))
                residuals.append(matrices)
            elif self._prefers_grams(layer, m):
                grams = self._grams(index, run)
                explained = self._explained(index, run)
                P = torch.addmm(
                    explained,
                    grams.A,
                    self._scaled(run.deltas[index], c),
                    alpha=-1,
                    out=self._buffer("P", index, explained),
                )
                shares.append(self._dots(run.deltas[index], P))
                fitted = torch.dot(c, self._dots(run.deltas[index], explained).add_(shares[-1]))
                per_layer.append((-fitted + layer.norm).clamp_min(0.0))
                residuals.append(grams)
            else:
                matrices = self._aims(index)
                self._subtract(matrices, run, index, c)
                P = self._push(index, run, matrices)
                shares.append(self._dots(run.deltas[index], P))
                per_layer.append(self._squared(layer, matrices))
                residuals.append(matrices)
            pushed.append(P)
        x_gradient = self._descend(run, residuals, pushed, c, alpha)
        gradients = StationarityGradients(x_gradient, self._coefficient_gradient(shares))
        return Evaluation(self._total(per_layer), gradients, run.z[-1].clone(), run.deltas[0], first_residual)

    def gradient_gram(self, x: Tensor, labels: Tensor, alpha: float) -> Tensor:
        """Inner products (m, m) of the candidates' parameter gradients, layers weighted: the curvature in c, halved."""
        run = self._propagate(x, labels, alpha)
        grams = [self._grams(index, run) for index in range(len(self.layers))]
        return torch.stack([w * g.A * g.U for w, g in zip(self.loss_weights, grams, strict=True)]).sum(0)

    def _evaluate_blocks(self, x: Tensor, c: Tensor, labels: Tensor, alpha: float, size: int) -> Evaluation:
        """Two passes over the blocks; the second propagates again rather than keep what the first one saw."""
        residuals = [self._aims(index) for index in range(len(self.layers))]
        blocks = [slice(start, start + size) for start in range(0, len(x), size)]
        for block in blocks:
            run = self._propagate(x[block], labels[block], alpha)
            for index, matrices in enumerate(residuals):
                self._subtract(matrices, run, index, c[block])
        loss = self._total([self._squared(layer, R) for layer, R in zip(self.layers, residuals, strict=True)])
        x_gradient, c_gradient = torch.empty_like(x), torch.empty_like(c)
        outputs = x.new_empty(len(x), self.layers[-1].weight.shape[0])
        deltas = self._buffers.take("u_1 of all blocks", 0, len(x), self.layers[0].weight.shape[0])
        for block in blocks:
            run = self._propagate(x[block], labels[block], alpha)
            pushed = [self._push(index, run, matrices) for index, matrices in enumerate(residuals)]
            shares = [self._dots(u, P) for u, P in zip(run.deltas, pushed, strict=True)]
            c_gradient[block] = self._coefficient_gradient(shares)
            x_gradient[block] = self._descend(run, residuals, pushed, c[block], alpha)
            outputs[block], deltas[block] = run.z[-1], run.deltas[0]
        return Evaluation(loss, StationarityGradients(x_gradient, c_gradient), outputs, deltas)

    def _buffer(self, name: str, layer: int, like: Tensor) -> Tensor:
        return self._buffers.take(name, layer, *like.shape)

    def _scaled(self, rows: Tensor, c: Tensor) -> Tensor:
        """c_i times row i, in memory that the next call of the same width overwrites."""
        return torch.mul(rows, c[:, None], out=self._buffer("scratch", rows.shape[1], rows))

    def _dots(self, u: Tensor, P: Tensor) -> Tensor:
        """u_i . P_i (m,)."""
        return torch.mul(u, P, out=self._buffer("scratch", u.shape[1], u)).sum(1)

    def _prefers_grams(self, layer: _Layer, m: int) -> bool:
        if self.form is not Form.AUTO:
            return self.form is Form.GRAM
        return grams_are_cheaper(m, layer.weight.shape[1], layer.weight.shape[0], known_init=not self.explains_all)

    def _propagate(self, x: Tensor, labels: Tensor, alpha: float) -> _Propagation:
        inputs, zs, gates = [x], [], []
        for index, layer in enumerate(self.layers):
            z = self._affine("z", index, inputs[-1], layer.weight, layer.bias)
            zs.append(z)
            if index + 1 < len(self.layers):
                inputs.append(torch.clamp_min(z, 0.0, out=self._buffer("a", index, z)))
                gate = torch.mul(z, alpha, out=self._buffer("s", index, z))
                gates.append(gate.clamp_(-_GATE_REACH, _GATE_REACH).sigmoid_())
        deltas = [output_directions(zs[-1], labels, self.objective)]
        arrivals: list[Tensor] = []
        for index in range(len(self.layers) - 1, 0, -1):
            weight, gate = self.layers[index].weight, gates[index - 1]
            if self.objective is not Task.MULTICLASS and not arrivals:
                v = weight.expand(len(x), -1)  # e is 1
            else:
                v = torch.mm(deltas[-1], weight, out=self._buffer("v", index, gate))
            arrivals.append(v)
            deltas.append(torch.mul(v, gate, out=self._buffer("u", index, gate)))
        return _Propagation(inputs, zs, gates, arrivals[::-1], deltas[::-1])

    def _affine(self, name: str, index: int, a: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        out = self._buffers.take(name, index, len(a), len(weight))
        return torch.mm(a, weight.T, out=out) if bias is None else torch.addmm(bias, a, weight.T, out=out)

    def _aims(self, index: int) -> _Matrices:
        """T_l and t_l, to be overwritten by the residuals."""
        layer = self.layers[index]
        R = self._buffer("R", index, layer.aim).copy_(layer.aim)
        return _Matrices(R, None if layer.aim_bias is None else layer.aim_bias.clone())

    def _subtract(self, matrices: _Matrices, run: _Propagation, index: int, c: Tensor) -> None:
        """R -= sum_i c_i u_i a_i^T, r -= sum_i c_i u_i."""
        cu = self._scaled(run.deltas[index], c)
        matrices.R.addmm_(cu.T, run.inputs[index], alpha=-1)
        if matrices.r is not None:
            matrices.r.sub_(cu.sum(0))

    def _grams(self, index: int, run: _Propagation) -> _Grams:
        a, u = run.inputs[index], run.deltas[index]
        A = torch.mm(a, a.T, out=self._buffers.take("A", index, len(a), len(a)))
        if self.layers[index].aim_bias is not None:
            A.add_(1.0)
        return _Grams(A, torch.mm(u, u.T, out=self._buffers.take("U", index, len(u), len(u))))

    def _explained(self, index: int, run: _Propagation) -> Tensor:
        """T_l a_{l-1} + t_l (m, out), which is z_l where the weights themselves are explained."""
        layer = self.layers[index]
        if self.explains_all:
            return run.z[index]
        return self._affine("Ta", index, run.inputs[index], layer.aim, layer.aim_bias)

    def _push(self, index: int, run: _Propagation, matrices: _Matrices) -> Tensor:
        """P_l (m, out)."""
        return self._affine("P", index, run.inputs[index], matrices.R, matrices.r)

    def _coefficient_gradient(self, shares: Sequence[Tensor]) -> Tensor:
        return (self.loss_weights @ torch.stack(list(shares))).mul_(-2.0)

    def _squared(self, layer: _Layer, matrices: _Matrices) -> Tensor:
        flat = matrices.R.flatten()
        value = torch.dot(flat, flat) + layer.outside
        return value if matrices.r is None else value + torch.dot(matrices.r, matrices.r)

    def _total(self, per_layer: Sequence[Tensor]) -> StationarityLoss:
        values = torch.stack(list(per_layer))
        return StationarityLoss(values, values @ self.loss_weights)

    def _descend(
        self,
        run: _Propagation,
        residuals: Sequence[_Matrices | _Grams],
        pushed: Sequence[Tensor],
        c: Tensor,
        alpha: float,
    ) -> Tensor:
        """d loss/dx: up, then down, as at the top of this file. Overwrites `pushed` and the z of `run`."""
        last = len(self.layers) - 1
        for layer, P in zip(self.layers, pushed, strict=True):
            if layer.loss_weight != 1:
                P.mul_(layer.loss_weight)
        zbs: list[Tensor] = []
        ub = pushed[0]
        for index in range(last):
            s = run.gates[index]
            zb = torch.mul(ub, run.deltas[index], out=run.z[index])
            zbs.append(zb.addcmul_(zb, s, value=-1).mul_(alpha))
            if index + 1 < last:
                ub = pushed[index + 1].addmm_(ub.mul_(s), self.layers[index + 1].weight.T)
        for index in range(last, 0, -1):
            ab = self._pull(index, run, residuals[index], zbs[index] if index < last else None, c)
            zbs[index - 1].addcmul_(ab, run.gates[index - 1])
        xb = self._pull(0, run, residuals[0], zbs[0] if zbs else None, c)
        return (xb * c[:, None]).mul_(-2.0)

    def _pull(
        self, index: int, run: _Propagation, residual: _Matrices | _Grams, zb: Tensor | None, c: Tensor
    ) -> Tensor:
        """w_l R_l^T u_l + W_l^T zb_l (m, in), in memory that the next call of the same width overwrites."""
        layer, a, u = self.layers[index], run.inputs[index], run.deltas[index]
        w = layer.loss_weight
        out = self._buffer("pulled", a.shape[1], a)
        if isinstance(residual, _Matrices):
            torch.mm(u if w == 1 else u * w, residual.R, out=out)
        elif index and self.explains_all:
            torch.addmm(run.arrivals[index - 1], residual.U, self._scaled(a, c), beta=w, alpha=-w, out=out)
        elif self.explains_all:
            # W_1^T u_1 is not at hand, but W_1^T (w u_1 + zb_1) is one product.
            both = u * w if zb is None else zb.add_(u, alpha=w)
            return torch.mm(both, layer.weight, out=out).addmm_(residual.U, self._scaled(a, c), alpha=-w)
        else:
            torch.mm(u, layer.aim, out=out).addmm_(residual.U, self._scaled(a, c), beta=w, alpha=-w)
        return out if zb is None else out.addmm_(zb, layer.weight)


def _with_bias(matrices: _Matrices) -> Tensor:
    return matrices.R if matrices.r is None else torch.cat([matrices.R, matrices.r[:, None]], 1)


def grams_are_cheaper(m: int, inputs: int, outputs: int, *, known_init: bool = False) -> bool:
    """Whether 4 m^2 (in + out) beats 6 m in out, or 2 m in out where T a and T^T u cost a product each."""
    direct = 2 if known_init else 6
    return 4 * m * (inputs + outputs) < direct * inputs * outputs


def step_flops(widths: Sequence[int], m: int) -> int:
    """Floating-point operations in the matrix products of one evaluation: loss and both gradients, one block.

    `widths` are d (or the basis's r), the hidden widths, the outputs. Products of layer l, each 2 m in out:
    z_l always; v_{l-1} for l >= 2 (the last layer of a one-output network is a copy instead); W_l ub for inner
    layers; W_l^T zb for all but the last. Then the residual of the layer: 3 more as matrices, or
    4 m^2 (in + out) as Gram matrices. Everything elementwise is left out, so a rate derived from this is a
    lower bound.
    """
    last = len(widths) - 2
    total = 0
    for index, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
        products = 1
        products += index > 0 and (index < last or outputs > 1)
        products += 0 < index < last
        products += index < last
        grams = grams_are_cheaper(m, inputs, outputs)
        total += 2 * m * inputs * outputs * (products + (0 if grams else 3))
        total += 4 * m * m * (inputs + outputs) if grams else 0
    return total


def checked_layer_weights(weights: Sequence[float] | None, target: Target) -> list[float]:
    """One weight per layer, 1 each unless given."""
    depth = target.architecture.depth
    if weights is None:
        return [1.0] * depth
    if len(weights) != depth:
        raise InputError(
            f"layer_weights needs {depth} values, one per layer of {target.architecture}, got {len(weights)}"
        )
    return [float(weight) for weight in weights]
