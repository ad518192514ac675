"""The closed-form step against autograd: every depth, bias mode and loss, dense and convolutional."""

from __future__ import annotations

import math

import pytest
import torch

from recon_core.config import BiasMode
from recon_core.losses import LOSSES as LOSS_FUNCTIONS
from recon_core.models import Architecture, Network, build_network
from recon_core.training.losses import Loss
from recon_core.training.trainable import Trainable

LOSSES = list(LOSS_FUNCTIONS)
DEPTHS = {2: (12,), 3: (12, 9), 4: (12, 9, 7), 5: (12, 9, 7, 6)}


def make(
    widths: tuple[int, ...], name: str, bias: BiasMode = BiasMode.FIRST, conv: bool = False, n: int = 8
) -> tuple[Network, torch.Tensor, Loss]:
    outputs = 7 if name == "cross-entropy" else 1
    shape = (2, 6, 5) if conv else (3, 4, 4)
    architecture = Architecture(shape, widths, outputs, bias, 3 if conv else None, 4 if conv else None)
    network = build_network(architecture, init_scale="kaiming", seed=3, dtype=torch.float64)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(n, *shape, generator=generator, dtype=torch.float64)
    return network, x, Loss(name, torch.arange(n) % max(outputs, 2), huber_delta=0.4)


def reference_loss(loss: Loss, phi: torch.Tensor) -> torch.Tensor:
    """The losses as torch has them."""
    y = 2.0 * loss.labels.double() - 1
    if loss.name == "logistic":
        return torch.nn.functional.binary_cross_entropy_with_logits(phi[:, 0], (y + 1) / 2)
    if loss.name == "cross-entropy":
        return torch.nn.functional.cross_entropy(phi, loss.labels)
    if loss.name == "l2":
        return (phi[:, 0] - y).square().mean()
    if loss.name == "l2.5":
        return (phi[:, 0] - y).abs().pow(2.5).mean()
    return torch.nn.functional.huber_loss(phi[:, 0], y, delta=loss.huber_delta)


def autograd_step(network: Network, x: torch.Tensor, loss: Loss, rate: float) -> list[torch.Tensor]:
    mean = reference_loss(loss, network(x))
    gradients = torch.autograd.grad(mean, list(network.parameters()))
    return [p.detach() - rate * g for p, g in zip(network.parameters(), gradients, strict=True)]


def check_step(network: Network, x: torch.Tensor, loss: Loss) -> None:
    expected = autograd_step(network, x, loss, rate=0.5)
    trainable = Trainable(network, x)
    run = trainable.forward()
    rows = loss.rows(run.outputs)
    assert loss.sample_losses(rows.values).mean() == pytest.approx(
        float(reference_loss(loss, network(x)).detach()), rel=1e-10
    )
    coefficients = -0.5 * loss.slopes(rows.values) / loss.n
    with torch.no_grad():
        trainable.add_(run, trainable.gradients(run, rows.directions), coefficients)
        by_rows = list(trainable.to_network().parameters())
        plain = Trainable(network, x)
        run = plain.forward()
        plain.descend_(run, (loss.slopes(rows.values)[:, :, None] * rows.directions).sum(1) / loss.n, 0.5)
    for ours, again, theirs in zip(by_rows, plain.to_network().parameters(), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-12)
        torch.testing.assert_close(again, theirs, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("bias", list(BiasMode))
@pytest.mark.parametrize("depth", DEPTHS)
def test_a_step_equals_autograds(depth: int, bias: BiasMode, name: str) -> None:
    check_step(*make(DEPTHS[depth], name, bias))


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("bias", list(BiasMode))
def test_a_step_of_a_convolution_equals_autograds(bias: BiasMode, name: str) -> None:
    check_step(*make((10,), name, bias, conv=True))
    check_step(*make((10, 8), name, bias, conv=True))


def test_more_samples_than_inputs_needs_no_basis() -> None:
    network, x, loss = make((12, 9), "logistic", n=60)
    assert Trainable(network, x).basis is None
    check_step(network, x, loss)


def test_float32_agrees_to_its_own_precision() -> None:
    network, x, loss = make((12, 9), "logistic")
    expected = autograd_step(network, x, loss, 0.5)
    single = Trainable(network.float(), x.float())
    run = single.forward()
    rows = loss.rows(run.outputs)
    single.add_(run, single.gradients(run, rows.directions), -0.5 * loss.slopes(rows.values) / loss.n)
    for ours, theirs in zip(single.to_network().parameters(), expected, strict=True):
        assert (ours - theirs).norm() <= 1e-5 * theirs.norm()


@pytest.mark.parametrize("name", LOSSES)
def test_slopes_and_curvatures_are_derivatives(name: str) -> None:
    network, x, loss = make((12,), name)
    q = loss.rows(network(x).detach()).values.clone().requires_grad_()
    losses = loss.sample_losses(q)
    slopes = torch.autograd.grad(losses.sum(), q, create_graph=True)[0]
    torch.testing.assert_close(slopes, loss.slopes(q.detach()))
    for group in range(q.shape[1]):
        row = torch.autograd.grad(slopes[:, group].sum(), q, retain_graph=True)[0]
        torch.testing.assert_close(row, loss.curvatures(q.detach())[:, :, group])


@pytest.mark.parametrize("name", ["logistic", "cross-entropy"])
def test_log_loss_weights_are_its_gradient(name: str) -> None:
    network, x, loss = make((12,), name)
    q = loss.rows(network(x).detach()).values.clone().requires_grad_()
    log_mean = loss.sample_losses(q).mean().log()
    found = loss.log_loss(q.detach())
    torch.testing.assert_close(-torch.autograd.grad(log_mean, q)[0], found.weights)
    assert float(found.log_mean) == pytest.approx(float(log_mean.detach()))


def test_log_loss_survives_where_the_loss_underflows() -> None:
    loss = Loss("logistic", torch.tensor([1, 1]))
    log_mean, weights = loss.log_loss(torch.tensor([[5000.0], [5001.0]]))
    # log((e^-5000 + e^-5001) / 2) by hand.
    assert float(log_mean) == pytest.approx(-5000 + 0.31326 - 0.69315, abs=1e-3)
    torch.testing.assert_close(weights[:, 0], torch.tensor([0.731059, 0.268941]), rtol=1e-3, atol=0)


def test_log_loss_survives_a_sample_far_on_the_wrong_side() -> None:
    loss = Loss("logistic", torch.tensor([1, 1]))
    log_mean, weights = loss.log_loss(torch.tensor([[-5000.0], [3.0]]))
    # softplus(5000) = 5000, and the other sample hardly counts.
    assert float(log_mean) == pytest.approx(math.log(5000.0486 / 2), abs=1e-4)
    torch.testing.assert_close(weights[:, 0], torch.tensor([2e-4, 9.4849e-6]), rtol=1e-3, atol=0)


def test_directions_of_rows_are_their_gradients() -> None:
    network, x, loss = make((12,), "cross-entropy")
    phi = network(x).detach().requires_grad_()
    rows = loss.rows(phi)
    for group in range(rows.values.shape[1]):
        gradient = torch.autograd.grad(rows.values[:, group].sum(), phi, retain_graph=True)[0]
        torch.testing.assert_close(gradient, rows.directions[:, group].detach())


@pytest.mark.parametrize("name", ["logistic", "cross-entropy"])
def test_grams_are_inner_products_of_gradients(name: str) -> None:
    network, x, loss = make((6, 5), name, conv=True)
    trainable = Trainable(network, x)
    run = trainable.forward()
    rows = loss.rows(run.outputs)
    gradients = trainable.gradients(run, rows.directions)
    inner = trainable.inner_products(run, gradients)
    flat = loss.rows(network(x)).values.reshape(-1)
    for index, layer in enumerate(network.layers):
        parameters = list(layer.parameters())
        per_row = [torch.autograd.grad(value, parameters, retain_graph=True) for value in flat]
        jacobian = torch.stack([torch.cat([g.reshape(-1) for g in row]) for row in per_row])
        theta = torch.cat([p.detach().reshape(-1) for p in parameters])
        torch.testing.assert_close(gradients.grams[index], jacobian @ jacobian.T)
        torch.testing.assert_close(inner[index], jacobian @ theta)


def test_the_part_outside_the_span_only_shrinks() -> None:
    network, x, loss = make((12, 9), "logistic")
    trainable = Trainable(network, x)
    before = trainable.full_layers()[0].weight
    run = trainable.forward()
    slopes = loss.slopes(loss.rows(run.outputs).values) / loss.n
    trainable.descend_(run, slopes * loss.signs(torch.float64)[:, None], rate=0.1, keep=0.9)
    after = trainable.full_layers()[0].weight
    outside = torch.eye(48, dtype=torch.float64) - trainable.basis @ trainable.basis.T
    torch.testing.assert_close(after @ outside, 0.9 * before @ outside)


def test_outputs_of_other_inputs_match_the_network() -> None:
    network, x, _ = make((12, 9), "logistic")
    trainable = Trainable(network, x)
    other = torch.randn(5, 3, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    torch.testing.assert_close(trainable.outputs(trainable.prepare(other)), network(other).detach())
    trainable.scale_(0.5)
    torch.testing.assert_close(trainable.outputs(trainable.prepare(other)), trainable.to_network()(other).detach())
