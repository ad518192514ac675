"""Runs to a zip and back, and zips that mean harm."""

from __future__ import annotations

import io
import json
import os
import re
import stat
import struct
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recon_core.errors import AfterimageError, InputError
from recon_core.store import Run, RunState, RunStore, ZipLimits
from recon_core.store.record import read_record


@pytest.fixture
def other(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path / "elsewhere" / "runs")


def contents(run: Run) -> dict[str, bytes]:
    marks = ("lock", "imported.json")
    return {path.name: path.read_bytes() for path in run.dir.iterdir() if path.name not in marks}


def files_below(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*")} if root.exists() else set()


class TestRoundTrip:
    def test_a_run_and_its_parents_arrive_whole(
        self, store: RunStore, other: RunStore, done_run: Callable[..., Run], tmp_path: Path
    ) -> None:
        model = done_run()
        attack = done_run(model.id, kind="attack")
        store.rename(attack.id, "the good one")
        target = store.export(attack.id, tmp_path / "out.zip")
        assert target == tmp_path / "out.zip"
        imported = other.import_zip(target)
        assert [run.id for run in imported] == [model.id, attack.id]
        for run in imported:
            assert contents(run) == contents(store.open(run.id))
            assert not (run.dir / "result.json").stat().st_mode & stat.S_IWUSR
        assert imported[1].name == "the good one"
        assert torch.equal(imported[0].tensors("weights")["w"], torch.arange(6.0).reshape(2, 3))
        assert other.check() == []

    def test_a_folder_as_target_gets_a_file_named_by_id(
        self, store: RunStore, done_run: Callable[..., Run], tmp_path: Path
    ) -> None:
        run = done_run()
        assert store.export(run.id, tmp_path) == tmp_path / f"{run.id}.zip"
        assert sorted(os.listdir(tmp_path)) == ["runs", f"{run.id}.zip"]
        with pytest.raises(InputError, match="choose an existing folder"):
            store.export(run.id, tmp_path / "nowhere" / "x.zip")

    def test_without_its_parents_it_needs_them_there(
        self, store: RunStore, other: RunStore, done_run: Callable[..., Run], tmp_path: Path
    ) -> None:
        model = done_run()
        attack = done_run(model.id, kind="attack")
        alone = store.export(attack.id, tmp_path / "alone.zip", with_parents=False)
        with pytest.raises(InputError, match=f"the parent {model.id} is neither in it nor in the store"):
            other.import_zip(alone)
        assert other.list() == []
        other.import_zip(store.export(model.id, tmp_path))
        other.import_zip(alone)
        assert {summary.id for summary in other.list()} == {model.id, attack.id}

    def test_what_is_here_already_is_kept(self, store: RunStore, done_run: Callable[..., Run], tmp_path: Path) -> None:
        model = done_run()
        attack = done_run(model.id, kind="attack")
        archive = store.export(attack.id, tmp_path)
        store.rename(model.id, "my name for it")
        assert [run.id for run in store.import_zip(archive)] == [model.id, attack.id]
        assert len(store.list()) == 2
        assert store.open(model.id).name == "my name for it"

    def test_a_taken_id_gets_a_fresh_one_everywhere(
        self, store: RunStore, other: RunStore, done_run: Callable[..., Run], tmp_path: Path
    ) -> None:
        model = done_run()
        attack = done_run(model.id, kind="attack", config={"model": model.id, "seeds": [1, model.id], "note": "x"})
        archive = store.export(attack.id, tmp_path)
        for run in (model, attack):  # the same ids there, the first with another result, the second alike
            copy = other.root / run.id
            copy.mkdir(parents=True)
            for name, data in contents(run).items():
                (copy / name).write_bytes(data)
        (other.root / model.id / "result.json").write_text('{"loss": 99}')
        new_model, new_attack = other.import_zip(archive)
        assert {new_model.id, new_attack.id}.isdisjoint({model.id, attack.id})
        assert new_attack.parents == (new_model.id,)
        assert new_attack.config == {"model": new_model.id, "seeds": [1, new_model.id], "note": "x"}
        assert read_record(new_attack.dir).command[-1] == f"--from={new_model.id}"
        assert new_model.id in (new_attack.dir / "command.txt").read_text()
        assert new_model.result() == {"loss": 0.5}
        assert other.open(model.id).result() == {"loss": 99}
        assert other.check() == []

    def test_an_unfinished_run_can_be_resumed_elsewhere_but_does_not_start_by_itself(
        self, store: RunStore, other: RunStore, tmp_path: Path
    ) -> None:
        queued, stopped = store.create("train", {}), store.create("train", {})
        with stopped.writer() as writer:
            writer.start(9)
            writer.checkpoint(4, {"w": torch.ones(3)}, {"lr": 0.1})
        for run in (queued, stopped):
            archive = store.export(run.id, tmp_path)
            (arrived,) = other.import_zip(archive)
            assert arrived.status().state is RunState.INTERRUPTED
            for place in (store, other):  # here already, both where it came from and where it went
                assert [again.id for again in place.import_zip(archive)] == [run.id]
        with other.open(stopped.id).writer() as writer:
            found = writer.latest_checkpoint()
        assert found is not None
        assert (found.step, found.meta) == (4, {"lr": 0.1})

    def test_not_while_it_is_written(self, store: RunStore, tmp_path: Path) -> None:
        run = store.create("train", {})
        with run.writer() as writer:
            writer.start(1)
            with pytest.raises(InputError, match="is running"):
                store.export(run.id, tmp_path)


Entry = tuple[zipfile.ZipInfo | str, bytes]


def zip_of(path: Path, *entries: Entry, method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # names that are there twice
        for name, data in entries:
            archive.writestr(name, data)
    return path


def link(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


RUN_ID = "train-20260101-abcdef"


def whole(run_id: str = RUN_ID, **changes: object) -> dict[str, bytes]:
    """The files of a small, sound run; `changes` replace values in run.json."""
    record = {
        "id": run_id,
        "kind": "train",
        "created": "2026-01-01T00:00:00.000000+00:00",
        "parents": [],
        "command": [],
        "versions": {},
        "format": 1,
    }
    status = {
        "state": "done",
        "step": 1,
        "total": 1,
        "message": "",
        "started": None,
        "updated": None,
        "seconds": 1.5,
        "pid": None,
    }
    return {
        f"{run_id}/run.json": json.dumps({**record, **changes}).encode(),
        f"{run_id}/config.json": b"{}",
        f"{run_id}/status.json": json.dumps(status).encode(),
        f"{run_id}/result.json": b"{}",
    }


def header(**tensors: object) -> bytes:
    text = json.dumps(tensors).encode()
    return struct.pack("<Q", len(text)) + text


def f32(shape: list[int], begin: int, end: int) -> dict[str, object]:
    return {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}


HOSTILE: dict[str, tuple[list[Entry], str]] = {
    "parent folder": ([("../evil.json", b"{}")], "does not belong"),
    "inner parent folder": ([(f"{RUN_ID}/../../evil.json", b"{}")], "does not belong"),
    "absolute": ([("/etc/evil.json", b"{}")], "does not belong"),
    "backslashes": ([(f"{RUN_ID}\\..\\evil.json", b"{}")], "does not belong"),
    "drive": ([("c:/evil.json", b"{}")], "does not belong"),
    "hidden": ([(f"{RUN_ID}/.bashrc", b"")], "does not belong"),
    "hidden folder": ([(".work-1/run.json", b"{}")], "does not belong"),
    "lock": ([(f"{RUN_ID}/lock", b"1")], "does not belong"),
    "cancel": ([(f"{RUN_ID}/cancel", b"")], "does not belong"),
    "checkpoint lock": ([(f"{RUN_ID}/checkpoints/lock", b"")], "does not belong"),
    "pickle": ([(f"{RUN_ID}/weights.pt", b"")], "does not belong"),
    "deeper": ([(f"{RUN_ID}/checkpoints/a/step-000000001.safetensors", b"")], "does not belong"),
    "link": ([(link(f"{RUN_ID}/run.json"), b"/etc/passwd")], "is not a plain file"),
    "twice": ([(f"{RUN_ID}/run.json", b"{}"), (f"{RUN_ID}/run.json", b"{}")], "there twice"),
    "bomb": ([(f"{RUN_ID}/weights.safetensors", bytes(50 * 2**20))], "would grow from"),
    "empty": ([], "holds no run"),
    "only a folder": ([(f"{RUN_ID}/", b"")], "holds no run"),
    "no run.json": ([(f"{RUN_ID}/config.json", b"{}")], "run.json is missing"),
    "run called lock": ([("lock/run.json", b"{}")], "run.json lacks the key"),
}
DAMAGED: dict[str, tuple[dict[str, bytes], str]] = {
    "empty record": ({**whole(), f"{RUN_ID}/run.json": b"{}"}, "run.json lacks"),
    "wrong folder": (
        {f"{RUN_ID}/run.json": whole("train-2")["train-2/run.json"]},
        "says its id is 'train-2' but the folder",
    ),
    "unknown key": (whole(extra=1), "unknown key 'extra'"),
    "parent outside": (whole(parents=["../../etc"]), "impossible parents"),
    "own parent": (whole(parents=[RUN_ID]), "each other's parents"),
    "circle": ({**whole("a-1", parents=["b-1"]), **whole("b-1", parents=["a-1"])}, "each other's parents"),
    "missing parent": (whole(parents=["train-1"]), "the parent train-1 is neither"),
    "bad kind": (whole(kind="../x"), "impossible kind"),
    "bad command": (whole(command="rm"), "impossible command"),
    "bad time": (whole(created="yesterday"), "impossible created"),
    "future format": (whole(format=2), "use a newer Afterimage"),
    "no config": ({name: data for name, data in whole().items() if "config" not in name}, "config.json is missing"),
    "no result": ({name: data for name, data in whole().items() if "result" not in name}, "done but has no result"),
    "deep json": ({**whole(), f"{RUN_ID}/config.json": b'{"a":' * 50_000}, "nested too deeply"),
    "huge number": ({**whole(), f"{RUN_ID}/config.json": b"9" * 5000}, "config.json is not readable"),
    "large json": ({**whole(), f"{RUN_ID}/extra.json": os.urandom(9 * 2**20)}, "more than 8388608 bytes"),
    "bad name": ({**whole(), f"{RUN_ID}/name.json": b'{"name": "a\\u0000b"}'}, "control characters"),
    "bad state": ({**whole(), f"{RUN_ID}/status.json": b'{"state": 1}'}, "status.json lacks"),
    "torn metrics": (
        {**whole(), f"{RUN_ID}/metrics.jsonl": b'{"step": 1}\n{"st'},
        "last line of metrics.jsonl is torn",
    ),
    "no rows": ({**whole(), f"{RUN_ID}/metrics.jsonl": b"hello\n"}, "line 1 of metrics.jsonl is not a row"),
    **{
        f"tensors: {what}": ({**whole(), f"{RUN_ID}/weights.safetensors": data}, said)
        for what, data, said in [
            ("nothing", b"", "is truncated"),
            ("ten gigabytes of header", struct.pack("<Q", 10 * 2**30) + b"{}", "claims a header of"),
            ("short header", struct.pack("<Q", 99) + b"{}", "truncated inside its header"),
            ("pickle", b"\x80\x04\x95", "is truncated"),
            ("list", struct.pack("<Q", 2) + b"[]", "no header object"),
            ("missing data", header(w=f32([4], 0, 16)) + b"x" * 15, "truncated: it has 15 of 16"),
            ("more data", header(w=f32([4], 0, 16)) + b"x" * 17, "1 bytes behind"),
            ("lying shape", header(w=f32([10**9, 10**9], 0, 16)) + b"x" * 16, "do not fill"),
            ("overlap", header(a=f32([4], 0, 16), b=f32([4], 0, 16)) + b"x" * 16, "overlap or leave a hole"),
            ("hole", header(a=f32([1], 4, 8)) + b"x" * 8, "overlap or leave a hole"),
            ("negative", header(a=f32([-1], 0, -4)), "impossible shape"),
            ("backwards", header(a=f32([0], 8, 4)) + b"x" * 8, "do not fill"),
            ("truth as size", header(a={"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}) + b"x" * 4, "shape"),
            ("unknown dtype", header(a={"dtype": "X", "shape": [], "data_offsets": [0, 0]}), "unknown dtype"),
            ("dtype no text", header(a={"dtype": [], "shape": [], "data_offsets": [0, 0]}), "unknown dtype"),
            ("entry no object", header(a=3), "is not described"),
            ("metadata no text", header(__metadata__={"a": [1]}), "metadata that is not text"),
        ]
    },
}


class TestHostile:
    def refused(self, store: RunStore, path: Path, said: str, limits: ZipLimits | None = None) -> None:
        """One sentence, nothing left behind, and little memory used."""
        before = files_below(path.parent)
        tracemalloc.start()
        try:
            with pytest.raises(InputError, match=re.escape(said)) as refusal:
                store.import_zip(path, limits=limits)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert "\n" not in str(refusal.value)
        assert peak < 64 * 2**20
        left = files_below(path.parent) - before
        assert left <= {"runs", "runs/.lock"}
        assert store.list() == store.check() == []

    @pytest.mark.parametrize("case", HOSTILE)
    def test_entries(self, store: RunStore, tmp_path: Path, case: str) -> None:
        entries, said = HOSTILE[case]
        path = zip_of(tmp_path / "x.zip", *entries)
        self.refused(store, path, said)

    @pytest.mark.parametrize("case", DAMAGED)
    def test_runs(self, store: RunStore, tmp_path: Path, case: str) -> None:
        files, said = DAMAGED[case]
        self.refused(store, zip_of(tmp_path / "x.zip", *files.items()), said)

    def test_the_sound_run_all_these_were_made_from_is_taken(self, store: RunStore, tmp_path: Path) -> None:
        tensors = header(w=f32([4], 0, 16)) + b"x" * 16
        files = {**whole(), f"{RUN_ID}/weights.safetensors": tensors, f"{RUN_ID}/checkpoints/": b""}
        (run,) = store.import_zip(zip_of(tmp_path / "x.zip", *files.items()))
        assert run.tensors("weights")["w"].shape == (4,)
        assert store.check() == []

    def test_limits(self, store: RunStore, tmp_path: Path) -> None:
        path = zip_of(tmp_path / "x.zip", *whole().items())
        self.refused(store, path, "4 files, more than 3", ZipLimits(entries=3))
        self.refused(store, path, "bytes, more than 100", ZipLimits(total_bytes=100))
        self.refused(store, path, "bytes, more than 50", ZipLimits(text_bytes=50))

    def test_a_million_entries_are_not_even_read(self, store: RunStore, tmp_path: Path) -> None:
        path = tmp_path / "x.zip"
        entry = struct.pack("<4s6H3L5H2L", b"PK\1\2", 20, 20, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"a"
        table = entry * 1_000_000
        path.write_bytes(table + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 16960, 16960, len(table), 0, 0))
        self.refused(store, path, "too many for 10000 files")
        end64 = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, 10**6, 10**6, len(table), 0)
        locator = struct.pack("<4sLQL", b"PK\6\7", 0, len(table), 1)
        path.write_bytes(table + end64 + locator + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, 47, 0, 0))
        self.refused(store, path, "too many for 10000 files")

    def test_entries_that_share_their_bytes(self, store: RunStore, tmp_path: Path) -> None:
        """One stored megabyte that a thousand entries point at."""
        data = os.urandom(2**20)
        name = f"{RUN_ID}/a000.json".encode()
        local = struct.pack("<4s5H3L2H", b"PK\3\4", 20, 0, 0, 0, 0, 0, len(data), len(data), len(name), 0) + name
        table = b"".join(
            struct.pack(
                "<4s6H3L5H2L", b"PK\1\2", 20, 20, 0, 0, 0, 0, 0, len(data), len(data), len(name), 0, 0, 0, 0, 0, 0
            )
            + f"{RUN_ID}/a{number:03d}.json".encode()
            for number in range(1000)
        )
        body = local + data
        path = tmp_path / "x.zip"
        end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1000, 1000, len(table), len(body), 0)
        path.write_bytes(body + table + end)
        self.refused(store, path, "it would grow from")

    def test_a_size_that_lies(self, store: RunStore, tmp_path: Path) -> None:
        path = zip_of(tmp_path / "x.zip", (f"{RUN_ID}/log.txt", b"x" * 10_000))
        data = path.read_bytes()
        at = data.index(b"PK\1\2") + 24
        path.write_bytes(data[:at] + struct.pack("<L", 10) + data[at + 4 :])
        self.refused(store, path, "is not a readable zip")

    def test_encrypted(self, store: RunStore, tmp_path: Path) -> None:
        path = zip_of(tmp_path / "x.zip", *whole().items())
        data = bytearray(path.read_bytes())
        data[data.index(b"PK\1\2") + 8] |= 1
        path.write_bytes(data)
        self.refused(store, path, "is encrypted")

    def test_unusual_packing(self, store: RunStore, tmp_path: Path) -> None:
        self.refused(store, zip_of(tmp_path / "x.zip", *whole().items(), method=zipfile.ZIP_LZMA), "unusual way")

    def test_one_bad_run_keeps_the_good_ones_out(self, store: RunStore, tmp_path: Path) -> None:
        files = {**whole("train-1"), **whole("train-2", extra=1)}
        self.refused(store, zip_of(tmp_path / "x.zip", *files.items()), "unknown key")

    @pytest.mark.parametrize("data", [b"", b"hello", b"PK\5\6", b"PK\3\4" + bytes(100)])
    def test_no_zip(self, store: RunStore, tmp_path: Path, data: bytes) -> None:
        path = tmp_path / "x.zip"
        path.write_bytes(data)
        self.refused(store, path, "is not a readable zip")

    def test_no_file(self, store: RunStore, tmp_path: Path) -> None:
        for path in (tmp_path / "nothing.zip", tmp_path):
            with pytest.raises(InputError, match="cannot be read"):
                store.import_zip(path)
        assert not store.root.exists()


SOUND = io.BytesIO()
with zipfile.ZipFile(SOUND, "w", zipfile.ZIP_DEFLATED) as _archive:
    for _name, _data in {
        **whole(),
        f"{RUN_ID}/weights.safetensors": header(w=f32([4], 0, 16)) + b"x" * 16,
        f"{RUN_ID}/metrics.jsonl": b'{"step": 1}\n',
    }.items():
        _archive.writestr(_name, _data)


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    changes=st.lists(st.tuples(st.integers(0, len(SOUND.getvalue()) - 1), st.integers(0, 255)), min_size=1, max_size=6),
    length=st.one_of(st.none(), st.integers(0, len(SOUND.getvalue()))),
)
def test_any_bytes_give_a_sentence_or_a_sound_run(
    tmp_path: Path, changes: list[tuple[int, int]], length: int | None
) -> None:
    data = bytearray(SOUND.getvalue())
    for place, value in changes:
        data[place] = value
    path = tmp_path / "fuzz.zip"
    path.write_bytes(data[:length])
    store = RunStore(tmp_path / "fuzzed")
    said = ""
    try:
        for run in store.import_zip(path):
            store.delete(run.id)
    except AfterimageError as error:
        said = str(error)
    assert "\n" not in said
    assert files_below(store.root) <= {".lock"}
