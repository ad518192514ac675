"""The names of the files in a run folder, and which names may be there at all."""

from __future__ import annotations

import re

RUN = "run.json"
CONFIG = "config.json"
NAME = "name.json"
NOTES = "notes.json"
STATUS = "status.json"
METRICS = "metrics.jsonl"
LOG = "log.txt"
COMMAND = "command.txt"
RESULT = "result.json"
IMPORTED = "imported.json"
LOCK = "lock"
CANCEL = "cancel"
CHECKPOINTS = "checkpoints"

CHECKPOINT_NAME = re.compile(r"step-(\d{9,18})\.safetensors")
_PART_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_CONTENT = re.compile(
    rf"metrics\.jsonl|log\.txt|command\.txt"
    rf"|{_PART_NAME.pattern}\.(json|safetensors)"
    rf"|{CHECKPOINTS}/{CHECKPOINT_NAME.pattern}"
)
_OWN_JSON = frozenset({RUN, CONFIG, NAME, NOTES, STATUS, RESULT, IMPORTED})


def is_content(relative: str) -> bool:
    """Whether a path inside a run folder (with forward slashes) carries content: neither lock, flag nor leftover."""
    return _CONTENT.fullmatch(relative) is not None


def checkpoint_file(step: int) -> str:
    return f"step-{step:09d}.safetensors"


def checkpoint_step(file_name: str) -> int | None:
    """The step a checkpoint file is named after; None for any other file."""
    match = CHECKPOINT_NAME.fullmatch(file_name)
    return int(match[1]) if match else None


def tensors_file(name: str) -> str:
    """`<name>.safetensors`, for a name that is safe as a file name."""
    if not _PART_NAME.fullmatch(name):
        raise ValueError(f"a part of a run is named with a-z, 0-9, _ and -, got {name!r}")
    return f"{name}.safetensors"


def json_file(name: str) -> str:
    """`<name>.json`, for a name that is safe as a file name and is not one the store itself writes."""
    if not _PART_NAME.fullmatch(name) or f"{name}.json" in _OWN_JSON:
        raise ValueError(f"a part of a run is named with a-z, 0-9, _ and -, and not run, config, ...; got {name!r}")
    return f"{name}.json"
