"""What `pip install .` gives, in a folder that is not the checkout and without a network."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.visitors import Visitor
from recon_core.version import __version__
from tests.processes import reserved_port, started, wait_for

PROJECT = Path(__file__).parents[2]
# All that a wheel is made of.
SOURCES = ("recon_core", "ui", "pages", "assets", "docs", ".streamlit", "app.py", "serve.py")
ABOUT = ("pyproject.toml", "requirements.txt", "README.md", "LICENSE")
CODE = (".py", ".html", ".css", ".js", ".toml", ".npz", ".typed")

FIVE_LINES = """
import recon_core as rc
data  = rc.load_data("cifar10", n=8)
model = rc.train(data, widths=(60, 60), target_loss=1e-4, store="runs")
found = rc.reconstruct(model, m=16, iterations=60, store="runs")
score = rc.match(found, data)
score.plot()
print(rc.__file__, score.good(0.4))
"""
# Whoever tries to reach another machine fails.
OFFLINE = """
import socket
_connect = socket.socket.connect
def connect(self, address):
    assert not isinstance(address, tuple) or address[0] in ("127.0.0.1", "::1", "localhost"), address
    return _connect(self, address)
socket.socket.connect = connect
"""


class Installed:
    """An installation of this project in a folder of its own, and an empty folder to work in."""

    def __init__(self, root: Path) -> None:
        self.site, self.folder = root / "site", root / "elsewhere"
        source = root / "source"
        source.mkdir()
        self.folder.mkdir()
        for name in (*SOURCES, *ABOUT):
            if (PROJECT / name).is_dir():
                unwanted = shutil.ignore_patterns("__pycache__", "screens")
                shutil.copytree(PROJECT / name, source / name, ignore=unwanted)
            else:
                shutil.copy(PROJECT / name, source)
        self.sources = [file.relative_to(source) for name in SOURCES for file in files_of(source / name)]
        options = ["--no-deps", "--no-build-isolation", "--no-index", "--no-cache-dir", "--no-compile", "-q"]
        pip = [sys.executable, "-m", "pip", "install", *options, "--target", str(self.site), str(source)]
        subprocess.run(pip, check=True, capture_output=True, text=True)
        shutil.rmtree(source)
        (self.site / "sitecustomize.py").write_text(OFFLINE)
        self.environment = {**os.environ, "PYTHONPATH": str(self.site), "AFTERIMAGE_STORE": str(self.folder / "runs")}
        self.command = str(self.site / "bin" / "afterimage")

    def run(self, *words: str) -> str:
        done = subprocess.run(words, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


def files_of(path: Path) -> list[Path]:
    return [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("package"))


def test_every_file_of_the_code_is_inside(installed: Installed) -> None:
    inside = {file.relative_to(installed.site) for file in files_of(installed.site)}
    app = Path("afterimage_app")
    for file in installed.sources:
        if file.suffix in CODE and not file.match("assets/*.py"):
            assert (file if file.parts[0] == "recon_core" else app / file) in inside
    assert app / "assets" / "home.png" in inside
    names = {path.parts[0] for path in inside if not path.parts[0].endswith(".dist-info")}
    assert names == {"recon_core", "afterimage_app", "bin", "sitecustomize.py"}  # nothing that is in others' way


def test_the_five_lines_the_command_and_the_dashboard_work_elsewhere(installed: Installed) -> None:
    module, good = installed.run(sys.executable, "-c", FIVE_LINES).split()
    assert Path(module).is_relative_to(installed.site)
    assert int(good) > 0
    assert installed.run(installed.command, "--version").strip() == __version__
    listed = installed.run(installed.command, "--help")
    for command in ("dashboard", "train", "reconstruct", "match", "study"):
        assert command in listed

    log = installed.folder / "log.txt"
    words = [installed.command, "dashboard", "--headless", "--port"]
    with (
        reserved_port() as port,
        log.open("wb") as output,
        started(
            [*words, str(port)], cwd=installed.folder, env=installed.environment, stdout=output, stderr=output
        ) as server,
    ):
        wait_for(lambda: server.poll() is not None or answers(port))
        assert server.poll() is None, log.read_text()
        url = f"http://127.0.0.1:{port}"
        with Visitor(url, "Match") as visitor:
            visitor.wait_until(lambda page: page.failures or "All counts" in page.words)
            assert visitor.failures == []
            [board] = [json.loads(part.json) for part in visitor.of_kind("bidi_component") if "m-grid" in part.id]
            shown = board["scores"]["ssim"]
            assert (sum(score > 0.4 for score in shown), len(shown)) == (int(good), 8)  # images out of the package
        with Visitor(url, "Glossary") as visitor:
            visitor.wait_until(lambda page: page.failures or "Chance level" in page.words)
            assert visitor.failures == []


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True
