"""An experiment from training to the count, run by run, for somebody who pressed one button."""

from __future__ import annotations

import io
from pathlib import Path

import streamlit as st
from PIL import Image

from recon_core.errors import InputError
from recon_core.presets import find_preset
from recon_core.runs.chains import queue_attack_chain
from recon_core.scheduling import queue
from recon_core.store import RunState, RunStore, default_root
from recon_core.views.match_report import GRID, match_report
from ui.shared.formatting import plain
from ui.shared.live import keep_fresh
from ui.shared.runs import follow_opened_run, is_active, open_run, show_progress, show_state
from ui.shared.store import RunDetails, forget, run_details

FIRST_PRESET = "cifar10-50"

_PAIRS = 30
_MATCH_PAGE = "pages/3_Match.py"
_STEPS = ("Train a network", "Draw candidates out of its weights", "The same on an untrained network", "Compare")


def start_first_chain() -> str:
    """Put everything in line with its defaults; the id of the match run that ends it."""
    preset = find_preset(FIRST_PRESET)
    chain = queue_attack_chain(RunStore(default_root()), preset.config(), name=preset.name)
    for run in chain.runs:
        queue.submit(run)
    forget()
    return chain.runs[-1].id


def chain_view(match_id: str) -> None:
    """The chain that ends with this match run."""
    if st.button("Home", icon=":material/arrow_back:"):
        st.query_params.clear()
        st.rerun()
    st.title("Images out of the weights", anchor=False)
    st.markdown(
        "A network learns its training images until it knows every one by heart. Then an attack that sees only its "
        "weights draws images out of them, and they are compared with the training images.",
        width=980,
    )
    keep_fresh(lambda: _show(match_id), lambda: any(is_active(run.status) for run in _members(match_id)))


def _members(match_id: str) -> list[RunDetails]:
    """Training, attack, the floor and the match, as far as they are there."""
    match = run_details(match_id)
    if match.kind != "match":
        raise InputError(f"run {match_id} is of kind {match.kind!r}; a chain is named by the match run it ends with")
    attacks = [run_details(parent) for parent in match.parents]
    trained = [run_details(parent) for parent in attacks[0].parents] if attacks else []
    return [*trained, *attacks, match]


def _show(match_id: str) -> None:
    follow_opened_run()
    members = _members(match_id)
    match = members[-1]
    # A chain of another shape, named by hand in the address, goes by the kinds of its runs.
    steps = _STEPS if len(members) == len(_STEPS) else [plain(run.kind) for run in members]
    for step, run in zip(steps, members, strict=True):
        _show_step(step, run)
    if match.status.state is RunState.DONE:
        _show_result(match)


def _show_step(step: str, run: RunDetails) -> None:
    state, name, progress, look = st.columns([1.3, 3, 5, 1.2], vertical_alignment="center")
    with state:
        show_state(run.status.state)
    name.markdown(f"**{step}**")
    with progress:
        if run.status.state in (RunState.FAILED, RunState.INTERRUPTED):
            st.error(plain(run.status.message) or "It failed without saying why; the log may tell.")
        elif run.kind == "match" and run.status.state is RunState.DONE:
            st.markdown("counted, see below")
        else:
            show_progress(run.status)
    look.button("Details", key=f"details-{run.id}", type="tertiary", on_click=open_run, args=(run.id,))


def _show_result(match: RunDetails) -> None:
    headline, floors = _headline(match)
    st.subheader(headline, anchor=False)
    st.markdown(floors)
    if match.result.get("kind") == "images":
        st.image(_grid(str(default_root()), match.id), output_format="PNG", width="content")
        st.caption("Each training image above what came back of it, the best first. Blue frame: counted as good.")
    if st.button("Look closer on the Match page", icon=":material/compare:", type="primary"):
        st.switch_page(_MATCH_PAGE, query_params={"from": match.id})


def _headline(match: RunDetails) -> tuple[str, str]:
    """What was found in a few words, and what it is to be compared with."""
    message = match.status.message
    found, _, rest = message.partition("; for comparison, ")
    count = match.result.get("count")
    if not isinstance(count, dict):
        return plain(found[:1].upper() + found[1:]), plain(rest)
    return (
        f"{count['good']} of {count['of']} training images come back",
        f"Counted as come back: SSIM ({plain(str(count['ssim_kind']))}) above {count['threshold']:g}, "
        f"B = {count['merge_factor']:g}. For comparison, {plain(rest)}.",
    )


@st.cache_data(max_entries=8, show_spinner="Drawing the pairs")
def _grid(root: str, run_id: str) -> bytes:
    """A finished run never changes, so its id is key enough."""
    picture = io.BytesIO()
    Image.fromarray(match_report(RunStore(Path(root)), run_id, _PAIRS).mosaics[GRID]).save(picture, format="PNG")
    return picture.getvalue()
