"""`reconstruct`: from weights alone to candidates for the training samples."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save as to_safetensors
from torch import Tensor, nn

from recon_core.attacks import CERTAIN, AttackOutcome, AttackSettings, StopReason, attack
from recon_core.attacks.registry import all_setting_names, find_attack_preset
from recon_core.config import parse_config
from recon_core.errors import AfterimageError, InputError
from recon_core.kinds import perform
from recon_core.library.pictures import mosaic_html, stretched, table_html
from recon_core.library.running import (
    INSIST,
    MemoryObserver,
    Progress,
    Store,
    interruptible,
    refuse_unknown,
    showing,
    store_of,
)
from recon_core.library.training import TrainedModel
from recon_core.models import Network
from recon_core.models.modules import ModuleNetwork, module_network
from recon_core.models.normalisation import Normalisation
from recon_core.runs.models import AttackModel, ImportOptions, foreign_model, imported_before, model_of, read_foreign
from recon_core.runs.observer import last_checkpoint
from recon_core.runs.reconstruction import (
    ReconstructConfig,
    attack_settings,
    check_request,
    comparable,
    in_pixels,
    planar_stages,
    target_of,
    warning_for,
)
from recon_core.runs.requests import create_import, create_reconstruction
from recon_core.runs.signals import StopFlag
from recon_core.scheduling.memory import attack_memory, refuse_shortage
from recon_core.store import Run, RunState, RunStore, default_root, kept
from recon_core.store.ids import is_id

Model = TrainedModel | Run | str | Path | nn.Module
_NO_OPTIONS = ImportOptions()


@dataclass(frozen=True, eq=False, repr=False)
class Reconstruction:
    """The result of `reconstruct`: M candidates for the training samples, m for each seed."""

    candidates: Tensor
    """(M, *input_shape), centred: the mean of the training images is not known to the attack."""
    multipliers: Tensor
    """(M,), the KKT multipliers of the candidates."""
    labels: Tensor
    """(M,) class indices."""
    seeds: Tensor
    """(M,), the seed each candidate started from."""
    kept: Tensor | None
    """Points in the plane only: (M,) bool, those left after filtering by multiplier and removing duplicates."""
    network: Network
    """The network that was attacked."""
    settings: AttackSettings
    summary: Mapping[str, Any]
    """Facts such as residual, the share of the squared weights left unexplained, in all and for each layer."""
    confidence: Tensor | None
    """(M,) in [0, 1], how sure the attack is of each candidate; None where it does not say. See `certain`."""
    note: str
    """Why the attack ended, and warnings."""
    stopped: bool = False
    """Interrupted by Ctrl-C: candidates are as far as the attack got."""
    run: Run | None = None
    normalisation: Normalisation | None = None
    """How pixels were normalised, where that was given."""

    @property
    def network_inputs(self) -> Tensor:
        """The candidates (M, *input_shape) as inputs of the network, normalised where the normalisation is known."""
        return self.candidates if self.normalisation is None else self.normalisation.undo_centred(self.candidates)

    @property
    def images(self) -> Tensor:
        """(M, C, H, W) in [0, 1]: with the mean added where it is known, else each stretched to the full range."""
        if self.candidates.ndim != 4:
            raise InputError(f"candidates of shape {tuple(self.candidates.shape[1:])} are no images")
        return stretched(self.candidates) if self.normalisation is None else self.normalisation.pixels(self.candidates)

    @property
    def certain(self) -> Tensor:
        """(M,) bool: candidates that the attack calls certain, without having seen any training image."""
        if self.confidence is None:
            return torch.zeros(len(self), dtype=torch.bool)
        return self.confidence > CERTAIN

    def __len__(self) -> int:
        return len(self.candidates)

    def __repr__(self) -> str:
        residual = self.summary.get("residual")
        shown = "not finite" if residual is None else f"{residual:.4f}"
        shape = "x".join(map(str, self.candidates.shape[1:]))
        return f"Reconstruction({len(self)} candidates of {shape}, relative residual {shown}; {self.note})"

    def _repr_html_(self) -> str:
        if self.candidates.ndim != 4:
            return table_html({"candidates": len(self), "residual": self.summary.get("residual")}, repr(self))
        order = (self.multipliers.abs() if self.confidence is None else self.confidence).argsort(descending=True)
        return mosaic_html(self.images[order], repr(self))


def reconstruct(
    model: Model,
    *,
    preset: str | None = None,
    baseline: Literal["untrained"] | None = None,
    known_init: bool = False,
    input_shape: tuple[int, ...] | None = None,
    activation: str | None = None,
    layout: str | None = None,
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
    store: Store | None = None,
    name: str | None = None,
    anyway: bool = False,
    progress: Progress = True,
    **settings: Any,
) -> Reconstruction:
    """Reconstruct training samples from the weights of a model; no data is read.

    Args:
        model: a `TrainedModel`, a run or its id, a checkpoint file (.pth or .safetensors; nothing in it is run), or any
            differentiable `nn.Module`.
        preset: hyper-parameters released by the authors, by name.
        baseline: "untrained" attacks an untrained network of the same architecture, for the chance level.
        known_init: explain only the change since the initialisation, which is drawn again from its seed.
        input_shape: (C, H, W), where it does not follow from the file or module.
        activation: of a file: relu (default), leaky_relu or gelu.
        layout: of a file with convolutions, e.g. "conv(padding=1), relu, max(2), flatten, dense, relu, dense".
        mean, std: inputs are (pixel - mean) / std of pixels in [0, 1]; one number, or one for each channel.
        store: a folder or a RunStore, in which the attack is kept as a run.
        name: name of that run.
        anyway: start even if memory may run out.
        progress: True for a progress bar, False for none, or a function of the fraction done and a message.
        **settings: those of `recon_core.attacks.AttackSettings` and of the recipe: recipe, m (number of candidates, at
            least twice that of the training samples), iterations, seed, seeds, objective, ...

    Ctrl-C returns the candidates found so far.

    >>> import recon_core as rc
    >>> model = rc.train(rc.load_data("circle", n=6), widths=50, epochs=20, progress=False)
    >>> rc.reconstruct(model, m=10, iterations=5, progress=False).candidates.shape
    torch.Size([10, 2])
    """
    refuse_unknown(settings, all_setting_names(), "reconstruct")
    if baseline not in (None, "untrained"):
        raise InputError(
            f"baseline must be 'untrained' or None, got {baseline!r}; others: python -m recon_core baseline --help"
        )
    options = import_options(activation=activation, layout=layout, mean=mean, std=std)
    attacked = attack_model(model, store, input_shape, options)
    chosen = attack_settings(attacked, settings, find_attack_preset(preset, settings.get("recipe")))
    values = {"model": "", "settings": chosen, "known_init": known_init, "baseline": baseline}
    config = parse_config(ReconstructConfig, values)
    check_request(attacked, config)
    refuse_shortage(attack_memory(attacked.architecture, chosen, attacked.samples), anyway=anyway, insist=INSIST)
    if store is None:
        with interruptible() as stop, showing(progress, "reconstruct") as listener:
            outcome = attack(
                target_of(attacked, config), comparable(chosen, attacked, config), MemoryObserver(stop, listener)
            )
        return _result(in_pixels(outcome, attacked), attacked, config)
    runs = store_of(store)
    owner = run_of(model, attacked, runs, input_shape, options)
    run = create_reconstruction(runs, config.model_copy(update={"model": owner.id}), name)
    with interruptible() as stop, showing(progress, "reconstruct") as listener:
        state = perform(run, stop, listener)
    if state is RunState.CANCELLED:
        return _interrupted(run, attacked, config)
    if state is not RunState.DONE:
        raise AfterimageError(f"run {run.id} {state}: {run.status().message}")
    found = run.tensors("candidates")
    return Reconstruction(
        candidates=found["candidates"],
        multipliers=found["multipliers"],
        labels=found["labels"],
        seeds=found["seeds"],
        kept=run.tensors("stages")["deduplicated"] if run.has_tensors("stages") else None,
        network=attacked.network,
        settings=chosen,
        summary=run.result() or {},
        confidence=found.get("confidence"),
        note=_note(run.status().message, attacked, chosen),
        run=run,
        normalisation=attacked.normalisation,
    )


def _result(
    outcome: AttackOutcome, model: AttackModel, config: ReconstructConfig, run: Run | None = None
) -> Reconstruction:
    if outcome.reason is StopReason.DIVERGED:
        raise AfterimageError(f"the attack {outcome.reason}")
    stopped = outcome.reason is StopReason.CANCELLED
    ended = f"interrupted after {outcome.summary['steps']} iterations" if stopped else str(outcome.reason)
    if stopped and run is not None:
        ended += f"; python -m recon_core runs resume {run.id} continues it"
    return Reconstruction(
        candidates=outcome.candidates,
        multipliers=outcome.multipliers,
        labels=outcome.labels,
        seeds=outcome.seeds,
        kept=planar_stages(outcome, config.settings).masks["deduplicated"] if model.planar else None,
        network=model.network,
        settings=config.settings,
        summary=outcome.summary,
        confidence=outcome.confidence,
        note=_note(ended, model, config.settings),
        stopped=stopped,
        run=run,
        normalisation=model.normalisation,
    )


def _interrupted(run: Run, model: AttackModel, config: ReconstructConfig) -> Reconstruction:
    """What the run's checkpoint holds; the run itself can be resumed."""
    stop = StopFlag()
    stop.raised = True
    with run.writer() as writer:
        resume = last_checkpoint(writer)
    observer = MemoryObserver(stop, lambda fraction, message: None)
    return _result(
        in_pixels(
            attack(target_of(model, config), comparable(config.settings, model, config), observer, resume), model
        ),
        model,
        config,
        run,
    )


def _note(ended: str, model: AttackModel, settings: AttackSettings) -> str:
    warning = warning_for(model, settings)
    return ended if warning is None else f"{ended}; {warning}"


def numbers(given: float | Sequence[float] | None) -> list[float] | None:
    """One number, or one a channel, as a list."""
    return (
        None if given is None else [float(given)] if isinstance(given, int | float) else [float(one) for one in given]
    )


def import_options(
    activation: str | None = None,
    layout: str | None = None,
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
) -> ImportOptions:
    """What a call says about a file or a module."""
    said = {"activation": activation, "layout": layout, "mean": numbers(mean), "std": numbers(std)}
    return parse_config(ImportOptions, {name: value for name, value in said.items() if value is not None})


def is_known(model: Model) -> bool:
    """Whether a run describes the model, so that a call need not."""
    return isinstance(model, TrainedModel | Run) or (
        isinstance(model, str) and is_id(model) and not Path(model).is_file()
    )


def attack_model(
    model: Model, store: Store | None, input_shape: tuple[int, ...] | None, options: ImportOptions = _NO_OPTIONS
) -> AttackModel:
    """The weights of a model, with the settings of its training where they are known."""
    if is_known(model) and options != ImportOptions():
        raise InputError("activation, layout, mean and std go with a file or a module; a run knows its own")
    if isinstance(model, nn.Module) and (options.activation or options.layout):
        raise InputError("activation and layout go with a file; a module has its own")
    if input_shape is not None and isinstance(model, TrainedModel | Run | Network):
        raise InputError(f"input_shape goes with a file or a module of your own, got {input_shape} with {model!r}")
    if isinstance(model, TrainedModel):
        return AttackModel(model.network, model.config)
    if isinstance(model, Run):
        return model_of(model)
    if isinstance(model, Network):
        return foreign_model(model, options)
    if isinstance(model, nn.Module):
        return foreign_model(_from_module(model, input_shape).network, options)
    if not isinstance(model, str | Path):
        raise InputError(f"a model is a TrainedModel, a run, a file or an nn.Module, got {type(model).__name__}")
    if is_known(model):
        return model_of(_store_for(store).open(str(model)))
    return foreign_model(read_foreign(Path(os.path.expanduser(model)), input_shape, options).network, options)


def _store_for(store: Store | None) -> RunStore:
    return RunStore(default_root()) if store is None else store_of(store)


def _from_module(module: nn.Module, input_shape: tuple[int, ...] | None) -> AttackModel:
    """A network of the papers in another form, for which there are closed forms, or the module as it is."""
    try:
        return _as_network(module, input_shape)
    except InputError:
        if input_shape is None:
            raise InputError(
                f"{type(module).__name__} does not tell what inputs it takes; pass input_shape=(C, H, W), or (d,) for "
                "vectors"
            ) from None
    return AttackModel(module_network(module, tuple(input_shape)))


def _as_network(module: nn.Module, input_shape: tuple[int, ...] | None) -> AttackModel:
    """Read the module as a checkpoint file is read, with the same checks, then compare what both compute."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "module.pth"
        torch.save(module.state_dict(), file)
        try:
            network = read_foreign(file, input_shape).network
        except InputError as error:
            raise InputError(str(error).replace(repr(str(file)), "the module")) from None
    if not _same_function(module, network):
        raise InputError(
            f"the module does not compute what a ReLU network {network.architecture} with its weights would; only "
            "Linear layers with ReLU between them, with one Conv2d in front if you like, can be attacked"
        )
    return AttackModel(network)


def _same_function(module: nn.Module, network: Network) -> bool:
    """Weights do not tell where a module has its activations, so both are tried on the same random inputs."""
    own = next(module.parameters())
    inputs = torch.randn(8, *network.architecture.input_shape, generator=torch.Generator().manual_seed(0))
    training = module.training
    module.eval()
    try:
        with torch.no_grad():
            expected = network(inputs.to(next(network.parameters())))
            for given in (inputs, inputs.flatten(1)):
                try:
                    computed = module(given.to(own)).to(expected)
                except RuntimeError:  # a module takes images, or flat vectors
                    continue
                scale = float(expected.abs().max())
                return torch.allclose(computed.reshape(expected.shape), expected, rtol=1e-3, atol=1e-3 * scale)
    finally:
        module.train(training)
    return False


def run_of(
    model: Model,
    attacked: AttackModel,
    store: RunStore,
    input_shape: tuple[int, ...] | None,
    options: ImportOptions = _NO_OPTIONS,
) -> Run:
    """The run of this store that holds the model; one that is not there yet is imported."""
    run = model.run if isinstance(model, TrainedModel) else model if isinstance(model, Run) else None
    if run is not None and run.dir.parent.resolve() == store.root.resolve():
        if run.status().state is RunState.CANCELLED:
            raise InputError(f"training was interrupted; continue it first: python -m recon_core runs resume {run.id}")
        return run
    if isinstance(model, str) and is_id(model) and not Path(model).is_file():
        return store.open(model)
    if isinstance(attacked.network, ModuleNetwork):
        raise InputError(
            f"a module such as {type(model).__name__} is code, which a store does not keep; leave store out"
        )
    file = Path(os.path.expanduser(model)) if isinstance(model, str | Path) else _written(attacked.network, store)
    shape = input_shape if isinstance(model, str | Path) else attacked.architecture.input_shape
    found = imported_before(store, file, shape, options)
    if found is None:
        found = create_import(store, file, shape, options=options)
        perform(found, StopFlag())
    return found


def _written(network: Network, store: RunStore) -> Path:
    content = to_safetensors({name: tensor.contiguous() for name, tensor in network.state_dict().items()})
    return kept.keep_content(store.root, kept.MODELS, content, "safetensors")
