"""`train` and `presets`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from recon_core.cli.console import complain, out, progress_bar
from recon_core.cli.findings import print_findings
from recon_core.cli.places import AnywayOption
from recon_core.cli.stores import store_of
from recon_core.config import TrainConfig, assign, parse_config
from recon_core.presets import DEFAULT_PRESET, PRESETS, Size, find_preset
from recon_core.settings_text import read_settings
from recon_core.store import Run, RunState

NO_PRESET = "none"
_EXIT_CODES = {RunState.DONE: 0, RunState.CANCELLED: 130}


def train(
    context: typer.Context,
    preset: Annotated[
        str,
        typer.Option(
            "--preset", "-p", help="Settings to start from; [b]presets[/b] lists them. [b]none[/b] for defaults."
        ),
    ] = DEFAULT_PRESET,
    size: Annotated[
        Size, typer.Option(help="quick: seconds to minutes. paper: the papers' settings in float64, for a GPU.")
    ] = Size.QUICK,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="JSON or YAML file with settings.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="KEY=VALUE", help="One setting, e.g. data.n=100. Repeatable."),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", "-n", help="Name of the run.")] = None,
    anyway: AnywayOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the id of the run.")] = False,
) -> None:
    """Train a network.

    Settings come from the preset, then the config file, then --set; later ones win. Ctrl-C leaves a run
    that `runs resume` continues.
    """
    chosen = training_config(preset, size, config, settings or [])
    store = store_of(context)
    # Before anything is written: a request that cannot be met leaves no run behind.
    from recon_core.data import load_task
    from recon_core.scheduling.memory import refuse_shortage, training_memory

    refuse_shortage(training_memory(chosen), anyway=anyway)
    with progress_bar("data", quiet) as listener:
        data = load_task(chosen.data, progress=listener)
    from recon_core.models import architecture_of

    architecture_of(chosen.model, data.input_shape, data.outputs)
    from recon_core.runs.requests import create_training

    perform_and_report(
        create_training(store, chosen, name or (None if preset == NO_PRESET else preset)), quiet, data=data
    )


def training_config(preset: str, size: Size, file: Path | None, settings: list[str]) -> TrainConfig:
    """Preset, file and settings, merged in that order and checked."""
    values = {} if preset == NO_PRESET else find_preset(preset).values(size)
    if file is not None:
        values = _merge(values, read_settings(file, "config file"))
    for setting in settings:
        assign(TrainConfig, values, setting)
    return parse_config(TrainConfig, values)


def _merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def perform_and_report(run: Run, quiet: bool, data: Any = None) -> None:
    """Do the run's work in this process, with a progress bar, and say how it ended."""
    from recon_core.kinds import perform
    from recon_core.runs import stopping_on_signals

    with stopping_on_signals() as stop, progress_bar(run.kind, quiet) as listener:
        state = perform(run, stop, listener, data)
    if quiet:
        out().print(run.id)
    else:
        status = run.status()
        if state is RunState.DONE:
            out().print(f"{run.id}: {status.message}, {status.step} steps, {status.seconds:.1f} s")
            print_findings(run)
        else:
            complain(f"{run.id} is {state}: {status.message}")
    raise typer.Exit(_EXIT_CODES.get(state, 1))


def presets(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List the presets for --preset: every model of Haim et al. Tables 1 and 2, and more."""
    if as_json:
        listed = [
            {"name": p.name, "title": p.title, "where": p.where, "quick": p.quick, "paper": p.paper}
            for p in PRESETS.values()
        ]
        typer.echo(json.dumps(listed))
        return
    table = Table("preset", "what", "where", box=None, pad_edge=False)
    for preset in PRESETS.values():
        table.add_row(preset.name, preset.title, preset.where)
    out().print(table)
