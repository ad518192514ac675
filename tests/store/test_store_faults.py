"""kill -9 at every moment, a full disk, a read-only store: nothing that was written is lost."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from recon_core.errors import AfterimageError, InputError
from recon_core.store import Run, RunState, RunStore
from recon_core.store.files import write_atomic

FILE_EVENTS = frozenset(
    {
        "open",
        "os.rename",
        "os.remove",
        "os.mkdir",
        "os.rmdir",
        "os.truncate",
        "os.chmod",
        "os.listdir",
        "os.scandir",
        "fcntl.flock",
    }
)


def in_child(action: Callable[[], object], kill_before: int | None = None) -> int:
    """Do `action` in a process of its own, killed (-9) just before its n-th dealing with the disk; its end."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if kill_before is not None:
                left = kill_before

                def count(event: str, arguments: tuple[object, ...]) -> None:
                    nonlocal left
                    if event in FILE_EVENTS:
                        left -= 1
                        if left == 0:
                            os.kill(os.getpid(), signal.SIGKILL)

                sys.addaudithook(count)
            action()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def work(run: Run) -> None:
    """Four steps of a small computation, from wherever the run was."""
    with run.writer() as writer:
        writer.start(4)
        found = writer.latest_checkpoint()
        step, x = (0, torch.ones(3)) if found is None else (found.step, found.tensors["x"] + 0)
        while step < 4:
            step += 1
            x = x * 1.1 + step
            writer.metrics({"step": step, "x": x.tolist()})
            writer.progress(step, force=step == 3)
            if step % 2 == 0:
                writer.checkpoint(step, {"x": x}, {})
        writer.save_tensors("weights", {"x": x})
        writer.finish(RunState.DONE, {"x": x.tolist()})


def hidden(folder: Path) -> list[str]:
    kept = (".lock", ".index.json", ".index.lock", ".titles-1.json")
    return sorted(path.name for path in folder.rglob(".*") if path.name not in kept)


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory where there is one: many synced writes, none of which has to survive a power cut here."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as folder:
        yield Path(folder)


class TestKill:
    @pytest.fixture
    def store(self, memory: Path) -> RunStore:
        return RunStore(memory / "runs")

    def test_a_worker_at_every_dealing_with_the_disk(self, store: RunStore) -> None:
        straight = store.create("train", {})
        work(straight)
        kills = 0
        while True:
            run = store.create("train", {})
            kills += 1
            ended = in_child(lambda: work(run), kill_before=kills)  # noqa: B023
            if ended == 0:
                break
            assert ended == -signal.SIGKILL
            unhealed = [problem for problem in store.check() if not problem.heals]
            assert unhealed == []
            assert run.status().state in (RunState.QUEUED, RunState.INTERRUPTED, RunState.DONE)
            if run.status().state is RunState.DONE:
                with pytest.raises(InputError, match="finished runs cannot change"):
                    work(run)
            else:
                work(run)
            assert run.result() == straight.result()
            assert run.metrics() == straight.metrics()
            assert torch.equal(run.tensors("weights")["x"], straight.tensors("weights")["x"])
            assert store.check() == []
            assert hidden(run.dir) == []
            store.delete(run.id)
        assert kills > 40

    @pytest.mark.parametrize(
        ("operation", "stride"), [("create", 2), ("rename", 1), ("delete", 2), ("import", 3), ("export", 3)]
    )
    def test_a_change_to_the_store_at_every_dealing_with_the_disk(
        self, store: RunStore, memory: Path, done_run: Callable[..., Run], operation: str, stride: int
    ) -> None:
        model = done_run()
        attack = done_run(model.id, kind="attack")
        archive = store.export(attack.id, memory)
        kill_before = 1
        victim = child = None
        while True:
            if victim is None or not victim.dir.exists():
                victim = store.create("train", {}, name="before")
                child = None
            if child is None or not child.dir.exists():
                child = store.create("attack", {}, parents=[victim.id])
            if operation == "import":
                store.delete(model.id, with_dependents=True)
            actions: dict[str, Callable[[], object]] = {
                "create": lambda: store.create("attack", {"n": 1}, name="new", parents=[model.id]),
                "rename": lambda: store.rename(victim.id, "after"),  # noqa: B023
                "delete": lambda: store.delete(victim.id, with_dependents=True),  # noqa: B023
                "import": lambda: store.import_zip(archive),
                "export": lambda: store.export(attack.id, memory / "again.zip"),
            }
            ended = in_child(actions[operation], kill_before)
            assert [problem for problem in store.check() if not problem.heals] == []
            listed = {summary.id: summary for summary in store.list()}
            assert all(summary.status.state in (RunState.QUEUED, RunState.DONE) for summary in listed.values())
            assert (child.id in listed) <= (victim.id in listed)
            assert (attack.id in listed) <= (model.id in listed)
            if operation == "rename":
                assert victim.name in ("before", "healed", "after")
            if operation == "import":
                assert [run.id for run in store.import_zip(archive)] == [model.id, attack.id]
            store.rename((victim if victim.id in listed else model).id, "healed")
            store.delete(store.create("train", {}).id)  # any change clears up
            assert store.check() == []
            assert hidden(store.root) == []
            if ended == 0:
                break
            assert ended == -signal.SIGKILL
            kill_before += stride
        assert kill_before > 3

    def test_a_worker_at_random_moments(self, store: RunStore) -> None:
        def endless(run: Run) -> None:
            with run.writer() as writer:
                found = writer.latest_checkpoint()
                writer.start(None)
                for step in itertools.count(found.step if found else 0):
                    writer.metrics({"step": step, "field": [0.25] * 500})
                    writer.progress(step, force=True)
                    writer.checkpoint(step, {"w": torch.full((20_000,), float(step))}, {"step": step})
                    writer.save_json("extra", list(range(1000)))

        run = store.create("train", {})
        rng = random.Random(0)
        reached = -1
        for _ in range(6):
            child = os.fork()
            if child == 0:
                try:
                    endless(run)
                finally:
                    os._exit(1)
            deadline = time.monotonic() + 120
            while run.status().step <= reached + 1 or run.status().state is not RunState.RUNNING:
                assert time.monotonic() < deadline
                time.sleep(0.005)
            with pytest.raises(InputError, match=f"running in process {child}"), run.writer():
                pass
            time.sleep(rng.uniform(0, 0.02))
            os.kill(child, signal.SIGKILL)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
            assert run.status().state is RunState.INTERRUPTED
            problems = store.check()
            assert all(problem.heals for problem in problems)
            assert any(problem.sentence.startswith("interrupted") for problem in problems)
            with run.writer() as writer:
                found = writer.latest_checkpoint()
            assert found is not None
            assert found.step > reached
            assert torch.equal(found.tensors["w"], torch.full((20_000,), float(found.step)))
            assert not any("damaged" in line for line in run.log_tail(100))
            steps = [row["step"] for row in run.metrics()]
            assert steps == list(range(len(steps)))
            assert len(steps) > found.step
            reached = found.step


@contextlib.contextmanager
def mounted(folder: Path, size: str) -> Iterator[Path]:
    """A real, small disk. Needs the right to mount."""
    folder.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)], capture_output=True, check=False
    )
    if mount.returncode != 0:
        pytest.skip("this machine does not let us mount a small disk; the file size limit is tested instead")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


class TestFullDisk:
    def test_the_last_good_state_stays(self, tmp_path: Path) -> None:
        with mounted(tmp_path / "disk", "512k") as disk:
            store = RunStore(disk)
            run = store.create("train", {})
            ballast = disk / "ballast"

            def overfill() -> None:
                with run.writer() as writer:
                    writer.start(100)
                    writer.checkpoint(1, {"w": torch.ones(10_000)}, {})
                    writer.metrics({"step": 1})
                    writer.checkpoint(2, {"w": torch.ones(200_000)}, {})

            with pytest.raises(AfterimageError, match="the disk is full"):
                overfill()
            assert [problem for problem in store.check() if not problem.heals] == []
            assert run.status().state in (RunState.FAILED, RunState.INTERRUPTED)
            assert os.listdir(run.dir / "checkpoints") == ["step-000000001.safetensors"]
            assert hidden(disk) == []

            with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as file:
                while True:
                    file.write(b"x" * 4096)
            with pytest.raises(AfterimageError, match="the disk is full"):
                store.create("train", {})
            with pytest.raises(AfterimageError, match="the disk is full"), run.writer() as writer:
                writer.metrics({"step": 2, "field": [0.1] * 20_000})
            assert run.metrics() == [{"step": 1}]
            assert [summary.id for summary in store.list()] == [run.id]
            assert [problem for problem in store.check() if not problem.heals] == []
            assert hidden(disk) == []

            ballast.unlink()
            with run.writer() as writer:
                found = writer.latest_checkpoint()
                writer.start(100)
                writer.finish(RunState.DONE, {})
            assert found is not None
            assert found.step == 1
            assert store.check() == []

    def test_a_run_can_be_deleted_to_make_room(self, tmp_path: Path) -> None:
        with mounted(tmp_path / "disk", "256k") as disk:
            store = RunStore(disk)
            run = store.create("train", {})
            with contextlib.suppress(OSError), open(run.dir / "weights.safetensors", "wb", buffering=0) as file:
                while True:
                    file.write(b"x" * 4096)
            store.delete(run.id)
            assert store.list() == []
            store.create("train", {})

    def test_a_zip_too_large_for_the_disk_leaves_nothing(
        self, tmp_path: Path, store: RunStore, done_run: Callable[..., Run]
    ) -> None:
        run = store.create("train", {})
        with run.writer() as writer:
            writer.save_tensors("weights", {"w": torch.ones(100_000)})
        archive = store.export(run.id, tmp_path)
        with mounted(tmp_path / "disk", "256k") as disk:
            small = RunStore(disk)
            with pytest.raises(AfterimageError, match="the disk is full"):
                small.import_zip(archive)
            assert small.list() == small.check() == hidden(disk) == []

    def test_a_file_size_limit(self, store: RunStore) -> None:
        run = store.create("train", {})

        def limited() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
            with run.writer() as writer:
                writer.start(2)
                writer.checkpoint(1, {"w": torch.ones(100)}, {})
                writer.metrics({"step": 1})
                with pytest.raises(AfterimageError, match="file size limit"):
                    writer.metrics({"step": 2, "field": [0.1] * 20_000})
                writer.checkpoint(2, {"w": torch.ones(100_000)}, {})

        assert in_child(limited) == 1
        assert run.metrics() == [{"step": 1}]
        assert run.status().state is RunState.FAILED
        assert "file size limit" in run.status().message
        assert os.listdir(run.dir / "checkpoints") == ["step-000000001.safetensors"]
        assert store.check() == []


class TestReadOnly:
    def test_reading_works_and_writing_is_refused_with_a_sentence(self) -> None:
        # A folder others may enter, because the child below gives up root's rights.
        place = Path(tempfile.mkdtemp())
        try:
            place.chmod(0o755)
            store = RunStore(place / "runs")
            run = store.create("train", {}, name="kept")
            with run.writer() as writer:
                writer.start(3)
                writer.metrics({"step": 1})
                writer.finish(RunState.CANCELLED, None)
            archive = store.export(run.id, place)
            for folder in (run.dir, store.root):
                folder.chmod(0o555)
            for path in (*run.dir.iterdir(), store.root / ".lock"):
                path.chmod(0o444)

            def as_nobody() -> None:
                if os.geteuid() == 0:
                    os.setegid(65534)
                    os.seteuid(65534)
                assert [summary.name for summary in store.list()] == ["kept"]
                assert store.check() == []
                assert store.open(run.id).metrics() == [{"step": 1}]
                attempts: list[Callable[[], object]] = [
                    lambda: store.create("train", {}),
                    lambda: store.rename(run.id, "x"),
                    lambda: store.delete(run.id),
                    lambda: store.import_zip(archive),
                    lambda: run.writer().__enter__(),
                    lambda: store.export(run.id, store.root / "x.zip"),
                ]
                for attempt in attempts:
                    with pytest.raises(InputError, match="read-only"):
                        attempt()

            assert in_child(as_nobody) == 0
            assert run.name == "kept"
        finally:
            store.root.chmod(0o755)
            run.dir.chmod(0o755)
            shutil.rmtree(place)

    def test_a_store_that_is_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        for root in (tmp_path / "file", tmp_path / "file" / "runs"):
            with pytest.raises(InputError, match="choose a folder for the store"):
                RunStore(root).create("train", {})
            with pytest.raises(InputError, match="cannot be read"):
                RunStore(root).list()


def test_a_write_that_stops_halfway_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    write_atomic(path, [b"before"])

    def parts() -> Iterator[bytes]:
        yield b"half of what was to"
        assert path.read_bytes() == b"before"  # a reader sees nothing of it yet
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomic(path, parts())
    assert path.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["status.json"]


def test_the_next_writer_clears_up_but_leaves_a_name_being_written(store: RunStore) -> None:
    run = store.create("train", {})
    (run.dir / "checkpoints").mkdir()
    for name in (".status.json.tmp", "checkpoints/.step-000000007.safetensors.tmp", ".name.json.tmp"):
        (run.dir / name).write_bytes(b"{")
    with run.writer():
        assert hidden(run.dir) == [".name.json.tmp"]


def test_two_processes_one_store(store: RunStore) -> None:
    """Each makes, names and deletes runs of its own; all that is left is whole."""

    def busy() -> None:
        for number in range(8):
            run = store.create("train", {"n": number})
            store.rename(run.id, f"run {number}")
            store.list()
            if number % 2:
                store.delete(run.id)

    children = []
    for _ in range(2):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                busy()
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0]
    assert len(store.list()) == 8
    assert store.check() == []
    assert hidden(store.root) == []
