"""Hidden folders where runs are made and unmade, so that the store only ever shows whole ones.

The gate (`.lock` in the root) is shared by whoever publishes a run, and exclusive for whoever removes
one or clears up. The lock inside a hidden folder says that its maker still lives.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from recon_core.store import layout, lock
from recon_core.store.files import explaining, remove_tree
from recon_core.store.private import close_to_others, is_closed, private_folder, refuse_link

_PREFIX = ".work-"
_GATE = ".lock"
_OWN = (_GATE, ".queue", ".cache", ".uploads", ".arrays", ".models")


def gate(root: Path, *, exclusive: bool) -> contextlib.AbstractContextManager[None]:
    return lock.gate(root / _GATE, exclusive=exclusive)


def hidden_folder(root: Path) -> Path:
    """A fresh name for a hidden folder; nothing is made."""
    return root / f"{_PREFIX}{secrets.token_hex(8)}"


@contextlib.contextmanager
def workspace(root: Path) -> Iterator[Path]:
    """A hidden folder in `root` that is gone afterwards, with all that is still in it."""
    with explaining(root):
        if not root.exists():  # else it is the user's own folder, with the rights they gave it
            private_folder(root, parents=True)
    refuse_own_links(root)
    folder = hidden_folder(root)
    handle = None
    try:
        with gate(root, exclusive=True):
            clear_leftovers(root)
            _close_old_store(root)
            with explaining(folder):
                private_folder(folder)
            handle = lock.acquire(folder / layout.LOCK)
        yield folder
    finally:
        remove_tree(folder)
        if handle is not None:
            os.close(handle)


def refuse_own_links(root: Path) -> None:
    """Refuse a store one of whose own files or folders leads elsewhere."""
    with explaining(root):
        for name in _OWN:
            refuse_link(root / name)


def _close_old_store(root: Path) -> None:
    """Versions before 0.2.0 let everybody read what leaked. Once: the gate's own file tells."""
    with contextlib.suppress(OSError):
        if is_closed(root / _GATE):
            return
        for place, _, files in os.walk(root):
            ours = place != str(root)
            for path in [Path(place), *(Path(place, name) for name in files)] if ours else []:
                close_to_others(path)
        close_to_others(root / _GATE)


def clear_leftovers(root: Path) -> None:
    """Remove what killed processes left. The caller holds the gate alone, so nothing is just being made."""
    for folder in leftovers(root):
        remove_tree(folder)


def leftovers(root: Path) -> list[Path]:
    """Hidden folders whose maker is gone (or, without the gate, was just about to lock)."""
    try:
        names = sorted(name for name in os.listdir(root) if name.startswith(_PREFIX))
    except FileNotFoundError:
        return []
    return [root / name for name in names if not lock.is_held(root / name / layout.LOCK)]
