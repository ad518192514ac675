"""Create training, import and reconstruct runs: config, parents, name."""

from __future__ import annotations

from pathlib import Path

from recon_core.config import TrainConfig
from recon_core.runs.commands import create_run
from recon_core.runs.models import ImportOptions
from recon_core.runs.reconstruction import ReconstructConfig
from recon_core.store import Run, RunStore

_NAME_LIMIT = 120


def create_training(store: RunStore, config: TrainConfig, name: str | None = None) -> Run:
    """A network to be trained."""
    return create_run(store, "train", config.model_dump(mode="json"), name=name)


def create_import(
    store: RunStore,
    file: Path,
    input_shape: tuple[int, ...] | None,
    name: str | None = None,
    options: ImportOptions | None = None,
) -> Run:
    """Somebody else's checkpoint, to be copied into the store; called by its file's name unless `name` is given."""
    shape = None if input_shape is None else list(input_shape)
    given = {} if options is None else options.model_dump(mode="json", exclude_none=True)
    config = {"path": str(file.absolute()), "input_shape": shape, **given}
    return create_run(store, "model", config, name=name or file.name[:_NAME_LIMIT])


def create_reconstruction(store: RunStore, config: ReconstructConfig, name: str | None = None) -> Run:
    """An attack on the model of run `config.model`, or a baseline in its place."""
    values = config.model_dump(mode="json")
    return create_run(store, "reconstruct", values, name=name or config.baseline, parents=[config.model])
