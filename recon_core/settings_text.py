"""Settings that people write: files and fields of YAML or JSON, read as plain values."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import yaml

from recon_core.errors import InputError

MOST_BYTES = 100_000
LEFT_OUT = "(left out at import)"
"""What stands in an imported config where a path was: no file says what is read on this machine."""
_DEEPEST = 40
"""Brackets within brackets; the time YAML takes grows with the square of their number."""
_LARGEST = 2**63
"""Whole numbers of Python have no limit, but floats and the printing of numbers do."""
_OPENING = (
    yaml.FlowSequenceStartToken, yaml.FlowMappingStartToken, yaml.BlockSequenceStartToken, yaml.BlockMappingStartToken
)  # fmt: skip
_CLOSING = (yaml.FlowSequenceEndToken, yaml.FlowMappingEndToken, yaml.BlockEndToken)


class _Loader(yaml.SafeLoader):
    """Takes 1e-3 for a number, as JSON does and YAML, which asks for a point in it, does not."""


_Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+e[-+]?[0-9]+$", re.I), "+-0123456789")


def read_settings(file: Path, what: str) -> dict[str, Any]:
    """A file of settings by name; `what` it is, for messages."""
    try:
        with file.open("rb") as opened:
            content = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read {what} {str(file)!r}: {error.strerror}") from None
    return settings_of(content, f"{what} {str(file)!r}")


def settings_of(content: bytes, what: str) -> dict[str, Any]:
    """Settings by name, from a file's content."""
    if len(content) > MOST_BYTES:
        raise InputError(f"{what} has more than {MOST_BYTES} bytes; settings are a page of text")
    values = read_values(content, what)
    if not isinstance(values, dict):
        raise InputError(
            f"{what} must hold settings by name, one in a line, e.g. name: value; got {type(values).__name__}"
        )
    return {str(key): value for key, value in values.items()}


def read_values(text: str | bytes, what: str) -> Any:
    """YAML or JSON as plain values."""
    try:
        return _plain(_parsed(text.decode("utf-8") if isinstance(text, bytes) else text, what), what)
    except (yaml.YAMLError, RecursionError, ValueError):
        raise InputError(f"{what} is neither JSON nor YAML; check its brackets and colons") from None


def _parsed(text: str, what: str) -> Any:
    with contextlib.suppress(ValueError):
        return json.loads(text)
    depth = 0
    for token in yaml.scan(text):
        # A few aliases of aliases make a page of text as large as the memory.
        if isinstance(token, yaml.AliasToken):
            raise InputError(f"{what} uses YAML's aliases (*name); write the values out")
        depth += isinstance(token, _OPENING) - isinstance(token, _CLOSING)
        if depth > _DEEPEST:
            raise InputError(f"{what} has more than {_DEEPEST} brackets or indents within each other")
    return yaml.load(text, _Loader)  # a safe one


def _plain(value: Any, what: str) -> Any:
    """What no setting can be is refused here, where it is known whence it came."""
    if isinstance(value, dict):
        return {_key(key, what): _plain(part, what) for key, part in value.items()}
    if isinstance(value, list):
        return [_plain(part, what) for part in value]
    if isinstance(value, int) and abs(value) >= _LARGEST:
        raise InputError(f"{what} holds a whole number of more than 63 bits; no setting is that large")
    return _whole(value, what)


def _key(key: Any, what: str) -> Any:
    if isinstance(key, int) and abs(key) >= _LARGEST:
        raise InputError(f"{what} has a whole number of more than 63 bits as a name; no setting is called that")
    return _whole(key, what)


def _whole(value: Any, what: str) -> Any:
    """Text that can be written down."""
    if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise InputError(f"{what} holds half a letter (\\ud800 to \\udfff); write the letter itself")
    return value
