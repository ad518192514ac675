"""An audit run: the attack and its control first, written down; then the images are read, and only then."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, SerializeAsAny, model_validator

from recon_core.attacks import AttackSettings, StopReason, attack
from recon_core.config import DataConfig, Frozen, Listed, parse_config
from recon_core.errors import InputError
from recon_core.observing import Listener
from recon_core.runs.models import AttackModel, model_of
from recon_core.runs.observer import StoreObserver, last_checkpoint
from recon_core.runs.reconstruction import (
    STATES,
    Baseline,
    ReconstructConfig,
    candidate_tensors,
    check_request,
    comparable,
    target_of,
    warning_for,
)
from recon_core.runs.signals import StopFlag
from recon_core.store import Run, RunState, RunStore, RunWriter

if TYPE_CHECKING:
    from torch import Tensor

    from recon_core.auditing.judging import Audited, Drawn, Judged
    from recon_core.data import TaskData

CANDIDATES, UNTRAINED, PICTURES = "candidates", "untrained", "pictures"
ATTACK_FACTS = "attack"


class AttachedData(Frozen):
    """The images a model is said to be trained on, and others beside them that it was not."""

    data: DataConfig
    held_out: str | None = Field(None, description="folder or .npz of images of the same classes, not trained on")
    normalisation: str = Field("auto", description="how pixels become inputs: auto, centred, unit, symmetric, ...")
    mean: Listed[float] | None = Field(None, description="subtracted from pixels in [0, 1]; one, or one a channel")
    std: Listed[float] | None = Field(None, description="pixels are divided by it; one, or one a channel")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.data.source.planar:
            raise ValueError(f"an audit is of images, got the planar source {self.data.source}; use match for points")
        if not self.whole and self.data.n is None and self.data.per_class is None:
            raise ValueError(
                f"say which images of {self.data.source} the model was trained on: n or per_class, e.g. data.n=50"
            )
        return self

    @property
    def whole(self) -> bool:
        """All images of the user's own set, unless a number was asked for."""
        return self.data.source.needs_path and self.data.n is None and self.data.per_class is None


class AuditConfig(Frozen):
    """One audit, whole."""

    model: str
    """Id of the run that holds the model."""
    settings: SerializeAsAny[AttackSettings] = AttackSettings()
    attached: AttachedData
    threshold: float = Field(0.4, ge=-1, le=1, description="SSIM above which an image counts as reconstructed")
    anyway: bool = Field(False, description="count although the images do not look like the training set")


def check_audit(model: AttackModel, config: AuditConfig) -> None:
    """Raise an `InputError` for what would end the run, as far as that can be checked without reading images."""
    from recon_core.auditing.judging import check_kind
    from recon_core.auditing.normalisation import check_normalisation
    from recon_core.data import describe_source, task_classes
    from recon_core.runs.attached import check_one_size, held_out_config

    data = config.attached.data
    source = describe_source(data.source, data.path)
    shape = model.architecture.input_shape
    check_kind(shape, model.architecture.outputs, source.shape, task_classes(data, source.class_names), data.task)
    if (others := held_out_config(config.attached)) is not None:
        check_one_size(source.shape, describe_source(others.source, others.path).shape)
    known = normalisation_of(model, config.attached)
    check_normalisation(shape, known.normalisation, known.mean, known.std)
    for asked in _requests(config):
        check_request(model, asked)


def perform_audit(run: Run, writer: RunWriter, stop: StopFlag, listener: Listener, data: TaskData | None) -> None:
    """Attack the model and an untrained one, write both down, then read the images and judge.

    A run that ended because its images were the wrong ones keeps its candidates, and so does one that was stopped.
    """
    config = parse_config(AuditConfig, run.config)
    store = RunStore(run.dir.parent)
    owner = store.open(config.model)
    model = model_of(owner)
    writer.start(config.settings.total_steps)
    _take_over(store, run, config, writer)
    for name, asked in zip((CANDIDATES, UNTRAINED), _requests(config), strict=True):
        if run.has_tensors(name):
            continue
        observer = StoreObserver(writer, stop, listener) if name == CANDIDATES else _Control(writer, stop, listener)
        resume = last_checkpoint(writer) if name == CANDIDATES else None
        if name == CANDIDATES and (warning := warning_for(model, config.settings)) is not None:
            writer.log(warning)
        started = time.monotonic()
        outcome = attack(target_of(model, asked), comparable(config.settings, model, asked), observer, resume)
        if outcome.reason is StopReason.CANCELLED:
            writer.finish(STATES[outcome.reason], None, f"{outcome.reason}: python -m recon_core runs resume {run.id}")
            return
        if outcome.reason is StopReason.DIVERGED and name == CANDIDATES:
            writer.finish(STATES[outcome.reason], None, str(outcome.reason))
            return
        if name == CANDIDATES:
            seconds = round(time.monotonic() - started, 3)
            writer.save_json(ATTACK_FACTS, {"seconds": seconds, "residual": outcome.summary.get("residual")})
        writer.save_tensors(name, candidate_tensors(outcome))
    judged = _judge(run, writer, stop, listener, owner, model, config, data)
    if judged is None:
        writer.finish(RunState.CANCELLED, None, f"{StopReason.CANCELLED}: python -m recon_core runs resume {run.id}")
        return
    from recon_core.auditing.judging import pictures_of

    images, reconstructions = pictures_of(judged)
    writer.save_tensors(PICTURES, {"images": images, "reconstructions": reconstructions})
    report = judged.report
    writer.finish(RunState.DONE, report.model_dump(mode="json"), report.verdict.sentence.rstrip("."))


class _Control(StoreObserver):
    """The control takes no checkpoints: those in the folder are the attack's. Its measurements are nobody's concern."""

    def metrics(self, row: Any) -> None:
        """Rows belong to the attack."""

    def snapshot(self, step: int, tensors: Any) -> None:
        """Pictures belong to the attack."""

    def checkpoint_due(self) -> bool:
        return False

    def checkpoint(self, step: int, tensors: Any, meta: Any) -> None:
        """Nothing to go on from: it is made again."""

    def progress(self, step: int, fraction: float, message: str) -> None:
        super().progress(step, fraction, f"untrained control: {message}")


class _StoppedError(Exception):
    """A stop was requested between two steps of judging."""


def _judge(
    run: Run,
    writer: RunWriter,
    stop: StopFlag,
    listener: Listener,
    owner: Run,
    model: AttackModel,
    config: AuditConfig,
    data: TaskData | None,
) -> Judged | None:
    """The candidates are written; from here on images are read. None where it was stopped."""
    from recon_core.auditing.judging import Asked, judge
    from recon_core.runs.attached import describe_attached, load_attached

    def reading(fraction: float | None, message: str) -> None:
        if stop.raised or writer.cancel_requested():
            raise _StoppedError
        writer.progress(config.settings.total_steps, message, force=fraction is None)  # images come by the thousand
        listener(fraction, message)

    def tell(message: str) -> None:
        reading(None, message)

    attached = config.attached
    known = normalisation_of(model, attached)
    asked = Asked(
        describe_attached(attached), known.normalisation, known.mean, known.std, config.threshold, config.anyway
    )
    try:
        tell("reading the attached images")
        task = load_attached(attached, reading) if data is None else data
        control = run.tensors(UNTRAINED)["candidates"] if run.has_tensors(UNTRAINED) else None
        return judge(audited(model, owner.name, owner), drawn_by(run, config.settings), control, task, asked, tell)
    except _StoppedError:
        return None


def normalisation_of(model: AttackModel, attached: AttachedData) -> AttachedData:
    """With what is known of the model where nothing was said: images trained on here are centred."""
    if attached.normalisation != "auto" or attached.mean is not None or attached.std is not None:
        return attached
    if model.normalisation is not None:
        told = model.normalisation
        return attached.model_copy(update={"mean": told.mean, "std": told.std})
    return attached if model.training is None else attached.model_copy(update={"normalisation": "centred"})


def audited(model: AttackModel, name: str, run: Run | None = None) -> Audited:
    """The facts about a model for a report."""
    from recon_core.auditing.judging import Audited

    result = {} if run is None or run.kind != "model" else run.result() or {}
    architecture = model.architecture
    return Audited(
        network=model.network,
        name=name,
        architecture=str(architecture),
        input_shape=tuple(architecture.input_shape),
        outputs=architecture.outputs,
        task=model.task,
        dense=architecture.dense_first,
        homogeneous=architecture.homogeneous if architecture.module is None else None,
        rank=model.rank if architecture.dense_first else None,
        recipe=None if model.training is None else str(model.training.training.recipe),
        notes=tuple(result.get("notes", ())),
        run=None if run is None else run.id,
    )


def drawn_by(run: Run, settings: AttackSettings) -> Drawn:
    """The candidates of an audit run's attack."""
    from recon_core.auditing.judging import Drawn

    tensors, facts = run.tensors(CANDIDATES), run.read_json(ATTACK_FACTS) or {}
    return Drawn(
        candidates=tensors["candidates"],
        confidence=tensors.get("confidence"),
        recipe=settings.recipe,
        iterations=settings.iterations,
        seeds=settings.seeds,
        seconds=facts.get("seconds", 0.0),
        residual=facts.get("residual"),
    )


def _requests(config: AuditConfig) -> tuple[ReconstructConfig, ReconstructConfig]:
    """The attack, and the same on an untrained network."""
    asked = ReconstructConfig(model=config.model, settings=config.settings)
    return asked, asked.model_copy(update={"baseline": Baseline.UNTRAINED})


def _take_over(store: RunStore, run: Run, config: AuditConfig, writer: RunWriter) -> None:
    """Candidates of an earlier audit of the same model by the same attack, which other images do not change."""
    if run.has_tensors(CANDIDATES):
        return
    wanted = config.settings.model_dump(mode="json")
    for summary in store.list("audit"):
        other = None if summary.id == run.id else store.open(summary.id)
        if other is None or not (other.has_tensors(CANDIDATES) and other.has_tensors(UNTRAINED)):
            continue
        if other.config.get("model") == config.model and other.config.get("settings") == wanted:
            writer.save_json(ATTACK_FACTS, other.read_json(ATTACK_FACTS) or {})
            for name in (CANDIDATES, UNTRAINED):
                found: dict[str, Tensor] = other.tensors(name)
                writer.save_tensors(name, found)
            writer.log(f"candidates are those of audit {other.id}: same model, same attack")
            return


def create_audit(store: RunStore, config: AuditConfig, name: str | None = None) -> Run:
    """An audit of the model of run `config.model`."""
    from recon_core.runs.commands import create_run

    return create_run(store, "audit", config.model_dump(mode="json"), name=name, parents=[config.model])


def audit_run(store: RunStore, run_id: str) -> Run:
    """A finished audit, or a sentence why it is none."""
    run = store.open(run_id)
    if run.kind != "audit":
        raise InputError(f"run {run_id} is a {run.kind} run and has no report; choose an audit run")
    state = run.status().state
    if state is not RunState.DONE:
        raise InputError(f"run {run_id} is {state}, not done; wait for it or resume it")
    return run
