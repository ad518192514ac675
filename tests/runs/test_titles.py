"""Names for people, made from what runs were asked for."""

from __future__ import annotations

from typing import Any

import pytest

from recon_core.config import TrainConfig, parse_config
from recon_core.presets import PRESETS, Size
from recon_core.runs.titles import decay_text, title_of, titles, training_title
from recon_core.store import Run, RunStore


def training(**values: Any) -> dict[str, Any]:
    return parse_config(TrainConfig, values).model_dump(mode="json")


def with_decay(store: RunStore, name: str | None = None) -> Run:
    values = training(data={"source": "cifar10", "n": 50}, training={"weight_decay": 1e-4, "epochs": 5})
    return store.create("train", values, name=name)


@pytest.mark.parametrize(
    ("values", "title"),
    [
        ({"data": {"n": 50}, "training": {"weight_decay": 1e-4}}, "CIFAR-10, 50 images, decay 1e-4"),
        ({"data": {"source": "mnist", "n": 10}, "training": {"target_loss": 1e-3}}, "MNIST, 10 images"),
        (
            {"data": {"source": "circle", "n": 20}, "model": {"seed": 3}, "training": {"epochs": 5}},
            "Circle, 20 points, seed 3",
        ),
        (
            {"data": {"source": "folder", "path": "/some/where/pets"}, "training": {"epochs": 5}},
            "pets",
        ),
        (
            {"data": {"task": "multiclass", "per_class": 5}, "model": {"widths": [10, 20]}, "training": {"epochs": 5}},
            "CIFAR-10, 5 images per class, all classes, width 10-20",
        ),
    ],
)
def test_a_training_is_called_by_its_data_and_what_is_unusual(values: dict[str, Any], title: str) -> None:
    assert training_title(training(**values)) == title


def test_presets_of_one_size_have_titles_of_their_own() -> None:
    found = [training_title(preset.config(Size.PAPER).model_dump(mode="json")) for preset in PRESETS.values()]
    assert all(found)
    assert len(set(found)) >= len(found) - 2  # those that differ in how long they are trained only


@pytest.mark.parametrize(
    ("value", "text"), [(1e-4, "1e-4"), (2.5e-6, "2.5e-6"), (0.05, "0.05"), (0.001, "1e-3"), (3, "3")]
)
def test_decay_is_written_as_people_write_it(value: float, text: str) -> None:
    assert decay_text(value) == text


def test_what_is_done_to_a_model_is_called_after_it(store: RunStore) -> None:
    model = with_decay(store)
    settings = {"recipe": "copies", "seed": 0}
    attack = store.create("reconstruct", {"model": model.id, "settings": settings}, parents=[model.id])
    control = store.create(
        "reconstruct", {"baseline": "untrained", "settings": settings}, name="untrained", parents=[model.id]
    )
    match = store.create("match", {"runs": [attack.id]}, parents=[attack.id, control.id])
    found = titles(store, store.list())
    assert found == {
        model.id: "CIFAR-10, 50 images, decay 1e-4",
        attack.id: "CIFAR-10, 50 images, decay 1e-4: attack, seed 0",
        control.id: "CIFAR-10, 50 images, decay 1e-4: untrained network",
        match.id: "CIFAR-10, 50 images, decay 1e-4: matching",
    }
    store.rename(model.id, "mine")
    assert title_of(store, store.summary(attack.id)) == "mine: attack, seed 0"


def test_twins_are_numbered_by_age_and_the_user_has_the_last_word(store: RunStore) -> None:
    first, second, third = with_decay(store), with_decay(store), with_decay(store, "my own")
    found = titles(store, store.list())
    assert found[second.id] == f"{found[first.id]} #2"
    assert found[third.id] == "my own"


def test_a_preset_is_no_name_of_the_users(store: RunStore) -> None:
    run = store.create("train", PRESETS["cifar10-50"].config().model_dump(mode="json"), name="cifar10-50")
    assert title_of(store, store.summary(run.id)) == "CIFAR-10, 50 images"


@pytest.mark.parametrize("kind", ["train", "reconstruct", "match", "search", "study", "model"])
@pytest.mark.parametrize("config", [{}, {"data": 3, "settings": [], "runs": "x"}, {"data": {"n": {}, "source": []}}])
def test_a_config_that_makes_no_sense_still_has_a_title(store: RunStore, kind: str, config: dict[str, Any]) -> None:
    run = store.create(kind, config)
    title = title_of(store, store.summary(run.id))
    assert title
    assert run.id not in title
