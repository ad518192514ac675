"""What each recipe must reach, on small problems with known answers."""

from __future__ import annotations

import math

import pytest
import torch

from recon_core.config import BiasMode
from recon_core.models import Architecture, build_network
from recon_core.training.descent import DescentRecipe
from recon_core.training.flow import FlowRecipe, largest_eigenvalue
from recon_core.training.kkt import kkt_residual
from recon_core.training.losses import Loss
from recon_core.training.stationary import PLANNED_STEPS, StationaryRecipe, relative_gradient_norm
from recon_core.training.trainable import Trainable

N = 12


def problem(
    name: str = "logistic", init: float | str = 1e-3, widths: tuple[int, ...] = (40, 40), outputs: int = 1
) -> tuple[Trainable, Loss]:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(N, 1, 6, 6, generator=generator, dtype=torch.float64)
    architecture = Architecture((1, 6, 6), widths, outputs, BiasMode.FIRST)
    network = build_network(architecture, init_scale=init, seed=2, dtype=torch.float64)
    return Trainable(network, x - x.mean(0)), Loss(name, torch.arange(N) % max(outputs, 2))


def log_loss(net: Trainable, loss: Loss) -> float:
    return float(loss.log_mean_loss(loss.rows(net.forward().outputs).values))


def direction(net: Trainable) -> torch.Tensor:
    theta = torch.cat([layer.weight.flatten() for layer in net.full_layers()])
    return theta / theta.norm()


@pytest.mark.parametrize(("name", "outputs"), [("logistic", 1), ("cross-entropy", 6)])
def test_flow_reaches_its_target_and_stops_there(name: str, outputs: int) -> None:
    net, loss = problem(name, outputs=outputs)
    recipe = FlowRecipe(net, loss, max_change=0.1, log_target=-60.0, epoch_rate=0.01)
    for _ in range(400):
        recipe.step()
    assert log_loss(net, loss) == pytest.approx(-60.0, rel=0.02)
    assert bool((loss.margins(net.forward().outputs) > 0).all())


def test_flow_follows_the_path_of_small_gradient_descent_steps() -> None:
    """The same point at the same loss, and its clock counts the epochs that plain descent needed."""
    slow, loss = problem()
    descent = DescentRecipe(slow, loss, rate=0.05, decay=0.0, batch_size=None, seed=0)
    epochs = 0
    while log_loss(slow, loss) > -4.0:
        descent.step()
        epochs += 1
    cosines = []
    for change in (0.2, 0.03):
        fast, loss = problem()
        recipe = FlowRecipe(fast, loss, max_change=change, log_target=log_loss(slow, loss), epoch_rate=0.05)
        for _ in range(int(20 / change)):
            recipe.step()
        cosines.append(float(direction(fast) @ direction(slow)))
    assert math.exp(float(recipe.log_epochs)) == pytest.approx(epochs, rel=0.05)
    # Descent at this rate is itself only near the flow, so neither step size can agree with it fully.
    assert min(cosines) > 0.99


def test_kkt_residual_is_zero_where_the_weights_are_a_combination_of_gradients() -> None:
    """A two-layer net with open gates: theta = sum lam_i y_i grad is solved by hand for W1, not for w2."""
    net, loss = problem(widths=(30,))
    with torch.no_grad():
        run = net.forward()
        directions = loss.margin_directions(run.outputs)[:, None]
        gradients = net.gradients(run, directions)
        lam = torch.linspace(0.0, 1.0, N, dtype=torch.float64)[:, None]
        delta = gradients.deltas[0] * lam
        # Small weights of the right direction keep the gates that the gradients were taken with only if
        # they agree with them, so the gates are kept fixed by asking for layer 1 alone.
        net.dense[0].weight.copy_(delta.T @ run.inputs[0])
        net.dense[0].bias.copy_(delta.sum(0))
        net.outside.zero_()
        net.forward = lambda data=None: run  # type: ignore[method-assign]
        residual = kkt_residual(net, loss)
    assert residual.per_layer[0] == pytest.approx(0.0, abs=1e-6)
    assert residual.per_layer[1] > 0.1


def test_flow_explains_layer_one_better_the_further_it_goes() -> None:
    net, loss = problem(init=1e-4)
    residuals = []
    for target in (-5.0, -500.0):
        recipe = FlowRecipe(net, loss, max_change=0.05, log_target=target, epoch_rate=0.01)
        for _ in range(600):
            recipe.step()
        residuals.append(kkt_residual(net, loss))
    assert residuals[1].per_layer[0] < residuals[0].per_layer[0] < 1.0
    assert residuals[1].overall < residuals[0].overall
    assert (residuals[1].multipliers >= 0).all()


@pytest.mark.parametrize(
    ("name", "outputs"),
    [("logistic", 1), ("cross-entropy", 6), ("l2", 1), ("l2.5", 1), ("huber", 1)],
)
def test_stationary_proves_itself_by_its_gradient_norm(name: str, outputs: int) -> None:
    net, loss = problem(name, init="kaiming", outputs=outputs)
    recipe = StationaryRecipe(net, loss, decay=1e-3, max_change=0.1)
    start = float(recipe.objective(loss.rows(net.forward().outputs).values))
    for _ in range(PLANNED_STEPS):
        recipe.step()
    assert float(relative_gradient_norm(net, loss, 1e-3)) < 0.1
    net.sharpness = None
    assert float(recipe.objective(loss.rows(net.forward().outputs).values)) < start / 3


def test_stationary_is_where_gradient_descent_ends_too() -> None:
    """On a convex problem (one linear layer is not expressible, so a huge decay makes it so): theta = 0."""
    net, loss = problem(init="kaiming")
    recipe = StationaryRecipe(net, loss, decay=10.0, max_change=0.5)
    for _ in range(100):
        recipe.step()
    assert float(torch.stack(net.squared_norms()).sum()) < 1e-6


def test_relative_gradient_norm_equals_autograds() -> None:
    net, loss = problem(init="kaiming")
    network = net.to_network()
    mean = torch.nn.functional.softplus(-loss.signs(torch.float64) * network(net.data @ net.basis.T)[:, 0]).mean()
    gradients = torch.autograd.grad(mean, list(network.parameters()))
    theta = torch.cat([p.detach().flatten() for p in network.parameters()])
    total = torch.cat([g.flatten() for g in gradients]) + 0.01 * theta
    expected = float(total.norm() / (0.01 * theta.norm()))
    assert float(relative_gradient_norm(net, loss, 0.01)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("batch_size", [None, 5])
def test_descent_is_torchs_sgd(batch_size: int | None) -> None:
    net, loss = problem(init="kaiming")
    network = net.to_network()
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1, weight_decay=0.01)
    x = net.data @ net.basis.T
    recipe = DescentRecipe(net, loss, rate=0.1, decay=0.01, batch_size=batch_size, seed=7)
    for epoch in range(4):
        recipe.step()
        order = torch.arange(N)
        if batch_size:
            order = torch.randperm(N, generator=torch.Generator().manual_seed(7 * 1_000_003 + epoch))
        for batch in order.split(batch_size or N):
            optimiser.zero_grad()
            signs = loss.signs(torch.float64)[batch]
            torch.nn.functional.softplus(-signs * network(x[batch])[:, 0]).mean().backward()
            optimiser.step()
    for ours, theirs in zip(net.to_network().parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_largest_eigenvalue_comes_from_below() -> None:
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(20, 20, generator=generator, dtype=torch.float64)
    matrix = root @ root.T
    truth = float(torch.linalg.eigvalsh(matrix)[-1])
    found = float(largest_eigenvalue(matrix, torch.ones(20, dtype=torch.float64)))
    assert 0.9 * truth <= found <= truth * (1 + 1e-12)
