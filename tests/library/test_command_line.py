"""The library and the command line count alike: same run, same seed, same number."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import torch

import recon_core as rc
from recon_core.store import RunStore

PROJECT = Path(__file__).parents[2]


def command(*words: str) -> str:
    """A real process, in the checkout; standard output."""
    done = subprocess.run(
        [sys.executable, "-m", "recon_core", *words], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_good_is_what_the_command_line_counts(store: RunStore) -> None:
    sizes = ("--set", "n=12", "--set", "test_n=20", "--set", "widths=80,80", "--set", "target_log_loss=-60")
    trained = command("train", "--preset", "cifar10-50", *sizes, "--set", "model.seed=3", "-q")
    attacked = command("reconstruct", "--model", trained, "--m", "24", "--set", "iterations=120", "-s", "seed=5", "-q")
    matched = command("match", attacked, "-q")
    counted = json.loads(command("runs", "show", matched, "--json"))["result"]["count"]

    data = rc.load_data("cifar10", n=12, test_n=20)
    model = rc.train(data, widths=(80, 80), target_log_loss=-60, seed=3, progress=False)
    found = rc.reconstruct(model, m=24, iterations=120, seed=5, progress=False)
    score = rc.match(found, data)
    assert score.good(0.4) == counted["good"] > 0
    assert score.chance_at(0.4) <= counted["good"]
    assert torch.equal(score.ssim, store.open(matched).tensors("match")["ssim"])

    # The run of the command line, attacked again from here.
    again = rc.match(rc.reconstruct(trained, m=24, iterations=120, seed=5, progress=False), data)
    assert again.good(0.4) == counted["good"]
