"""Anybody's module: its loss and gradients are autograd's, every ReLU is smoothed, refusals name the layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from recon_core.attacks import (
    AttackSettings,
    AutogradStationarity,
    DenseStationarity,
    SmoothRelu,
    Target,
    gated_relu,
)
from recon_core.attacks.labels import output_directions
from recon_core.attacks.registry import make_stepper
from recon_core.config import Task
from recon_core.errors import InputError
from recon_core.models import Architecture, build_network
from recon_core.models.modules import ModuleNetwork, module_network

EXACT: dict[str, Any] = {"dtype": torch.float64, "device": torch.device("cpu")}
SHAPE = (2, 6, 6)
ALPHA = 5.0
M = 5

Relu = Callable[[Tensor], Tensor]


class Calls(nn.Module):
    """A layer whose forward is a function."""

    def __init__(self, function: Relu) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Residual(nn.Module):
    def __init__(self, relu: Relu) -> None:
        super().__init__()
        self.first, self.inner = nn.Conv2d(2, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1)
        self.norm, self.last = nn.BatchNorm2d(3), nn.Linear(3, 4)
        self.norm.running_mean.normal_()  # type: ignore[union-attr]
        self.relu = relu

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.first(x))
        return self.last((x + self.relu(self.norm(self.inner(x)))).mean((2, 3)))


class Attention(nn.Module):
    def __init__(self, relu: Relu) -> None:
        super().__init__()
        self.layer = nn.MultiheadAttention(12, 2, batch_first=True)
        self.norm, self.last, self.relu = nn.LayerNorm(12), nn.Linear(72, 3), relu

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.reshape(-1, 6, 12)
        mixed, _ = self.layer(tokens, tokens, tokens, need_weights=False)
        return self.last(self.relu(self.norm(tokens + mixed)).flatten(1))


class Tied(nn.Module):
    """One layer called twice, and one that is never called."""

    def __init__(self, relu: Relu) -> None:
        super().__init__()
        self.take, self.again, self.give = nn.Linear(72, 9), nn.Linear(9, 9), nn.Linear(9, 1)
        self.unused, self.scale, self.relu = nn.Linear(3, 3), nn.Parameter(torch.tensor(1.3)), relu

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.take(x.flatten(1)))
        return self.scale * self.give(self.relu(self.again(self.relu(self.again(x)))))[:, 0]


def layered(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(*layers)


def leaky(relu: Relu) -> Relu:
    """Of a smooth ReLU, as leaky ReLU is of ReLU."""
    return lambda z: 0.2 * z + 0.8 * relu(z)


# Each is made with its activation written as the user would, and for comparison with the smooth one in its place.
ARCHITECTURES: dict[str, tuple[Callable[[Relu], nn.Module], Relu, Callable[[Relu], Relu]]] = {
    "dense, as layers": (
        lambda act: layered(nn.Flatten(), nn.Linear(72, 9), Calls(act), nn.Linear(9, 7), Calls(act), nn.Linear(7, 1)),
        F.relu,
        lambda relu: relu,
    ),
    "LeNet in place": (
        lambda act: layered(
            nn.Conv2d(2, 3, 3), Calls(act), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(12, 8), Calls(act), nn.Dropout(), nn.Linear(8, 4),
        ),
        torch.relu_,
        lambda relu: relu,
    ),
    "VGG, strides and dilation": (
        lambda act: layered(
            nn.Conv2d(2, 4, 3, padding=1, stride=2, bias=False), Calls(act), nn.Conv2d(4, 4, 2, dilation=2), Calls(act),
            nn.AvgPool2d(1), nn.Flatten(), nn.Linear(4, 3),
        ),
        lambda z: z.relu(),
        lambda relu: relu,
    ),
    "residual, batch normalisation": (Residual, torch.relu, lambda relu: relu),
    "attention": (Attention, lambda z: z.clamp(min=0), lambda relu: relu),
    "tied weights": (Tied, lambda z: torch.clamp_min(z, 0), lambda relu: relu),
    "leaky": (
        lambda act: layered(nn.Flatten(), nn.Linear(72, 9), Calls(act), nn.Linear(9, 1)),
        nn.LeakyReLU(0.2),
        leaky,
    ),
    "ReLU6, group normalisation, depthwise": (
        lambda act: layered(
            nn.Conv2d(2, 4, 3, groups=2), nn.GroupNorm(2, 4), Calls(act), nn.AdaptiveAvgPool2d(2),
            nn.Flatten(), nn.Linear(16, 2),
        ),
        nn.ReLU6(),
        lambda relu: lambda z: relu(z) - relu(z - 6),
    ),
    "GELU": (
        lambda act: layered(nn.Flatten(), nn.Linear(72, 9), Calls(act), nn.Linear(9, 5), Calls(act), nn.Linear(5, 3)),
        F.gelu,
        lambda relu: F.gelu,
    ),
    "SiLU, transposed convolution": (
        lambda act: layered(
            nn.ConvTranspose2d(2, 3, 2, stride=2), Calls(act), nn.AvgPool2d(4), nn.Flatten(), nn.Linear(27, 1)
        ),
        F.silu,
        lambda relu: F.silu,
    ),
    "PReLU": (
        lambda act: layered(nn.Flatten(), nn.Linear(72, 6), Calls(act), nn.Linear(6, 1)),
        lambda z: F.prelu(z, torch.full((6,), 0.3, dtype=z.dtype)),
        lambda relu: lambda z: relu(z) - 0.3 * relu(-z),
    ),
}  # fmt: skip


class Case:
    """A module, the same weights with the smooth activation written out, and candidates."""

    def __init__(self, name: str) -> None:
        make, own, smooth = ARCHITECTURES[name]
        with torch.random.fork_rng():
            torch.manual_seed(3)
            self.module = make(own).double()
        self.reference = make(smooth(gated_relu(ALPHA))).double()
        self.reference.load_state_dict(self.module.state_dict())
        self.reference.eval()
        self.network = module_network(self.module, SHAPE)
        self.target = Target.of(self.network)
        generator = torch.Generator().manual_seed(1)
        self.x = torch.randn(M, 72, generator=generator, dtype=torch.float64)
        self.c = torch.randn(M, generator=generator, dtype=torch.float64)
        self.labels = torch.arange(M) % self.network.architecture.outputs

    def outputs(self, x: Tensor) -> Tensor:
        return self.reference(x.reshape(-1, *SHAPE).clone()).reshape(len(x), -1)

    def gradients(self, x: Tensor) -> list[list[Tensor]]:
        """Of each sample alone, by autograd; parameters of which nothing is made have zeros."""
        e = output_directions(self.outputs(x).detach(), self.labels, self.target.objective)
        parameters = list(self.reference.parameters())
        found = []
        for point, direction in zip(x, e, strict=True):
            phi = self.outputs(point[None])[0]
            parts = torch.autograd.grad((phi * direction).sum(), parameters, create_graph=True, allow_unused=True)
            found.append(
                [torch.zeros_like(own) if part is None else part for own, part in zip(parameters, parts, strict=True)]
            )
        return found

    def loss(self, x: Tensor, c: Tensor) -> Tensor:
        per_sample = self.gradients(x)
        total = x.new_zeros(())
        for index, parameter in enumerate(self.reference.parameters()):
            fitted = torch.stack([c[i] * parts[index] for i, parts in enumerate(per_sample)]).sum(0)
            total = total + (parameter.detach() - fitted).square().sum()
        return total


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("block", [None, 2])
def test_gradients_are_those_of_autograd(name: str, block: int | None) -> None:
    case = Case(name)
    x, c = case.x.clone().requires_grad_(), case.c.clone().requires_grad_()
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        loss = case.loss(x, c)
        slopes = torch.autograd.grad(loss, (x, c))
    assert float(slopes[0].abs().amax()) > 1e-4
    found = AutogradStationarity(case.target, block_size=block, **EXACT).evaluate(case.x, case.c, case.labels, ALPHA)
    torch.testing.assert_close(found.loss.total, loss.detach())
    torch.testing.assert_close(found.gradients.x, slopes[0])
    torch.testing.assert_close(found.gradients.coefficients, slopes[1])


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_gradients_of_each_sample(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(name)
    engine = AutogradStationarity(case.target, **EXACT)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        expected = [torch.stack(parts).detach() for parts in zip(*case.gradients(case.x), strict=True)]
    found = engine.sample_gradients(case.x, case.labels, ALPHA)
    for own, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(own, wanted)
    flat = torch.cat([part.reshape(M, -1) for part in expected], 1)
    torch.testing.assert_close(engine.gradient_gram(case.x, case.labels, ALPHA), flat @ flat.T)
    monkeypatch.setattr("recon_core.attacks.autograd_loss._GRADIENT_BYTES", 1)  # one candidate at a time
    torch.testing.assert_close(engine.gradient_gram(case.x, case.labels, ALPHA), flat @ flat.T)


# ---- beside the closed form ----


def dense_module(outputs: int, dtype: torch.dtype = torch.float64) -> tuple[Target, Target]:
    """The same weights as a network of the papers and as a module."""
    shape = Architecture(SHAPE, (11, 8), outputs, biases=(True, True, True))
    network = build_network(shape, init_scale="kaiming", seed=2, dtype=dtype)
    module = layered(nn.Flatten(), nn.Linear(72, 11), nn.ReLU(), nn.Linear(11, 8), nn.ReLU(), nn.Linear(8, outputs)).to(
        dtype
    )
    module.load_state_dict(dict(zip(module.state_dict(), network.state_dict().values(), strict=True)))
    return Target.of(network), Target.of(module_network(module, SHAPE))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize("metric", [False, True])
@pytest.mark.parametrize("outputs", [1, 4])
def test_module_path_is_the_closed_form(outputs: int, metric: bool, dtype: torch.dtype, tolerance: float) -> None:
    closed, general = dense_module(outputs, dtype)
    generator = torch.Generator().manual_seed(4)
    basis = torch.linalg.qr(torch.randn(72, 6, generator=generator).to(dtype)).Q
    options: dict[str, Any] = {
        "basis": basis,
        "layer_weights": (1.0, 0.3, 2.0),
        "dtype": dtype,
        "device": EXACT["device"],
    }
    engines = [DenseStationarity(closed, **options), AutogradStationarity(general, **options)]
    z = torch.randn(9, 6, generator=generator).to(dtype)
    c = torch.randn(9, generator=generator).to(dtype) / 9
    labels = torch.arange(9) % max(2, outputs)
    if metric:
        root = torch.randn(7, 7, generator=generator).to(dtype)
        for engine in engines:
            engine.metric = root @ root.T
    expected, found = (engine.evaluate(z, c, labels, 7.0) for engine in engines)
    close = {"rtol": tolerance, "atol": tolerance}
    torch.testing.assert_close(found.loss.per_layer, expected.loss.per_layer, **close)
    torch.testing.assert_close(found.gradients.x, expected.gradients.x, rtol=tolerance * 10, atol=tolerance)
    torch.testing.assert_close(found.gradients.coefficients, expected.gradients.coefficients, **close)
    torch.testing.assert_close(found.first_deltas, expected.first_deltas, **close)
    if metric:
        torch.testing.assert_close(found.first_residual, expected.first_residual, **close)
    torch.testing.assert_close(engines[1].first_aim, engines[0].first_aim, **close)
    grams = [engine.gradient_gram(z, labels, 7.0) for engine in engines]
    torch.testing.assert_close(grams[1], grams[0], **close)


@pytest.mark.parametrize("recipe", ["fast", "copies", "paper"])
def test_attacks_take_the_same_steps_on_either_path(recipe: str) -> None:
    # Of untrained weights one direction stands out, in which slopes vanish and Adam would follow their rounding.
    wide = {} if recipe == "paper" else {"rank": 8}
    settings = AttackSettings(recipe=recipe, m=8, iterations=24, dtype="float64", x_init_scale=0.1, **wide)
    ends = []
    with torch.no_grad():
        for target in dense_module(1):
            stepper = make_stepper(target, settings, 0)
            for _ in range(24):
                stepper.step()
            ends.append(stepper.candidates())
    torch.testing.assert_close(ends[1].x, ends[0].x, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ends[1].multipliers, ends[0].multipliers, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["LeNet in place", "residual, batch normalisation", "leaky", "attention"])
def test_a_resumed_attack_repeats_its_steps(name: str) -> None:
    target = Case(name).target
    settings = AttackSettings(recipe="fast", m=8, iterations=12, objective=target.objective)
    with torch.no_grad():
        whole, first, second = (make_stepper(target, settings, 0) for _ in range(3))
        before = whole.measure().stationarity.total
        for _ in range(12):
            whole.step()
        for _ in range(5):
            first.step()
        first.candidates()
        second.load_state({key: tensor.clone() for key, tensor in first.state().items()})
        for _ in range(7):
            second.step()
    assert whole.candidates().x.isfinite().all()
    assert torch.equal(whole.candidates().x, second.candidates().x)
    assert float(whole.measure().stationarity.total) < 1.5 * float(before)


# ---- ReLU wherever it occurs ----


@pytest.mark.parametrize(
    "relu",
    [
        torch.relu, F.relu, lambda z: z.relu(), lambda z: torch.relu_(z.clone()), lambda z: z.clone().relu_(),
        lambda z: F.relu(z.clone(), inplace=True), nn.ReLU(), lambda z: nn.ReLU(inplace=True)(z.clone()),
        lambda z: z.clamp(min=0), lambda z: z.clamp(0), lambda z: torch.clamp(z, min=0.0), lambda z: z.clamp_min(0),
        lambda z: F.leaky_relu(z, 0.0), lambda z: nn.LeakyReLU(0.0, inplace=True)(z.clone()),
        lambda z: F.prelu(z, torch.zeros(1, dtype=z.dtype)), lambda z: z.clone().clamp_(min=0),
    ],
)  # fmt: skip
def test_every_relu_is_smoothed(relu: Relu) -> None:
    z = torch.linspace(-2, 2, 9, dtype=torch.float64).requires_grad_()
    with SmoothRelu(3.0):
        a = relu(z)
        (slope,) = torch.autograd.grad(a.sum(), z, create_graph=True)
    s = torch.sigmoid(3.0 * z.detach())
    torch.testing.assert_close(a, z.relu())
    torch.testing.assert_close(slope.detach(), s)
    torch.testing.assert_close(torch.autograd.grad(slope.sum(), z)[0], 3.0 * s * (1 - s))


def test_other_clamps_are_left_alone() -> None:
    z = torch.tensor([-1.0, 0.5, 3.0])
    with SmoothRelu(3.0):
        assert z.clamp(0, 1).tolist() == [0.0, 0.5, 1.0]
        assert z.clamp(max=0).tolist() == [-1.0, 0.0, 0.0]
        assert z.clamp(min=1).tolist() == [1.0, 1.0, 3.0]


# ---- what a module has to be ----


class Says(nn.Module):
    """A linear layer whose output goes through a function."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.layer, self.function = nn.Linear(72, 3), function

    def forward(self, x: Tensor) -> Any:
        return self.function(self.layer(x.flatten(1)))


class _Once(torch.autograd.Function):
    """Torch leaves its second derivative out without a word."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return grads[0] * 2


REFUSED: dict[str, tuple[Callable[[], nn.Module], tuple[str, ...]]] = {
    "embedding": (lambda: layered(nn.Flatten(), nn.Embedding(5, 3)), ("'1' (Embedding)", "whole numbers", "behind it")),
    "recurrent": (lambda: layered(nn.Flatten(), nn.LSTM(72, 3)), ("'1' (LSTM)", "second derivative", "write it out")),
    "batch statistics": (
        lambda: layered(nn.Flatten(), nn.BatchNorm1d(72, track_running_stats=False), nn.Linear(72, 2)),
        ("'1' (BatchNorm1d)", "depends on its batch", "track_running_stats"),
    ),
    "lazy": (lambda: nn.LazyLinear(3), ("LazyLinear", "run the module once")),
    "no parameters": (nn.Flatten, ("no parameters",)),
    "another shape": (lambda: nn.Conv2d(5, 2, 3), ("does not take inputs of shape (2, 6, 6)", "input_shape")),
    "images out": (lambda: nn.Conv2d(2, 2, 3), ("gives (3, 2, 4, 4)", "(n, outputs)")),
    "tuple": (lambda: Says(lambda z: (z, z)), ("gives tuple", "wrap it")),
    "random": (lambda: Says(lambda z: z + torch.rand_like(z)), ("different outputs for the same input",)),
    "mixes samples": (lambda: Says(lambda z: z - z.mean(0)), ("alone than in a batch",)),
    "not finite": (lambda: Says(lambda z: z / 0), ("not finite",)),
    "constant": (lambda: Says(lambda z: z.sign()), ("does not change with its input",)),
    "once": (
        lambda: layered(nn.Flatten(), nn.Linear(72, 3), Calls(lambda z: _Once.apply(z.square())), nn.Linear(3, 1)),
        ("'2' (Calls)", "differentiated twice", "replace it"),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_attacked_is_named(name: str) -> None:
    make, parts = REFUSED[name]
    with pytest.raises(InputError) as caught:
        module_network(make(), SHAPE)
    assert "\n" not in str(caught.value)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize("seed", [7, 8, 10, 33, 52])
def test_a_derivative_that_is_right_by_chance_at_a_point_is_not_believed(seed: int) -> None:
    """With these weights some point and direction agree with differences of the gradient to within two per cent."""
    torch.manual_seed(seed)
    with pytest.raises(InputError, match="its second derivative is wrong or left out"):
        module_network(REFUSED["once"][0](), SHAPE)


def test_the_module_given_is_left_as_it_is() -> None:
    module = layered(nn.Flatten(), nn.Linear(72, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(), nn.Linear(6, 1))
    module[2].eval()
    module[1].bias.requires_grad_(False)
    before = {key: tensor.clone() for key, tensor in module.state_dict().items()}
    network = module_network(module, SHAPE)
    engine = AutogradStationarity(Target.of(network), **EXACT)
    engine.evaluate(
        torch.ones(2, 72, dtype=torch.float64), torch.ones(2, dtype=torch.float64), torch.tensor([0, 1]), 9.0
    )
    assert [part.training for part in module] == [True, True, False, True, True, True]
    assert all(torch.equal(before[key], tensor) for key, tensor in module.state_dict().items())
    assert [parameter.requires_grad for parameter in module[1].parameters()] == [True, False]
    assert network.architecture.dense_first
    assert "module.1.bias" not in engine.names  # what was frozen was not trained


def test_an_untrained_module_is_started_anew() -> None:
    module = layered(nn.Flatten(), nn.Linear(72, 6), nn.ReLU(), nn.Linear(6, 1))
    network = module_network(module, SHAPE)
    fresh, again, other = network.untrained(1), network.untrained(1), network.untrained(2)
    weights = [made.get_parameter("module.1.weight") for made in (network, fresh, again, other)]
    assert torch.equal(weights[1], weights[2])
    assert not torch.equal(weights[1], weights[0])
    assert not torch.equal(weights[1], weights[3])
    assert isinstance(fresh, ModuleNetwork)
    with pytest.raises(InputError, match=r"'' has no|'module' \(Tied\) has no reset_parameters"):
        module_network(Tied(torch.relu), SHAPE).untrained(0)


def test_objective_follows_from_the_outputs() -> None:
    assert Case("attention").target.objective is Task.MULTICLASS
    assert Case("tied weights").target.objective is Task.BINARY
