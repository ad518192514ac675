"""Files that runs of a store read and that came from memory or from an upload: arrays, weights."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from recon_core.store.files import explaining, write_atomic
from recon_core.store.private import private_folder
from recon_core.store.workspace import refuse_own_links

ARRAYS, MODELS = ".arrays", ".models"


def keep(root: Path, folder: str, name: str, content: Callable[[], bytes]) -> Path:
    """The file `name` of the store at `root`, written whole or not at all, for its owner alone, if it is not there.

    `name` says as much as the content does, so that the same content is kept once.
    """
    file = root.absolute() / folder / name
    refuse_own_links(root)
    if not file.is_file():
        with explaining(file):
            if not root.exists():  # else it is the user's own folder, with the rights they gave it
                private_folder(root, parents=True)
            private_folder(file.parent)
            write_atomic(file, [content()])
    return file


def keep_content(root: Path, folder: str, content: bytes, suffix: str) -> Path:
    """`keep` under the digest of the content."""
    return keep(root, folder, f"{hashlib.sha256(content).hexdigest()[:32]}.{suffix}", lambda: content)
