"""Names for people, made from what runs were asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recon_core.config import TrainConfig, parse_config
from recon_core.errors import InputError
from recon_core.presets import PRESETS, Size
from recon_core.runs.titles import _remembered, decay_text, title_of, titles, training_title
from recon_core.store import Run, RunStore, index, remembered


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


class TestRemembered:
    """Titles of a large store are kept between processes, and never believed against the configs."""

    @pytest.fixture
    def large(self, store: RunStore, monkeypatch: pytest.MonkeyPatch) -> RunStore:
        monkeypatch.setattr(remembered, "_WORTH_KEEPING", 3)
        monkeypatch.setattr(index, "_SETTLED_SECONDS", 0.0)
        for n in (6, 8, 10):
            store.create("train", {"data": {"source": "circle", "n": n}})
        return store

    def anew(self, store: RunStore) -> tuple[list[str], int]:
        """As a process that has seen nothing yet has them, and how many configs it reads for that."""
        runs, read = store.list(), 0
        usual = Run.config.fget
        assert usual is not None

        def counted(run: Run) -> dict[str, Any]:
            nonlocal read
            read += 1
            found: dict[str, Any] = usual(run)
            return found

        _remembered.cache_clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Run, "config", property(counted))
            found = titles(store, runs)
        return sorted(found.values()), read

    def test_the_next_process_reads_no_config(self, large: RunStore) -> None:
        expected = ["Circle, 10 points", "Circle, 6 points", "Circle, 8 points"]
        assert self.anew(large) == (expected, 3)
        assert self.anew(large) == (expected, 0)

    def test_a_config_that_was_changed_is_read(self, large: RunStore) -> None:
        self.anew(large)
        with large.open(large.list()[0].id).writer() as writer:
            writer.reconfigure({"data": {"source": "circle", "n": 12}})
        assert self.anew(large) == (["Circle, 12 points", "Circle, 6 points", "Circle, 8 points"], 1)

    @pytest.mark.parametrize("torn", [b"", b"{", b"afterimage index 1 00\n[]", b"\xff" * 100])
    def test_a_file_that_does_not_read_is_as_good_as_none(self, large: RunStore, torn: bytes) -> None:
        expected, _ = self.anew(large)
        (large.root / ".titles-1.json").write_bytes(torn)
        assert self.anew(large) == (expected, 3)

    def test_a_link_in_its_place_is_not_followed(self, large: RunStore, tmp_path: Path) -> None:
        victim = tmp_path / "victim"
        victim.write_text("theirs")
        (large.root / ".titles-1.json").symlink_to(victim)
        with pytest.raises(InputError, match="link"):
            large.list()
        assert victim.read_text() == "theirs"
