"""Settings as widgets, made from the config classes themselves, so that a new setting shows up by itself.

An empty field means "as the preset says", and shows what that is; `none` takes back what the preset sets. What is
typed goes to the engine as text, which checks it and answers with a sentence; nothing is checked twice.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin

import streamlit as st
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from recon_core.names import RegisteredName
from ui.shared.labels import help_of, label_of

COLUMNS = 3
NOTHING = "none"


def config_form(
    kind: type[BaseModel], base: Mapping[str, Any], fields: Sequence[str], *, prefix: str
) -> dict[str, Any]:
    """Widgets for the `fields` of `kind`, written "group.name" or "name", over the values of `base`.

    Returns what was filled in, nested like the config: lay it over `base` and parse it.
    """
    given: dict[str, Any] = {}
    for start in range(0, len(fields), COLUMNS):
        for column, path in zip(st.columns(COLUMNS), fields[start : start + COLUMNS], strict=False):
            with column:
                value = _widget(kind, path, _lookup(base, path), f"{prefix}_{path}")
            if value != "":
                _put(given, path, value)
    return given


def fill_form(kind: type[BaseModel], base: Mapping[str, Any], config: Mapping[str, Any], *, prefix: str) -> None:
    """Put a run's settings into the form: what differs from `base`. Call it before the form is drawn."""
    for path in field_paths(kind):
        text, usual = _text(_lookup(config, path)), _text(_lookup(base, path))
        listed = _choices(_field(kind, path).annotation)
        taken_back = None if listed else NOTHING
        # Emptied rather than forgotten: what the address says would come back.
        st.session_state[f"{prefix}_{path}"] = (None if listed else "") if text == usual else text or taken_back


def typed_values(paths: Sequence[str], *, prefix: str) -> dict[str, Any]:
    """What stands in these fields at this moment, before the form is drawn, nested like the config."""
    given: dict[str, Any] = {}
    for path in paths:
        key = f"{prefix}_{path}"
        text = st.session_state[key] if key in st.session_state else st.query_params.get(key)
        if text:
            _put(given, path, None if str(text).strip().lower() == NOTHING else text)
    return given


def labelled(kind: type[BaseModel], given: Mapping[str, Any]) -> dict[str, Any]:
    """What was filled in, by the labels of the fields."""
    values = {path: _lookup(given, path) for path in field_paths(kind) if _holds(given, path)}
    return {label_of(*_owner(kind, path)): value for path, value in values.items()}


def field_paths(kind: type[BaseModel]) -> list[str]:
    """All settings of `kind`, groups spelt out: "data.n"."""
    found = []
    for name, field in kind.model_fields.items():
        group = field.annotation
        if isinstance(group, type) and issubclass(group, BaseModel):
            found += [f"{name}.{inner}" for inner in group.model_fields]
        else:
            found.append(name)
    return found


def merged(base: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """`given` laid over `base`, group by group."""
    result = {key: dict(value) if isinstance(value, Mapping) else value for key, value in base.items()}
    for key, value in given.items():
        below = result.get(key)
        result[key] = {**below, **value} if isinstance(value, Mapping) and isinstance(below, dict) else value
    return result


def _widget(kind: type[BaseModel], path: str, usual: Any, key: str) -> Any:
    """What was filled in: text, None where `none` was typed, "" where nothing was."""
    owner, name = _owner(kind, path)
    field, label = owner.model_fields[name], label_of(owner, name)
    shown = _text(usual) if usual is not None else _text(field.get_default()) or NOTHING
    settings: dict[str, Any] = {
        "key": key,
        "help": help_of(owner, name, path),
        "bind": "query-params",
        "persist_state": "session",
    }
    choices = _choices(field.annotation)
    if choices:
        return st.selectbox(label, choices, index=None, placeholder=shown, **settings) or ""
    typed = (st.text_input(label, value="", placeholder=shown, **settings) or "").strip()
    return None if typed.lower() == NOTHING else typed


def _choices(annotation: Any) -> list[str]:
    """The values a field may take, where they can be listed."""
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return [str(member.value) for member in annotation]
    if isinstance(annotation, type) and issubclass(annotation, RegisteredName):
        return list(annotation.names())
    if annotation is bool:
        return ["true", "false"]
    origin = get_origin(annotation)
    if origin is Literal:
        return [str(value) for value in get_args(annotation)]
    if origin in (Union, types.UnionType):
        members = [member for member in get_args(annotation) if member is not type(None)]
        return _choices(members[0]) if len(members) == 1 else []
    return []


def _owner(kind: type[BaseModel], path: str) -> tuple[type[BaseModel], str]:
    """The class that has the field `path`, and the field's own name."""
    group, _, name = path.rpartition(".")
    owner = kind.model_fields[group].annotation if group else kind
    assert isinstance(owner, type)
    assert issubclass(owner, BaseModel)
    return owner, name


def _field(kind: type[BaseModel], path: str) -> FieldInfo:
    owner, name = _owner(kind, path)
    return owner.model_fields[name]


def _lookup(values: Mapping[str, Any], path: str) -> Any:
    node: Any = values
    for part in path.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node


def _holds(values: Mapping[str, Any], path: str) -> bool:
    *groups, name = path.split(".")
    node: Any = values
    for group in groups:
        node = node.get(group, {})
    return name in node


def _put(values: dict[str, Any], path: str, value: Any) -> None:
    *groups, name = path.split(".")
    for group in groups:
        values = values.setdefault(group, {})
    values[name] = value


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(map(_text, value))
    return str(value.value if isinstance(value, Enum) else value)
