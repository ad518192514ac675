"""`audit`: does this model leak its training images? The attack first, the images after it."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recon_core.attacks.registry import all_setting_names
from recon_core.auditing.judging import Asked, Drawn, judge
from recon_core.config import DataConfig, parse_config
from recon_core.data import TaskData
from recon_core.errors import AfterimageError, InputError
from recon_core.kinds import perform
from recon_core.library.data import Data, load_data, npz
from recon_core.library.reconstruction import (
    Model,
    Reconstruction,
    attack_model,
    import_options,
    is_known,
    numbers,
    reconstruct,
    run_of,
)
from recon_core.library.running import INSIST, Progress, Store, interruptible, refuse_unknown, showing, store_of
from recon_core.library.training import TrainedModel
from recon_core.runs.attached import attached_data, describe_attached, load_attached
from recon_core.runs.audit import (
    AttachedData,
    AuditConfig,
    audit_run,
    audited,
    check_audit,
    create_audit,
    normalisation_of,
)
from recon_core.runs.models import AttackModel
from recon_core.runs.reconstruction import attack_settings
from recon_core.scheduling.memory import refuse_shortage
from recon_core.store import Run, RunState, RunStore, kept
from recon_core.studies.needs import audit_memory
from recon_core.views.audits import Audit, pictures_of, read_audit

_DATA_SETTINGS = tuple(name for name in DataConfig.model_fields if name not in ("source", "path", "seed", "labels"))


def audit(
    model: Model,
    data: Data | str | Path | tuple[Any, Any],
    *,
    held_out: Data | str | Path | None = None,
    threshold: float = 0.4,
    normalisation: str = "auto",
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
    anyway: bool = False,
    input_shape: tuple[int, ...] | None = None,
    activation: str | None = None,
    layout: str | None = None,
    store: Store | None = None,
    name: str | None = None,
    progress: Progress = True,
    **settings: Any,
) -> Audit:
    """Attack a model without any data, then count which of its training images were reconstructed.

    Args:
        model: as for `reconstruct`.
        data: the images it was trained on: a `Data`, (images, labels), a folder with a subfolder for each class, an
            .npz file, or the name of a data set with n or per_class.
        held_out: images of the same classes that it was not trained on.
        threshold: SSIM above which an image counts as reconstructed.
        normalisation: how pixels were normalised; "auto" takes the customary one that fits the model best.
        mean, std: inputs are (pixel - mean) / std of pixels in [0, 1], in place of `normalisation`.
        anyway: count even if the images do not look like the training set; start even if memory may run out.
        input_shape, activation, layout: as for `reconstruct`.
        store: a folder or a RunStore, in which the audit is kept as a run.
        name: name of that run.
        progress: True for a progress bar, False for none, or a function of the fraction done and a message.
        **settings: those of the attack and of `load_data`.

    >>> import recon_core as rc
    >>> data = rc.load_data("mnist", n=4)
    >>> model = rc.train(data, widths=20, epochs=20, progress=False)
    >>> found = rc.audit(model, data, m=4, iterations=4, anyway=True, progress=False)
    >>> found.report.leak.of
    4
    """
    refuse_unknown(settings, (*all_setting_names(), *_DATA_SETTINGS), "audit")
    of_data = {key: settings.pop(key) for key in _DATA_SETTINGS if key in settings}
    wishes = {"normalisation": normalisation, "mean": numbers(mean), "std": numbers(std)}
    of_model: dict[str, Any] = {"activation": activation, "layout": layout}
    if not is_known(model):  # a run has its own, which these constants stand in for in the report only
        of_model |= {"mean": mean, "std": std}
    options = import_options(**of_model)
    attacked = attack_model(model, store, input_shape, options)
    if isinstance(data, Data) and of_data:
        raise InputError(f"{next(iter(of_data))} is a setting of load_data, which these data have come from already")
    with tempfile.TemporaryDirectory() as folder:
        keep = RunStore(Path(folder)) if store is None else store_of(store)
        attached = _attached(data, held_out, attacked, of_data, wishes, keep)
        chosen = attack_settings(attacked, settings)
        values = {"model": "", "settings": chosen, "attached": attached, "threshold": threshold, "anyway": anyway}
        config = parse_config(AuditConfig, values)
        check_audit(attacked, config)
        refuse_shortage(audit_memory(attacked.architecture, config, attacked.samples), anyway=anyway, insist=INSIST)
        if store is not None:
            owner = run_of(model, attacked, keep, input_shape, options)
            return _as_run(keep, config.model_copy(update={"model": owner.id}), name, progress)
        of_model |= {"input_shape": input_shape, "progress": progress, "anyway": True}
        found = reconstruct(model, **of_model, **settings)
        control = reconstruct(model, baseline="untrained", **of_model, **settings)
        if found.stopped or control.stopped:
            raise AfterimageError("the audit was interrupted during its attack; with store= it can be resumed")
        samples = _samples(data, held_out, attached, progress)
    known = normalisation_of(attacked, attached)
    asked = Asked(describe_attached(attached), known.normalisation, known.mean, known.std, threshold, anyway)
    with showing(progress, "audit") as listener:
        judged = judge(
            audited(attacked, _name_of(model)),
            _drawn(found),
            control.network_inputs,
            samples,
            asked,
            lambda message: listener(None, message),
        )
    return Audit(judged.report, *pictures_of(judged))


def _attached(
    data: Data | str | Path | tuple[Any, Any],
    held_out: Data | str | Path | None,
    model: AttackModel,
    of_data: dict[str, Any],
    wishes: dict[str, Any],
    store: RunStore,
) -> AttachedData:
    """The attached data in a form that a run can load again; arrays are written to the store."""
    others = {"held_out": str(held_out)} if isinstance(held_out, str | Path) else {}
    if isinstance(held_out, Data):
        others = {"held_out": str(_written(held_out, store))}
    if isinstance(data, str | Path):
        return attached_data(data, model.architecture.outputs, {**of_data, **wishes, **others})
    if isinstance(data, Data):
        return parse_config(AttachedData, {"data": data.config_in(store), **wishes, **others})
    if not isinstance(data, tuple) or len(data) != 2:
        raise InputError(f"data are a Data, (images, labels), a path or a name, got {type(data).__name__}")
    # Checked as load_data checks arrays; the task is that of the model.
    whole = load_data(data[0], data[1], n=None, progress=False, **_task_of(model, of_data))
    file = str(whole.config_in(store).path)
    return attached_data(file, model.architecture.outputs, {**of_data, **wishes, **others})


def _task_of(model: AttackModel, of_data: dict[str, Any]) -> dict[str, Any]:
    return {
        "task": model.task,
        "per_class": 1,
        **{key: of_data[key] for key in ("partition", "classes") if key in of_data},
    }


def _written(data: Data, store: RunStore) -> Path:
    """Held-out samples as an .npz file of the store."""

    def content() -> bytes:
        names = np.array(data.samples.class_names)
        return npz(images=data.images.numpy(), labels=data.labels.numpy(), class_names=names)

    return kept.keep(store.root, kept.ARRAYS, f"{data.samples.fingerprint[:32]}-held-out.npz", content)


def _samples(data: object, held_out: Data | str | Path | None, attached: AttachedData, progress: Progress) -> TaskData:
    """Read the attached images. Called after the attack has written its candidates."""
    if isinstance(data, Data) and held_out is None:
        return data.samples
    with showing(progress, "data") as listener:
        return load_attached(attached, listener)


def _drawn(found: Reconstruction) -> Drawn:
    return Drawn(
        candidates=found.network_inputs,
        confidence=found.confidence,
        recipe=found.settings.recipe,
        iterations=found.settings.iterations,
        seeds=found.settings.seeds,
        seconds=float(found.summary.get("seconds", 0.0)),
        residual=found.summary.get("residual"),
    )


def _as_run(store: RunStore, config: AuditConfig, name: str | None, progress: Progress) -> Audit:
    run = create_audit(store, config, name)
    with interruptible() as stop, showing(progress, "audit") as listener:
        state = perform(run, stop, listener)
    if state is not RunState.DONE:
        raise AfterimageError(f"run {run.id} {state}: {run.status().message}")
    return read_audit(audit_run(store, run.id))


def _name_of(model: Model) -> str:
    if isinstance(model, str | Path):
        return Path(model).name
    if isinstance(model, Run):
        return model.name
    return "trained here" if isinstance(model, TrainedModel) else type(model).__name__
