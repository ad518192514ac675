"""`runs import` and what becomes of imported runs on the command line."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from recon_core.config import parse_config
from recon_core.store import Run, RunState, RunStore
from recon_core.studies.requests import create_search
from recon_core.studies.search import SearchConfig
from tests.small_models import imported_model

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def sender(tmp_path: Path) -> RunStore:
    """Somebody else's store."""
    return RunStore(tmp_path / "theirs")


def hostile_search(sender: RunStore, folder: Path, **places: str) -> Path:
    """A zip of a search that has not begun, to be done at `places`."""
    settings = {"trials": 1, "attack": {"recipe": "paper", "iterations": 2}}
    config = parse_config(SearchConfig, {"model": imported_model(sender, folder).id, "settings": settings, **places})
    return sender.export(create_search(sender, config).id, folder / "search.zip")


def test_a_resumed_import_connects_nowhere(cli: Cli, sender: RunStore, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        address = f"ray://127.0.0.1:{server.getsockname()[1]}"
        code, out, said = cli("runs", "import", str(hostile_search(sender, tmp_path, cluster=address)))
        assert code == 0
        run_id = out.split()[-1]
        assert f"{run_id}: left out on import, it is not for a file to say: cluster: {address}" in said
        code, _, said = cli("runs", "resume", run_id, "--quiet")
        with pytest.raises(BlockingIOError):  # nobody has come
            server.accept()
    assert (code, said) == (0, "")
    shown = json.loads(cli("runs", "show", run_id, "--json")[1])
    assert shown["status"]["state"] == "done"
    assert shown["imported"]["dropped"] == [f"cluster: {address}"]
    assert f"cluster: {address}" in cli("runs", "show", run_id)[1]
    [line] = [line for line in cli("runs", "list")[1].splitlines() if line.startswith(run_id)]
    assert "done (imported)" in line
    listed = {row["id"]: row["imported"] for row in json.loads(cli("runs", "list", "--json")[1])}
    assert listed[run_id] is True


def test_a_resumed_import_writes_no_database(cli: Cli, sender: RunStore, tmp_path: Path) -> None:
    victim = tmp_path / "victim.db"
    archive = hostile_search(sender, tmp_path, storage=f"sqlite:///{victim}", share="ours")
    code, out, said = cli("runs", "import", str(archive))
    assert code == 0
    assert f"storage: sqlite:///{victim}, share: ours" in said
    assert cli("runs", "resume", out.split()[-1], "--quiet")[0] == 0
    assert not victim.exists()


def test_our_own_runs_carry_no_mark(cli: Cli, sender: RunStore, tmp_path: Path) -> None:
    own = RunStore(tmp_path / "runs").create("train", {})
    assert json.loads(cli("runs", "show", own.id, "--json")[1])["imported"] is None
    assert "imported" not in cli("runs", "list")[1]
