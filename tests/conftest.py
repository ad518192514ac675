"""What every test gets."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recon_core.cli import main
from recon_core.store import RunStore
from tests.order import file_places, tier_of
from tests.processes import end_leftovers

# Before torch is imported: some tests fork, and a forked child waits for ever for its parent's OpenMP threads.
os.environ["OMP_NUM_THREADS"] = "1"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", type=int, metavar="SEED", help="take the test files in an order drawn with this seed")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if (tier := tier_of(item.path)) is not None:
            item.add_marker(tier)
    place = file_places([item.path for item in items], config.getoption("shuffle"))
    items.sort(key=lambda item: place[item.path])


@pytest.fixture(scope="session", autouse=True)
def _no_wait_for_the_disk() -> Iterator[None]:
    """What a test writes need not outlive a power cut; the processes it starts do wait."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    """No process outlives its test: one that does is killed, and the test fails."""
    yield
    if any(request.node.get_closest_marker(tier) for tier in ("browser", "cluster", "processes")):
        left = end_leftovers(tmp_path)
        assert left == [], f"left behind: {left}"


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of its own for each test, not made yet: no test ever touches the user's runs."""
    root = tmp_path / "runs"
    monkeypatch.setenv("AFTERIMAGE_STORE", str(root))
    monkeypatch.setenv("AFTERIMAGE_READY", "0")  # pages drawn in a test hold no processes that nobody will need
    return root


@pytest.fixture
def store(own_store: Path) -> RunStore:
    return RunStore(own_store)


@pytest.fixture
def cli(
    own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run the command line in an empty folder, on a store of its own; gives (exit code, output, errors)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["recon_core", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        captured = capsys.readouterr()
        return int(left.value.code or 0), captured.out, captured.err

    return run
