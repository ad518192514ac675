"""Run ids are the store's own, names are the user's; both are checked here."""

from __future__ import annotations

import re
import secrets
import unicodedata
from datetime import UTC, datetime

from recon_core.errors import InputError

_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_KIND = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_SUFFIX_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"  # none that is read as another one
_NAME_LIMIT = 120
# Characters that turn the direction of what follows them can make one name look like another.
_DIRECTION_CONTROLS = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})


def is_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def is_kind(text: str) -> bool:
    return _KIND.fullmatch(text) is not None


def new_id(kind: str) -> str:
    """A fresh id such as `train-20261116-7f3kq2`. The date is for people; nothing relies on it."""
    if not is_kind(kind):
        raise ValueError(f"a kind of run is named with a-z, 0-9, _ and -, got {kind!r}")
    suffix = "".join(secrets.choice(_SUFFIX_LETTERS) for _ in range(6))
    return f"{kind}-{datetime.now(UTC):%Y%m%d}-{suffix}"


def checked_id(run_id: str) -> str:
    """`run_id` itself if it is well-formed; ids come from URLs and shells, so they are not trusted."""
    if is_id(run_id):
        return run_id
    shown = repr(run_id if len(run_id) <= 80 else run_id[:77] + "...")
    if run_id.startswith(("/", ".", "~")) or "/" in run_id or "\\" in run_id or "\0" in run_id:
        raise InputError(f"run id {shown} tries to leave the store; use an id as the list shows it")
    raise InputError(f"{shown} is not a run id; ids look like train-20261116-7f3kq2, use one the list shows")


def checked_name(name: str) -> str:
    """The user's name for a run, stripped: 1 to 120 characters, none of them a control character."""
    stripped = name.strip()
    if not 1 <= len(stripped) <= _NAME_LIMIT:
        raise InputError(f"a run's name has 1 to {_NAME_LIMIT} characters, got {len(stripped)}; choose another name")
    for character in stripped:
        if (
            unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
            or unicodedata.bidirectional(character) in _DIRECTION_CONTROLS
        ):
            raise InputError(f"a run's name has no control characters, got {stripped!r}; leave {character!r} out")
    return stripped
