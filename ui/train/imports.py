"""Imports: a checkpoint that somebody else trained, or a run that another store exported."""

from __future__ import annotations

import hashlib
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import streamlit as st

from recon_core.config import parse_config
from recon_core.errors import InputError
from recon_core.kinds import perform
from recon_core.models import Architecture
from recon_core.runs.models import ImportConfig, imported_before, read_foreign
from recon_core.runs.requests import create_import
from recon_core.runs.signals import StopFlag
from recon_core.store import RunState, RunStore, default_root
from recon_core.store.files import explaining
from ui.shared.faults import errors_shown
from ui.shared.formatting import plain
from ui.shared.store import forget, recent_runs
from ui.train.run import show_architecture

MOST_MEGABYTES = 50
SUFFIXES = ("pth", "pt", "th", "safetensors")
_UPLOADS = ".uploads"
_ABANDONED_SECONDS = 3600
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


class Inferred(NamedTuple):
    """What a checkpoint was taken to be."""

    architecture: dict[str, Any]
    notes: tuple[str, ...]


def show_import() -> None:
    st.markdown(
        "A checkpoint of a ReLU network that somebody else trained: its weights are all an attack needs. "
        "Nothing in the file is run."
    )
    left, right = st.columns([3, 2], gap="large")
    upload = left.file_uploader(
        "Checkpoint", type=list(SUFFIXES), max_upload_size=MOST_MEGABYTES, key="t_checkpoint",
        help="A state dict saved by torch.save, or a .safetensors file. Up to 50 MB.",
    )  # fmt: skip
    shape = right.text_input(
        "Input shape", key="t_shape", placeholder="3,32,32",
        help="Channels, height, width of an image, or the number of inputs. Left empty, it is inferred: two inputs are "
        "points, a square of one or three channels is an image.",
        bind="query-params", persist_state="session",
    )  # fmt: skip
    if upload is not None:
        with errors_shown():
            _show_checkpoint(upload.name, upload.getvalue(), (shape or "").strip())
    st.divider()
    _show_zip()
    _show_imported()


def _show_checkpoint(name: str, content: bytes, shape: str) -> None:
    asked = parse_config(ImportConfig, {"path": name, "input_shape": shape or None}).input_shape
    found = _infer(hashlib.sha256(content).hexdigest(), asked, name, content)
    show_architecture(Architecture.from_json(found.architecture), found.notes)
    if st.button("Import it", type="primary", icon=":material/login:", key="t_import"):
        _import(name, content, asked)


# The digest stands for the bytes, which Streamlit would otherwise hash anew on every rerun.
@st.cache_data(max_entries=8, show_spinner="Reading the checkpoint …")
def _infer(digest: str, shape: tuple[int, ...] | None, name: str, _content: bytes) -> Inferred:
    with _uploaded(name, _content) as path:
        foreign = read_foreign(path, shape)
    return Inferred(foreign.architecture.to_json(), foreign.notes)


def _import(name: str, content: bytes, shape: tuple[int, ...] | None) -> None:
    """Copy it into the store here and now: it takes a second, and would else wait behind hours of training."""
    store = RunStore(default_root())
    with _uploaded(name, content) as path:
        run = imported_before(store, path, shape)
        if run is None:
            run = create_import(store, path, shape)
            with st.spinner("Importing …"):
                perform(run, StopFlag())
    forget()
    st.query_params["run"] = run.id
    st.rerun()


@contextmanager
def _uploaded(name: str, content: bytes) -> Iterator[Path]:
    """The bytes as a file that nobody else can read, gone afterwards. Sentences about it call it by its own name."""
    if len(content) > MOST_MEGABYTES * 2**20:
        raise InputError(
            f"{name} is larger than {MOST_MEGABYTES} MB; import it with: python -m recon_core import-model"
        )
    folder = default_root() / _UPLOADS / secrets.token_hex(8)
    path = folder / ((_UNSAFE.sub("_", Path(name).name).lstrip(".") or "upload")[-100:])
    with explaining(folder):
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _clear_abandoned(folder.parent)
        folder.mkdir(mode=0o700)
    try:
        with explaining(path):
            path.write_bytes(content)
        yield path
    except InputError as error:
        raise InputError(str(error).replace(str(path), name)) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _clear_abandoned(folder: Path) -> None:
    """What an app that was killed left behind."""
    for entry in folder.iterdir():
        if time.time() - entry.stat().st_mtime > _ABANDONED_SECONDS:
            shutil.rmtree(entry, ignore_errors=True)


def _show_zip() -> None:
    upload = st.file_uploader(
        "Or a run exported from another store", type=["zip"], max_upload_size=MOST_MEGABYTES, key="t_zip",
        help="Written by Run as zip, or by python -m recon_core runs export. Comes with the runs it was made from.",
    )  # fmt: skip
    if upload is not None and st.button("Import the run", key="t_take", icon=":material/unarchive:"):
        with errors_shown():
            with _uploaded(upload.name, upload.getvalue()) as path:
                runs = RunStore(default_root()).import_zip(path)
            forget()
            st.success(plain(f"Imported: {', '.join(run.name for run in runs)}"), icon=":material/check_circle:")


def _show_imported() -> None:
    models = [run for run in recent_runs() if run.kind == "model" and run.status.state is RunState.DONE]
    if not models:
        return
    st.markdown("**Imported before**")
    with st.container(horizontal=True):
        for run in models[:12]:
            if st.button(plain(run.name), key=f"open-{run.id}", help=run.id):
                st.query_params["run"] = run.id
                st.rerun()
