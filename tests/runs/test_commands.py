"""A run's command is made from its config alone, and makes a run with the same config."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from recon_core.config import TrainConfig, parse_config
from recon_core.kinds import perform
from recon_core.runs import StopFlag
from recon_core.runs.commands import repeat_command
from recon_core.runs.match_source import MatchConfig
from recon_core.runs.models import model_of
from recon_core.runs.reconstruction import ReconstructConfig, attack_settings
from recon_core.runs.requests import create_training
from recon_core.store import Run, RunState, RunStore
from recon_core.studies.requests import search_request

CIRCLE = {
    "data": {"source": "circle", "n": 6, "seed": 3},
    "model": {"widths": [20], "bias": "none"},
    "training": {"recipe": "flow", "epochs": 5},
}
QUICK = {"m": 6, "iterations": 4, "device": "cpu"}


@pytest.fixture
def model(store: RunStore) -> Run:
    run = create_training(store, parse_config(TrainConfig, CIRCLE))
    assert perform(run, StopFlag()) is RunState.DONE
    return run


def _reconstruct(model: Run, given: dict[str, Any], **more: Any) -> dict[str, Any]:
    settings = attack_settings(model_of(model), {**QUICK, **given})
    return ReconstructConfig(model=model.id, settings=settings, **more).model_dump(mode="json")


CONFIGS: dict[str, tuple[str, Callable[[Run], dict[str, Any]]]] = {
    "train": ("train", lambda model: dict(model.config)),
    "fast": (
        "reconstruct",
        lambda model: _reconstruct(model, {"ridge": 0.2, "layer_weights": "1,0.5"}),
    ),
    "copies": ("reconstruct", lambda model: _reconstruct(model, {"recipe": "copies", "rounds": 1})),
    "paper": (
        "reconstruct",
        lambda model: _reconstruct(model, {"recipe": "paper", "engine": "closed"}, known_init=True),
    ),
    "untrained": ("reconstruct", lambda model: _reconstruct(model, {}, baseline="untrained")),
    "search": (
        "search",
        lambda model: search_request(
            model, model_of(model), "paper", QUICK, {"trials": 2, "sampler": "random"}, False, {"workers": 1}
        ).model_dump(mode="json"),
    ),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_the_command_makes_the_same_config(
    name: str, model: Run, store: RunStore, cli: Callable[..., tuple[int, str, str]]
) -> None:
    kind, config_of = CONFIGS[name]
    config = config_of(model)
    command = repeat_command(kind, config)
    assert command[:3] == ["python", "-m", "recon_core"]
    code, out, error = cli(*command[3:], "--quiet")
    assert code == 0, error
    again = store.open(out.strip())
    assert (again.kind, again.config) == (kind, config)
    assert list(again.command) == command


def test_a_match_names_what_is_not_usual(model: Run, store: RunStore, cli: Callable[..., tuple[int, str, str]]) -> None:
    found = cli("reconstruct", "--model", model.id, "--m", "6", "--set", "iterations=4", "-q")[1].strip()
    config = MatchConfig(runs=(found,), multiplier_share=0.2, ssim="authors").model_dump(mode="json")
    command = repeat_command("match", config)
    assert command[3:] == ["match", found, "--ssim", "authors", "--multiplier-share", "0.2"]
    code, out, error = cli(*command[3:], "--quiet")
    assert code == 0, error
    assert store.open(out.strip()).config == config
