"""Runs made by hand, so that a match run knows what it must find."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from recon_core.config import TrainConfig, parse_config
from recon_core.data import TaskData, load_task
from recon_core.store import Run, RunState, RunStore

MNIST: dict[str, Any] = {
    "data": {"source": "mnist", "n": 6, "test_n": 20},
    "model": {"widths": [8]},
    "training": {"epochs": 1},
}
CIRCLE: dict[str, Any] = {
    "data": {"source": "circle", "n": 6},
    "model": {"widths": [8]},
    "training": {"epochs": 1},
}


def data_of(values: dict[str, Any]) -> TaskData:
    return load_task(parse_config(TrainConfig, values).data)


def train_run(store: RunStore, values: dict[str, Any], fingerprint: str | None = None) -> Run:
    """A network nobody trained, with the figures a training run leaves: outputs -3, -2, ... in turn."""
    config = parse_config(TrainConfig, values)
    data = load_task(config.data)
    n, outputs = data.n, torch.arange(data.n, dtype=torch.float32)[:, None] + 1.5
    signs = data.signs[:, None]
    run = store.create("train", config.model_dump(mode="json"))
    generator = torch.Generator().manual_seed(0)
    with run.writer() as writer:
        writer.start(1)
        width = data.train_x[0].numel()
        writer.save_tensors("weights", {"layers.0.weight": torch.randn(8, width, generator=generator)})
        writer.save_tensors(
            "samples",
            {
                "outputs": outputs * signs,
                "margins": outputs[:, 0],
                "multipliers": torch.linspace(0, 1, n, dtype=torch.float64)[:, None],
                "on_margin": outputs[:, 0] < 2,
                "singular_values": torch.linspace(3, 1, 8),
            },
        )
        about = {
            "fingerprint": fingerprint or data.fingerprint,
            "class_names": list(data.class_names),
            "input_shape": list(data.input_shape),
            "train_ids": data.train_ids.tolist(),
        }
        figures = {"n": n, "train_error": 0.0, "loss": 1e-6, "log_loss": -13.8, "test_error": 0.25, "test_loss": 0.7}
        writer.finish(RunState.DONE, {**figures, "data": about})
    return run


def candidate_run(
    store: RunStore,
    model: Run,
    candidates: Tensor,
    *,
    labels: Tensor | None = None,
    seeds: Tensor | None = None,
    kind: str = "reconstruct",
    baseline: str | None = None,
    state: RunState = RunState.DONE,
    confidence: Tensor | None = None,
) -> Run:
    run = store.create(kind, {"model": model.id, "baseline": baseline}, parents=[model.id])
    count = len(candidates)
    with run.writer() as writer:
        writer.start(1)
        tensors = {
            "candidates": candidates,
            "multipliers": torch.ones(count),
            "labels": torch.zeros(count, dtype=torch.long) if labels is None else labels,
            "seeds": torch.zeros(count, dtype=torch.long) if seeds is None else seeds,
        }
        if confidence is not None:
            tensors["confidence"] = confidence
        writer.save_tensors("candidates", tensors)
        writer.finish(state, {})
    return run


def leaking_run(store: RunStore, model: Run) -> Run:
    """Candidates of an MNIST model: five of noise, then training images 0 to 3 themselves."""
    data = data_of(MNIST)
    return candidate_run(store, model, torch.cat([noise(5, data.input_shape, 1), data.train_x[:4]]))


def noise(count: int, shape: tuple[int, ...], seed: int) -> Tensor:
    return 0.05 * torch.randn(count, *shape, generator=torch.Generator().manual_seed(seed))


def noisy_copies(images: Tensor, copies: int = 16, strength: float = 0.4) -> Tensor:
    """Each image several times over, too noisy to count alone: merging brings it back.

    Of the six images of MNIST, 0, 4 and 5 reach an SSIM of 0.5 at B = 1, 1.1 and 1.5.
    """
    return images.repeat(copies, 1, 1, 1) + strength * torch.randn(
        copies * len(images), *images.shape[1:], generator=torch.Generator().manual_seed(0)
    )
