"""metrics.jsonl with torn lines, repeated steps and long files."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from recon_core.store import Run, RunStore
from recon_core.store.metrics import drop_torn_line, read_metrics


@pytest.fixture
def run(store: RunStore) -> Run:
    return store.create("train", {})


def test_rows_come_back_as_written(run: Run) -> None:
    rows = [{"step": 1, "loss": 0.1, "margins": [1, 2.5], "note": "a\nb\u2028"}, {"step": 2, "loss": math.inf}]
    assert run.metrics() == run.metrics(tail=3) == []
    with run.writer() as writer:
        for row in rows:
            writer.metrics(row)
        assert run.metrics() == run.metrics(tail=3) == rows
        assert run.metrics(tail=1) == rows[1:]
        assert run.metrics(tail=0) == []


@pytest.mark.parametrize("torn", [b'{"step": 3, "lo', b"{", b"\0\0\0\0", b"7", b'{"step": 3}'[:-1], b"\xff\xfe"])
def test_a_torn_last_line_is_left_out_and_cut_off_before_the_next_row(run: Run, torn: bytes) -> None:
    with run.writer() as writer:
        for step in (1, 2):
            writer.metrics({"step": step})
    with open(run.dir / "metrics.jsonl", "ab") as file:
        file.write(torn)
    assert run.metrics() == run.metrics(tail=9) == [{"step": 1}, {"step": 2}]
    with run.writer() as writer:
        writer.metrics({"step": 3})
    assert run.metrics() == [{"step": 1}, {"step": 2}, {"step": 3}]
    assert (run.dir / "metrics.jsonl").read_text().count("\n") == 3
    assert any("was torn" in line for line in run.log_tail())


def test_repeated_steps_count_once_the_last_written_wins(run: Run) -> None:
    written = [(1, "a"), (2, "a"), (3, "a"), (4, "a"), (2, "b"), (3, "b")]  # killed twice, resumed from step 1
    with run.writer() as writer:
        writer.metrics({"note": "before all"})
        for step, mark in written:
            writer.metrics({"step": step, "by": mark})
    expected = [{"note": "before all"}, *({"step": s, "by": b} for s, b in [(1, "a"), (2, "b"), (3, "b"), (4, "a")])]
    assert run.metrics() == expected
    assert run.metrics(tail=2) == expected[-2:]


def test_a_tail_reads_only_the_end(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    rows = [{"step": step, "field": [0.5] * 40} for step in range(20_000)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = path.read_bytes()
    half = data.index(b"\n", len(data) // 2)
    path.write_bytes(b"x" * half + data[half:])  # if this part were needed, rows would be missing
    for tail in (1, 10, 3000):
        assert read_metrics(path, tail) == rows[-tail:]
    assert len(read_metrics(path)) < 10_001


@pytest.mark.parametrize("line_length", [10, 2**16 - 1, 2**16, 2**16 + 1, 2**18])
def test_dropping_a_torn_line_of_any_length(tmp_path: Path, line_length: int) -> None:
    path = tmp_path / "metrics.jsonl"
    for start in (b"", b'{"step": 1}\n'):
        path.write_bytes(start + b"x" * line_length)
        assert drop_torn_line(path)
        assert path.read_bytes() == start
        assert not drop_torn_line(path)


def test_the_log_tail_is_the_end_of_the_log(run: Run) -> None:
    assert run.log_tail() == []
    with run.writer() as writer:
        for number in range(500):
            writer.log(f"line {number} " + "x" * 100)
    assert [int(line.split()[2]) for line in run.log_tail(300)] == list(range(200, 500))
    assert len(run.log_tail()) == 20
    assert len(run.log_tail(9_999)) == 500
    assert run.log_tail(0) == []
