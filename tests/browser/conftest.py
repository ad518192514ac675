"""A real server on a free port, with a store of its own, and a real Chromium to look at it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.browser.pages import PATIENCE, follow
from tests.gates import Gates
from tests.processes import end_processes, reserved_port

expect.set_options(timeout=PATIENCE)  # it returns as soon as it holds
PROJECT = Path(__file__).resolve().parents[2]
START_SECONDS = 120
LIST_SECONDS = 1.1  # pages remember a list of runs for a second, see ui.shared.store; the next test has another
CHROMIUM_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM_FLAGS = [
    "--no-sandbox",  # Chromium's own sandbox does not start as root, which CI machines are
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass
class Dashboard:
    """A running app and the store it shows."""

    url: str
    store: Path
    log: Path
    gates: Gates
    """Where its runs can be held."""
    emptied: float = 0.0
    """When the runs of the last test were taken out, by time.monotonic."""


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    """One app for all tests of a process: most of what a start costs is loading the engine."""
    folder = tmp_path_factory.mktemp("server")
    log, store = folder / "server.log", folder / "runs"
    gates = Gates(folder / "gates")
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.headless", "true"]
    # With a slash at its end, so that whoever ends all that was given this store spares the app itself.
    environment = {"AFTERIMAGE_STORE": f"{store}/", "AFTERIMAGE_SLOTS": "1"}
    with reserved_port() as port:
        with log.open("ab") as output:  # to add to it even where a test has emptied it
            process = subprocess.Popen(
                [*command, "--server.port", str(port)],
                cwd=PROJECT,
                env={**os.environ, **gates.environment(), **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_until_healthy(url, process, log)
            yield Dashboard(url, store, log, gates)
        finally:
            process.kill()
            process.wait()
            end_processes(store)


@pytest.fixture
def dashboard(server: Dashboard) -> Iterator[Dashboard]:
    """The app with an empty store; afterwards nothing is at work there any more, and nothing is left in it."""
    server.log.write_bytes(b"")  # what it says belongs to one test
    try:
        yield server
    finally:
        server.gates.open_all()
        end_processes(server.store)
        if server.store.exists():
            used = server.store.with_name("used")
            server.store.rename(used)  # at once, for a page that is just being drawn
            shutil.rmtree(used)
            server.emptied = time.monotonic()


def _wait_until_healthy(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/_stcore/health", timeout=2):
                return
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            time.sleep(0.05)
    pytest.fail(f"the app did not start within {START_SECONDS} s:\n{log.read_text()}")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    path = next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    if path is None:
        pytest.fail("these tests need Chromium, none was found; .ci/run installs it (Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=CHROMIUM_FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@pytest.fixture
def visit(dashboard: Dashboard, chromium: Browser) -> Iterator[Callable[..., Page]]:
    """Open an address as a new visitor; at the end, no script has failed and nothing was asked of another machine."""
    faults: list[str] = []
    contexts: list[BrowserContext] = []

    def note_foreign(address: str) -> None:
        if not address.startswith(("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:")):
            faults.append(f"asked for {address}")

    def open_page(url: str, scheme: Literal["light", "dark"] = "light", width: int = 1280, height: int = 800) -> Page:
        context = chromium.new_context(color_scheme=scheme, viewport={"width": width, "height": height})
        contexts.append(context)
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        follow(page)
        page.on("pageerror", lambda error: faults.append(f"script failed: {error}"))
        page.on("request", lambda request: note_foreign(request.url))
        page.on("websocket", lambda websocket: note_foreign(websocket.url))
        time.sleep(max(0.0, dashboard.emptied + LIST_SECONDS - time.monotonic()))
        page.goto(url)
        page.get_by_test_id("stApp").wait_for()
        return page

    try:
        yield open_page
    finally:
        for context in contexts:
            context.close()
    assert faults == []
