"""Reads kept between reruns: one for each function, its arguments, the store, and the state of a run's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from recon_core.store import Run, RunStore
from ui.shared.cached import run_read, store_read

Asked = list[str]


@pytest.fixture
def asked() -> Asked:
    """What was really read."""
    return []


def test_a_run_is_read_again_when_its_files_have_changed(store: RunStore, asked: Asked) -> None:
    @run_read(keep=4, version=lambda run: run.name)
    def name_of(run: Run, mark: str) -> str:
        asked.append(run.name + mark)
        return run.name + mark

    run = store.create("train", {}, name="first")
    assert [name_of(run.id, "!"), name_of(run.id, "!"), name_of(run.id, "?")] == ["first!", "first!", "first?"]
    assert asked == ["first!", "first?"]
    store.rename(run.id, "second")
    assert name_of(run.id, "!") == "second!"


def test_functions_do_not_share_what_they_keep(store: RunStore) -> None:
    def make(word: str) -> tuple[object, object]:
        @store_read(keep=4)
        def of_store(store: RunStore) -> str:
            return f"{word} store"

        @run_read(keep=4)
        def of_run(run: Run) -> str:
            return f"{word} run"

        of_store.clear()
        return of_store(), of_run(run.id)

    run = store.create("train", {})
    assert make("one") == ("one store", "one run")


def test_every_store_has_its_own_and_clear_forgets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: Asked
) -> None:
    @store_read(keep=4, shared=True)
    def roots(store: RunStore, mark: str) -> str:
        asked.append(store.root.name)
        return store.root.name + mark

    for name in ("a", "b", "a"):
        monkeypatch.setenv("AFTERIMAGE_STORE", str(tmp_path / name))
        assert roots("!") == f"{name}!"
    assert asked == ["a", "b"]
    roots.clear("?")
    roots("!")
    assert asked == ["a", "b"]
    roots.clear("!")
    roots("!")
    assert asked == ["a", "b", "a"]


def test_what_begins_with_an_underscore_is_not_part_of_the_key(store: RunStore, asked: Asked) -> None:
    @store_read(keep=4)
    def noted(store: RunStore, mark: str, *, _about: str) -> str:
        asked.append(_about)
        return mark

    assert [noted("x", _about="one"), noted("x", _about="two")] == ["x", "x"]
    assert asked == ["one"]
