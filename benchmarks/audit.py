"""Audits of models that were trained outside the product's recipes: seconds, and honest counts beside their chance."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import recon_core as rc

IMAGES, HELD_OUT = 50, 400
STEPS, RATE, MOMENTUM = 500, 0.02, 0.9
SHAPE = (3, 32, 32)
# Autograd through convolutions costs many times a step of the closed form.
MODULE_ITERATIONS = 300


def measure() -> dict[str, Any]:
    """All numbers of `python -m benchmarks audit`."""
    data = rc.load_data("cifar10", n=IMAGES, test_n=HELD_OUT, progress=False)
    found: dict[str, Any] = {"images": IMAGES}
    for name, module in {"dense": dense(), "lenet": lenet(), "vgg": vgg()}.items():
        train(module, data.samples.train_x, data.labels)
        found |= {f"{name}_{key}": value for key, value in _audited(name, module, data).items()}
    return found


def train(module: nn.Module, x: Tensor, y: Tensor) -> None:
    """What everybody writes."""
    torch.manual_seed(0)
    optimiser = torch.optim.SGD(module.parameters(), lr=RATE, momentum=MOMENTUM)
    module.train()
    for _ in range(STEPS):
        loss = F.cross_entropy(module(x), y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


def dense() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        *(nn.Flatten(), nn.Linear(3072, 500), nn.ReLU(), nn.Linear(500, 500), nn.ReLU(), nn.Linear(500, 2)),
    )


def lenet() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        *(nn.Conv2d(3, 6, 5), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.AvgPool2d(2)),
        *(nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 2)),
    )


def vgg() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(2048, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 2)),
    )


def _audited(name: str, module: nn.Module, data: rc.Data) -> dict[str, Any]:
    """The dense one by way of a file, as it would come from elsewhere; the others as modules."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        images = (data.images, data.labels)
        held_out = Path(folder) / "others.npz"
        _write(held_out, data)
        if name == "dense":
            file = Path(folder) / "model.pth"
            torch.save(module.state_dict(), file)
            audit = rc.audit(file, images, held_out=held_out, input_shape=SHAPE, progress=False)
        else:
            settings = {"iterations": MODULE_ITERATIONS, "m": 2 * IMAGES}
            audit = rc.audit(module, images, held_out=held_out, input_shape=SHAPE, progress=False, **settings)
    leak, report = audit.report.leak, audit.report
    by_name = {test.name: test for test in report.membership}
    return {
        "seconds": time.perf_counter() - started,
        "reconstructed": leak.reconstructed,
        "chance": leak.chance,
        "certain": 0 if report.certain is None else report.certain.certain,
        "accuracy": report.fit.accuracy,
        "membership_auc": by_name["reconstruction"].auc,
        "membership_loss_auc": by_name["loss"].auc,
        "tpr_at_1_percent": by_name["reconstruction"].at[0].true_positive_rate,
    }


def _write(file: Path, data: rc.Data) -> None:
    """Test images as a file of their own."""
    samples = data.samples
    pixels = (samples.test_x + samples.mean).clamp(0.0, 1.0)
    np.savez(file, images=pixels.numpy(), labels=samples.test_labels.numpy())
