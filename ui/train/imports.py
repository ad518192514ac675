"""Imports: a checkpoint that somebody else trained, or a run that another store exported."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import streamlit as st

from recon_core.config import parse_config
from recon_core.kinds import import_zip
from recon_core.models import Architecture
from recon_core.runs.models import ImportConfig, ImportOptions, read_foreign
from recon_core.store import RunState, RunStore, default_root
from ui.shared.faults import errors_shown
from ui.shared.formatting import plain
from ui.shared.store import forget, recent_runs, run_details
from ui.shared.uploads import CHECKPOINTS, MOST_MEGABYTES, take_in, uploaded
from ui.train.run import show_architecture


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
        "Checkpoint", type=list(CHECKPOINTS), max_upload_size=MOST_MEGABYTES, key="t_checkpoint",
        help="A state dict saved by torch.save, or a .safetensors file. Up to 50 MB.",
    )  # fmt: skip
    shape = right.text_input(
        "Input shape", key="t_shape", placeholder="3,32,32",
        help="Channels, height, width of an image, or the number of inputs. Left empty, it is inferred: two inputs are "
        "points, a square of one or three channels is an image.",
        bind="query-params", persist_state="session",
    )  # fmt: skip
    said = _ask()
    if upload is not None:
        with errors_shown():
            _show_checkpoint(upload.name, upload.getvalue(), (shape or "").strip(), said)
    st.divider()
    _show_zip()
    _show_imported()


def _ask() -> dict[str, str]:
    """What a checkpoint does not tell; only what was filled in."""
    with st.expander("What the file does not tell"):
        left, right = st.columns(2, gap="large")
        said = {
            "activation": left.selectbox(
                "Activation", ("relu", "leaky_relu", "gelu"), index=None, placeholder="relu", key="t_activation",
                help="Between the layers. Left empty, ReLU.",
            ),
            "layout": left.text_input(
                "Layout", key="t_layout", placeholder="conv(padding=1), relu, max(2), flatten, dense, relu, dense",
                help="How convolutions stride, pad, dilate and pool. Left empty, what fits the sizes.",
            ),
            "classes": left.text_input(
                "Classes", key="t_classes", placeholder="cat, dog", help="Names of the outputs, in their order.",
            ),
            "mean": right.text_input(
                "Mean of the pixels", key="t_mean", placeholder="0.49, 0.48, 0.45",
                help="What was subtracted from pixels in 0 to 1: one number, or one for each channel.",
            ),
            "std": right.text_input(
                "Standard deviation of the pixels", key="t_std", placeholder="0.25, 0.24, 0.26",
                help="What pixels were then divided by. With both, candidates are shown in their own colours.",
            ),
        }  # fmt: skip
    return {name: value.strip() for name, value in said.items() if value and value.strip()}


def _show_checkpoint(name: str, content: bytes, shape: str, said: dict[str, str]) -> None:
    config = parse_config(ImportConfig, {"path": name, "input_shape": shape or None, **said})
    asked, options = config.input_shape, config.options
    found = _infer(hashlib.sha256(content).hexdigest(), asked, options.model_dump_json(), name, content)
    show_architecture(Architecture.from_json(found.architecture), found.notes)
    if st.button("Import it", type="primary", icon=":material/login:", key="t_import"):
        _import(name, content, asked, options)


# The digest stands for the bytes, which Streamlit would otherwise hash anew on every rerun.
@st.cache_data(max_entries=8, show_spinner="Reading the checkpoint …")
def _infer(digest: str, shape: tuple[int, ...] | None, options: str, name: str, _content: bytes) -> Inferred:
    with uploaded(name, _content) as path:
        foreign = read_foreign(path, shape, ImportOptions.model_validate_json(options))
    return Inferred(foreign.architecture.to_json(), foreign.notes)


def _import(name: str, content: bytes, shape: tuple[int, ...] | None, options: ImportOptions) -> None:
    run = take_in(name, content, shape, options)
    st.query_params["run"] = run.id
    st.rerun()


def _show_zip() -> None:
    upload = st.file_uploader(
        "Or a run exported from another store", type=["zip"], max_upload_size=MOST_MEGABYTES, key="t_zip",
        help="Written by Run as zip, or by python -m recon_core runs export. Comes with the runs it was made from.",
    )  # fmt: skip
    if upload is not None and st.button("Import the run", key="t_take", icon=":material/unarchive:"):
        with errors_shown():
            with uploaded(upload.name, upload.getvalue()) as path:
                runs = import_zip(RunStore(default_root()), path)
            forget()
            names = ", ".join(run_details(run.id).name for run in runs)
            st.success(plain(f"Imported: {names}"), icon=":material/check_circle:")


def _show_imported() -> None:
    models = [run for run in recent_runs() if run.kind == "model" and run.status.state is RunState.DONE]
    if not models:
        return
    st.markdown("**Imported before**")
    with st.container(horizontal=True):
        for run in models[:12]:
            if st.button(plain(run.name), key=f"open-{run.id}"):
                st.query_params["run"] = run.id
                st.rerun()
