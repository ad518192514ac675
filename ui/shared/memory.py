"""Before a run starts: whether it will fit into the memory there is, and a box to insist where it will not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import streamlit as st

from recon_core.config import Frozen
from recon_core.scheduling.memory import shortage
from recon_core.store import RunStore
from ui.shared.cached import store_read
from ui.shared.formatting import plain


def may_start(kind: str, config: Frozen | Mapping[str, Any], key: str) -> bool:
    """Whether its start is to be offered. What would not fit is said with both numbers, and starts if insisted on."""
    why = shortage(_needed(kind, config.model_dump_json() if isinstance(config, Frozen) else json.dumps(dict(config))))
    if why is None:
        return True
    st.warning(f"This is too large for this machine: {plain(why)}. Make it smaller.", icon=":material/memory:")
    return st.checkbox("Start it anyway", key=f"{key}-anyway")


@store_read(keep=64, seconds=60)
def _needed(store: RunStore, kind: str, config: str) -> float | None:
    # The engine, which the first page is drawn without.
    from recon_core.studies.needs import memory_of

    return memory_of(store, kind, json.loads(config))
