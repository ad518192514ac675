"""Reads of a store that are kept between reruns."""

from __future__ import annotations

import pytest
import streamlit as st

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

    @cached.store_read(keep=4, shared=True)
    def listed(store: RunStore) -> tuple[int, ...]:
        reads.append(str(store.root))
        return tuple(range(length))

    def expire() -> None:
        """What Streamlit itself does after `seconds`."""
        st.cache_resource.clear()

    listed()
    expire()
    listed()
    is_long = length > 2000
    assert len(reads) == (1 if is_long else 2)
    clock[0] += 6.0
    listed()
    assert len(reads) == 2, "too old by now, or still in Streamlit's own cache"
    listed.clear()
    listed()
    assert len(reads) == 3, "cleared by whoever changed it"
