from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from recon_core.store import Run, RunState, RunStore


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path / "runs")


@pytest.fixture
def done_run(store: RunStore) -> Callable[..., Run]:
    """Makes a finished run with metrics, weights and a result."""

    def make(*parents: str, kind: str = "train", result: float = 0.5, config: dict[str, object] | None = None) -> Run:
        command = ["python", "-m", "recon_core", kind, *(f"--from={parent}" for parent in parents)]
        run = store.create(kind, config or {"model": {"widths": [8, 8]}}, parents=parents, command=command)
        with run.writer() as writer:
            writer.start(2)
            for step in (1, 2):
                writer.metrics({"step": step, "loss": 1 / step})
                writer.checkpoint(step, {"w": torch.full((3,), float(step))}, {"step": step})
            writer.save_tensors("weights", {"w": torch.arange(6.0).reshape(2, 3)})
            writer.finish(RunState.DONE, {"loss": result})
        return run

    return make
