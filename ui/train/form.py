"""The form that starts a training: a preset first, every setting behind it, checked while one types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import streamlit as st

from recon_core.analysis.training_table import lookup, shown
from recon_core.config import TrainConfig, parse_config
from recon_core.data.torchvision_sets import FULL_SETS
from recon_core.errors import InputError
from recon_core.presets import DEFAULT_PRESET, PRESETS, Size
from recon_core.runs.requests import create_training
from recon_core.runs.training_plan import TrainingPlan, plan_training
from recon_core.scheduling import queue
from recon_core.scheduling.estimates import estimate_training
from recon_core.store import RunState, RunStore, RunSummary, default_root
from ui.shared.address import recall, record
from ui.shared.cached import store_read
from ui.shared.faults import errors_shown
from ui.shared.formatting import duration, plain, when
from ui.shared.forms import config_form, field_paths, fill_form, labelled, merged, typed_values
from ui.shared.memory import may_start
from ui.shared.store import forget, run_details
from ui.train.cached import trained_before
from ui.train.presets import offer_presets
from ui.train.settings import DECIDING, OWN, Start, applies, effective, nearest_start, own_source, settled

PREFIX = "t"
_PRESET, _SIZE, _PATH, _NAME = f"{PREFIX}_preset", f"{PREFIX}_size", f"{PREFIX}_path", f"{PREFIX}_name"
_GROUPS = {"Data": "data.", "Model": "model.", "Training": "training.", "Release": "release."}
_SIZES = {Size.QUICK: "Quick", Size.PAPER: "As in the paper"}
_NOT_FOR_OWN = ("data.source", "data.path")  # settled by the path above
_AGAIN: dict[str, Any] = {"icon": ":material/replay:"}
_SETTING: dict[str, Any] = {"bind": "query-params", "persist_state": "session"}


def show_form() -> None:
    """Draw the form. A click on Start queues the run and opens it."""
    start = _choose_start()
    own = _own_images() if start.preset == OWN else {}
    asked: dict[str, Any] = {}
    with st.expander("All settings", icon=":material/tune:", key=f"{PREFIX}_all"):
        st.caption("An empty field keeps the value shown in grey; type `none` to unset it.")
        values = effective(start, merged(own, typed_values(DECIDING, prefix=PREFIX)))
        for title, group in _GROUPS.items():
            st.markdown(f"**{title}**")
            asked |= config_form(TrainConfig, start.usual(), _fields(start, group, values), prefix=PREFIX)
    _show_changes(asked)
    given = merged(own, asked)
    usual_name = _usual_name(start, given)
    name = st.text_input("Name", key=_NAME, placeholder=usual_name, max_chars=120, width=420, **_SETTING)
    if start.preset == OWN and lookup(given, "data.path") is None:
        st.caption("Enter the folder or the file to see an estimate of the time.")
        config = None
    else:
        config = _checked(settled(start, given))
    ready = config is not None and may_start("train", config, f"{PREFIX}-begin")
    twin = None if config is None else trained_before(config)
    if twin is not None:
        _show_twin(twin)
    with st.container(horizontal=True, gap="small"):
        if twin is not None and st.button(
            "Open it", key=f"{PREFIX}_twin", type="primary", icon=":material/arrow_forward:"
        ):
            st.query_params["run"] = twin.id
            st.rerun()
        look: dict[str, Any] = {"type": "primary", "icon": ":material/play_arrow:"} if twin is None else _AGAIN
        begin = st.button("Start training" if twin is None else "Train it again", disabled=not ready, **look)
    if begin and config:
        with errors_shown():
            _start(config, (name or "").strip() or usual_name)


def _show_twin(twin: RunSummary) -> None:
    """Where there is such a network already, or soon will be."""
    name, status = plain(twin.name), twin.status
    if status.state is RunState.DONE:
        ago = when(datetime.fromisoformat(twin.created), datetime.now(UTC))
        st.info(f"This training was done {ago}: **{name}**. The same settings give the same network.")
    else:
        st.info(f"This training is {status.state} already: **{name}**.")


def fill_from(run_id: str) -> None:
    """Take the settings of a run into the form; call it before the form is drawn."""
    run = run_details(run_id)
    if run.kind != "train":
        raise InputError(f"run {run_id} is of kind {run.kind!r}; only the settings of a training fill this form")
    start = nearest_start(run.config)
    fill_form(TrainConfig, start.usual(), run.config, prefix=PREFIX)
    st.session_state[_PRESET], st.session_state[_SIZE], st.session_state[_NAME] = start.preset, start.size, ""
    if start.preset == OWN:
        st.session_state[_PATH] = shown(lookup(run.config, "data.path"))
        st.session_state[f"{PREFIX}_data.source"], st.session_state[f"{PREFIX}_data.path"] = None, ""


def _choose_start() -> Start:
    left, middle, right = st.columns([2.6, 1.9, 2.2], vertical_alignment="bottom")
    names = [DEFAULT_PRESET, *(name for name in PRESETS if name != DEFAULT_PRESET), OWN]
    recall(_PRESET, names)
    preset = left.selectbox("What to train on", names, format_func=_preset_label, key=_PRESET, persist_state="session")
    record(_PRESET, [preset] if preset and preset != names[0] else [])
    with middle:
        offer_presets(_take_preset, preset)
    if preset == OWN:
        return Start(OWN, Size.QUICK)
    size = right.segmented_control(
        "Size",
        list(Size),
        default=Size.QUICK,
        required=True,
        format_func=lambda size: _SIZES[size],
        key=_SIZE,
        wrap=True,
        help="Quick uses the bundled images and a recipe for ordinary computers; as in the paper uses the "
        "full set and the papers' own recipe, which needs a GPU or hours.",
        **_SETTING,
    )
    start = Start(preset or DEFAULT_PRESET, size or Size.QUICK)
    if start.known is not None:
        st.caption(plain(_origin(start.known.where)))
    return start


def _take_preset(name: str) -> None:
    st.session_state[_PRESET] = name


def _preset_label(preset: str) -> str:
    return "Your own images" if preset == OWN else f"{PRESETS[preset].title} · {preset}"


def _origin(where: str) -> str:
    return "Our own setting." if where == "ours" else f"After {where}."


def _own_images() -> dict[str, Any]:
    path = st.text_input(
        "Folder with a subfolder per class, or a .npz file",
        key=_PATH,
        placeholder="~/pictures/pets",
        help="On the machine that runs this app. All images have one size; of two classes the first by name is the "
        "negative one. A .npz file holds the arrays images and labels.",
        **_SETTING,
    )
    return own_source((path or "").strip())


def _fields(start: Start, group: str, values: Mapping[str, Any]) -> list[str]:
    """The settings of a group that matter for the data and the training algorithm chosen."""
    hidden = _NOT_FOR_OWN if start.preset == OWN else ()
    paths = [path for path in field_paths(TrainConfig) if path.startswith(group) and path not in hidden]
    found = [path for path in paths if applies(path, values)]
    return [*found, "device"] if group == "training." else found


def _show_changes(asked: Mapping[str, Any]) -> None:
    """What differs from the preset, with the expander closed too, and the way back."""
    if not asked:
        return
    changed = [f"{label} = {shown(value) or 'none'}" for label, value in labelled(TrainConfig, asked).items()]
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f"Changed: {plain(', '.join(changed))}", width="content")
        st.button("Reset to the preset", key=f"{PREFIX}_reset", type="tertiary", on_click=_empty)


def _empty() -> None:
    fill_form(TrainConfig, {}, {}, prefix=PREFIX)


def _usual_name(start: Start, given: Mapping[str, Any]) -> str:
    if start.preset != OWN:
        return start.preset
    return (Path(lookup(given, "data.path") or "").name or "own images")[:120]


def _checked(values: Mapping[str, Any]) -> TrainConfig | None:
    """The config if it can be trained, with what it comes to; else a sentence and None."""
    with errors_shown():
        config = parse_config(TrainConfig, values)
        asked = config.model_dump_json()
        _show_plan(config, _plan(asked), _estimate(asked))
        return config
    return None


@st.cache_data(ttl=30, max_entries=64, show_spinner="Looking at the data …")
def _plan(config: str) -> TrainingPlan:
    return plan_training(parse_config(TrainConfig, json.loads(config)))


@store_read(keep=64, seconds=60, spinner="Estimating the time …")
def _estimate(store: RunStore, config: str) -> float | None:
    return estimate_training(parse_config(TrainConfig, json.loads(config)), store)


def _show_plan(config: TrainConfig, plan: TrainingPlan, seconds: float | None) -> None:
    time = "No time estimate" if seconds is None else f"About {duration(max(seconds, 1.0))}"
    kind = "points" if config.data.source.planar else "images"
    classes = ", ".join(plan.class_names[:4]) + (" …" if len(plan.class_names) > 4 else "")
    facts = [
        f"**{time} on this machine**",
        plain(f"{plan.n} training {kind} ({classes})"),
        "" if plan.test_n is None else f"{plan.test_n} to test on",
        plain(f"network {plan.architecture}, {plan.parameters:,} parameters"),
    ]
    ahead = len(queue.waiting(RunStore(default_root())))
    if ahead:
        facts.append(f"{ahead} queued before it")
    st.markdown(" · ".join(filter(None, facts)))
    if config.data.source in FULL_SETS:
        st.caption("The full set is downloaded first, unless it is here already.")


def _start(config: TrainConfig, name: str) -> None:
    run = create_training(RunStore(default_root()), config, name)
    queue.submit(run)
    forget()
    st.query_params["run"] = run.id
    st.rerun()
