"""The life of a run: work, progress, checkpoints, cancel, failure, resume, done."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

import pytest
import torch

from recon_core.errors import AfterimageError, InputError
from recon_core.store import Run, RunState, RunStore
from recon_core.store.writer import _CANCEL_INTERVAL
from tests.processes import wait_for

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def run(store: RunStore) -> Run:
    return store.create("train", {"seed": 0})


class TestLife:
    def test_from_queued_to_done(self, store: RunStore, run: Run) -> None:
        weights = {"w": torch.randn(3, 4, dtype=torch.float64), "n": torch.tensor(7)}
        with run.writer() as writer:
            writer.start(10)
            status = run.status()
            assert (status.state, status.total, status.pid) == (RunState.RUNNING, 10, os.getpid())
            writer.progress(4, "loss 0.1", force=True)
            assert (run.status().step, run.status().message) == (4, "loss 0.1")
            writer.log("two\nlines")
            writer.save_tensors("weights", weights)
            writer.save_json("margins", [1.0, float("nan")])
            writer.progress(10)
            writer.finish(RunState.DONE, {"loss": 1e-300}, "converged")
        status = run.status()
        assert (status.state, status.step, status.message, status.pid) == (RunState.DONE, 10, "converged", None)
        assert run.result() == {"loss": 1e-300}
        assert run.has_tensors("weights")
        assert not run.has_tensors("candidates")
        loaded = run.tensors("weights")
        assert all(torch.equal(loaded[name], weights[name]) for name in weights)
        assert loaded["w"].dtype is torch.float64
        margins = run.read_json("margins")
        assert margins[0] == 1
        assert margins[1] != margins[1]
        log = run.log_tail()
        assert [line.split(" ", 1)[1] for line in log] == ["two", "   lines", "done: converged"]
        assert store.check() == []

    def test_a_done_run_is_for_good(self, store: RunStore, run: Run) -> None:
        with run.writer() as writer:
            writer.start(1)
            writer.checkpoint(1, {"w": torch.ones(2)}, {})
            run.request_cancel()
            writer.finish(RunState.DONE, None)
            with pytest.raises(RuntimeError, match="not open"):
                writer.progress(2)
        assert run.result() == {}
        assert sorted(path.name for path in run.dir.iterdir()) == [
            "command.txt",
            "config.json",
            "lock",
            "log.txt",
            "metrics.jsonl",
            "result.json",
            "run.json",
            "status.json",
        ]
        for path in run.dir.iterdir():
            writable = bool(path.stat().st_mode & stat.S_IWUSR)
            assert writable == (path.name == "lock")
        with pytest.raises(InputError, match="finished runs cannot change"), run.writer():
            pass
        store.rename(run.id, "still mine to name")

    def test_leaving_without_a_word_is_an_interruption(self, run: Run) -> None:
        with run.writer() as writer:
            writer.start(5)
            writer.progress(2)
        assert (run.status().state, run.status().step) == (RunState.INTERRUPTED, 2)

    def test_looking_without_starting_changes_nothing(self, run: Run) -> None:
        with run.writer():
            assert run.status().state is RunState.QUEUED
        assert run.status().state is RunState.QUEUED

    def test_one_writer_at_a_time(self, run: Run) -> None:
        with (
            run.writer(),
            pytest.raises(InputError, match=f"already running in process {os.getpid()}"),
            run.writer(),
        ):
            pass
        with run.writer() as writer:
            writer.start(1)

    def test_a_process_that_is_gone_means_interrupted(self, store: RunStore, run: Run) -> None:
        code = (
            "import os; from pathlib import Path; from recon_core.store import RunStore;"
            f"w = RunStore(Path({str(store.root)!r})).open({run.id!r}).writer().__enter__();"
            "w.start(100); w.progress(40, force=True); os.kill(os.getpid(), 9)"
        )
        assert subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=False).returncode == -9
        assert json.loads((run.dir / "status.json").read_text())["state"] == "running"
        status = run.status()
        assert (status.state, status.step, status.pid) == (RunState.INTERRUPTED, 40, None)
        assert "step 40 of 100" in status.message
        assert store.list()[0].status == status

    def test_requeue_puts_it_back_in_line(self, run: Run) -> None:
        with run.writer() as writer:
            writer.start(5)
            run.request_cancel()
            writer.finish(RunState.CANCELLED, None)
        with run.writer() as writer:
            writer.requeue("waiting for a free slot")
        assert run.status().state is RunState.QUEUED
        with run.writer() as writer:
            writer.start(5)
            assert not writer.cancel_requested()


class TestProgress:
    def test_many_calls_cost_few_writes(self, run: Run) -> None:
        replaced = 0
        watching = True

        def watch(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal replaced
            if watching and event == "os.rename" and str(arguments[1]).endswith("status.json"):
                replaced += 1

        with run.writer() as writer:
            writer.start(10_000)
            sys.addaudithook(watch)
            began = time.monotonic()
            for step in range(10_000):
                writer.progress(step)
                writer.cancel_requested()
            seconds = time.monotonic() - began
            watching = False
            writer.finish(RunState.CANCELLED, None)
        assert replaced <= 1 + 2 * seconds
        assert run.status().step == 9_999  # the last word has the last step, written or not before

    def test_seconds_add_up_over_resumes_and_survive_a_jumping_clock(
        self, store: RunStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Jumping(datetime):
            jump = timedelta(0)

            @classmethod
            def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
                return datetime.now(tz) + cls.jump

        monkeypatch.setattr("recon_core.store.record.datetime", Jumping)
        ids = []
        for days in (0, -9000, 9000):
            Jumping.jump = timedelta(days=days)
            run = store.create("train", {})
            ids.append(run.id)
        run = store.open(ids[0])
        for days in (0, -9000, 9000, -3000):
            Jumping.jump = timedelta(days=days)
            with run.writer() as writer:
                writer.start(3)
                time.sleep(0.05)
                writer.finish(RunState.CANCELLED, None)
        assert 0.2 <= run.status().seconds < 1000  # a clock that jumps by years is not what is measured
        assert [summary.id for summary in store.list()] == [ids[2], ids[0], ids[1]]
        assert store.check() == []


class TestCancel:
    def test_the_flag_reaches_the_writer_within_its_look(self, run: Run) -> None:
        with run.writer() as writer:
            writer.start(5)
            assert not writer.cancel_requested()
            assert run.request_cancel()
            wait_for(writer.cancel_requested)
            writer.finish(RunState.CANCELLED, None, "cancelled at step 0")
        with run.writer() as writer:
            writer.start(5)
            time.sleep(2 * _CANCEL_INTERVAL)  # or it would not look again
            assert not writer.cancel_requested()

    def test_a_queued_run_is_cancelled_at_once(self, run: Run) -> None:
        assert run.request_cancel()
        assert run.status().state is RunState.CANCELLED

    def test_cancelling_while_it_starts_is_heard(self, run: Run) -> None:
        with run.writer() as writer:
            assert run.request_cancel()
            writer.start(5)
            assert writer.cancel_requested()

    def test_there_may_be_nothing_to_cancel(self, run: Run) -> None:
        with run.writer() as writer:
            writer.start(1)
            writer.finish(RunState.DONE, {})
        assert not run.request_cancel()
        assert not (run.dir / "cancel").exists()


def fail(run: Run, error: BaseException, *, after_the_last_word: bool = False) -> None:
    with run.writer() as writer:
        writer.start(5)
        writer.progress(3)
        if after_the_last_word:
            writer.finish(RunState.DONE, {})
        raise error


class TestFailure:
    def test_an_exception_becomes_the_message_and_its_trace_the_log(self, run: Run) -> None:
        with pytest.raises(ZeroDivisionError):
            fail(run, ZeroDivisionError("division by zero"))
        status = run.status()
        assert (status.state, status.step) == (RunState.FAILED, 3)
        assert status.message == "ZeroDivisionError: division by zero"
        log = "\n".join(run.log_tail())
        assert "Traceback" in log
        assert "test_store_writer.py" in log

    def test_a_sentence_stays_a_sentence(self, run: Run) -> None:
        with pytest.raises(AfterimageError):
            fail(run, AfterimageError("the loss became\n non-finite"))
        assert run.status().message == "the loss became non-finite"
        assert "Traceback" not in "\n".join(run.log_tail())

    def test_ctrl_c_leaves_a_resumable_run(self, run: Run) -> None:
        with pytest.raises(KeyboardInterrupt):
            fail(run, KeyboardInterrupt())
        status = run.status()
        assert status.state is RunState.CANCELLED
        assert status.message.startswith("stopped by the user; resume it with")
        assert run.id in status.message

    def test_being_told_to_stop_is_an_interruption(self, run: Run) -> None:
        with pytest.raises(SystemExit):
            fail(run, SystemExit(143))
        assert run.status().state is RunState.INTERRUPTED

    def test_an_error_after_the_last_word_does_not_change_it(self, run: Run) -> None:
        with pytest.raises(ZeroDivisionError):
            fail(run, ZeroDivisionError(), after_the_last_word=True)
        assert run.status().state is RunState.DONE

    def test_a_stopped_run_can_be_taken_up_and_its_old_result_is_gone(self, run: Run) -> None:
        with run.writer() as writer:
            writer.start(5)
            writer.finish(RunState.CANCELLED, {"so": "far"})
        assert run.result() == {"so": "far"}
        with run.writer() as writer:
            writer.start(5)
            assert run.result() is None
            writer.finish(RunState.DONE, {"all": "done"})
        assert run.result() == {"all": "done"}
        assert any("resumed after it was cancelled" in line for line in run.log_tail())


class TestCheckpoints:
    def test_the_last_two_are_kept_and_come_back_bit_for_bit(self, run: Run) -> None:
        generator = torch.Generator().manual_seed(1)
        base = torch.randn(4, 5, generator=generator)
        tensors = {"w": base, "view": base[1:3], "t": base.T, "rng": generator.get_state(), "empty": torch.zeros(0, 3)}
        meta = {"lr": 0.1 + 0.2, "loss": 5e-324, "big": 2**60, "nested": {"a": [1, None, "x"]}}
        with run.writer() as writer:
            writer.start(9)
            assert writer.latest_checkpoint() is None
            for step in (100, 200, 300):
                writer.checkpoint(step, tensors, {**meta, "step": step})
            assert sorted(os.listdir(run.dir / "checkpoints")) == [
                "step-000000200.safetensors",
                "step-000000300.safetensors",
            ]
        with run.writer() as writer:
            found = writer.latest_checkpoint()
            assert found is not None
            assert found.step == 300
            assert found.meta == {**meta, "step": 300}
            assert set(found.tensors) == set(tensors)
            for name, tensor in tensors.items():
                assert torch.equal(found.tensors[name], tensor)

    @pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "foreign"])
    def test_a_damaged_one_gives_way_to_the_one_before(self, store: RunStore, run: Run, damage: str) -> None:
        with run.writer() as writer:
            writer.start(9)
            for step in (1, 2):
                writer.checkpoint(step, {"w": torch.full((100,), float(step))}, {})
        path = run.dir / "checkpoints" / "step-000000002.safetensors"
        data = path.read_bytes()
        changed = {
            "truncated": data[:-40],
            "flipped": data[:-5] + bytes([data[-5] ^ 1]) + data[-4:],
            "empty": b"",
            "foreign": (run.dir / "checkpoints" / "step-000000001.safetensors").read_bytes(),
        }
        path.write_bytes(changed[damage])
        if damage != "foreign":
            assert any("step-000000002" in problem.sentence and problem.heals for problem in store.check())
        with run.writer() as writer:
            found = writer.latest_checkpoint()
        assert found is not None
        assert found.step == 1
        assert torch.equal(found.tensors["w"], torch.ones(100))
        assert any("step 2 is damaged" in line and "the one before is used" in line for line in run.log_tail())
        assert not path.exists()

    def test_checkpoints_of_a_given_up_try_do_not_shadow_new_ones(self, run: Run) -> None:
        with run.writer() as writer:
            writer.start(9)
            writer.checkpoint(500, {"w": torch.ones(1)}, {})
            writer.checkpoint(10, {"w": torch.zeros(1)}, {})
            found = writer.latest_checkpoint()
        assert found is not None
        assert found.step == 10

    def test_a_resumed_computation_ends_as_if_never_stopped(self, store: RunStore) -> None:
        def work(run: Run, stop_at: int | None) -> None:
            with run.writer() as writer:
                writer.start(20)
                generator = torch.Generator().manual_seed(0)
                found = writer.latest_checkpoint()
                step, x = (0, torch.zeros(3)) if found is None else (found.step, found.tensors["x"].clone())
                if found is not None:
                    generator.set_state(found.tensors["rng"])
                while step < 20:
                    if step == stop_at:
                        return
                    step += 1
                    x = 0.9 * x + torch.randn(3, generator=generator)
                    writer.metrics({"step": step, "norm": float(x.norm())})
                    if step % 4 == 0:
                        writer.checkpoint(step, {"x": x, "rng": generator.get_state()}, {})
                writer.finish(RunState.DONE, {"x": x.tolist()})

        straight, stopped = store.create("train", {}), store.create("train", {})
        work(straight, None)
        for stop_at in (6, 15, None):
            work(stopped, stop_at)
        assert stopped.result() == straight.result()
        assert stopped.metrics() == straight.metrics()


@pytest.mark.parametrize("name", ["../x", "a.b", "", "A", "a/b"])
def test_parts_have_plain_names(run: Run, name: str) -> None:
    with run.writer() as writer:
        for save in (lambda: writer.save_tensors(name, {}), lambda: writer.save_json(name, {})):
            with pytest.raises(ValueError, match="a part of a run is named with"):
                save()
        with pytest.raises(ValueError, match="a part of a run is named with"):
            writer.save_json("status", {})
