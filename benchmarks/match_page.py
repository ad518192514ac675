"""What a move of a slider costs on the Match page: 500 images, 100,000 candidates, all of them matched before."""

from __future__ import annotations

import logging
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from streamlit.testing.v1 import AppTest

from benchmarks.match import CANDIDATES, IMAGES, THREADS, SyntheticTask
from recon_core.config import TrainConfig, parse_config
from recon_core.data import TaskData, load_task
from recon_core.kinds import perform
from recon_core.runs import StopFlag
from recon_core.runs.match_request import create_match
from recon_core.runs.match_source import MatchConfig
from recon_core.store import Run, RunState, RunStore

APP = Path(__file__).resolve().parent.parent / "app.py"
PAGE = "pages/3_Match.py"
FLOOR_CANDIDATES = 10_000
OPEN_SECONDS = 300.0
# Values that no rerun before has seen, so that nothing is found in a cache by luck.
THRESHOLDS = (0.31, 0.35, 0.44, 0.52, 0.61, 0.7, 0.27)
MERGE_FACTORS = (1.02, 1.07, 1.13, 1.24, 1.36, 1.6, 1.85)


def measure() -> dict[str, float]:
    """Seconds from a slider's move to the end of the page's rerun, wall and processor time, medians and the worst."""
    torch.set_num_threads(THREADS)
    logging.getLogger("streamlit").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="afterimage-") as folder:
        os.environ["AFTERIMAGE_STORE"] = folder
        started = time.perf_counter()
        _fill(RunStore(Path(folder)), Path(folder) / "images.npz")
        filled = time.perf_counter()
        page = _opened()
        opened = time.perf_counter()
        threshold = [_timed(page, "m_t", value) for value in THRESHOLDS]
        factor = [_timed(page, "m_b", value) for value in MERGE_FACTORS]
    return {
        "fill_and_match_seconds": filled - started,
        "open_seconds": opened - filled,
        "threshold_seconds": statistics.median(wall for wall, _ in threshold),
        "threshold_seconds_worst": max(wall for wall, _ in threshold),
        "threshold_cpu_seconds": statistics.median(cpu for _, cpu in threshold),
        "merge_factor_seconds": statistics.median(wall for wall, _ in factor),
        "merge_factor_seconds_worst": max(wall for wall, _ in factor),
        "merge_factor_cpu_seconds": statistics.median(cpu for _, cpu in factor),
        "images": IMAGES,
        "candidates": CANDIDATES,
        "threads": THREADS,
    }


def _opened() -> AppTest:
    page = AppTest.from_file(str(APP), default_timeout=OPEN_SECONDS)
    page.switch_page(PAGE)
    deadline = time.monotonic() + OPEN_SECONDS
    while time.monotonic() < deadline:
        page.run()
        if page.exception or page.error:
            raise RuntimeError(f"the page failed: {[*page.exception, *page.error]}")
        if any(found.proto.component_name == "afterimage_match_board" for found in page.get("bidi_component")):
            return page
    raise RuntimeError(f"the page did not open its pool within {OPEN_SECONDS:g} s")


def _timed(page: AppTest, slider: str, value: float) -> tuple[float, float]:
    page.slider(key=slider).set_value(value)
    wall, cpu = time.perf_counter(), time.process_time()
    page.run()
    return time.perf_counter() - wall, time.process_time() - cpu


def _fill(store: RunStore, file: Path) -> None:
    """A network nobody trained, candidates nobody reconstructed, and a match run that leaves its neighbours."""
    task = SyntheticTask()
    images = (task.x + task.mean).clamp(0, 1).numpy()
    labels = np.arange(IMAGES) % 2
    np.savez(file, images=images, labels=labels, test_images=images[:, :, ::-1].copy(), test_labels=labels)
    values = {
        "data": {"source": "npz", "path": str(file), "n": IMAGES},
        "model": {"widths": [8]},
        "training": {"epochs": 1},
    }
    config = parse_config(TrainConfig, values)
    data = load_task(config.data)
    model = store.create("train", config.model_dump(mode="json"))
    with model.writer() as writer:
        writer.start(1)
        writer.save_tensors("samples", {"outputs": torch.ones(IMAGES, 1)})
        writer.finish(RunState.DONE, {"data": {"fingerprint": data.fingerprint}})
    attacked = _candidates(store, model, task.candidates, None)
    floor = _candidates(store, model, 0.25 * torch.randn(FLOOR_CANDIDATES, *task.x.shape[1:]), "untrained")
    _match(store, MatchConfig(runs=(attacked.id,), untrained=floor.id), data)


def _candidates(store: RunStore, model: Run, candidates: torch.Tensor, baseline: str | None) -> Run:
    run = store.create("reconstruct", {"model": model.id, "baseline": baseline}, parents=[model.id])
    count = len(candidates)
    tensors: dict[str, Any] = {
        "candidates": candidates,
        "multipliers": torch.ones(count),
        "labels": torch.zeros(count, dtype=torch.long),
        "seeds": torch.zeros(count, dtype=torch.long),
    }
    with run.writer() as writer:
        writer.start(1)
        writer.save_tensors("candidates", tensors)
        writer.finish(RunState.DONE, {"candidates": count})
    return run


def _match(store: RunStore, config: MatchConfig, data: TaskData) -> None:
    if perform(create_match(store, config), StopFlag(), data=data) is not RunState.DONE:
        raise RuntimeError("the match run did not finish")
