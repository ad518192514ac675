"""When the engine is loaded: neither by the home page nor by the circle's recording, but beside them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes
PROJECT = Path(__file__).resolve().parents[2]
# A process of its own, because this one has loaded everything.
VISIT = """
import json, logging, sys, threading
logging.disable(logging.CRITICAL)
from streamlit.testing.v1 import AppTest
import ui.shared.engine as engine
wanted = []
if {held}:
    engine.load_in_background = wanted.extend
app = AppTest.from_file("app.py", default_timeout=120)
app.query_params.update({query})
app.run()
assert not app.exception, app.exception
for thread in threading.enumerate():
    if thread.name == "engine":
        thread.join(120)
print(json.dumps({{"loaded": sorted(sys.modules), "wanted": wanted}}))
"""


def visit(query: dict[str, str], *, held: bool) -> dict[str, list[str]]:
    """Modules that are loaded once the page is drawn; with `held` nothing is loaded beside it."""
    script = VISIT.format(query=query, held=held)
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=PROJECT, capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("query", [{}, {"view": "circle"}])
def test_what_opens_first_does_without_the_engine(query: dict[str, str]) -> None:
    found = visit(query, held=True)
    assert "ui.circle.player" in found["loaded"]
    assert "torch" not in found["loaded"]
    assert "ui.home.experiment" in found["wanted"]


def test_the_engine_is_loaded_beside_the_first_page() -> None:
    found = visit({}, held=False)
    assert {"torch", "ui.home.experiment", "ui.circle.live", "ui.match.pairs"} <= set(found["loaded"])
