"""Runs put in line for whoever starts them: config, parents, the command that repeats each."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from recon_core.attacks import AttackSettings
from recon_core.config import TrainConfig, assignments, parse_config
from recon_core.runs.reconstruction import ReconstructConfig
from recon_core.store import Run, RunStore

PYTHON = ("python", "-m", "recon_core")
# Which another model would choose otherwise.
_FOLLOWS_FROM_MODEL = ("iterations", "prior")
_NAME_LIMIT = 120


def queue_train(store: RunStore, config: TrainConfig, name: str | None = None) -> Run:
    """A network to be trained."""
    return store.create("train", config.model_dump(mode="json"), name=name, command=train_command(config))


def train_command(config: TrainConfig) -> list[str]:
    """The command that trains this very network again, whatever the presets say by then."""
    settings = (word for item in assignments(config) for word in ("--set", item))
    return [*PYTHON, "train", "--preset", "none", *settings]


def queue_import(store: RunStore, file: Path, input_shape: tuple[int, ...] | None, name: str | None = None) -> Run:
    """Somebody else's checkpoint, to be copied into the store; called by its file's name unless `name` is given."""
    path = file.absolute()
    wish = [] if input_shape is None else ["--input-shape", ",".join(map(str, input_shape))]
    return store.create(
        "model",
        {"path": str(path), "input_shape": None if input_shape is None else list(input_shape)},
        name=name or file.name[:_NAME_LIMIT],
        command=[*PYTHON, "import-model", str(path), *wish],
    )


def queue_reconstruction(store: RunStore, config: ReconstructConfig, name: str | None = None) -> Run:
    """An attack on the model of run `config.model`, or a baseline in its place."""
    if config.baseline is None:
        words = ["reconstruct", "--model", config.model]
    else:
        words = ["baseline", config.model, "--kind", config.baseline, "--ranges", config.inversion_ranges]
    command = [*PYTHON, *words, *setting_words(config.settings), *known_init_words(config.known_init)]
    values = config.model_dump(mode="json")
    return store.create("reconstruct", values, name=name or config.baseline, parents=[config.model], command=command)


def known_init_words(known_init: bool) -> list[str]:
    return ["--known-init"] if known_init else []


def setting_words(settings: AttackSettings, always: Collection[str] = ()) -> list[str]:
    """Options that make these settings again: what the recipe would not choose by itself, and `always`."""
    usual = parse_config(AttackSettings, {"recipe": settings.recipe, "objective": settings.objective})
    always = {*always, *_FOLLOWS_FROM_MODEL}
    words = ["--recipe", str(settings.recipe)]
    for name in AttackSettings.model_fields:
        value = getattr(settings, name)
        if value is not None and (name in always or value != getattr(usual, name)):
            text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
            words += ["--set", f"{name}={text}"]
    return words
