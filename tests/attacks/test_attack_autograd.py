"""The modified ReLU, and the loss of a convolution."""

from __future__ import annotations

import pytest
import torch

from recon_core.attacks import AutogradStationarity, DenseStationarity, Target, gated_relu
from recon_core.config import BiasMode, Task
from recon_core.errors import InputError
from recon_core.models import Architecture, Network, build_network

CPU = torch.device("cpu")
EXACT = {"dtype": torch.float64, "device": CPU}


def test_gated_relu_values() -> None:
    """Forward is ReLU, the derivative sigmoid(alpha z), the derivative's derivative alpha s (1 - s)."""
    z = torch.tensor([-1.0, -0.1, 0.0, 0.1, 2.0], dtype=torch.float64, requires_grad=True)
    a = gated_relu(3.0)(z)
    assert a.tolist() == [0.0, 0.0, 0.0, 0.1, 2.0]
    (slope,) = torch.autograd.grad(a.sum(), z, create_graph=True)
    s = 1 / (1 + torch.exp(-3.0 * z.detach()))
    torch.testing.assert_close(slope.detach(), s)
    (bend,) = torch.autograd.grad(slope.sum(), z)
    torch.testing.assert_close(bend, 3.0 * s * (1 - s))


def test_gated_relu_becomes_relu() -> None:
    z = torch.tensor([-0.5, 0.5], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(gated_relu(1e4)(z).sum(), z)
    assert slope.tolist() == [0.0, 1.0]


def convolution(kernel: int, size: int, bias: BiasMode = BiasMode.FIRST) -> Network:
    shape = Architecture((2, size, size), (5,), 1, bias, conv_kernel=kernel, conv_channels=3)
    return build_network(shape, init_scale="kaiming", seed=0, dtype=torch.float64)


@pytest.mark.parametrize("bias", BiasMode)
def test_convolution_as_large_as_the_image_is_dense(bias: BiasMode) -> None:
    """CONV(k = side, C) is a dense layer of C units, where the closed form knows the answer."""
    conv = convolution(4, 4, bias)
    dense = Network(Architecture((2, 4, 4), (3, 5), 1, bias)).double()
    with torch.no_grad():
        for own, source in zip(dense.parameters(), conv.parameters(), strict=True):
            own.copy_(source.reshape(own.shape))
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, 32, generator=generator, dtype=torch.float64)
    c = torch.randn(6, generator=generator, dtype=torch.float64)
    labels = torch.zeros(6).long()
    found = AutogradStationarity(Target(conv, Task.BINARY), **EXACT).evaluate(x, c, labels, 5.0)
    expected = DenseStationarity(Target(dense, Task.BINARY), **EXACT).evaluate(x, c, labels, 5.0)
    torch.testing.assert_close(found.loss.per_layer, expected.loss.per_layer)
    torch.testing.assert_close(found.gradients.x, expected.gradients.x)
    torch.testing.assert_close(found.gradients.coefficients, expected.gradients.coefficients)


def test_small_kernel_in_blocks() -> None:
    target = Target(convolution(3, 5), Task.BINARY)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(7, 50, generator=generator, dtype=torch.float64)
    c = torch.randn(7, generator=generator, dtype=torch.float64)
    labels = torch.zeros(7).long()
    whole = AutogradStationarity(target, **EXACT).evaluate(x, c, labels, 5.0)
    blocks = AutogradStationarity(target, block_size=3, **EXACT).evaluate(x, c, labels, 5.0)
    torch.testing.assert_close(blocks.loss.per_layer, whole.loss.per_layer)
    torch.testing.assert_close(blocks.gradients.x, whole.gradients.x)
    torch.testing.assert_close(blocks.gradients.coefficients, whole.gradients.coefficients)


def test_target_is_left_alone() -> None:
    network = convolution(3, 5)
    before = [parameter.detach().clone() for parameter in network.parameters()]
    engine = AutogradStationarity(Target(network, Task.BINARY), dtype=torch.float32, device=CPU)
    engine.evaluate(torch.randn(2, 50), torch.rand(2), torch.zeros(2).long(), 5.0)
    for parameter, value in zip(network.parameters(), before, strict=True):
        assert parameter.dtype is torch.float64
        assert parameter.grad is None
        assert torch.equal(parameter, value)


def test_closed_form_names_a_convolution() -> None:
    with pytest.raises(InputError, match=r"needs a dense network, got 2x5x5-CONV\(3,3\)-5-1; use engine autograd"):
        DenseStationarity(Target(convolution(3, 5), Task.BINARY), **EXACT)
