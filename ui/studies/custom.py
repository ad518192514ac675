"""The form for studies of one's own: any setting and its values, chosen here or written in a small file."""

from __future__ import annotations

from typing import Any

import streamlit as st
import yaml

from recon_core.errors import InputError
from recon_core.presets import DEFAULT_PRESET, PRESETS
from recon_core.settings_text import read_values
from recon_core.studies.custom import own_plan, plan_from_text, slug
from recon_core.studies.plan import StudyPlan
from recon_core.studies.settings import describe_key, known_keys
from recon_core.studies.starting import own_values
from ui.shared.address import recall, record
from ui.shared.downloads import offer_file
from ui.shared.faults import errors_shown
from ui.shared.formatting import plain
from ui.studies.start import offer_start, show_plan

HERE, FILE = "Choose here", "Upload a file"
HOW, NAME, PRESET, SEEDS, CONTROL = "s_how", "s_name", "s_preset", "s_n", "s_untrained"
KEY, VALUES, BESIDE, BESIDE_VALUES = "s_key", "s_values", "s_key2", "s_values2"
SET, REFERENCES, UPLOAD = "s_set", "s_refs", "s_file"
_MOST_MEGABYTES = 1
_NO_PRESET, _NOTHING = "", ""
_FIRST_KEY, _FIRST_VALUES = "data.n", "10, 20, 50"
_SETTING: dict[str, Any] = {"bind": "query-params", "persist_state": "session"}
_EXAMPLE = """\
name: how-many-images
preset: cifar10-50                  # where to start; optional
set: {attack.iterations: 600}       # for all models; optional
vary: {data.n: [10, 20, 50]}        # the first key is the axis, others make lines beside each other
seeds: 3                            # or a list
references: {small start: {model.init_scale: 0.001}}   # dashed lines; optional
"""


def show_own() -> None:
    st.markdown("Vary any setting: every value is trained, attacked and matched, and becomes a point of a curve.")
    how = st.segmented_control(
        "How", [HERE, FILE], default=HERE, required=True, key=HOW, label_visibility="collapsed", **_SETTING
    )
    asked, result = st.columns([1.15, 1], gap="large")
    with asked:
        file_name, plan = _uploaded() if how == FILE else _chosen_here()
    with result:
        if plan is not None:
            with errors_shown():
                st.subheader(plain(plan.title), anchor=False)
                offer_start(plan, [file_name], "s_start_own")
                show_plan(plan)


def fill_own(plan: StudyPlan) -> None:
    """Take an own study's plan into the form; one that the form cannot show is a sentence."""
    values = own_values(plan)
    (key, listed), *others = values["vary"].items()
    if len(others) > 1:
        raise InputError(f"study {plan.name} varies more than two settings, which this form cannot; write it as a file")
    beside, beside_listed = others[0] if others else (_NOTHING, [])
    st.session_state.update(
        {
            HOW: HERE,
            NAME: values["name"],
            PRESET: _NO_PRESET,
            KEY: key,
            VALUES: _text(listed),
            BESIDE: beside,
            BESIDE_VALUES: _text(beside_listed),
            SEEDS: values["seeds"],
            CONTROL: values["untrained_control"],
            SET: _block(values["set"]),
            REFERENCES: _block(values["references"]),
        }
    )


def _chosen_here() -> tuple[str, StudyPlan | None]:
    name = st.text_input("Name", key=NAME, placeholder="own-study", max_chars=60, **_SETTING) or "own-study"
    preset = _choose(
        "Start from",
        PRESET,
        [DEFAULT_PRESET, *(known for known in PRESETS if known != DEFAULT_PRESET), _NO_PRESET],
        lambda known: f"{PRESETS[known].title} · {known}" if known else "the settings below alone",
        "A ready-made network; what is not set below is as there.",
    )
    values: dict[str, Any] = {"name": name, "preset": preset or None, "vary": {}}
    keys = [_FIRST_KEY, *(key for key in known_keys() if key != _FIRST_KEY)]
    plan = None
    with errors_shown():
        values["vary"] |= _varied("Vary", KEY, VALUES, keys, _FIRST_VALUES)
        values["vary"] |= _varied("And for each of", BESIDE, BESIDE_VALUES, [_NOTHING, *keys], "")
        values["seeds"] = int(st.number_input("Seeds", 1, 100, 2, key=SEEDS, width=160, **_SETTING))
        values["untrained_control"] = st.toggle(
            "Attack untrained networks as well",
            value=True,
            key=CONTROL,
            help="For the chance level: what is matched although nothing was learnt.",
            **_SETTING,
        )
        with st.expander("Settings for all models, and dashed lines", icon=":material/tune:"):
            values["set"] = _mapping("Settings for all models", SET, "attack.iterations: 600")
            values["references"] = _mapping(
                "Dashed lines, by name", REFERENCES, "small start: {model.init_scale: 0.001}"
            )
        plan = own_plan(values)
        _offer_file(values)
    return f"{slug(name) if plan else name}.yaml", plan


def _uploaded() -> tuple[str, StudyPlan | None]:
    upload = st.file_uploader(
        "Study in YAML or JSON",
        type=["yaml", "yml", "json"],
        max_upload_size=_MOST_MEGABYTES,
        key=UPLOAD,
        help="Up to 1 MB. Nothing in the file is run.",
    )
    if upload is None:
        st.markdown("A file says what varies, for example:")
        st.code(_EXAMPLE, language="yaml", wrap_lines=True)
        with st.expander("Everything that can be set or varied", icon=":material/list:"):
            st.table({plain(key): plain(describe_key(key)) for key in known_keys()}, hide_header=True)
        return "", None
    with errors_shown():
        return upload.name, plan_from_text(upload.name, upload.getvalue())
    return upload.name, None


def _varied(label: str, key_name: str, values_name: str, keys: list[str], usual: str) -> dict[str, list[Any]]:
    left, right = st.columns(2)
    with left:
        key = _choose(label, key_name, keys, lambda key: key or "nothing", "A setting of the network or of its attack.")
    if not key:
        return {}
    text = right.text_input(
        "Its values",
        value=usual,
        key=values_name,
        placeholder="0.0001, 0.001, 0.01",
        help="With commas between them; [100, 100] for a list, null to leave the setting out.",
        **_SETTING,
    )
    about = describe_key(key)
    if about:
        st.caption(plain(f"{key}: {about}"))
    listed = read_values(f"[{text}]", f"{text!r}")
    if not isinstance(listed, list) or not listed:
        raise InputError(f"{key} has no values yet; write some with commas between them")
    return {key: listed}


def _choose(label: str, name: str, options: list[str], text: Any, about: str) -> str:
    recall(name, options)
    chosen = st.selectbox(label, options, format_func=text, key=name, help=about, persist_state="session")
    record(name, [chosen] if chosen and chosen != options[0] else [])
    return chosen or ""


def _mapping(label: str, name: str, example: str) -> dict[str, Any]:
    text = st.text_area(label, key=name, placeholder=example, height=110, max_chars=20_000, **_SETTING) or ""
    found = read_values(text, label.lower()) if text.strip() else {}
    if not isinstance(found, dict):
        raise InputError(f"{label.lower()} must be written as name: value, one in each line, got {text.strip()!r}")
    return {str(key): value for key, value in found.items()}


def _offer_file(values: dict[str, Any]) -> None:
    kept = {key: value for key, value in values.items() if value not in (None, {}, "")}
    offer_file(
        "Download",
        lambda: yaml.safe_dump(kept, sort_keys=False, allow_unicode=True).encode(),
        f"{slug(values['name'])}.yaml",
        key="s_own_file",
        type="tertiary",
        help="For another machine, or for: python -m recon_core study FILE",
    )


def _text(values: list[Any]) -> str:
    return yaml.safe_dump(values, default_flow_style=True, width=10**6).strip().removeprefix("[").removesuffix("]")


def _block(values: dict[str, Any]) -> str:
    return yaml.safe_dump(values, default_flow_style=None, sort_keys=False, width=10**6).strip() if values else ""
