"""The closed-form step against autograd: every depth, bias mode and loss, dense and convolutional."""

from __future__ import annotations

import pytest
import torch

from recon_core.config import BiasMode, LossName
from recon_core.models import Architecture, Network, build_network
from recon_core.training.losses import Head
from recon_core.training.trainable import Trainable

LOSSES = list(LossName)
DEPTHS = {2: (12,), 3: (12, 9), 4: (12, 9, 7), 5: (12, 9, 7, 6)}


def make(
    widths: tuple[int, ...], loss: LossName, bias: BiasMode = BiasMode.FIRST, conv: bool = False, n: int = 8
) -> tuple[Network, torch.Tensor, Head]:
    outputs = 7 if loss is LossName.CROSS_ENTROPY else 1
    shape = (2, 6, 5) if conv else (3, 4, 4)
    architecture = Architecture(shape, widths, outputs, bias, 3 if conv else None, 4 if conv else None)
    network = build_network(architecture, init_scale="kaiming", seed=3, dtype=torch.float64)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(n, *shape, generator=generator, dtype=torch.float64)
    return network, x, Head(loss, torch.arange(n) % max(outputs, 2), huber_delta=0.4)


def reference_loss(head: Head, phi: torch.Tensor) -> torch.Tensor:
    """The losses as torch has them."""
    y = 2.0 * head.labels.double() - 1
    if head.loss is LossName.LOGISTIC:
        return torch.nn.functional.binary_cross_entropy_with_logits(phi[:, 0], (y + 1) / 2)
    if head.loss is LossName.CROSS_ENTROPY:
        return torch.nn.functional.cross_entropy(phi, head.labels)
    if head.loss is LossName.L2:
        return (phi[:, 0] - y).square().mean()
    if head.loss is LossName.L25:
        return (phi[:, 0] - y).abs().pow(2.5).mean()
    return torch.nn.functional.huber_loss(phi[:, 0], y, delta=head.huber_delta)


def autograd_step(network: Network, x: torch.Tensor, head: Head, rate: float) -> list[torch.Tensor]:
    loss = reference_loss(head, network(x))
    gradients = torch.autograd.grad(loss, list(network.parameters()))
    return [p.detach() - rate * g for p, g in zip(network.parameters(), gradients, strict=True)]


def check_step(network: Network, x: torch.Tensor, head: Head) -> None:
    expected = autograd_step(network, x, head, rate=0.5)
    trainable = Trainable(network, x)
    run = trainable.forward()
    rows = head.rows(run.outputs)
    assert head.sample_losses(rows.values).mean() == pytest.approx(
        float(reference_loss(head, network(x)).detach()), rel=1e-10
    )
    coefficients = -0.5 * head.slopes(rows.values) / head.n
    with torch.no_grad():
        trainable.add_(run, trainable.gradients(run, rows.directions), coefficients)
        by_rows = list(trainable.to_network().parameters())
        plain = Trainable(network, x)
        run = plain.forward()
        plain.descend_(run, (head.slopes(rows.values)[:, :, None] * rows.directions).sum(1) / head.n, 0.5)
    for ours, again, theirs in zip(by_rows, plain.to_network().parameters(), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-12)
        torch.testing.assert_close(again, theirs, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("bias", list(BiasMode))
@pytest.mark.parametrize("depth", DEPTHS)
def test_a_step_equals_autograds(depth: int, bias: BiasMode, loss: LossName) -> None:
    check_step(*make(DEPTHS[depth], loss, bias))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("bias", list(BiasMode))
def test_a_step_of_a_convolution_equals_autograds(bias: BiasMode, loss: LossName) -> None:
    check_step(*make((10,), loss, bias, conv=True))
    check_step(*make((10, 8), loss, bias, conv=True))


def test_more_samples_than_inputs_needs_no_basis() -> None:
    network, x, head = make((12, 9), LossName.LOGISTIC, n=60)
    assert Trainable(network, x).basis is None
    check_step(network, x, head)


def test_float32_agrees_to_its_own_precision() -> None:
    network, x, head = make((12, 9), LossName.LOGISTIC)
    expected = autograd_step(network, x, head, 0.5)
    single = Trainable(network.float(), x.float())
    run = single.forward()
    rows = head.rows(run.outputs)
    single.add_(run, single.gradients(run, rows.directions), -0.5 * head.slopes(rows.values) / head.n)
    for ours, theirs in zip(single.to_network().parameters(), expected, strict=True):
        assert (ours - theirs).norm() <= 1e-5 * theirs.norm()


@pytest.mark.parametrize("loss", LOSSES)
def test_slopes_and_curvatures_are_derivatives(loss: LossName) -> None:
    network, x, head = make((12,), loss)
    q = head.rows(network(x).detach()).values.clone().requires_grad_()
    losses = head.sample_losses(q)
    slopes = torch.autograd.grad(losses.sum(), q, create_graph=True)[0]
    torch.testing.assert_close(slopes, head.slopes(q.detach()))
    for group in range(q.shape[1]):
        row = torch.autograd.grad(slopes[:, group].sum(), q, retain_graph=True)[0]
        torch.testing.assert_close(row, head.curvatures(q.detach())[:, :, group])


@pytest.mark.parametrize("loss", [LossName.LOGISTIC, LossName.CROSS_ENTROPY])
def test_log_loss_weights_are_its_gradient(loss: LossName) -> None:
    network, x, head = make((12,), loss)
    q = head.rows(network(x).detach()).values.clone().requires_grad_()
    log_mean = head.sample_losses(q).mean().log()
    found = head.log_loss(q.detach())
    torch.testing.assert_close(-torch.autograd.grad(log_mean, q)[0], found.weights)
    assert float(found.log_mean) == pytest.approx(float(log_mean.detach()))


def test_log_loss_survives_where_the_loss_underflows() -> None:
    head = Head(LossName.LOGISTIC, torch.tensor([1, 1]))
    log_mean, weights = head.log_loss(torch.tensor([[5000.0], [5001.0]]))
    # log((e^-5000 + e^-5001) / 2) by hand.
    assert float(log_mean) == pytest.approx(-5000 + 0.31326 - 0.69315, abs=1e-3)
    torch.testing.assert_close(weights[:, 0], torch.tensor([0.731059, 0.268941]), rtol=1e-3, atol=0)


def test_directions_of_rows_are_their_gradients() -> None:
    network, x, head = make((12,), LossName.CROSS_ENTROPY)
    phi = network(x).detach().requires_grad_()
    rows = head.rows(phi)
    for group in range(rows.values.shape[1]):
        gradient = torch.autograd.grad(rows.values[:, group].sum(), phi, retain_graph=True)[0]
        torch.testing.assert_close(gradient, rows.directions[:, group].detach())


@pytest.mark.parametrize("loss", [LossName.LOGISTIC, LossName.CROSS_ENTROPY])
def test_grams_are_inner_products_of_gradients(loss: LossName) -> None:
    network, x, head = make((6, 5), loss, conv=True)
    trainable = Trainable(network, x)
    run = trainable.forward()
    rows = head.rows(run.outputs)
    gradients = trainable.gradients(run, rows.directions)
    inner = trainable.inner_products(run, gradients)
    flat = head.rows(network(x)).values.reshape(-1)
    for index, layer in enumerate(network.layers):
        parameters = list(layer.parameters())
        per_row = [torch.autograd.grad(value, parameters, retain_graph=True) for value in flat]
        jacobian = torch.stack([torch.cat([g.reshape(-1) for g in row]) for row in per_row])
        theta = torch.cat([p.detach().reshape(-1) for p in parameters])
        torch.testing.assert_close(gradients.grams[index], jacobian @ jacobian.T)
        torch.testing.assert_close(inner[index], jacobian @ theta)


def test_the_part_outside_the_span_only_shrinks() -> None:
    network, x, head = make((12, 9), LossName.LOGISTIC)
    trainable = Trainable(network, x)
    before = trainable.full_layers()[0].weight
    run = trainable.forward()
    slopes = head.slopes(head.rows(run.outputs).values) / head.n
    trainable.descend_(run, slopes * head.signs(torch.float64)[:, None], rate=0.1, keep=0.9)
    after = trainable.full_layers()[0].weight
    outside = torch.eye(48, dtype=torch.float64) - trainable.basis @ trainable.basis.T
    torch.testing.assert_close(after @ outside, 0.9 * before @ outside)


def test_outputs_of_other_inputs_match_the_network() -> None:
    network, x, _ = make((12, 9), LossName.LOGISTIC)
    trainable = Trainable(network, x)
    other = torch.randn(5, 3, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    torch.testing.assert_close(trainable.outputs(trainable.prepare(other)), network(other).detach())
    trainable.scale_(0.5)
    torch.testing.assert_close(trainable.outputs(trainable.prepare(other)), trainable.to_network()(other).detach())
