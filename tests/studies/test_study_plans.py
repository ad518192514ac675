"""Plans: what expands to what, whose keys are alike, and which requests are refused in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recon_core.attacks import find_attack
from recon_core.config import TrainConfig, parse_config
from recon_core.data.torchvision_sets import FULL_SETS
from recon_core.errors import InputError
from recon_core.runs.keys import attack_key, training_key, untrained_key
from recon_core.runs.reconstruction import Baseline
from recon_core.studies.catalogue import CATALOGUE, StudySize, find_study
from recon_core.studies.cells import attack_request, expand, untrained_request
from recon_core.studies.custom import own_plan, read_own
from recon_core.studies.plan import Scale, StudyPlan
from recon_core.studies.settings import full_key, known_keys
from recon_core.studies.starting import check_data
from tests.studies.tiny_studies import tiny_plan


def test_cells_are_panels_times_values_times_seeds() -> None:
    plan = tiny_plan(seeds=[0, 4], panels=[{"label": "a"}, {"label": "b", "settings": {"data.n": 20}}])
    cells = expand(plan)
    assert len(cells) == plan.size_in_cells == 2 * (2 + 1) * 2
    assert len({cell.id for cell in cells}) == len(cells)
    assert [cell.seed for cell in cells] == [0] * 6 + [4] * 6  # a whole curve before the next seed
    last = cells[-1]
    assert (last.panel, last.point, last.reference, last.seed) == ("b", "small start", True, 4)
    assert last.training.model.seed == 4
    assert last.training.data.n == 20
    assert last.attack.m == 40  # twice the training images
    assert last.attack.seed == 4000


def test_later_settings_win_and_none_takes_one_back() -> None:
    plan = tiny_plan(
        base={"data.n": 10, "training.recipe": "flow", "training.epochs": 5},
        panels=[{"label": "p", "settings": {"training.epochs": 7}}],
        points=[{"label": "flow"}, {"label": "decay", "settings": {"training.recipe": None, "weight_decay": 0.1}}],
        references=[],
    )
    flow, decay = expand(plan)
    assert (flow.training.training.recipe, flow.training.training.epochs) == ("flow", 7)
    assert (decay.training.training.recipe, decay.training.training.weight_decay) == ("stationary", 0.1)


def test_keys_tell_apart_what_changes_the_result_and_nothing_else() -> None:
    cell = expand(tiny_plan())[0]
    key = training_key(cell.training, None)
    values = cell.training.model_dump(mode="json")
    same = parse_config(TrainConfig, {**values, "device": "cpu"})
    other = parse_config(TrainConfig, {**values, "model": {**values["model"], "seed": 1}})
    assert training_key(same, None) == key
    assert training_key(other, None) != key
    assert training_key(cell.training, "fingerprint of my images") != key

    request = attack_request(cell, "")
    unseen = request.model_copy(update={"settings": request.settings.model_copy(update={"snapshots": 24})})
    longer = request.model_copy(update={"settings": request.settings.model_copy(update={"iterations": 31})})
    assert attack_key(key, unseen) == attack_key(key, request)
    assert attack_key(key, longer) != attack_key(key, request)
    version = find_attack(request.settings.recipe).version
    assert attack_key(key, request, version) == attack_key(key, request)
    assert attack_key(key, request, version + 1) != attack_key(key, request)
    weights = request.model_copy(update={"baseline": Baseline.WEIGHTS})  # no attack is made there
    assert attack_key(key, weights, version + 1) == attack_key(key, weights)
    # An untrained network does not care how another one was trained from its start.
    further = parse_config(TrainConfig, {**values, "training": {"recipe": "flow", "target_log_loss": -99.0}})
    control = untrained_request(cell, "")
    known = untrained_key(control, cell.training, cell.architecture)
    assert untrained_key(control, further, cell.architecture) == known
    assert untrained_key(control, other, cell.architecture) != known
    assert untrained_key(control, cell.training, cell.architecture, version) == known
    assert untrained_key(control, cell.training, cell.architecture, version + 1) != known


@pytest.mark.parametrize(("name", "size"), [(name, size) for name, s in CATALOGUE.items() for size in s.sizes])
def test_every_built_in_study_expands(name: str, size: StudySize) -> None:
    plan = find_study(name).plan(size)
    cells = expand(plan)
    assert len({cell.id for cell in cells}) == len(cells) == plan.size_in_cells
    if size is StudySize.QUICK:
        # Nothing to fetch, nothing for a GPU.
        assert not any(cell.training.data.source.endswith(("-full", "100")) for cell in cells)
        assert max(cell.n for cell in cells) <= 200
    if size is StudySize.PAPER_N:
        check_data(plan)  # all of it from the embedded images
        assert not any(cell.training.data.source in FULL_SETS for cell in cells)
        assert plan.seeds == (0,)
        assert all(cell.attack.seeds == 1 for cell in cells)
        assert "one seed" in plan.about
    assert plan.where == "ours" or "Fig." in plan.where
    assert plan.claims


def test_the_weight_decay_study_is_the_papers() -> None:
    plan = find_study("weight-decay").plan()
    decays = [point.position for point in plan.points]
    assert decays[0] is None
    assert len([decay for decay in decays if decay]) == 12
    assert len(plan.seeds) == 3
    assert [panel.label for panel in plan.panels] == ["two classes", "ten classes"]
    starts = [cell.training.model.init_scale for cell in expand(plan) if cell.reference]
    assert set(starts) == {1e-3, 1e-4}


def test_a_size_that_a_study_does_not_have() -> None:
    with pytest.raises(InputError, match="has no size quick; choose --size paper-n or --size full"):
        find_study("many-samples").plan()
    with pytest.raises(InputError, match="did you mean weight-decay"):
        find_study("weight-dekay")


def test_a_smaller_study_keeps_the_keys_of_its_cells() -> None:
    plan = find_study("weight-decay").plan()
    small = plan.restricted(only=["0.001"], panels=["two classes"], seeds=1)
    whole = {cell.id: training_key(cell.training, None) for cell in expand(plan)}
    assert {cell.id: training_key(cell.training, None) for cell in expand(small)}.items() <= whole.items()
    assert small.size_in_cells == 3
    with pytest.raises(InputError, match=r"has no value '0\.003'; it has"):
        plan.restricted(only=["0.003"])


# -- own studies -----------------------------------------------------------------------------------

OWN = {
    "name": "My study!",
    "preset": "cifar10-50",
    "set": {"widths": [50, 50], "attack.iterations": 20},
    "vary": {"data.n": [10, 20, 400], "model.bias": ["first", "none"]},
    "seeds": 2,
    "references": {"standard start": {"init_scale": "kaiming"}},
}


def test_an_own_study_from_yaml_and_json_is_the_same(tmp_path: Path) -> None:
    import json

    import yaml

    (tmp_path / "one.yaml").write_text(yaml.safe_dump(OWN))
    (tmp_path / "two.json").write_text(json.dumps(OWN))
    plan = read_own(tmp_path / "one.yaml")
    assert plan == read_own(tmp_path / "two.json")
    assert (plan.name, plan.axis, plan.scale) == ("my-study", "training images", Scale.LOG)
    assert [point.label for point in plan.points] == ["10", "20", "400"]
    assert [panel.label for panel in plan.panels] == ["bias first", "bias none"]
    assert plan.overlay
    cells = expand(plan)
    assert len(cells) == 2 * (3 + 1) * 2
    assert cells[0].training.training.target_log_loss == -1000  # of the preset
    assert cells[-1].training.model.init_scale == "kaiming"


def test_a_preset_gives_way_to_what_is_varied() -> None:
    plan = own_plan({"preset": "cifar10-50", "vary": {"weight_decay": [None, 1e-4]}, "name": "decay"})
    none, decay = expand(plan)
    assert (none.point, none.training.training.recipe) == ("none", "flow")
    assert (decay.point, decay.training.training.recipe) == ("0.0001", "stationary")
    plan = own_plan({"preset": "cifar10-50", "set": {"task": "multiclass"}, "vary": {"per_class": [2, 3]}})
    assert [cell.n for cell in expand(plan)] == [20, 30]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "a study varies something"),
    ({"vary": {"data.n": [10]}, "points": {"a": {}}}, "give either vary"),
    ({"vary": {"data.n": []}}, "vary 'data.n' lists no values"),
    ({"vary": {"data.m": [10]}}, "a study cannot set 'data.m'; did you mean data.n"),
    ({"vary": {"seed": [1]}}, "'seed' could be data.seed or model.seed"),
    ({"vary": {"data.n": [10, 10]}}, "points has '10' twice"),
    ({"vary": {"data.n": [10]}, "seeds": 0}, "seeds must be 1 to 100"),
    ({"vary": {"data.n": [10]}, "seeds": [1, 1]}, "seeds must be different numbers"),
    ({"vary": {"data.n": [10]}, "colour": "red"}, "unknown key 'colour'"),
    ({"vary": {"data.n": [10]}, "preset": "cifar10-51"}, "unknown preset 'cifar10-51'"),
    ({"vary": {"data.n": [10]}, "name": "!!"}, "a study's name needs letters or digits"),
    ({"vary": {"data.n": [2 * i for i in range(1, 600)], "data.seed": list(range(10))}}, "at most 5000"),
    ({"vary": {"data.n": [0, 10, 400]}, "scale": "log"}, "a logarithmic axis needs positions above 0"),
]


@pytest.mark.parametrize(("values", "sentence"), REFUSED)
def test_an_own_study_that_makes_no_sense_is_refused(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        own_plan({"name": "own", **values})


def test_a_cell_that_makes_no_sense_is_named() -> None:
    plan = own_plan({"name": "own", "preset": "cifar10-50", "vary": {"data.n": [10, 15]}})
    with pytest.raises(InputError, match="study own, 15: n=15 cannot be split evenly"):
        expand(plan)
    plan = own_plan({"name": "own", "preset": "cifar10-50", "vary": {"match.threshold": [0.4, 2.0]}})
    with pytest.raises(InputError, match="study own, 2: "):
        expand(plan)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(b"\xff\xfe\x00", "neither JSON nor YAML"), (b"a: [", "neither JSON nor YAML"), (b"- 1", "must hold settings")],
)
def test_a_study_file_that_cannot_be_read(tmp_path: Path, content: bytes, sentence: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_bytes(content)
    with pytest.raises(InputError, match=sentence):
        read_own(file)
    with pytest.raises(InputError, match="cannot read study file"):
        read_own(tmp_path / "absent.yaml")


def test_keys_are_found_by_their_short_names() -> None:
    assert full_key("weight_decay") == "training.weight_decay"
    assert full_key("attack.m") == "attack.m"
    assert "match.threshold" in known_keys()
    assert "match.runs" not in known_keys()
    assert all(full_key(key) == key for key in known_keys())


def test_a_plan_survives_the_store() -> None:
    plan = find_study("convolution").plan()
    assert parse_config(StudyPlan, plan.model_dump(mode="json")) == plan
