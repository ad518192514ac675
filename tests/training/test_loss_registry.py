"""A loss is one call: settings, messages, the form and training know it from there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from recon_core.config import DataConfig, TrainConfig, TrainingConfig, parse_config
from recon_core.data import load_task
from recon_core.errors import InputError
from recon_core.losses import LOSSES, LossFunction, Task, losses_of, register_loss
from recon_core.training.losses import Loss
from ui.shared.forms import _choices


def quartic() -> LossFunction:
    return LossFunction(
        "l4",
        Task.REGRESSION,
        "error to the power of 4",
        lambda error, _: error.pow(4),
        lambda error, _: 4 * error.pow(3),
        lambda error, _: 12 * error.square(),
    )


@pytest.fixture
def toy() -> Iterator[LossFunction]:
    yield register_loss(quartic())
    del LOSSES["l4"]


def asked(loss: str, task: str = "regression") -> dict[str, Any]:
    training = {"loss": loss, "recipe": "paper", "epochs": 30, "learning_rate": 0.05}
    return {"data": {"source": "circle", "n": 6, "task": task}, "model": {"widths": [20]}, "training": training}


@pytest.mark.usefixtures("toy")
def test_settings_and_messages_know_it() -> None:
    config = parse_config(TrainConfig, asked("l4"))
    assert config.training.loss == "l4"
    assert TrainConfig.model_validate_json(config.model_dump_json()) == config
    assert losses_of("regression") == ("l2", "l2.5", "huber", "l4")
    with pytest.raises(InputError, match=r"training.loss must be 'logistic', .* 'huber' or 'l4', got 'l5'"):
        parse_config(TrainConfig, asked("l5"))
    with pytest.raises(InputError, match="task binary goes with loss logistic, got l4"):
        parse_config(TrainConfig, asked("l4", "binary"))
    with pytest.raises(InputError, match="recipe flow follows the margin of a classifier, got loss l4"):
        parse_config(TrainingConfig, {"loss": "l4", "recipe": "flow", "epochs": 3})


@pytest.mark.usefixtures("toy")
def test_the_form_offers_it() -> None:
    assert _choices(TrainingConfig.model_fields["loss"].annotation) == [
        *losses_of("binary"),
        "cross-entropy",
        "l2",
        "l2.5",
        "huber",
        "l4",
    ]


@pytest.mark.usefixtures("toy")
def test_its_derivatives_are_used() -> None:
    data = load_task(parse_config(DataConfig, asked("l4")["data"]))
    loss = Loss("l4", data.train_labels)
    phi = torch.linspace(-1, 2, data.n, dtype=torch.float64)[:, None].requires_grad_()
    losses = loss.sample_losses(loss.rows(phi).values)
    assert torch.allclose(losses, (phi[:, 0] - data.signs).pow(4))
    (slopes,) = torch.autograd.grad(losses.sum(), phi)
    assert torch.allclose(loss.slopes(phi.detach()), slopes)


def test_a_name_is_taken_once() -> None:
    with pytest.raises(ValueError, match="there is a loss 'l2' already"):
        register_loss(LossFunction("l2", Task.REGRESSION, "", *[lambda error, _: error] * 3))
