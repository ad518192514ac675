"""Whether attached images look like a training set, and how pixels become inputs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

import recon_core as rc
from recon_core.auditing.fit import Likeness, fit_of
from recon_core.auditing.normalisation import normalisations
from recon_core.auditing.residuals import layer_residuals
from recon_core.config import BiasMode, Task
from recon_core.data import TaskData
from recon_core.errors import InputError
from recon_core.models import Architecture, build_network
from recon_core.training.kkt import kkt_residual
from recon_core.training.losses import Loss
from recon_core.training.trainable import Trainable


@pytest.fixture(scope="module")
def ten() -> TaskData:
    """Four digits of each class."""
    return rc.load_data("mnist", task="multiclass", per_class=4, test_n=40, progress=False).samples


def trained_on(x: torch.Tensor, labels: torch.Tensor, outputs: int) -> nn.Module:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, outputs))
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    for _ in range(150):
        loss = nn.functional.cross_entropy(module(x), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return module


@pytest.mark.parametrize("name", ["centred", "unit", "symmetric", "mnist"])
def test_normalisation_is_recognised(ten: TaskData, name: str) -> None:
    """By what fits best; constants that differ by a factor only are as good as one another."""
    (true,) = normalisations(ten, name)
    x = true.inputs(true.attach(ten).train_x)
    fit = fit_of(trained_on(x, ten.train_labels, 10), ten, normalisations(ten), Task.MULTICLASS, lambda: None)
    assert fit.likeness is Likeness.FITS
    assert fit.members.accuracy == 1
    found = fit.normalisation
    if name in ("centred", "unit", "symmetric"):
        assert found.name == name
    else:
        assert float(fit.data.mean.mean()) == pytest.approx(float(true.attach(ten).mean.mean()), abs=0.02)


def test_pixels_survive_every_normalisation(ten: TaskData) -> None:
    images = ten.train_x + ten.mean
    for choice in normalisations(ten):
        attached = choice.attach(ten)
        assert torch.allclose(attached.train_x + attached.mean, images, atol=1e-6)
        assert torch.allclose(choice.pixels(choice.inputs(attached.train_x)), attached.train_x, atol=1e-6)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"name": "imagenet"}, r"normalisation must be auto, centred, .* of 1 channels, got 'imagenet'"),
        ({"mean": (0.1, 0.2)}, r"mean needs 1 number, got 2"),
        ({"std": (0.0,)}, r"std must be a number such as 0.25, for pixels in \[0, 1\], got 0"),
        ({"mean": (125.3,)}, r"mean must be a number such as 0.5, for pixels in \[0, 1\], got 125.3; divide it by 255"),
    ],
)
def test_impossible_normalisation_is_refused(ten: TaskData, values: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        normalisations(ten, **values)  # type: ignore[arg-type]


def test_other_images_do_not_look_like_the_training_set(ten: TaskData) -> None:
    module = trained_on(ten.train_x, ten.train_labels, 10)
    swapped = replace(ten, train_labels=(ten.train_labels + 1) % 10)
    fit = fit_of(module, swapped, normalisations(ten, "centred"), Task.MULTICLASS, lambda: None)
    assert fit.likeness is Likeness.REFUSED
    assert fit.sentence.startswith(
        "this does not look like its training set: 0% accuracy on its 40 images, where guessing gives 10%; "
        "with its classes in the order 1, 2, 3, 4"
    )
    assert fit.sentence.endswith("it would be 100%")


def test_partly_right_set_is_doubtful(ten: TaskData) -> None:
    module = trained_on(ten.train_x, ten.train_labels, 10)
    labels = ten.train_labels.clone()
    labels[:8] = (labels[:8] + 1) % 10
    fit = fit_of(
        module, replace(ten, train_labels=labels), normalisations(ten, "centred"), Task.MULTICLASS, lambda: None
    )
    assert fit.likeness is Likeness.DOUBTFUL
    assert "80% accuracy" in fit.sentence


@pytest.mark.parametrize(
    "architecture",
    [
        Architecture((1, 28, 28), (20, 10), 10),
        Architecture((1, 28, 28), (20,), 10, bias=BiasMode.HIDDEN),
        Architecture((1, 28, 28), (12,), 10, conv_kernel=5, conv_channels=3),
    ],
)
def test_residuals_are_those_of_the_closed_form(ten: TaskData, architecture: Architecture) -> None:
    network = build_network(architecture, init_scale="kaiming", seed=0, dtype=torch.float64)
    x, loss = ten.train_x.double(), Loss("cross-entropy", ten.train_labels)
    with torch.no_grad():
        expected = kkt_residual(Trainable(network, x), loss)
    found = layer_residuals(network, x, loss)
    assert found is not None
    assert list(found.by_layer.values()) == pytest.approx(expected.per_layer, abs=1e-7)
    assert found.overall == pytest.approx(expected.overall, abs=1e-7)


def test_residuals_of_strides_padding_and_work_in_place_equal_autograd(ten: TaskData) -> None:
    """The minimum over multipliers, with every gradient written out."""
    torch.manual_seed(0)
    module = nn.Sequential(
        *(
            nn.Conv2d(1, 4, 3, stride=2, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(4, 3, 3, dilation=2),
        ),
        *(nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(27, 10)),
    ).double()
    x, labels = ten.train_x[:6].double(), ten.train_labels[:6]
    loss = Loss("cross-entropy", labels)
    rows = []
    for row in range(6):
        phi = module(x[row : row + 1])
        margin = (phi * Loss("cross-entropy", labels[row : row + 1]).margin_directions(phi.detach())).sum()
        grads = torch.autograd.grad(margin, list(module.parameters()))
        rows.append(torch.cat([grad.flatten() for grad in grads]))
    theta = torch.cat([parameter.detach().flatten() for parameter in module.parameters()])
    from scipy.optimize import nnls

    _, left = nnls(torch.stack(rows).T.numpy(), theta.numpy())
    found = layer_residuals(module, x, loss)
    assert found is not None
    assert found.overall == pytest.approx(left / float(theta.norm()), abs=1e-6)


def test_shared_layers_are_not_measured(ten: TaskData) -> None:
    shared = nn.Linear(784, 784)
    module = nn.Sequential(nn.Flatten(), shared, nn.ReLU(), shared, nn.Linear(784, 10))
    assert layer_residuals(module, ten.train_x[:3], Loss("cross-entropy", ten.train_labels[:3])) is None
