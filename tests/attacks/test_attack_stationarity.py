"""The written-out loss against autograd, against a case whose answer is known, and against itself in blocks."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from recon_core.attacks import AutogradStationarity, DenseStationarity, Evaluation, Target, step_flops
from recon_core.attacks.labels import output_directions
from recon_core.attacks.stationarity import Form, grams_are_cheaper
from recon_core.config import BiasMode, Task
from recon_core.errors import InputError
from recon_core.models import Architecture, DenseLayer, Network, backward_deltas, build_network, forward_pass

CPU = torch.device("cpu")
EXACT = {"dtype": torch.float64, "device": CPU}
D = 6
ALPHA = 4.0
WIDTHS = {2: (9,), 3: (9, 7), 4: (9, 7, 8), 5: (9, 7, 8, 5)}
OUTPUTS = {Task.BINARY: 1, Task.MULTICLASS: 4, Task.REGRESSION: 1}


def network(
    widths: tuple[int, ...] = (9, 7), outputs: int = 1, bias: BiasMode = BiasMode.FIRST, seed: int = 0
) -> Network:
    return build_network(
        Architecture((D,), widths, outputs, bias), init_scale="kaiming", seed=seed, dtype=torch.float64
    )


class Points:
    """Random candidates with coefficients of both signs."""

    def __init__(self, m: int = 11, outputs: int = 1, seed: int = 1) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randn(m, D, generator=generator, dtype=torch.float64)
        self.c = torch.randn(m, generator=generator, dtype=torch.float64) / m
        self.labels = torch.randint(0, outputs, (m,), generator=generator)

    def at(self, engine: DenseStationarity | AutogradStationarity, x: Tensor | None = None) -> Evaluation:
        return engine.evaluate(self.x if x is None else x, self.c, self.labels, ALPHA)


def assert_same(found: Evaluation, expected: Evaluation, tolerance: float = 1e-10) -> None:
    close = {"rtol": tolerance, "atol": tolerance}
    torch.testing.assert_close(found.loss.per_layer, expected.loss.per_layer, **close)
    torch.testing.assert_close(found.loss.total, expected.loss.total, **close)
    torch.testing.assert_close(found.gradients.x, expected.gradients.x, **close)
    torch.testing.assert_close(found.gradients.coefficients, expected.gradients.coefficients, **close)
    torch.testing.assert_close(found.outputs, expected.outputs, **close)


@pytest.mark.parametrize("form", [Form.DIRECT, Form.GRAM])
@pytest.mark.parametrize(("depth", "bias", "task"), list(itertools.product(WIDTHS, BiasMode, Task)))
def test_closed_form_is_autograd(depth: int, bias: BiasMode, task: Task, form: Form) -> None:
    points = Points(outputs=OUTPUTS[task])
    target = Target(network(WIDTHS[depth], OUTPUTS[task], bias), task)
    expected = points.at(AutogradStationarity(target, **EXACT))
    assert float(expected.gradients.x.abs().amax()) > 1e-4
    assert_same(points.at(DenseStationarity(target, form=form, **EXACT)), expected)


@pytest.mark.parametrize("form", [Form.DIRECT, Form.GRAM])
@pytest.mark.parametrize("biases", [(True,) * 3, (False, False, True), (False, True, False)])
@pytest.mark.parametrize("task", Task)
def test_biases_anywhere_have_equations_of_their_own(task: Task, biases: tuple[bool, ...], form: Form) -> None:
    points = Points(outputs=OUTPUTS[task])
    shape = Architecture((D,), (9, 7), OUTPUTS[task], biases=biases)
    target = Target(build_network(shape, init_scale="kaiming", seed=0, dtype=torch.float64), task)
    expected = points.at(AutogradStationarity(target, **EXACT))
    assert_same(points.at(DenseStationarity(target, form=form, **EXACT)), expected)
    # Of the output layer, written out: what sum_i c_i e_i leaves of its bias.
    last = target.network.dense_layers()[-1]
    hidden = target.network.layers[:-1]
    a = points.x
    for layer in hidden:
        a = layer(a).relu()
    e = output_directions(expected.outputs, points.labels, task) * points.c[:, None]
    left = (last.weight - e.T @ a).square().sum()
    if last.bias is not None:
        left += (last.bias - e.sum(0)).square().sum()
    assert float(expected.loss.per_layer[-1]) == pytest.approx(float(left.detach()))


@pytest.mark.parametrize("form", [Form.DIRECT, Form.GRAM])
@pytest.mark.parametrize("task", Task)
def test_known_init_explains_the_change(task: Task, form: Form) -> None:
    outputs = OUTPUTS[task]
    points = Points(outputs=outputs)
    trained, start = (
        network(outputs=outputs, bias=BiasMode.HIDDEN),
        network(outputs=outputs, bias=BiasMode.HIDDEN, seed=5),
    )
    target = Target(trained, task, start)
    expected = points.at(AutogradStationarity(target, **EXACT))
    assert_same(points.at(DenseStationarity(target, form=form, **EXACT)), expected)
    unaware = points.at(DenseStationarity(Target(trained, task), **EXACT))
    assert abs(float(expected.loss.total - unaware.loss.total)) > 0.1


@pytest.mark.parametrize("form", [Form.DIRECT, Form.GRAM])
@pytest.mark.parametrize("weights", [(0.5, 2.0, 3.0), (1.0, 0.0, 1.0), (0.0, 0.1, 1.0)])
def test_layer_weights_scale_layers(weights: tuple[float, ...], form: Form) -> None:
    points, target = Points(), Target(network(), Task.BINARY)
    plain = points.at(DenseStationarity(target, **EXACT))
    weighted = points.at(DenseStationarity(target, layer_weights=weights, form=form, **EXACT))
    assert_same(weighted, points.at(AutogradStationarity(target, layer_weights=weights, **EXACT)))
    torch.testing.assert_close(weighted.loss.per_layer, plain.loss.per_layer)
    assert float(weighted.loss.total) == pytest.approx(
        sum(w * v for w, v in zip(weights, plain.loss.per_layer.tolist(), strict=True))
    )


@pytest.mark.parametrize("form", [Form.DIRECT, Form.GRAM])
@pytest.mark.parametrize("known_init", [False, True])
def test_basis_changes_coordinates_only(form: Form, known_init: bool) -> None:
    points = Points()
    target = Target(network(), Task.BINARY, network(seed=7) if known_init else None)
    generator = torch.Generator().manual_seed(3)
    basis = torch.linalg.qr(torch.randn(D, 3, generator=generator, dtype=torch.float64)).Q
    z = torch.randn(len(points.x), 3, generator=generator, dtype=torch.float64)
    inside = points.at(DenseStationarity(target, basis=basis, form=form, **EXACT), z)
    full = points.at(AutogradStationarity(target, **EXACT), z @ basis.T)
    torch.testing.assert_close(inside.loss.per_layer, full.loss.per_layer, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(inside.gradients.x, full.gradients.x @ basis, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(inside.gradients.coefficients, full.gradients.coefficients, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("engine", [DenseStationarity, AutogradStationarity])
@pytest.mark.parametrize("size", [1, 4, 11])
@pytest.mark.parametrize("task", Task)
def test_blocks_do_not_change_the_result(engine: type, size: int, task: Task) -> None:
    points = Points(outputs=OUTPUTS[task])
    target = Target(network(outputs=OUTPUTS[task], bias=BiasMode.HIDDEN), task)
    whole = points.at(engine(target, layer_weights=(1.0, 0.3, 2.0), **EXACT))
    blocks = points.at(engine(target, layer_weights=(1.0, 0.3, 2.0), block_size=size, **EXACT))
    assert_same(blocks, whole)
    if whole.first_deltas is not None:
        torch.testing.assert_close(blocks.first_deltas, whole.first_deltas)


def test_engine_can_be_used_again() -> None:
    """Buffers are shared between evaluations; results must not be."""
    points, other = Points(), Points(m=8, seed=2)
    engine = DenseStationarity(Target(network(), Task.BINARY), **EXACT)
    first = points.at(engine)
    kept = (
        first.gradients.x.clone(),
        first.gradients.coefficients.clone(),
        first.loss.per_layer.clone(),
        first.outputs.clone(),
    )
    other.at(engine)
    for now, before in zip((*first.gradients, first.loss.per_layer, first.outputs), kept, strict=True):
        assert torch.equal(now, before)
    assert torch.equal(points.at(engine).gradients.x, kept[0])


@pytest.mark.parametrize("bias", BiasMode)
def test_loss_is_zero_where_the_weights_are_the_sum(bias: BiasMode) -> None:
    """The answer is known: theta - theta_0 is built as sum_i c_i grad phi(x_i), here with hard gates, by other code."""
    points = Points()
    trained = network(bias=bias)
    layers = trained.dense_layers()
    run = forward_pass(layers, points.x)
    deltas = backward_deltas(layers, run.inputs, torch.ones_like(run.outputs))
    fitted = [
        DenseLayer((u * points.c[:, None]).T @ a, None if layer.bias is None else points.c @ u)
        for layer, a, u in zip(layers, run.inputs, deltas, strict=True)
    ]
    start = network(bias=bias)
    with torch.no_grad():
        for own, part in zip(start.dense_layers(), fitted, strict=True):
            own.weight.sub_(part.weight)
            if own.bias is not None and part.bias is not None:
                own.bias.sub_(part.bias)
    target = Target(trained, Task.BINARY, start)
    sharp = 1e7  # gates are 0 or 1
    for form in (Form.DIRECT, Form.GRAM):
        engine = DenseStationarity(target, form=form, **EXACT)
        at_truth = engine.evaluate(points.x, points.c, points.labels, sharp)
        assert float(at_truth.loss.total) < 1e-20 + (1e-12 if form is Form.GRAM else 0)
        assert float(at_truth.gradients.coefficients.abs().amax()) < 1e-10
        beside = engine.evaluate(points.x + 0.1, points.c, points.labels, sharp)
        assert float(beside.loss.total) > 1e-4


def test_nothing_explained_leaves_the_weights() -> None:
    points, target = Points(), Target(network(), Task.BINARY)
    engine = DenseStationarity(target, **EXACT)
    found = engine.evaluate(points.x, torch.zeros_like(points.c), points.labels, ALPHA)
    torch.testing.assert_close(found.loss.per_layer, target.squared_norms())
    assert float(found.gradients.x.abs().amax()) == 0


def test_gradients_fall_along_the_loss() -> None:
    """Finite differences in c, where nothing is modified: the loss is a quadratic."""
    points, target = Points(), Target(network(), Task.BINARY)
    engine = DenseStationarity(target, **EXACT)
    slope = points.at(engine).gradients.coefficients
    for i in range(3):
        step = torch.zeros_like(points.c)
        step[i] = 1e-5
        up = engine.evaluate(points.x, points.c + step, points.labels, ALPHA).loss.total
        down = engine.evaluate(points.x, points.c - step, points.labels, ALPHA).loss.total
        assert float((up - down) / 2e-5) == pytest.approx(float(slope[i]), rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("alpha", [10.0, 200.0, 2000.0])
def test_float32_agrees_with_float64(alpha: float) -> None:
    points, target = Points(), Target(network(), Task.BINARY)
    exact = DenseStationarity(target, **EXACT).evaluate(points.x, points.c, points.labels, alpha)
    engine = DenseStationarity(target, dtype=torch.float32, device=CPU)
    single = engine.evaluate(points.x.float(), points.c.float(), points.labels, alpha)
    scale = float(exact.gradients.x.abs().amax())
    torch.testing.assert_close(single.loss.total.double(), exact.loss.total, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(single.gradients.x.double(), exact.gradients.x, rtol=1e-3, atol=3e-4 * scale)


def test_candidates_must_fit() -> None:
    target = Target(network(), Task.BINARY)
    for engine in (DenseStationarity(target, **EXACT), AutogradStationarity(target, **EXACT)):
        with pytest.raises(InputError, match="candidates have 5 values each, the model takes 6"):
            engine.evaluate(torch.zeros(2, 5, dtype=torch.float64), torch.zeros(2), torch.zeros(2).long(), 1.0)
    with pytest.raises(InputError, match="layer_weights needs 3 values, one per layer of 6-9-7-1, got 2"):
        DenseStationarity(target, layer_weights=(1.0, 1.0), **EXACT)
    with pytest.raises(InputError, match="the basis spans inputs of 5 values, the model takes 6"):
        DenseStationarity(target, basis=torch.eye(5), **EXACT)


def test_step_flops_counts_products() -> None:
    # One hidden layer of 2 on 3 inputs, m = 1000, too many for Gram matrices: z, R, P, R^T u and W^T zb in the
    # first layer, z, R, P and R^T u in the last (its v is a copy).
    assert step_flops((3, 2, 1), 1000) == 2 * 1000 * (5 * 6 + 4 * 2)
    # A square inner layer with few candidates: z, v, W ub, W^T zb and the Gram part.
    inner = 2 * 10 * 100**2 * 4 + 4 * 10 * 10 * 200
    first = 2 * 10 * 100**2 * 2 + 4 * 10 * 10 * 200
    assert step_flops((100, 100, 100, 1), 10) == first + inner + 2 * 10 * 100 * 4
    assert grams_are_cheaper(100, 1000, 1000)
    assert not grams_are_cheaper(1000, 1000, 1000)


def test_many_candidates_stay_within_memory() -> None:
    """Beyond a block, memory for hidden activations does not grow with m."""
    target = Target(network((64, 64)), Task.BINARY)
    engine = DenseStationarity(target, dtype=torch.float32, device=CPU, block_size=16)
    m = 400
    engine.evaluate(torch.randn(m, D), torch.rand(m) / m, torch.zeros(m).long(), ALPHA)
    rows = {
        name: len(held) for (name, _), held in engine._buffers._held.items() if name not in ("R", "u_1 of all blocks")
    }
    assert rows
    assert max(rows.values()) == 16
