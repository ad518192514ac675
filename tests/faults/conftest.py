"""Apps and stores whose processes are all gone afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from recon_core.store import RunStore
from tests.faults.apps import App
from tests.gates import gates  # noqa: F401
from tests.processes import end_processes


@pytest.fixture(autouse=True)
def _one_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERIMAGE_SLOTS", "1")


@pytest.fixture
def store(own_store: Path) -> Iterator[RunStore]:
    try:
        yield RunStore(own_store)
    finally:
        end_processes(own_store)


@pytest.fixture
def start_app(tmp_path: Path) -> Iterator[Callable[..., App]]:
    apps: list[App] = []

    def start(environment: Mapping[str, str] | None = None) -> App:
        app = App(tmp_path / f"app-{len(apps)}.log", environment)
        apps.append(app)
        return app

    try:
        yield start
    finally:
        for app in apps:
            app.kill()
    for app in apps:
        assert "Traceback" not in app.log.read_text()
