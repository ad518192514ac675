"""A real server on a free port, with a store of its own, and a real Chromium to look at it."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

PROJECT = Path(__file__).resolve().parents[2]
START_SECONDS = 60
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
# WCAG contrast of every visible piece of text in the page against what is really behind it.
CONTRASTS = """() => {
  const parse = css => {
    const part = css.match(/[\\d.]+/g).map(Number);
    const scale = css.startsWith('color(') ? 255 : 1;
    return [part[0] * scale, part[1] * scale, part[2] * scale, part.length > 3 ? part[3] : 1];
  };
  const over = (top, under) => [0, 1, 2].map(i => top[i] * top[3] + under[i] * (1 - top[3])).concat(1);
  const backdrop = element => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) {
      layers.push(parse(getComputedStyle(e).backgroundColor));
      if (layers.at(-1)[3] === 1) break;
    }
    return layers.reduceRight((under, top) => over(top, under), [255, 255, 255, 1]);
  };
  const luminance = colour => {
    const linear = v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    const [r, g, b] = colour.slice(0, 3).map(v => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const texts = [];
  const walker = document.createTreeWalker(document.querySelector('[data-testid=stApp]'), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const text = walker.currentNode.data.trim();
    if (element.closest('[data-testid=stIconMaterial]')) continue;  // the name of an icon, drawn as a picture
    if (!text || !element.checkVisibility({opacityProperty: true, visibilityProperty: true})) continue;
    const box = element.getBoundingClientRect();
    if (box.width < 2 || box.height < 2) continue;
    const behind = backdrop(element);
    const [a, b] = [luminance(behind), luminance(over(parse(getComputedStyle(element).color), behind))];
    texts.push({text: text.slice(0, 60), contrast: (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)});
  }
  return texts;
}"""


class Dashboard(NamedTuple):
    """A running app and the store it shows."""

    url: str
    store: Path
    log: Path


class TextContrast(NamedTuple):
    text: str
    contrast: float  # WCAG: 1 (invisible) to 21; 4.5 is readable


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def dashboard(own_store: Path, tmp_path: Path) -> Iterator[Dashboard]:
    log, port = tmp_path / "server.log", free_port()
    command = [
        sys.executable,
        "-m",
        "streamlit",
        "run",
        "app.py",
        "--server.port",
        str(port),
        "--server.headless",
        "true",
    ]
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command,
            cwd=PROJECT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as server,
    ):
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_until_healthy(url, server, log)
            yield Dashboard(url, own_store, log)
        finally:
            server.terminate()
            try:
                server.wait(timeout=10)
            except subprocess.TimeoutExpired:
                server.kill()


def _wait_until_healthy(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/_stcore/health", timeout=2):
                return
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            time.sleep(0.1)
    pytest.fail(f"the app did not start within {START_SECONDS} s:\n{log.read_text()}")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    path = next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    if path is None:
        pytest.fail("these tests need Chromium, none was found; .ci/run installs it (Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=CHROMIUM_FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium: Browser) -> Iterator[Callable[..., Page]]:
    """Open an address as a new visitor; at the end, no script has failed and nothing was asked of another machine."""
    faults: list[str] = []

    def note_foreign(address: str) -> None:
        if not address.startswith(("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:")):
            faults.append(f"asked for {address}")

    def open_page(url: str, scheme: Literal["light", "dark"] = "light", width: int = 1280, height: int = 800) -> Page:
        context = chromium.new_context(color_scheme=scheme, viewport={"width": width, "height": height})
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(f"script failed: {error}"))
        page.on("request", lambda request: note_foreign(request.url))
        page.on("websocket", lambda websocket: note_foreign(websocket.url))
        page.goto(url)
        page.get_by_test_id("stApp").wait_for()
        return page

    contexts: list = []
    yield open_page
    for context in contexts:
        context.close()
    assert faults == []


@pytest.fixture
def contrasts() -> Callable[[Page], list[TextContrast]]:
    """How well each visible piece of text stands out from what is behind it."""
    return lambda page: [TextContrast(**found) for found in page.evaluate(CONTRASTS)]
