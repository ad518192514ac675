"""What every test gets."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recon_core.cli import main
from recon_core.store import RunStore
from tests.processes import end_leftovers

# Before torch is imported: some tests fork, and a forked child waits for ever for its parent's OpenMP threads.
os.environ["OMP_NUM_THREADS"] = "1"


# Tests that are more than a call of a function, by the start of their path.
TIERS = {
    "tests/browser/": "browser",
    "tests/scheduling/test_cluster.py": "cluster",
    "tests/faults/": "processes",
    "tests/library/test_command_line.py": "slow",
    "tests/library/test_examples.py": "slow",
    "tests/library/test_package.py": "processes",
    "tests/runs/test_kills.py": "processes",
    "tests/runs/test_queue.py": "processes",
    "tests/runs/test_search.py": "processes",
    "tests/scheduling/": "processes",
    "tests/studies/test_study_runs.py": "processes",
    "tests/test_serving.py": "processes",
    "tests/fuzz/": "slow",
    "tests/store/test_store_faults.py": "slow",
}
_PROJECT = Path(__file__).resolve().parent.parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        path = item.path.relative_to(_PROJECT).as_posix()
        tier = next((tier for start, tier in TIERS.items() if path.startswith(start)), None)
        if tier is not None:
            item.add_marker(tier)


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
