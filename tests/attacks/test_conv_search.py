"""The search for images whose activations lie in the rows of the dense layer behind a convolution."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from scipy.optimize import nnls
from torch import Tensor

from recon_core.attacks import AttackSettings, Target, attack
from recon_core.attacks.autograd_loss import AutogradStationarity
from recon_core.attacks.fast_conv import ConvSearch, FastConvRecipe, _fit
from recon_core.attacks.registry import make_stepper
from recon_core.config import BiasMode, Task
from recon_core.errors import InputError
from recon_core.models import Architecture, Network, build_network
from recon_core.observing import Resume

SHAPE = (3, 8, 8)


class Listener:
    """Keeps rows and log; asks to stop once `stop_at` measurements were made, and keeps the checkpoint."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.stop_at = stop_at
        self.rows: list[Mapping[str, Any]] = []
        self.said: list[str] = []
        self.saved: Resume | None = None

    def metrics(self, row: Mapping[str, Any]) -> None:
        self.rows.append(row)

    def progress(self, step: int, fraction: float, message: str) -> None: ...

    def log(self, sentence: str) -> None:
        self.said.append(sentence)

    def snapshot(self, step: int, tensors: Mapping[str, Tensor]) -> None: ...

    def checkpoint(self, step: int, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        self.saved = Resume(step, {name: tensor.clone() for name, tensor in tensors.items()}, dict(meta))

    def checkpoint_due(self) -> bool:
        return False

    def stop_requested(self) -> bool:
        return self.stop_at is not None and len(self.rows) >= self.stop_at


def network(outputs: int = 1, bias: BiasMode = BiasMode.FIRST, widths: tuple[int, ...] = (60,)) -> Network:
    return build_network(Architecture(SHAPE, widths, outputs, bias, 3, 32), init_scale="kaiming", seed=0)


def smooth_images(n: int) -> Tensor:
    """Blobs of both signs, centred, (n, 3, 8, 8)."""
    coarse = torch.randn(n, 3, 4, 4, generator=torch.Generator().manual_seed(5))
    images = torch.nn.functional.interpolate(coarse, size=8, mode="bilinear")
    return images * (0.25 / images.square().mean((1, 2, 3), keepdim=True).sqrt())


def network_that_saw(images: Tensor) -> Network:
    """Its dense layer is sum_i c_i u_i h_i^T with gates of our choosing, plus a little of an initialisation."""
    made = network()
    conv, dense, last = made.layers
    generator = torch.Generator().manual_seed(6)
    with torch.no_grad():
        h = conv(images).relu().flatten(1)
        gates = (torch.rand(len(images), 60, generator=generator) < 0.5).float()
        u = gates * last.weight[0]
        signs = torch.tensor([1.0, -1.0]).repeat(len(images))[: len(images)]
        noise = torch.randn(dense.weight.shape, generator=generator)
        dense.weight.copy_((u * signs[:, None]).T @ h + 1e-6 * noise)
    return made


def settings(**more: Any) -> AttackSettings:
    return AttackSettings(**{"m": 16, "iterations": 40, "device": "cpu", **more})


def likeness(candidates: Tensor, images: Tensor) -> Tensor:
    """Best correlation of each image with any candidate."""
    a, b = candidates.flatten(1), images.flatten(1)
    a, b = a - a.mean(1, keepdim=True), b - b.mean(1, keepdim=True)
    return ((b / b.norm(dim=1, keepdim=True)) @ (a / a.norm(dim=1, keepdim=True)).T).amax(1)


def search(dtype: torch.dtype = torch.float64, bias: bool = True) -> ConvSearch:
    generator = torch.Generator().manual_seed(1)
    kernel = torch.randn(4, 3, 3, 3, generator=generator, dtype=dtype)
    basis = torch.linalg.qr(torch.randn(4 * 36, 7, generator=generator, dtype=dtype)).Q
    return ConvSearch(kernel, torch.randn(4, generator=generator, dtype=dtype) if bias else None, basis, SHAPE)


@pytest.mark.parametrize("bias", [True, False])
def test_the_gradient_is_that_of_the_loss(bias: bool) -> None:
    found = search(bias=bias)
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(5, math.prod(SHAPE), generator=generator, dtype=torch.float64, requires_grad=True)
    g = torch.randn(5, 7, generator=generator, dtype=torch.float64)
    (wanted,) = torch.autograd.grad(found.value(x, g).sum(), x)
    torch.testing.assert_close(found.gradient(x.detach(), g), wanted)


def test_activations_in_the_space_have_nothing_outside() -> None:
    found = search()
    x = torch.randn(3, math.prod(SHAPE), generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    inside = ConvSearch(found.kernel, found.bias, torch.linalg.qr(found.activations(x).h.T).Q, SHAPE)
    assert inside.outside(x).max() < 1e-6
    assert inside.outside(x.flip(1)).min() > 0.1


def test_a_black_image_without_a_bias_is_no_fault() -> None:
    found = search(torch.float32, bias=False)
    x, g = torch.zeros(2, math.prod(SHAPE)), torch.ones(2, 7)
    assert torch.isfinite(found.value(x, g)).all()
    assert torch.isfinite(found.gradient(x, g)).all()
    assert torch.isfinite(found.outside(x)).all()


def test_images_come_back_from_a_layer_made_of_their_activations() -> None:
    images = smooth_images(5)
    listener = Listener()
    found = attack(Target.of(network_that_saw(images)), settings(m=24, iterations=600), listener)
    others = smooth_images(40)[5:]
    assert (likeness(found.candidates, images) > 0.95).sum() >= 4
    assert (likeness(found.candidates, others) > 0.95).sum() == 0
    assert listener.said[0].startswith("5 directions")


def test_an_untrained_network_gives_nothing_away() -> None:
    images = smooth_images(5)
    found = attack(Target.of(network()), settings(m=24, iterations=100), Listener())
    assert torch.isfinite(found.candidates).all()
    assert (likeness(found.candidates, images) > 0.8).sum() == 0


def test_known_init_removes_what_the_network_started_with() -> None:
    images = smooth_images(5)
    changed, start = network_that_saw(images), network()
    with torch.no_grad():
        changed.layers[1].weight.add_(start.layers[1].weight)
    found = attack(Target.of(changed, initial=start), settings(m=24, iterations=600), Listener())
    assert (likeness(found.candidates, images) > 0.95).sum() >= 4


def test_directions_of_later_rounds_leave_out_what_was_found() -> None:
    stepper = make_stepper(Target.of(network_that_saw(smooth_images(5))), settings(m=16, iterations=400), 0)
    assert isinstance(stepper, FastConvRecipe)
    with torch.no_grad():
        for _ in range(101):
            stepper.step()
    known = stepper.known[: stepper.known_count]
    assert 1 <= len(known) < stepper.known.shape[0]
    torch.testing.assert_close(known @ known.T, torch.eye(len(known)), atol=1e-5, rtol=0)
    torch.testing.assert_close(stepper.g[4:] @ known.T, torch.zeros(12, len(known)), atol=1e-5, rtol=0)
    assert "found" in stepper.take_notes()[-1]


@pytest.mark.parametrize(
    ("made", "objective"),
    [
        (network(), Task.BINARY),
        (network(outputs=3, bias=BiasMode.HIDDEN), Task.MULTICLASS),
        (network(widths=(20, 12), bias=BiasMode.NONE), Task.REGRESSION),
    ],
    ids=["binary", "multiclass", "regression"],
)
def test_labels_follow_the_output_and_multipliers_are_not_negative(made: Network, objective: Task) -> None:
    found = attack(Target.of(made, objective), settings(), Listener())
    with torch.no_grad():
        phi = made(found.candidates)
    expected = phi.argmax(1) if objective is Task.MULTICLASS else (phi[:, 0] > 0).long()
    assert torch.equal(found.labels, expected)
    assert (found.multipliers >= 0).all()
    assert found.multipliers.amax() > 0
    # Non-negative least squares on one layer cannot make that layer worse than no candidates at all.
    assert found.summary["residual_layer2"] <= 1.01


def test_a_resumed_attack_takes_the_same_steps() -> None:
    target = Target.of(network_that_saw(smooth_images(5)))
    whole = attack(target, settings(measure_every=5), Listener())
    stopped = Listener(4)
    attack(target, settings(measure_every=5), stopped)
    resumed = attack(target, settings(measure_every=5), Listener(), stopped.saved)
    assert torch.equal(resumed.candidates, whole.candidates)
    assert torch.equal(resumed.multipliers, whole.multipliers)


def test_blocks_do_not_change_the_result() -> None:
    target = Target.of(network_that_saw(smooth_images(5)))
    whole = attack(target, settings(iterations=12, dtype="float64"), Listener())
    blocks = attack(target, settings(iterations=12, dtype="float64", block_size=3), Listener())
    torch.testing.assert_close(blocks.candidates, whole.candidates, atol=1e-5, rtol=0)


def test_fewer_steps_than_rounds() -> None:
    found = attack(Target.of(network()), settings(m=2, iterations=1), Listener())
    assert found.candidates.shape == (2, *SHAPE)


def test_multipliers_are_the_least_squares_ones() -> None:
    generator = torch.Generator().manual_seed(7)
    rows = torch.randn(6, 30, generator=generator, dtype=torch.float64)
    aim = torch.randn(30, generator=generator, dtype=torch.float64)
    signs = torch.tensor([1.0, -1.0, 1.0, 1.0, -1.0, -1.0], dtype=torch.float64)
    expected, _ = nnls((rows * signs[:, None]).T.numpy(), aim.numpy())
    torch.testing.assert_close(_fit(rows @ rows.T, signs, rows @ aim), torch.from_numpy(expected), atol=1e-6, rtol=0)


def test_the_loss_alone_is_the_loss() -> None:
    target = Target.of(network())
    generator = torch.Generator().manual_seed(8)
    x, c = torch.randn(6, math.prod(SHAPE), generator=generator), torch.randn(6, generator=generator)
    labels = torch.zeros(6, dtype=torch.long)
    for block_size in (None, 4):
        engine = AutogradStationarity(target, dtype=torch.float32, device=torch.device("cpu"), block_size=block_size)
        with torch.no_grad():
            alone = engine.residual(x, c, labels, 20.0)
            wanted = engine.evaluate(x, c, labels, 20.0).loss
        torch.testing.assert_close(alone.per_layer, wanted.per_layer)
        assert not alone.total.requires_grad


def test_a_dense_network_is_refused() -> None:
    dense = build_network(Architecture(SHAPE, (8,), 1), init_scale=0.1, seed=0)
    with pytest.raises(InputError, match="layers in front"):
        FastConvRecipe(Target.of(dense), settings(), 0)


def test_a_given_rank_is_searched_where_an_untrained_network_has_no_knee() -> None:
    stepper = make_stepper(Target.of(network()), settings(rank=7), 0)
    assert isinstance(stepper, FastConvRecipe)
    assert stepper.search.basis.shape[1] == 7


def test_only_the_dense_layer_behind_the_convolution_starts_small() -> None:
    architecture = Architecture(SHAPE, (60,), 1, BiasMode.FIRST, 3, 32)
    small = build_network(architecture, init_scale="kaiming", dense_init_scale=1e-5, seed=0)
    conv, dense, last = (layer.weight.detach() for layer in small.layers)
    assert float(dense.std()) == pytest.approx(1e-5, rel=0.05)
    assert torch.equal(conv, network().layers[0].weight)
    assert float(last.std()) > 0.01
