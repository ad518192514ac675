"""Reads of a store that are kept between reruns."""

from __future__ import annotations

import pytest

import ui.shared.cached as cached
from recon_core.store import RunStore


@pytest.mark.parametrize("length", [2000, 2001])
def test_only_a_list_of_thousands_is_kept_beyond_its_second(
    length: int, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AFTERIMAGE_STORE", str(tmp_path))
    clock = [100.0]
    monkeypatch.setattr(cached.time, "monotonic", lambda: clock[0])
    reads: list[str] = []

    @cached.store_read(keep=4, seconds=1, shared=True)
    def listed(store: RunStore) -> tuple[int, ...]:
        reads.append(str(store.root))
        return tuple(range(length))

    listed()
    clock[0] += 0.9
    listed()
    assert len(reads) == 1, "kept for its second"
    clock[0] += 0.2
    listed()
    is_long = length > 2000
    assert len(reads) == (1 if is_long else 2)
    clock[0] += 6.0
    listed()
    before = 2 if is_long else 3
    assert len(reads) == before, "too old by now"
    listed.clear()
    listed()
    assert len(reads) == before + 1, "cleared by whoever changed it"
