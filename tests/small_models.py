"""Networks that take no training."""

from __future__ import annotations

from pathlib import Path

import torch

from recon_core.kinds import perform
from recon_core.models import Architecture, build_network
from recon_core.runs import StopFlag
from recon_core.store import Run, RunStore


def imported_model(store: RunStore, folder: Path) -> Run:
    """Somebody else's network of 16 neurons for images of 8 x 8, taken into the store."""
    network = build_network(Architecture((1, 8, 8), (10, 6), 1), init_scale="kaiming", seed=1)
    torch.save(network.state_dict(), folder / "theirs.pth")
    run = store.create("model", {"path": str(folder / "theirs.pth"), "input_shape": None})
    perform(run, StopFlag())
    return run
