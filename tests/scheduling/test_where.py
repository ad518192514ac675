"""Where runs are done: chosen when they are asked for, and changed when they go on."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from recon_core.config import parse_config
from recon_core.errors import InputError
from recon_core.kinds import perform_in
from recon_core.scheduling import CLUSTER_VARIABLE, Places, executor_for, move, place_arguments, usual_places
from recon_core.scheduling.inline import InlineExecutor
from recon_core.scheduling.local import LocalExecutor
from recon_core.store import Run, RunState, RunStore
from tests.small_models import imported_model

PROJECT = Path(__file__).parents[2]
Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def search(store: RunStore) -> Run:
    run = store.create("search", {"model": "train-1", "cluster": "auto", "cpus": 2.0})
    with run.writer() as writer:
        writer.start(3)
        writer.finish(RunState.CANCELLED, None)
    return run


def test_this_machine_is_meant_unless_a_cluster_is_named(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    assert usual_places() == Places()
    monkeypatch.setenv(CLUSTER_VARIABLE, "auto")
    assert usual_places() == Places(cluster="auto")
    run = store.create("search", {})
    several = executor_for(run, Places(workers=3), inline=perform_in)
    assert isinstance(several, LocalExecutor)
    assert several.places() == 3
    assert isinstance(executor_for(run, Places(workers=1), inline=perform_in), InlineExecutor)
    assert isinstance(executor_for(run, Places(workers=1)), LocalExecutor)  # a study trains and attacks


def test_places_are_spelt_as_the_options_that_ask_for_them() -> None:
    assert place_arguments(Places()) == []
    assert place_arguments(Places(workers=4, cluster="ray://h:1", cpus=2, gpus=0.25)) == [
        *("--workers", "4", "--cluster", "ray://h:1", "--cpus-per-run", "2", "--gpus-per-run", "0.25")
    ]


def test_a_search_can_be_taken_elsewhere_and_back(search: Run) -> None:
    move(search, {"workers": None, "cluster": "ray://other:10001"})
    assert (search.config["cluster"], search.config["cpus"]) == ("ray://other:10001", 2.0)
    move(search, {"cluster": "none"})
    assert search.config["cluster"] is None
    assert search.status().state is RunState.CANCELLED  # moved, not begun
    with pytest.raises(InputError, match="workers must be"):
        move(search, {"workers": 0})
    assert "workers" not in search.config


def test_none_is_this_machine_whatever_the_environment_says(
    cli: Cli, store: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Places(cluster="none") == Places()
    monkeypatch.setenv(CLUSTER_VARIABLE, "127.0.0.2:9")
    words = ("search", "--model", imported_model(store, tmp_path).id, "--trials", "1", "--iterations", "2", "--quiet")
    code, _, said = cli(*words)
    assert (code, "no Ray cluster answers at '127.0.0.2:9'" in said) == (2, True)
    assert store.list("search") == []
    code, _, said = cli(*words, "--cluster", "none")
    assert (code, said) == (0, "")


@pytest.mark.parametrize("wish", [{"cpus": 1e-320}, {"cpus": 0}, {"gpus": 1e-5}, {"gpus": 1.5}, {"gpus": -1}])
def test_shares_that_ray_cannot_count_are_a_sentence(wish: dict[str, float]) -> None:
    with pytest.raises(InputError, match=rf"{next(iter(wish))} must be .*, got"):
        parse_config(Places, wish)


@pytest.mark.parametrize(
    "address", ["auto", "lab:6379", "ray://lab.example.org:10001", "[::1]:6379", "ray://[::1]:10001"]
)
def test_addresses_of_clusters(address: str) -> None:
    assert parse_config(Places, {"cluster": address}).cluster == address


@pytest.mark.parametrize(
    "address", ["", "lab", "local", "ray://lab", "http://lab:80", "lab:port", "lab:6379/x", "a b:1"]
)
def test_what_is_no_address_of_a_cluster_is_a_sentence(cli: Cli, address: str) -> None:
    with pytest.raises(InputError, match="cluster must be auto, host:6379, or ray://host:10001 from outside, got"):
        parse_config(Places, {"cluster": address})
    code, _, said = cli("cluster", "--", address)
    assert (code, said.count("\n")) == (2, 1)


def test_a_study_for_a_cluster_that_is_not_there_is_not_begun(cli: Cli, store: RunStore) -> None:
    code, _, said = cli("study", "faces", "--cluster", "127.0.0.2:9", "--quiet")
    assert (code, "no Ray cluster answers" in said) == (2, True)
    assert store.list() == []


def test_only_what_has_parts_is_spread(store: RunStore) -> None:
    with pytest.raises(InputError, match="only searches and studies"):
        move(store.create("train", {}), {"cluster": "auto"})


def test_resuming_elsewhere_says_when_nobody_is_there(cli: Cli, store: RunStore, search: Run) -> None:
    code, _, said = cli("runs", "resume", search.id, "--cluster", "127.0.0.2:9", "--quiet")
    assert code == 2
    assert "train-1" in said  # the model is looked for first, and is not there
    assert search.config["cluster"] == "127.0.0.2:9"


def test_a_cluster_where_nobody_answers_is_one_sentence(cli: Cli) -> None:
    code, _, said = cli("cluster", "127.0.0.2:9")
    assert (code, said.count("\n")) == (2, 1)
    assert "no Ray cluster answers at '127.0.0.2:9'" in said


def test_the_extra_and_the_requirements_ask_for_the_same_ray() -> None:
    extras = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    listed = (PROJECT / "requirements-cluster.txt").read_text().splitlines()
    assert extras["cluster"] == [line for line in listed if line.startswith("ray")]
