"""Who can reach the dashboard: this machine only, however it is started; serving others is written down."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin, Subprotocol

from benchmarks.visitors import Visitor
from tests.processes import reserved_port, wait_for

PROJECT = Path(__file__).resolve().parents[1]
SETTINGS = tomllib.loads((PROJECT / ".streamlit" / "config.toml").read_text())


def outside_addresses() -> list[str]:
    """This machine's own addresses as others see them."""
    found = [
        address.address.partition("%")[0]
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
        if address.family in (socket.AF_INET, socket.AF_INET6)
    ]
    parsed = [ipaddress.ip_address(address) for address in found]
    # One of link scope needs its interface to be named; the others say as much.
    return [str(address) for address in parsed if not address.is_loopback and not address.is_link_local]


def answers(address: str, port: int) -> bool:
    """The system itself answers for a port, however busy the server is; the limit is for one that drops what comes."""
    try:
        socket.create_connection((address, port), timeout=60).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("script", ["app.py", "serve.py"])
def test_a_server_started_in_another_folder_answers_on_this_machine_only(tmp_path: Path, script: str) -> None:
    addresses = outside_addresses()
    if not addresses:
        pytest.skip("this machine has no address but its own")
    command = [sys.executable, "-m", "streamlit", "run", str(PROJECT / script), "--server.headless", "true"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STREAMLIT_")}
    quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    with (
        reserved_port() as port,
        subprocess.Popen([*command, "--server.port", str(port)], cwd=tmp_path, env=environment, **quiet) as server,
    ):
        try:
            wait_for(lambda: answers("127.0.0.1", port))
            reached = [address for address in addresses if answers(address, port)]
        finally:
            server.kill()
    assert reached == []


def test_make_run_leaves_the_address_to_the_settings() -> None:
    assert SETTINGS["server"]["address"] == "127.0.0.1"
    recipe = re.search(r"^run:.*\n((?:\t.*\n)+)", (PROJECT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    assert "streamlit run serve.py" in recipe[1]
    assert "address" not in recipe[1].lower()


def test_the_proxy_that_is_written_down_fits_the_settings() -> None:
    page = (PROJECT / "docs" / "serving.md").read_text()
    allowed = re.search(r"client_max_body_size (\d+)m;", page)
    assert allowed is not None
    assert int(allowed[1]) >= SETTINGS["server"]["maxUploadSize"]
    assert "auth_basic_user_file" in page
    assert "docs/serving.md" in (PROJECT / "README.md").read_text()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of `afterimage dashboard`."""
    folder = tmp_path_factory.mktemp("served")
    command = [sys.executable, "-m", "recon_core", "--store", str(folder / "runs"), "dashboard", "--headless"]
    quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    with (
        reserved_port() as port,
        subprocess.Popen([*command, "--port", str(port)], cwd=folder, env=environment, **quiet) as server,
    ):
        try:
            wait_for(lambda: answers("127.0.0.1", port))
            yield f"http://127.0.0.1:{port}"
        finally:
            server.kill()


def test_no_other_page_may_frame_the_dashboard(served: str) -> None:
    for page in ("", "/Train", "/_stcore/health"):
        with urllib.request.urlopen(served + page, timeout=60) as answer:
            assert answer.headers["Content-Security-Policy"] == "frame-ancestors 'self'"


@pytest.mark.parametrize(
    "origin", [None, "null", "http://127.0.0.1:1", "http://localhost:1", "https://example.com"], ids=str
)
def test_a_websocket_of_another_page_is_refused(served: str, origin: str | None) -> None:
    address = served.replace("http", "ws", 1) + "/_stcore/stream"
    with pytest.raises(InvalidStatus, match="403"):
        connect(address, origin=None if origin is None else Origin(origin), subprotocols=[Subprotocol("streamlit")])


@pytest.mark.parametrize(("page", "title"), [("", "Afterimage"), ("Glossary", "Glossary")])
def test_its_own_pages_are_served(served: str, page: str, title: str) -> None:
    with Visitor(served, page) as visitor:
        visitor.wait_until(lambda shown: title in shown.words)
