"""What is done against overfitting: each against autograd, or against what it is by definition."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from recon_core.config import Augmentation, BiasMode, TrainConfig, parse_config
from recon_core.data import load_task
from recon_core.errors import InputError
from recon_core.models import Architecture, Network, build_network
from recon_core.training import StopReason, train
from recon_core.training.augmentation import SHIFT, augment
from recon_core.training.descent import DescentRecipe, Regularisation
from recon_core.training.losses import Loss
from recon_core.training.trainable import Trainable
from tests.training.test_session import Listener

DENSE = Architecture((1, 6, 6), (20, 15), 1, BiasMode.HIDDEN)
CONVOLUTION = Architecture((1, 6, 6), (20,), 3, BiasMode.HIDDEN, conv_kernel=3, conv_channels=4)


def images(count: int = 10) -> Tensor:
    x = torch.randn(count, 1, 6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return x - x.mean(0)


def network_of(architecture: Architecture) -> Network:
    return build_network(architecture, init_scale="kaiming", seed=1, dtype=torch.float64)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
def test_gradients_of_smoothed_labels_are_those_of_autograd(smoothing: float) -> None:
    phi = torch.randn(12, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64, requires_grad=True)
    labels = torch.arange(12) % 5
    F.cross_entropy(phi, labels, label_smoothing=smoothing, reduction="sum").backward()
    found = Loss("cross-entropy", labels).output_gradients(phi.detach(), smoothing)
    torch.testing.assert_close(found, phi.grad)


def test_two_smoothed_classes_in_one_output_are_two_outputs_apart_by_it() -> None:
    phi = torch.randn(12, 1, generator=torch.Generator().manual_seed(3), dtype=torch.float64, requires_grad=True)
    labels = torch.arange(12) % 2
    # phi is the positive class's lead over the other.
    F.cross_entropy(torch.cat([0 * phi, phi], 1), labels, label_smoothing=0.2, reduction="sum").backward()
    torch.testing.assert_close(Loss("logistic", labels).output_gradients(phi.detach(), 0.2), phi.grad)


@pytest.mark.parametrize("architecture", [DENSE, CONVOLUTION], ids=str)
def test_a_step_with_dropout_is_that_of_autograd_with_the_same_neurons_left_out(architecture: Architecture) -> None:
    x, share, rate = images(), 0.4, 0.1
    net = Trainable(network_of(architecture), x)
    run = net.drop(net.data, share, torch.Generator().manual_seed(7))
    output_grad = torch.randn(run.outputs.shape, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    net.descend_(run, output_grad, rate)

    reference, drawn = network_of(architecture), torch.Generator().manual_seed(7)

    def dropped(z: Tensor) -> Tensor:
        kept = torch.rand(z.flatten(1).shape, generator=drawn) >= share
        return (z.flatten(1).relu() * kept / (1 - share)).view_as(z)

    phi = reference(x, activation=dropped)
    torch.testing.assert_close(phi.detach(), run.outputs)
    (phi * output_grad).sum().backward()
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter -= rate * parameter.grad
    for mine, theirs in zip(net.to_network().parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_a_mirrored_image_is_mirrored_and_about_half_are() -> None:
    x = images(200)
    found = augment(x, Augmentation.FLIP, torch.Generator().manual_seed(0))
    same = (found == x).flatten(1).all(1)
    mirrored = (found == x.flip(3)).flatten(1).all(1)
    assert bool((same | mirrored).all())
    assert 70 < int(mirrored.sum()) < 130


def test_a_moved_image_is_a_window_of_the_padded_one() -> None:
    x = torch.rand(40, 2, 8, 7, generator=torch.Generator().manual_seed(0)) + 1
    found = augment(x, Augmentation.FLIP_SHIFT, torch.Generator().manual_seed(0))
    assert found.shape == x.shape
    padded = F.pad(x, (SHIFT,) * 4)
    moves = set()
    for moved, image, mirrored in zip(found, padded, F.pad(x.flip(3), (SHIFT,) * 4), strict=True):
        places = [
            (top, left)
            for top in range(2 * SHIFT + 1)
            for left in range(2 * SHIFT + 1)
            for whole in (image, mirrored)
            if torch.equal(whole[:, top : top + 8, left : left + 7], moved)
        ]
        assert len(places) == 1
        moves |= set(places)
    assert len(moves) > 15


def test_training_outside_the_span_takes_the_same_steps() -> None:
    x = images()
    loss = Loss("logistic", torch.arange(10) % 2)
    nets = [Trainable(network_of(DENSE), x, span=span) for span in (True, False)]
    assert nets[0].basis is not None
    assert nets[1].basis is None
    for net in nets:
        recipe = DescentRecipe(net, loss, rate=0.1, decay=0.01, batch_size=4, seed=0)
        for _ in range(5):
            recipe.step()
    for first, second in zip(*(net.to_network().parameters() for net in nets), strict=True):
        torch.testing.assert_close(first, second)


def test_augmented_training_resumes_with_the_same_draws() -> None:
    x, loss = images(), Loss("logistic", torch.arange(10) % 2)
    against = Regularisation(label_smoothing=0.1, dropout=0.3, augmentation=Augmentation.FLIP)

    def recipe() -> DescentRecipe:
        net = Trainable(network_of(DENSE), x, span=False)
        return DescentRecipe(net, loss, 0.1, 0.0, 4, 0, x, against)

    whole, first, second = recipe(), recipe(), recipe()
    for _ in range(4):
        whole.step()
    for _ in range(2):
        first.step()
    second.trainable.load_state(first.trainable.state())
    second.load_state(first.state())
    for _ in range(2):
        second.step()
    for mine, theirs in zip(whole.trainable.layers, second.trainable.layers, strict=True):
        assert torch.equal(mine.weight, theirs.weight)


def config(**changes: Any) -> TrainConfig:
    values = {"data": {"source": "mnist", "n": 10, "test_n": 20}, "model": {"widths": [20], "init_scale": "kaiming"}}
    return parse_config(TrainConfig, {**values, **changes})


def test_early_stopping_stops_at_the_level_and_not_before() -> None:
    listener = Listener()
    chosen = config(training={"recipe": "sgd", "epochs": 500, "target_loss": 0.2, "measure_every": 1, "batch_size": 5})
    outcome = train(chosen, load_task(chosen.data), listener)
    assert outcome.reason is StopReason.TARGET_LOSS
    losses = [row["loss"] for row in listener.rows]
    assert losses[-1] <= 0.2
    assert min(losses[:-2]) > 0.2  # the last row is measured twice: in the loop, and at its end


BAD = {
    "smoothing with flow": ({"recipe": "flow", "epochs": 5, "label_smoothing": 0.1}, "goes with recipe sgd or paper"),
    "dropout with dpsgd": ({"recipe": "dpsgd", "epochs": 5, "epsilon": 1, "dropout": 0.5}, "goes with recipe sgd"),
    "epsilon without dpsgd": ({"recipe": "sgd", "epochs": 5, "epsilon": 1}, "epsilon goes with recipe dpsgd"),
    "dpsgd without epsilon": ({"recipe": "dpsgd", "epochs": 5}, "needs epsilon and epochs"),
    "dpsgd to a loss": ({"recipe": "dpsgd", "epochs": 5, "epsilon": 1, "target_loss": 0.1}, "cannot stop at a loss"),
    "all dropped": ({"recipe": "sgd", "epochs": 5, "dropout": 1.0}, "dropout must be less than 1"),
    "an unknown augmentation": ({"recipe": "sgd", "epochs": 5, "augmentation": "turn"}, "'none', 'flip' or"),
}


@pytest.mark.parametrize(("training", "sentence"), BAD.values(), ids=BAD)
def test_what_does_not_go_together_is_a_sentence(training: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        config(training=training)


def test_labels_of_a_regression_are_not_smoothed_and_points_are_not_mirrored() -> None:
    smoothed = {"recipe": "paper", "epochs": 5, "label_smoothing": 0.1, "loss": "l2"}
    with pytest.raises(InputError, match="label_smoothing is for classifiers"):
        config(data={"source": "mnist", "n": 10, "task": "regression"}, training=smoothed)
    with pytest.raises(InputError, match="augmentation flip is for images"):
        config(data={"source": "circle", "n": 10}, training={"recipe": "sgd", "epochs": 5, "augmentation": "flip"})
