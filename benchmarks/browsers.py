"""The app in a process of its own and a real Chromium to look at it with."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

PROJECT = Path(__file__).resolve().parents[1]
START_SECONDS = 120.0
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
CHROMIUM_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """The Chromium of this machine, headless."""
    path = next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    if path is None:
        raise RuntimeError("this needs Chromium, none was found (Debian: apt-get install chromium)")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


class App:
    """The dashboard with a store, on a port of its own, which it has again after a kill."""

    def __init__(self, root: Path, *, script: str = "app.py") -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        options = ["--server.port", str(port), "--server.address", "127.0.0.1", "--server.headless", "true"]
        self._command = [sys.executable, "-m", "streamlit", "run", script, *options]
        self._environment = {**os.environ, "AFTERIMAGE_STORE": str(root)}
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        """Start it, and wait until it answers."""
        self.process = subprocess.Popen(
            self._command,
            cwd=PROJECT,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + START_SECONDS
        while not _healthy(self.url):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"the app did not start within {START_SECONDS:g} s")
            time.sleep(0.05)
        return self.process

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()


@contextlib.contextmanager
def dashboard(root: Path) -> Iterator[str]:
    """The app with that store on a port of its own; its address."""
    app = App(root)
    try:
        yield app.url
    finally:
        app.close()


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/_stcore/health", timeout=2):
            return True
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return False
