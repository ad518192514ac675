"""An attack is one module: what is registered there is found by the command line, the form and the estimates."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import torch
from pydantic import Field
from streamlit.testing.v1 import AppTest
from torch import Tensor

from recon_core.attacks import (
    ATTACKS,
    Attack,
    AttackSettings,
    Candidates,
    Measurement,
    StationarityLoss,
    Target,
    register,
)
from recon_core.attacks.labels import assign_labels
from recon_core.attacks.registry import Cost, NetworkSize
from recon_core.config import TrainConfig, parse_config
from recon_core.errors import InputError
from recon_core.kinds import perform
from recon_core.runs import StopFlag
from recon_core.runs.attack_request import attack_request
from recon_core.runs.models import model_of
from recon_core.runs.reconstruction import ReconstructConfig
from recon_core.runs.requests import create_training
from recon_core.scheduling.estimates import estimate_reconstruction
from recon_core.store import Run, RunState, RunStore
from recon_core.studies.settings import describe_key
from ui.shared.store import forget

PROJECT = Path(__file__).resolve().parents[2]
CIRCLE = {
    "data": {"source": "circle", "n": 6},
    "model": {"widths": [20]},
    "training": {"recipe": "flow", "target_log_loss": -3.0},
}

Command = Callable[..., tuple[int, str, str]]


# -- a whole attack, as somebody would write it in a module of their own -------------------------------------------


class DriftSettings(AttackSettings):
    drift: float = Field(0.5, gt=0.0, description="how far candidates move in a step")


class Drift:
    """Moves all candidates along the diagonal, which finds nothing."""

    def __init__(self, target: Target, settings: DriftSettings, seed: int) -> None:
        self.settings = settings
        d, depth = torch.Size(target.architecture.input_shape).numel(), target.architecture.depth
        self.labels = assign_labels(settings.label_policy(target.objective), settings.m, target.architecture.outputs)
        self.x, self.layers = torch.full((settings.m, d), float(seed)), torch.ones(depth)

    def step(self) -> None:
        self.x += self.settings.drift

    def measure(self) -> Measurement:
        zero = torch.zeros(())
        return Measurement(StationarityLoss(self.layers, self.layers.sum()), zero, zero, 1.0)

    def candidates(self) -> Candidates:
        return Candidates(self.x, torch.ones(self.settings.m), self.labels)

    def take_notes(self) -> list[str]:
        return []

    def state(self) -> dict[str, Tensor]:
        return {"x": self.x}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        self.x.copy_(tensors["x"])


def _cost(settings: DriftSettings, size: NetworkSize) -> Cost:
    return Cost(0.0, 1e12 * settings.m)


def drift() -> Attack[DriftSettings]:
    return Attack(
        name="drift",
        description="candidates that walk along the diagonal",
        settings=DriftSettings,
        make=Drift,
        defaults={"iterations": 7},
        measure_every=3,
        cost=_cost,
        presets={"drift-far": {"recipe": "drift", "drift": 2.0}},
    )


# -- and who knows of it -------------------------------------------------------------------------------------------


@pytest.fixture
def toy() -> Iterator[Attack[DriftSettings]]:
    yield register(drift())
    del ATTACKS["drift"]


@pytest.fixture
def model(store: RunStore) -> Run:
    run = create_training(store, parse_config(TrainConfig, CIRCLE))
    assert perform(run, StopFlag()) is RunState.DONE
    return run


def test_the_attacks_of_this_project_are_registered() -> None:
    assert list(ATTACKS) == ["fast", "copies", "paper"]
    for attack in ATTACKS.values():
        assert attack.version >= 1
        assert attack.description
        assert attack.settings(recipe=attack.name).recipe == attack.name
        for name, field in attack.settings.model_fields.items():
            assert field.description, (attack.name, name)


@pytest.mark.usefixtures("toy")
def test_settings_are_those_of_the_attack() -> None:
    settings = parse_config(AttackSettings, {"recipe": "drift", "m": 4})
    assert isinstance(settings, DriftSettings)
    assert (settings.drift, settings.iterations) == (0.5, 7)
    config = ReconstructConfig(model="", settings=settings)
    assert config.model_dump(mode="json")["settings"]["drift"] == 0.5
    assert ReconstructConfig.model_validate_json(config.model_dump_json()) == config
    with pytest.raises(InputError, match="recipe must be 'fast', 'copies', 'paper' or 'drift', got 'drifft'"):
        parse_config(AttackSettings, {"recipe": "drifft"})
    assert describe_key("attack.drift") == "how far candidates move in a step"


def test_files_of_older_versions_hold_settings_of_all_attacks() -> None:
    stored = {"recipe": "fast", "m": 10, "pace": 0.1, "engine": None, "prior": "squared", "weight_floor": 5.0}
    settings = parse_config(AttackSettings, stored)
    assert (settings.recipe, settings.m) == ("fast", 10)
    assert "weight_floor" not in settings.model_dump()


@pytest.mark.usefixtures("toy")
def test_the_command_line_lists_and_performs_it(cli: Command, model: Run, store: RunStore) -> None:
    code, listed, _ = cli("attacks")
    assert code == 0
    assert "candidates that walk along the diagonal" in listed
    assert "drift-far" in listed
    assert "how far candidates move in a step" in cli("attacks", "drift")[1]
    names = [attack["name"] for attack in json.loads(cli("attacks", "--json")[1])]
    assert names == ["fast", "copies", "paper", "drift"]

    code, out, _ = cli("reconstruct", "--model", model.id, "--recipe", "drift", "--m", "4", "-s", "drift=0.25", "-q")
    assert code == 0
    run = store.open(out.strip())
    assert torch.equal(run.tensors("candidates")["candidates"], torch.full((4, 2), 7 * 0.25))
    assert [row["step"] for row in run.metrics()] == [0, 3, 6, 7]
    assert "drift=0.25" in run.command

    code, _, error = cli("reconstruct", "--model", model.id, "--recipe", "fast", "--set", "drift=0.25")
    assert code == 2
    assert "drift is a setting of recipe drift, got recipe fast; leave it out" in error
    code, _, error = cli("search", "--model", model.id, "--recipe", "drift", "--trials", "1")
    assert code == 2
    assert "a search draws lr_x, x_init_scale, lam_min, alpha, which recipe drift lacks" in error


@pytest.mark.usefixtures("toy")
def test_its_presets_can_be_started_from(model: Run) -> None:
    config = attack_request(model, model_of(model), "drift-far", {"m": 4}, False)
    assert isinstance(config.settings, DriftSettings)
    assert config.settings.drift == 2.0


@pytest.mark.usefixtures("toy")
def test_the_estimate_is_its_own(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recon_core.scheduling.estimates.matmul_rate", lambda store: 1e10)
    settings = parse_config(AttackSettings, {"recipe": "drift", "m": 4, "device": "cpu"})
    seconds = estimate_reconstruction(parse_config(TrainConfig, CIRCLE), settings, store, threads=1)
    assert seconds == pytest.approx(7 * 4e12 / 1e10, rel=0.01)


@pytest.mark.usefixtures("toy")
def test_the_form_offers_it(model: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recon_core.scheduling.estimates.matmul_rate", lambda store: 30e9)
    forget()
    app = AppTest.from_file(str(PROJECT / "app.py"), default_timeout=240)
    app.switch_page("pages/2_Reconstruct.py").run()
    assert not app.exception
    start = app.selectbox(key="r_start")
    assert "drift: candidates that walk along the diagonal" in start.options
    start.set_value("drift").run()
    assert not app.exception
    assert app.text_input(key="r_drift").placeholder == "0.5"
    assert "Attack drift" in [tab.label for tab in app.tabs]
    assert "r_pace" not in {widget.key for widget in app.text_input}


def test_a_name_is_taken_once() -> None:
    register(drift())
    try:
        with pytest.raises(ValueError, match="there is an attack 'drift' already; choose another name"):
            register(drift())
    finally:
        del ATTACKS["drift"]
