"""The model under attack, out of the store: one trained here, or somebody else's checkpoint taken in as a run."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from pydantic import Field

from recon_core.attacks import Target
from recon_core.attacks.rowspace import row_space
from recon_core.config import Frozen, Listed, Task, TrainConfig, parse_config
from recon_core.errors import InputError
from recon_core.models import Architecture, Network, build_network
from recon_core.models.foreign import ForeignModel, read_checkpoint
from recon_core.models.normalisation import Normalisation
from recon_core.observing import Listener
from recon_core.runs.signals import StopFlag
from recon_core.store import Run, RunState, RunStore, RunWriter

if TYPE_CHECKING:
    from recon_core.data import TaskData

MODEL_KINDS = ("train", "model")


class ImportOptions(Frozen):
    """What a checkpoint does not say besides the shape of its inputs; a field left out is inferred or unknown."""

    activation: str | None = Field(None, description="relu, leaky_relu or gelu; left out, relu")
    layout: str | None = Field(
        None, description="how convolutions stride, pad and pool, e.g. conv(padding=1), relu, max(2), flatten, dense"
    )
    mean: Listed[float] | None = Field(
        None, description="subtracted from pixels in [0, 1]; one number, or one a channel"
    )
    std: Listed[float] | None = Field(None, description="what pixels were then divided by; likewise")
    classes: Listed[str] | None = Field(None, description="the names of the outputs, in their order")


class ImportConfig(ImportOptions):
    """The file to import, and what it does not say itself."""

    path: str
    input_shape: Listed[int] | None = None

    @property
    def options(self) -> ImportOptions:
        return ImportOptions(**{name: getattr(self, name) for name in ImportOptions.model_fields})


@dataclass(frozen=True)
class AttackModel:
    """What the attacker has: the weights, and how they were trained where the run says so."""

    network: Network
    training: TrainConfig | None = None
    """None for somebody else's checkpoint."""
    expected_rank: int | None = None
    """Of a network that is yet to be trained, whose weights cannot tell."""
    normalisation: Normalisation | None = None
    """Of pixels before the network sees them, where somebody said so; else its inputs are centred pixels."""
    class_names: tuple[str, ...] | None = None
    """Of the outputs, where somebody said so."""

    @property
    def architecture(self) -> Architecture:
        return self.network.architecture

    @property
    def planar(self) -> bool:
        return self.architecture.input_shape == (2,)

    @property
    def task(self) -> Task:
        """The task it was trained on; a checkpoint with one output is taken to be binary, with more multiclass."""
        if self.training is not None:
            return self.training.data.task
        return Task.BINARY if self.architecture.outputs == 1 else Task.MULTICLASS

    @functools.cached_property
    def rank(self) -> int:
        """Dimensions of the first dense layer's row space that stand above its noise.

        One for each training sample, as far as width and noise allow; weights tell no more about how many there were.
        """
        if self.expected_rank is not None:
            return self.expected_rank
        anchor = self.network.anchor()
        if anchor is None:
            return 1
        return int(row_space(self.network.get_parameter(f"{anchor}.weight")).basis.shape[1])

    @property
    def weight_decay(self) -> float | None:
        return None if self.training is None else self.training.training.weight_decay

    @property
    def init_scale(self) -> float | str:
        """Of the first layer; where it is unknown, PyTorch's default is assumed."""
        return "kaiming" if self.training is None else self.training.model.init_scale

    @property
    def samples(self) -> int | None:
        """Number of training samples, where its settings are known; for estimates only."""
        return None if self.training is None else self.training.data.n

    @property
    def dense_init_scale(self) -> float | str:
        """Of the first dense layer behind a convolution."""
        return "kaiming" if self.training is None else self.training.model.dense_init_scale

    def initial(self) -> Network:
        """The network before training, drawn again from its seed."""
        if self.training is None:
            raise InputError(
                "the initial weights of an imported checkpoint are not known; leave out --known-init, or train here"
            )
        return build_network(
            self.architecture,
            init_scale=self.init_scale,
            dense_init_scale=self.dense_init_scale,
            seed=self.training.model.seed,
            dtype=next(self.network.parameters()).dtype,
        )


def model_of(run: Run) -> AttackModel:
    """The model of a finished run. Weights, architecture and settings are read, never data."""
    if run.kind not in MODEL_KINDS:
        raise InputError(
            f"run {run.id} is of kind {run.kind!r} and holds no model; give a run of kind {' or '.join(MODEL_KINDS)}"
        )
    state = run.status().state
    if state is not RunState.DONE:
        raise InputError(
            f"run {run.id} is {state}, so its model is not there yet; "
            f"finish it first with: python -m recon_core runs resume {run.id}"
        )
    result = run.result() or {}
    if "architecture" not in result:
        raise InputError(
            f"result.json of run {run.id} lacks its 'architecture', so its network is not known; train again"
        )
    architecture = Architecture.from_json(result["architecture"])
    with torch.device("meta"):  # no memory, no random numbers: all parameters are replaced
        network = Network(architecture)
    try:
        network.load_state_dict(run.tensors("weights"), assign=True)
    except RuntimeError:
        raise InputError(
            f"the weights of run {run.id} are not those of its network {architecture}; train it again"
        ) from None
    network.requires_grad_(False)
    if run.kind == "train":
        return AttackModel(network, parse_config(TrainConfig, run.config))
    return foreign_model(network, parse_config(ImportConfig, run.config).options)


def foreign_model(network: Network, options: ImportOptions | None = None) -> AttackModel:
    """A network that was not trained here, with what is known of it."""
    options = options or ImportOptions()
    architecture = network.architecture
    sides = max(2, architecture.outputs)
    if options.classes is not None and len(options.classes) != sides:
        raise InputError(f"classes needs {sides} names, in the order of the outputs, got {len(options.classes)}")
    normalisation = Normalisation.of(options.mean, options.std, architecture.input_shape)
    return AttackModel(network, normalisation=normalisation, class_names=options.classes)


def read_foreign(path: Path, input_shape: tuple[int, ...] | None, options: ImportOptions | None = None) -> ForeignModel:
    """Read somebody else's checkpoint; raises an `InputError` where it cannot be attacked."""
    options = options or ImportOptions()
    foreign = read_checkpoint(path, input_shape=input_shape, activation=options.activation, layout=options.layout)
    Target.of(foreign.network)
    foreign_model(foreign.network, options)
    return foreign


def imported_before(
    store: RunStore, path: Path, input_shape: tuple[int, ...] | None, options: ImportOptions | None = None
) -> Run | None:
    """A finished import of the same file with the same options."""
    digest = _digest(path)
    for summary in store.list("model"):
        if summary.status.state is not RunState.DONE:
            continue
        run = store.open(summary.id)
        asked = parse_config(ImportConfig, run.config)
        if (
            asked.input_shape == input_shape
            and asked.options == (options or ImportOptions())
            and (run.result() or {}).get("sha256") == digest
        ):
            return run
    return None


def perform_import(run: Run, writer: RunWriter, stop: StopFlag, listener: Listener, data: TaskData | None) -> None:
    """Copy a checkpoint into the store; from there on it is like a model trained here."""
    config = parse_config(ImportConfig, run.config)
    run.refuse_without_path()
    path = Path(config.path)
    writer.start(1)
    foreign = read_foreign(path, config.input_shape, config.options)
    writer.save_tensors("weights", foreign.network.state_dict())
    for note in foreign.notes:
        writer.log(note)
    writer.progress(1)
    writer.finish(RunState.DONE, _facts(foreign, path, config.options), f"imported {path.name}")


def _facts(foreign: ForeignModel, path: Path, options: ImportOptions) -> dict[str, Any]:
    model = foreign_model(foreign.network, options)
    objective = model.task
    needs = list(foreign.needs)
    if model.normalisation is None and len(foreign.architecture.input_shape) == 3:
        needs.append("normalisation")
    if model.class_names is None:
        needs.append("classes")
    return {
        "normalisation": None if model.normalisation is None else model.normalisation.to_json(),
        "class_names": None if model.class_names is None else list(model.class_names),
        "architecture": foreign.architecture.to_json(),
        "parameters": sum(parameter.numel() for parameter in foreign.network.parameters()),
        "objective": str(objective),
        "notes": [*foreign.notes, objective_note(objective)],
        "needs": needs,
        "file": path.name,
        "sha256": _digest(path),
    }


def objective_note(objective: Task) -> str:
    """What one output, or several, are taken to mean."""
    if objective is Task.BINARY:
        return "One output is taken to be a binary classifier; for a regression set objective=regression."
    return "Several outputs are taken to be the classes of a classifier."


def _digest(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"cannot read {str(path)!r}: {error.strerror}") from None
