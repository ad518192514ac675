"""Making, finding, listing, naming and deleting runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from recon_core.errors import InputError
from recon_core.store import Run, RunState, RunStore, Status

REPOSITORY = Path(__file__).parents[2]


def visible(store: RunStore) -> list[str]:
    return sorted(name for name in os.listdir(store.root) if name != ".lock")


class TestCreate:
    def test_a_new_run_explains_itself(self, store: RunStore) -> None:
        run = store.create("train", {"n": 20}, name="  the circle ", command=["python", "-m", "recon_core", "a b"])
        assert re.fullmatch(r"train-\d{8}-[a-z0-9]{6}", run.id)
        assert (run.kind, run.name, run.config, run.parents) == ("train", "the circle", {"n": 20}, ())
        assert run.status().state is RunState.QUEUED
        assert (run.dir / "command.txt").read_text() == "python -m recon_core 'a b'\n"
        assert set(run.versions) == {"afterimage", "python", "torch", "numpy"}
        stored = json.loads((run.dir / "run.json").read_text())
        assert stored["id"] == run.id
        assert stored["format"] == 1
        assert visible(store) == [run.id]

    def test_opening_reads_back_what_was_made(self, store: RunStore) -> None:
        made = store.create("train", {"seed": 3}, command=["x", "{id}"])
        again = RunStore(store.root).open(made.id)
        assert (again.id, again.created, again.config, again.command) == (
            made.id,
            made.created,
            {"seed": 3},
            ("x", "{id}"),
        )
        assert again.name == made.id

    def test_a_missing_parent_is_refused_and_leaves_nothing(self, store: RunStore) -> None:
        with pytest.raises(InputError, match="there is no run train-20200101-aaaaaa"):
            store.create("attack", {}, parents=["train-20200101-aaaaaa"])
        assert not store.root.exists()

    def test_a_config_that_is_not_json_leaves_nothing(self, store: RunStore) -> None:
        with pytest.raises(TypeError, match="object cannot be stored"):
            store.create("train", {"bad": object()})
        assert visible(store) == []

    def test_arrays_odd_numbers_and_odd_paths_survive(self, store: RunStore) -> None:
        import numpy as np
        import torch

        config = {"a": np.float32(0.5), "b": torch.tensor([1, 2]), "c": float("inf"), "d": "\udcff", "e": Path("x")}
        assert store.create("train", config).config == {
            "a": 0.5,
            "b": [1, 2],
            "c": float("inf"),
            "d": "\udcff",
            "e": "x",
        }


class TestOpen:
    @pytest.mark.parametrize("run_id", ["../secret", "/etc", "..", ".lock", "a/b", "a\\b", "~root", "a\0b"])
    def test_ids_that_leave_the_store(self, store: RunStore, run_id: str) -> None:
        store.create("train", {})
        with pytest.raises(InputError, match="tries to leave the store"):
            store.open(run_id)

    @pytest.mark.parametrize("run_id", ["", "Train-1", "a b", "x" * 65, "-a", "train\n"])
    def test_ids_that_are_none(self, store: RunStore, run_id: str) -> None:
        with pytest.raises(InputError, match="is not a run id"):
            store.open(run_id)

    def test_a_typo_gets_a_suggestion(self, store: RunStore) -> None:
        run = store.create("train", {})
        with pytest.raises(InputError, match=f"did you mean {run.id}"):
            store.open(run.id[:-1])

    def test_a_run_of_the_same_day_is_no_suggestion(self, store: RunStore) -> None:
        run = store.create("reconstruct", {})
        other = next(letter for letter in "abcdefg" if letter not in run.id[-6:])
        gone = run.id[:-6] + 6 * other
        with pytest.raises(InputError, match="it may have been deleted; use an id the list shows"):
            store.open(gone)

    def test_a_link_out_of_the_store_is_no_run(self, store: RunStore, tmp_path: Path) -> None:
        run = store.create("train", {})
        os.rename(run.dir, tmp_path / "elsewhere")
        os.symlink(tmp_path / "elsewhere", run.dir)
        for look in (store.list, lambda: store.open(run.id)):
            with pytest.raises(InputError, match="is a link"):
                look()

    def test_a_newer_format_is_named(self, store: RunStore) -> None:
        run = store.create("train", {})
        values = json.loads((run.dir / "run.json").read_text())
        (run.dir / "run.json").write_text(json.dumps({**values, "format": 99}))
        with pytest.raises(InputError, match="format 99"):
            store.open(run.id)


class TestList:
    def test_a_missing_root_is_an_empty_store(self, store: RunStore) -> None:
        assert store.list() == []
        assert store.check() == []
        assert not store.root.exists()

    def test_newest_first_and_by_kind(self, store: RunStore) -> None:
        made = [store.create(kind, {}).id for kind in ("train", "attack", "train")]
        assert [summary.id for summary in store.list()] == made[::-1]
        assert [summary.id for summary in store.list("train")] == [made[2], made[0]]

    def test_one_creation_time_is_ordered_by_id(self, store: RunStore) -> None:
        ids = []
        for _ in range(5):
            run = store.create("train", {})
            values = json.loads((run.dir / "run.json").read_text())
            (run.dir / "run.json").write_text(json.dumps({**values, "created": "1970-01-01T00:00:00.000000+00:00"}))
            ids.append(run.id)
        assert [summary.id for summary in store.list()] == sorted(ids, reverse=True)

    @pytest.mark.parametrize(
        ("file", "content", "said"),
        [
            ("run.json", b"", "run.json is not readable JSON"),
            ("run.json", b"[" * 100_000, "nested too deeply"),
            ("run.json", b"{}", "run.json lacks the key 'id'"),
            ("status.json", b'{"state": "asleep"}', "status.json lacks the key"),
            ("status.json", None, "status.json is missing"),
        ],
    )
    def test_a_broken_run_is_listed_as_failed(
        self, store: RunStore, file: str, content: bytes | None, said: str
    ) -> None:
        whole, broken = store.create("train", {}), store.create("train", {})
        if content is None:
            (broken.dir / file).unlink()
        else:
            (broken.dir / file).write_bytes(content)
        states = {summary.id: summary.status for summary in store.list("train")}
        assert states[whole.id].state is RunState.QUEUED
        assert states[broken.id].state is RunState.FAILED
        assert said in states[broken.id].message

    def test_two_thousand_runs(self, store: RunStore) -> None:
        """Under a second (it takes about 0.2 s), because at most three small files of each run are opened."""
        record = json.loads((store.create("train", {}).dir / "run.json").read_text())
        status = json.dumps(
            {
                "state": "cancelled",
                "step": 1,
                "total": 9,
                "message": "",
                "started": None,
                "updated": None,
                "seconds": 1.0,
                "pid": None,
            }
        )
        for number in range(1999):
            folder = store.root / f"train-20260101-{number:06d}"
            folder.mkdir()
            (folder / "run.json").write_text(json.dumps({**record, "id": folder.name}))
            (folder / "status.json").write_text(status)
            (folder / "name.json").write_text('{"name": "n"}')
            (folder / "metrics.jsonl").write_text('{"step": 1}\n')
        opened: list[str] = []
        watching = True

        def watch(event: str, arguments: tuple[object, ...]) -> None:
            if watching and event == "open" and str(arguments[0]).startswith(str(store.root)):
                opened.append(str(arguments[0]))

        sys.addaudithook(watch)
        assert len(store.list()) == 2000
        watching = False
        assert (
            len(opened) <= 3 * 2000 + 4
        )  # and the index; how long that takes is for `python -m benchmarks load` to say

    def test_listing_does_not_import_torch(self, store: RunStore, done_run: Callable[..., Run]) -> None:
        run = done_run()
        code = (
            "import sys; from pathlib import Path; from recon_core.store import RunStore;"
            f"s = RunStore(Path({str(store.root)!r})); s.list(); s.open({run.id!r}).metrics(); s.check();"
            "sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
        )
        assert subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=False).returncode == 0


class TestRename:
    def test_a_finished_run_can_be_renamed_and_nothing_else_changes(
        self, store: RunStore, done_run: Callable[..., Run]
    ) -> None:
        run = done_run()
        before = {path.name: path.read_bytes() for path in run.dir.iterdir()}
        store.rename(run.id, " Käse <b>& co</b> ")
        store.rename(run.id, "Käse 👩‍🔬")
        assert run.name == store.list()[0].name == "Käse 👩‍🔬"
        after = {path.name: path.read_bytes() for path in run.dir.iterdir()}
        assert {name: data for name, data in after.items() if name != "name.json"} == before

    @pytest.mark.parametrize("name", ["", "   ", "x" * 121, "a\nb", "a\x00b", "a\x1b[31m", "evil\u202egnp", "a\u2028b"])
    def test_names_that_are_refused(self, store: RunStore, name: str) -> None:
        run = store.create("train", {}, name="kept")
        with pytest.raises(InputError, match="a run's name has"):
            store.rename(run.id, name)
        assert run.name == "kept"


class TestDelete:
    def test_dependents_are_named_first(self, store: RunStore, done_run: Callable[..., Run]) -> None:
        model = done_run()
        attack = done_run(model.id, kind="attack")
        match = done_run(attack.id, kind="match")
        other = done_run()
        assert {summary.id for summary in store.dependents(model.id)} == {attack.id, match.id}
        assert store.dependents(match.id) == []
        with pytest.raises(InputError) as refusal:
            store.delete(model.id)
        assert attack.id in str(refusal.value)
        assert match.id in str(refusal.value)
        assert len(store.list()) == 4
        store.delete(model.id, with_dependents=True)
        assert visible(store) == [other.id]
        assert store.check() == []

    def test_a_leaf_goes_alone(self, store: RunStore, done_run: Callable[..., Run]) -> None:
        model = done_run()
        attack = done_run(model.id, kind="attack")
        store.delete(attack.id)
        assert visible(store) == [model.id]

    def test_not_while_somebody_works_on_it_or_on_a_dependent(
        self, store: RunStore, done_run: Callable[..., Run]
    ) -> None:
        model = done_run()
        attack = store.create("attack", {}, parents=[model.id])
        with attack.writer() as writer:
            writer.start(3)
            for run_id, with_dependents in ((attack.id, False), (model.id, True)):
                with pytest.raises(InputError, match=f"run {attack.id} is running in process {os.getpid()}"):
                    store.delete(run_id, with_dependents=with_dependents)
            writer.finish(RunState.CANCELLED, None)
        store.delete(model.id, with_dependents=True)
        assert store.list() == []

    def test_a_broken_run_can_be_deleted(self, store: RunStore) -> None:
        run = store.create("train", {})
        (run.dir / "run.json").write_text("nonsense")
        store.delete(run.id)
        assert store.list() == []

    def test_a_deleted_run_takes_no_writer(self, store: RunStore) -> None:
        run = store.create("train", {})
        store.delete(run.id)
        with pytest.raises(InputError, match="deleted"), run.writer():
            pass


def test_status_defaults_say_nothing() -> None:
    assert Status(RunState.QUEUED) == Status(RunState.QUEUED, 0, None, "", None, None, 0.0, None)


def test_the_content_version_changes_with_the_content(store: RunStore) -> None:
    run = store.create("train", {})
    versions = [run.content_version(), run.content_version()]
    with run.writer() as writer:
        writer.start(2)
        versions.append(run.content_version())
        writer.metrics({"step": 1})
        versions.append(run.content_version())
        writer.finish(RunState.DONE, {})
    versions.append(run.content_version())
    store.rename(run.id, "x")
    versions.append(run.content_version())
    assert versions[0] == versions[1]
    assert len(set(versions)) == 5
