"""The form of an audit: a model, the images it was trained on, a button."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import streamlit as st

from recon_core.auditing.normalisation import NAMES as NORMALISATIONS
from recon_core.config import Source, parse_config
from recon_core.errors import AfterimageError, InputError
from recon_core.presets import DATA_PRESETS
from recon_core.runs.attached import attached_data
from recon_core.runs.audit import AuditConfig, check_audit, create_audit
from recon_core.runs.models import MODEL_KINDS, AttackModel, ImportConfig, model_of
from recon_core.runs.reconstruction import attack_settings
from recon_core.scheduling import queue
from recon_core.store import RunState, RunStore, default_root
from ui.shared.cached import open_run
from ui.shared.faults import errors_shown
from ui.shared.formatting import plain
from ui.shared.memory import may_start
from ui.shared.pages import AUDIT
from ui.shared.pick import pick_run, runs_of
from ui.shared.runs import show_runs
from ui.shared.store import forget
from ui.shared.uploads import CHECKPOINTS, MOST_MEGABYTES, keep, take_in

MODEL, WHERE = "a_model", "a_where"
BUILT_IN, AUTHORS, PATH, UPLOAD = "A built-in set", "A selection of the authors", "A folder or .npz file", "Upload .npz"
TEXT_WIDTH = 860


def show_form() -> None:
    """Choose, attach, start; then the audits so far."""
    st.title("Audit", anchor=False)
    st.markdown(
        "Does a model leak its training images? The attack gets the weights and nothing else. The images "
        "you attach here are read only after its candidates were written: they are checked against the model, then "
        "counted against chance.",
        width=TEXT_WIDTH,
    )
    _show_upload()
    summary = pick_run("Model", kinds=MODEL_KINDS, key=MODEL, help="Networks trained here, and imported checkpoints.")
    if summary is None:
        st.info("There is no model yet: upload a checkpoint above, or train a network on the Train page.")
        return
    model = model_of(open_run(summary.id))
    st.caption(plain(f"Network {model.architecture}, {model.task} task"))
    st.subheader("The images it was trained on", anchor=False)
    given = _data_fields()
    with st.expander("Held-out images, normalisation, threshold", icon=":material/tune:"):
        given |= _further_fields()
    ready = True
    with contextlib.suppress(AfterimageError):  # what is missing or wrong is a sentence when it is to start
        ready = may_start("audit", _config(summary.id, model, given), "a-begin")
    if st.button("Start the audit", key="a-begin", type="primary", icon=":material/policy:", disabled=not ready):
        with errors_shown():
            config = _config(summary.id, model, given)
            check_audit(model, config)
            run = create_audit(RunStore(default_root()), config)
            queue.submit(run)
            forget()
            st.query_params["run"] = run.id
            st.rerun()
    audits = runs_of(("audit",), states=tuple(RunState))
    if audits:
        st.subheader("Audits so far", anchor=False)
        show_runs(audits)


def _config(run_id: str, model: AttackModel, given: Mapping[str, Any]) -> AuditConfig:
    """The audit that the form asks for, or a sentence."""
    own = {key: given[key] for key in ("threshold", "anyway")}
    if not given["source"]:
        raise InputError("no images are attached; choose a set, name a folder or upload a file")
    of_data = {key: value for key, value in given.items() if key not in (*own, "source")}
    attached = attached_data(given["source"], model.architecture.outputs, of_data)
    values = {"model": run_id, "settings": attack_settings(model, {}), "attached": attached, **own}
    return parse_config(AuditConfig, values)


def _show_upload() -> None:
    with st.expander("Upload a checkpoint", icon=":material/upload_file:"):
        left, right = st.columns([3, 2], gap="large")
        upload = left.file_uploader(
            "Checkpoint",
            type=list(CHECKPOINTS),
            max_upload_size=MOST_MEGABYTES,
            key="a_checkpoint",
            help="A state dict saved by torch.save, or a .safetensors file. Nothing in it is run.",
        )
        shape = right.text_input(
            "Input shape", key="a_shape", placeholder="3,32,32", help="Needed where it does not follow from the file."
        )
        if upload is not None and st.button("Import it", key="a_import", icon=":material/login:"):
            with errors_shown():
                wish = (shape or "").strip() or None
                asked = parse_config(ImportConfig, {"path": upload.name, "input_shape": wish}).input_shape
                run = take_in(upload.name, upload.getvalue(), asked)
                st.session_state.pop(MODEL, None)  # the newest model is the one that came in
                st.success(plain(f"{upload.name} is run {run.id}"), icon=":material/check_circle:")


def _data_fields() -> dict[str, Any]:
    """`source`, and settings of the data that were filled in."""
    where = st.radio("Where they are", (PATH, UPLOAD, BUILT_IN, AUTHORS), key=WHERE, horizontal=True)
    given: dict[str, Any] = {"source": None}
    if where == PATH:
        path = st.text_input(
            "Folder or file on this machine",
            key="a_path",
            help="A folder with a subfolder of images for each class, in the order of the outputs, or an .npz file "
            "with images and labels. All of its images are taken to be trained on.",
        )
        given["source"] = str(Path(os.path.expanduser(path.strip())).absolute()) if path and path.strip() else None
    elif where == UPLOAD:
        upload = st.file_uploader(
            "Images and labels", type=["npz"], max_upload_size=MOST_MEGABYTES, key="a_npz",
            help="An .npz file with images (N, H, W), (N, H, W, C) or (N, C, H, W) and labels (N,).",
        )  # fmt: skip
        given["source"] = None if upload is None else str(keep(upload.getvalue(), "npz"))
    elif where == AUTHORS:
        given["source"] = st.selectbox(
            "Selection",
            list(DATA_PRESETS),
            key="a_preset",
            format_func=lambda name: f"{name}: {DATA_PRESETS[name].title}",
            help="What the authors' own loaders select. The full set is downloaded once.",
        )
    else:
        sets = [name for name in Source.names() if not Source(name).needs_path and not Source(name).planar]
        left, right = st.columns(2)
        given["source"] = left.selectbox("Set", sets, key="a_set")
        count = right.number_input("Training images in all", 2, 60000, 50, key="a_n", help="The first of each class.")
        given["n"] = int(count)
    if where in (PATH, UPLOAD):
        partition = st.text_input(
            "Two sides, if it has one output",
            key="a_partition",
            placeholder="a,b|c,d",
            help="Classes of the negative side | of the positive side. Not needed where there are two classes.",
        )
        if partition and partition.strip():
            given["partition"] = partition.strip()
    return given


def _further_fields() -> dict[str, Any]:
    given: dict[str, Any] = {}
    held_out = st.text_input(
        "Folder or .npz of images that were not trained on",
        key="a_held",
        help="Of the same classes. Needed for the membership tests where the set has no test images of its own.",
    )
    if held_out and held_out.strip():
        given["held_out"] = str(Path(os.path.expanduser(held_out.strip())).absolute())
    left, middle, right = st.columns(3)
    chosen = left.selectbox(
        "Normalisation",
        NORMALISATIONS,
        key="a_normalisation",
        help="How pixels became inputs; auto takes what fits best.",
    )
    if chosen != "auto":
        given["normalisation"] = chosen
    for name, column in (("mean", middle), ("std", right)):
        text = column.text_input(f"Or its {name}", key=f"a_{name}", placeholder="0.49,0.48,0.45")
        if text and text.strip():
            given[name] = text.strip()
    given["threshold"] = st.slider("SSIM above which an image counts", 0.2, 0.9, 0.4, 0.05, key="a_threshold")
    given["anyway"] = st.checkbox("Count although the images do not look like its training set", key="a_anyway")
    return given


def back_to_form() -> None:
    """Leave the audit shown and return to the form."""
    if st.button("New audit", key="a-back", icon=":material/arrow_back:"):
        del st.query_params["run"]
        st.switch_page(AUDIT.file)
