"""The line in a lock file that says who holds it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from recon_core.store import lock


def test_a_lock_handed_on_names_its_old_holder_until_it_names_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    handle = lock.acquire(path)
    assert handle is not None
    seen, write = [], os.pwrite

    def looking(handle: int, data: bytes, offset: int) -> int:
        seen.append(lock.holder(path))
        return write(handle, data, offset)

    monkeypatch.setattr(os, "pwrite", looking)
    for pid in (4194304, 7, 123456):  # of one digit and of as many as the kernel gives
        lock.sign(handle, pid)
        seen.append(lock.holder(path))
    os.close(handle)
    assert seen == [str(os.getpid()), "4194304", "4194304", "7", "7", "123456"]


def test_a_line_of_an_earlier_version_is_written_over_whole(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_text("4194304\n")
    path.chmod(0o600)
    handle = lock.acquire(path)
    assert handle is not None
    assert lock.holder(path) == str(os.getpid())
    os.close(handle)
