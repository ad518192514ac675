"""Files that somebody hands to a page: kept for a moment, under a name that is safe."""

from __future__ import annotations

import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import streamlit as st

from recon_core.errors import InputError
from recon_core.kinds import perform
from recon_core.runs.models import ImportOptions, imported_before
from recon_core.runs.requests import create_import
from recon_core.runs.signals import StopFlag
from recon_core.store import Run, RunStore, default_root, kept
from recon_core.store.files import explaining, write_atomic
from recon_core.store.private import private_folder
from ui.shared.store import forget

MOST_MEGABYTES = 50
CHECKPOINTS = ("pth", "pt", "th", "safetensors")
_UPLOADS = ".uploads"
_ABANDONED_SECONDS = 3600
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def take_in(name: str, content: bytes, shape: tuple[int, ...] | None, options: ImportOptions | None = None) -> Run:
    """Copy a checkpoint into the store here and now: it takes a second, and would else wait behind hours of work."""
    store = RunStore(default_root())
    with uploaded(name, content) as path:
        run = imported_before(store, path, shape, options)
        if run is None:
            run = create_import(store, path, shape, options=options)
            with st.spinner("Importing …"):
                perform(run, StopFlag())
    forget()
    return run


def keep(content: bytes, suffix: str) -> Path:
    """The bytes as a file of the store, for a run that reads it later; the same bytes are kept once."""
    return kept.keep_content(default_root(), kept.ARRAYS, content, suffix)


@contextmanager
def uploaded(name: str, content: bytes) -> Iterator[Path]:
    """The bytes as a file that nobody else can read, gone afterwards. Sentences about it call it by its own name."""
    if len(content) > MOST_MEGABYTES * 2**20:
        raise InputError(
            f"{name} is larger than {MOST_MEGABYTES} MB; import it with: python -m recon_core import-model"
        )
    folder = default_root() / _UPLOADS / secrets.token_hex(8)
    path = folder / ((_UNSAFE.sub("_", Path(name).name).lstrip(".") or "upload")[-100:])
    with explaining(folder):
        private_folder(folder.parent, parents=True)
        _clear_abandoned(folder.parent)
        private_folder(folder)
    try:
        with explaining(path):
            write_atomic(path, [content])
        yield path
    except InputError as error:
        raise InputError(str(error).replace(str(path), name)) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _clear_abandoned(folder: Path) -> None:
    """What an app that was killed left behind."""
    for entry in folder.iterdir():
        if time.time() - entry.lstat().st_mtime > _ABANDONED_SECONDS:
            shutil.rmtree(entry, ignore_errors=True)
