"""The user's tags and note for a run."""

from __future__ import annotations

import unicodedata
from dataclasses import asdict, dataclass
from pathlib import Path

from recon_core.errors import InputError
from recon_core.store import layout
from recon_core.store.files import DamagedError, read_object, write_json
from recon_core.store.ids import checked_name

MOST_TAGS, TAG_LENGTH, NOTE_LENGTH = 20, 40, 5000


@dataclass(frozen=True)
class Notes:
    """Tags in the order given, and any text."""

    tags: tuple[str, ...] = ()
    text: str = ""


def checked_notes(notes: Notes) -> Notes:
    """Stripped, each tag once; raises an `InputError` where they are too many or too long."""
    tags = tuple(dict.fromkeys(checked_name(tag) for tag in notes.tags if tag.strip()))
    if len(tags) > MOST_TAGS:
        raise InputError(f"a run has at most {MOST_TAGS} tags, got {len(tags)}; leave some out")
    for tag in tags:
        if len(tag) > TAG_LENGTH:
            raise InputError(f"a tag has at most {TAG_LENGTH} characters, got {len(tag)}; shorten {tag[:50]!r}")
    text = notes.text.strip()
    if len(text) > NOTE_LENGTH:
        raise InputError(f"a note has at most {NOTE_LENGTH:,} characters, got {len(text):,}; shorten it")
    if any(unicodedata.category(letter) in ("Cc", "Cs") and letter not in "\n\t\r" for letter in text):
        raise InputError("a note has no control characters; leave them out")
    return Notes(tags, text)


def write_notes(folder: Path, notes: Notes) -> None:
    write_json(folder / layout.NOTES, asdict(notes))


def read_notes(folder: Path) -> Notes:
    """Empty notes where the file is malformed: it may have come in an imported zip."""
    if not (folder / layout.NOTES).exists():
        return Notes()
    try:
        values = read_object(folder / layout.NOTES)
        tags, text = values.get("tags", []), values.get("text", "")
        if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags) or not isinstance(text, str):
            return Notes()
        return checked_notes(Notes(tuple(tags), text))
    except (DamagedError, InputError):
        return Notes()
