"""Models trained outside the product: a few lines of SGD on pictures in folders, saved by torch.save."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

SIDE = 12
CLASSES = ("cats", "dogs")


class Foreign(NamedTuple):
    """A checkpoint, its training images in class folders, and others of the same kind."""

    file: Path
    photos: Path
    others: Path
    module: nn.Module


def write_images(folder: Path, counts: dict[str, int], seed: int) -> tuple[Tensor, Tensor]:
    """Smooth random grey pictures, as PNG files; returned as pixels in [0, 1] and class numbers."""
    rng = np.random.default_rng(seed)
    images, labels = [], []
    for number, (name, count) in enumerate(counts.items()):
        (folder / name).mkdir(parents=True)
        for index in range(count):
            coarse = rng.uniform(0, 255, (4, 4)).astype(np.uint8)
            picture = np.asarray(Image.fromarray(coarse).resize((SIDE, SIDE), Image.Resampling.BICUBIC))
            Image.fromarray(picture).save(folder / name / f"{index:03}.png")
            images.append(torch.from_numpy(picture.astype(np.float32) / 255)[None])
            labels.append(number)
    return torch.stack(images), torch.tensor(labels)


def train_elsewhere(
    folder: Path, *, counts: dict[str, int] | None = None, steps: int = 300, mean: float = 0.5
) -> Foreign:
    """Dense network, SGD with momentum; inputs are (pixel - mean) / 0.5."""
    counts = counts or {"cats": 5, "dogs": 3}
    images, labels = write_images(folder / "photos", counts, seed=0)
    write_images(folder / "others", dict.fromkeys(counts, 10), seed=1)
    torch.manual_seed(0)
    outputs = 1 if len(counts) == 2 else len(counts)
    module = nn.Sequential(
        *(nn.Flatten(), nn.Linear(SIDE * SIDE, 60), nn.ReLU(), nn.Linear(60, 30), nn.ReLU()),
        nn.Linear(30, outputs),
    )
    optimiser = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
    x = (images - mean) / 0.5
    for _ in range(steps):
        found = module(x)
        loss = (
            nn.functional.binary_cross_entropy_with_logits(found[:, 0], labels.float())
            if outputs == 1
            else nn.functional.cross_entropy(found, labels)
        )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    file = folder / "theirs.pth"
    torch.save(module.state_dict(), file)
    return Foreign(file, folder / "photos", folder / "others", module)
