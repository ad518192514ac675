"""The command line that repeats a run, made from its config alone; kinds of runs above this package add theirs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from recon_core.attacks import AttackSettings
from recon_core.config import TrainConfig, assignments, parse_config
from recon_core.errors import AfterimageError
from recon_core.runs.audit import AttachedData, AuditConfig
from recon_core.runs.match_source import MatchConfig
from recon_core.runs.models import ImportConfig
from recon_core.runs.reconstruction import ReconstructConfig
from recon_core.store import Run, RunStore

Config = Mapping[str, Any]
"""As it stands in config.json."""

PROGRAM = ("python", "-m", "recon_core")
# Settings whose defaults depend on the model.
_FOLLOWS_FROM_MODEL = ("iterations", "prior")
_ARGUMENTS: dict[str, Callable[[Config], list[str]]] = {}


def repeats(kind: str) -> Callable[[Callable[[Config], list[str]]], Callable[[Config], list[str]]]:
    """Says of a function that it gives, from a config, the arguments that repeat a run of this kind."""

    def register(arguments: Callable[[Config], list[str]]) -> Callable[[Config], list[str]]:
        _ARGUMENTS[kind] = arguments
        return arguments

    return register


def repeat_command(kind: str, config: Config) -> list[str]:
    """The arguments spell out the config, so the new run has the same one even if presets or defaults change."""
    return [*PROGRAM, *_ARGUMENTS[kind](config)]


def offered_command(run: Run) -> list[str]:
    """What to tell somebody who wants this run again. Of an imported one it is made from the config, never taken over.

    Empty where the config makes no sense.
    """
    if run.imported is None:
        return list(run.command)
    if run.kind not in _ARGUMENTS:  # no options make it, but the store has all it takes
        return [*PROGRAM, "runs", "repeat", run.id]
    try:
        return repeat_command(run.kind, run.config)
    except AfterimageError:
        return []


def create_run(store: RunStore, kind: str, config: Config, *, name: str | None, parents: Sequence[str] = ()) -> Run:
    """A run with this config, and the command that repeats it."""
    return store.create(kind, config, name=name, parents=parents, command=repeat_command(kind, config))


@repeats("train")
def _train(config: Config) -> list[str]:
    chosen = assignments(parse_config(TrainConfig, config))
    return ["train", "--preset", "none", *(word for setting in chosen for word in ("--set", setting))]


@repeats("model")
def _import(config: Config) -> list[str]:
    asked = parse_config(ImportConfig, config)
    shape = asked.input_shape
    words = ["import-model", asked.path, *([] if shape is None else ["--input-shape", ",".join(map(str, shape))])]
    for name, value in asked.options.model_dump(exclude_none=True).items():
        words += [f"--{name}", value if isinstance(value, str) else ",".join(map(str, value))]
    return words


@repeats("reconstruct")
def _reconstruct(config: Config) -> list[str]:
    asked = parse_config(ReconstructConfig, config)
    if asked.baseline is None:
        arguments = ["reconstruct", "--model", asked.model]
    else:
        arguments = ["baseline", asked.model, "--kind", asked.baseline, "--ranges", asked.inversion_ranges]
    return [*arguments, *attack_arguments(asked.settings), *flag("--known-init", asked.known_init)]


@repeats("match")
def _match(config: Config) -> list[str]:
    asked = parse_config(MatchConfig, config)
    usual = MatchConfig(runs=asked.runs)
    changed = {
        name: getattr(asked, name)
        for name in MatchConfig.model_fields
        if name != "runs" and getattr(asked, name) != getattr(usual, name)
    }
    return ["match", *asked.runs, *options(changed)]


@repeats("audit")
def _audit(config: Config) -> list[str]:
    asked = parse_config(AuditConfig, config)
    attached, data = asked.attached, asked.attached.data
    changed = {
        name: ",".join(map(str, value)) if isinstance(value, tuple) else value
        for name in ("held_out", "normalisation", "mean", "std")
        if (value := getattr(attached, name)) != AttachedData.model_fields[name].default
    }
    if asked.threshold != AuditConfig.model_fields["threshold"].default:
        changed["threshold"] = asked.threshold
    selected = [
        word
        for setting in assignments(data)
        if not setting.startswith(("source=", "path="))
        for word in ("-d", setting)
    ]
    return [
        *("audit", asked.model, "--data", data.path or str(data.source), *selected, *options(changed)),
        *flag("--anyway", asked.anyway),
        *attack_arguments(asked.settings),
    ]


def options(values: Mapping[str, Any]) -> list[str]:
    """`--some-name value` for each that is not None."""
    return [
        word
        for name, value in values.items()
        if value is not None
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]


def flag(option: str, given: bool) -> list[str]:
    return [option] if given else []


def attack_arguments(settings: AttackSettings, always: Collection[str] = ()) -> list[str]:
    """Options that make these settings again: what the attack would not choose by itself, and `always`."""
    usual = parse_config(AttackSettings, {"recipe": settings.recipe, "objective": settings.objective})
    always = {*always, *_FOLLOWS_FROM_MODEL}
    arguments = ["--recipe", settings.recipe]
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if value is not None and (name in always or value != getattr(usual, name)):
            text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
            arguments += ["--set", f"{name}={text}"]
    return arguments
