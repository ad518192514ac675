"""Where the runs of a search or a study are done: this machine, or a Ray cluster."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import Any

import streamlit as st

from recon_core.scheduling import CLUSTER_VARIABLE, Places, usual_places
from recon_core.scheduling.queue import module_environment
from ui.shared.formatting import plain
from ui.shared.forms import NOTHING, config_form

FIELDS = ("workers", "cluster", "cpus", "gpus")
_PATIENCE_SECONDS = 90


def choose_places(prefix: str) -> dict[str, Any]:
    """What was filled in of `Places`."""
    usual = usual_places()
    st.caption(
        "On this machine unless a cluster is named: `auto` for the one this machine is part of, `ray://host:10001` for "
        f"one elsewhere. {CLUSTER_VARIABLE} names one for all."
    )
    given = config_form(Places, usual.model_dump(mode="json"), FIELDS, prefix=prefix)
    address = given.get("cluster", usual.cluster)
    if address in (None, NOTHING):
        return {**given, "cluster": None}
    if importlib.util.find_spec("ray") is None:
        st.warning(
            "A cluster needs Ray, which is not installed here: `pip install -r requirements-cluster.txt`, then start "
            "the dashboard again.",
            icon=":material/lan:",
        )
    elif st.button("Look at the cluster", icon=":material/lan:", key=f"{prefix}_look"):
        _look_at(str(address))
    return {**given, "cluster": address}


def _look_at(address: str) -> None:
    """In a process of its own: a dashboard that has joined a cluster would stay in it."""
    with st.spinner("Asking every node …"):
        try:
            asked = subprocess.run(
                [sys.executable, "-m", "recon_core", "cluster", "--", address],
                env={**module_environment(), "COLUMNS": "160", "NO_COLOR": "1"},
                capture_output=True,
                text=True,
                timeout=_PATIENCE_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            st.error(f"The cluster at {plain(address)} gave no answer in {_PATIENCE_SECONDS} s.")
            return
    if asked.stdout.strip():
        st.code(asked.stdout.rstrip(), language=None)
    said = asked.stderr.strip().removeprefix("error: ")
    if asked.returncode == 0:
        st.success(plain(said) + ".", icon=":material/check:")
    else:
        st.error(plain(said or f"it ended with code {asked.returncode}") + ".", icon=":material/error:")
