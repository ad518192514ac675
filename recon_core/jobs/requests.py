"""Runs put in line for whoever starts them: config, parents, the command that repeats each."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from recon_core.attack import AttackSettings
from recon_core.config import TrainConfig, assignments, parse_config
from recon_core.executors import Places
from recon_core.jobs.reconstruction import ReconstructConfig
from recon_core.jobs.search import SearchConfig
from recon_core.store import Run, RunStore

_PYTHON = ("python", "-m", "recon_core")
# Of an attack inside a search, where the command's defaults are not the recipe's.
_SEARCH_CHOICES = ("engine", "dtype", "iterations")
# Which another model would choose otherwise.
_FOLLOWS_FROM_MODEL = ("iterations", "prior")
_NAME_LIMIT = 120
_PLACE_OPTIONS = {"workers": "--workers", "cluster": "--cluster", "cpus": "--cpus-per-run", "gpus": "--gpus-per-run"}


def queue_train(store: RunStore, config: TrainConfig, name: str | None = None) -> Run:
    """A network to be trained."""
    return store.create("train", config.model_dump(mode="json"), name=name, command=train_command(config))


def train_command(config: TrainConfig) -> list[str]:
    """The command that trains this very network again, whatever the presets say by then."""
    settings = (word for item in assignments(config) for word in ("--set", item))
    return [*_PYTHON, "train", "--preset", "none", *settings]


def queue_import(store: RunStore, file: Path, input_shape: tuple[int, ...] | None, name: str | None = None) -> Run:
    """Somebody else's checkpoint, to be copied into the store; called by its file's name unless `name` is given."""
    path = file.absolute()
    wish = [] if input_shape is None else ["--input-shape", ",".join(map(str, input_shape))]
    return store.create(
        "model",
        {"path": str(path), "input_shape": None if input_shape is None else list(input_shape)},
        name=name or file.name[:_NAME_LIMIT],
        command=[*_PYTHON, "import-model", str(path), *wish],
    )


def queue_reconstruction(store: RunStore, config: ReconstructConfig, name: str | None = None) -> Run:
    """An attack on the model of run `config.model`, or a baseline in its place."""
    if config.baseline is None:
        words = ["reconstruct", "--model", config.model]
    else:
        words = ["baseline", config.model, "--kind", config.baseline, "--ranges", config.inversion_ranges]
    command = [*_PYTHON, *words, *setting_words(config.settings), *_known(config.known_init)]
    return _create(store, "reconstruct", config, name or config.baseline, command)


def queue_search(store: RunStore, config: SearchConfig, name: str | None = None) -> Run:
    """Many attacks on the model of run `config.model`."""
    settings = config.settings
    asked = settings.model_dump(mode="json", exclude={"attack"})
    options = [word for key, value in asked.items() for word in (f"--{key}", str(value))]
    words = ["search", "--model", config.model, *options, *setting_words(settings.attack, always=_SEARCH_CHOICES)]
    words += [*_known(config.known_init), *place_words(config)]
    for option, value in (("--storage", config.storage), ("--share", config.share)):
        words += [] if value is None else [option, value]
    return _create(store, "search", config, name, [*_PYTHON, *words])


def place_words(places: Places) -> list[str]:
    """Options that ask for these places, where they are not the usual ones."""
    usual = Places()
    words = []
    for name in Places.model_fields:
        value = getattr(places, name)
        if value != getattr(usual, name):
            words += [_PLACE_OPTIONS[name], f"{value:g}" if isinstance(value, float) else str(value)]
    return words


def _create(
    store: RunStore, kind: str, config: ReconstructConfig | SearchConfig, name: str | None, command: list[str]
) -> Run:
    return store.create(kind, config.model_dump(mode="json"), name=name, parents=[config.model], command=command)


def _known(known_init: bool) -> list[str]:
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
