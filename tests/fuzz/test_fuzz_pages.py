"""Addresses of the real dashboard with anything in them: each gets a page, none changes or breaks anything."""

from __future__ import annotations

import random
import re
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from recon_core.kinds import perform
from recon_core.runs import StopFlag
from recon_core.store import RunState, RunStore
from tests.faults.apps import PROJECT, SHORT, App, attack_on

SEED, CASES = 20261118, 90
MEMORY_BOUND = 200 * 2**20
"""Bytes by which all these visits together may make the server grow."""
PAGES = ["", "Train", "Reconstruct", "Match", "Analyze", "Studies", "Audit"]
HOSTILE = [
    "",
    " ",
    "../../../etc/passwd",
    "/etc/passwd",
    "..%2f..%2fetc",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[a](javascript:alert(1))",
    ":red[x] **b** $$\\input{/etc/passwd}$$",
    "nan",
    "inf",
    "-1",
    "1e999",
    "0x10",
    "9" * 400,
    "1.5,2",
    "[[[[1]]]]",
    "{'a': 1}",
    "a" * 20_000,
    "\x00",
    "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"),
    "\u202etxt.exe",
    "None",
    "true",
    "1:2-3",
    "127.0.0.2:9",
    "__import__('os').system('true')",
]


def parameters() -> list[str]:
    """Every name that looks like one, in the sources of the pages."""
    sources = [PROJECT / "app.py", *(PROJECT / "pages").glob("*.py"), *(PROJECT / "ui").rglob("*.py")]
    found = {name for source in sources for name in re.findall(r'"([a-z]{1,2}_[a-z_]{1,14})"', source.read_text())}
    return sorted(found | {"run", "from", "model", "chain", "view", "slide", "present", "embed"})


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[App, RunStore]]:
    folder = tmp_path_factory.mktemp("dashboard")
    store = RunStore(folder / "runs")
    model = store.create("train", SHORT, name="<b>markup</b> :red[in] `names`")
    attack = attack_on(store, model)
    for run in (model, attack):
        assert perform(run, StopFlag()) is RunState.DONE
    app = App(folder / "app.log", {"AFTERIMAGE_STORE": str(store.root)})
    yield app, store
    app.kill()


def files(root: Path) -> dict[str, int]:
    return {
        str(path.relative_to(root)): path.stat().st_mtime_ns
        for path in root.rglob("*")
        if path.is_file() and not path.relative_to(root).parts[0].startswith(".")
    }


def test_any_address_gets_a_page_and_changes_nothing(dashboard: tuple[App, RunStore]) -> None:
    app, store = dashboard
    names, chance = parameters(), random.Random(SEED)
    assert len(names) > 60
    values = [*HOSTILE, *(summary.id for summary in store.list()), *PAGES]
    for page in PAGES:  # what they load, they load once
        with app.visit(page) as visitor:
            visitor.wait_until(lambda page: page.words)
    before, server = files(store.root), psutil.Process(app.process.pid)
    usual = server.memory_info().rss
    for number in range(CASES):
        page = PAGES[number % len(PAGES)]
        asked = [(chance.choice(names), chance.choice(values)) for _ in range(chance.randint(1, 6))]
        if number % 3 == 0:  # the one that every page looks at first
            asked.append(("run", chance.choice(values)))
        query = urllib.parse.urlencode(asked)
        with app.visit(page, query) as visitor:
            visitor.wait_until(lambda page: page.words)
            assert visitor.failures == [], (page, query)
            assert "<script" not in "".join(element.body for element in visitor.of_kind("html"))
    assert server.memory_info().rss - usual < MEMORY_BOUND
    assert files(store.root) == before
    assert "Traceback" not in app.log.read_text()
    with app.visit() as visitor:  # and it is as it was for everybody else
        visitor.wait_until(lambda page: "markup" in page.words)
        assert visitor.failures == []
