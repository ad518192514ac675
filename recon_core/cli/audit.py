"""`audit`: does this model leak its training images? One report, and an exit code for a pipeline."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from recon_core.cli.audit_findings import findings
from recon_core.cli.console import complain, note, out, progress_bar
from recon_core.cli.places import AuditAnywayOption
from recon_core.cli.reconstruct import (
    ActivationOption,
    CountOption,
    LayoutOption,
    NameOption,
    QuietOption,
    RecipeOption,
    SettingsOption,
    ShapeOption,
    find_model,
    given_settings,
    read_shape,
)
from recon_core.cli.stores import store_of
from recon_core.errors import InputError
from recon_core.store import Run, RunState

FAILED = 1
_EXIT_CODES = {RunState.CANCELLED: 130}
_STANDARD_OUTPUT = "-"


def audit(
    context: typer.Context,
    model: Annotated[str, typer.Argument(metavar="RUN|FILE", help="A trained run, or a .pth or .safetensors file.")],
    data: Annotated[
        str,
        typer.Option(
            "--data",
            metavar="FOLDER|NPZ|SET",
            help="The images it was trained on: a folder with a subfolder for each class, an .npz file, a set like "
            "cifar10 with --n, or a selection of the authors like haim2022-cifar10.",
        ),
    ],
    n: Annotated[
        int | None,
        typer.Option("--n", help="Number of training images, all classes together.", show_default="all of a folder"),
    ] = None,
    per_class: Annotated[int | None, typer.Option(help="Number of training images of each class.")] = None,
    partition: Annotated[
        str | None, typer.Option(help="Split into two classes: odd-even, animals-vehicles, faces, or 'a,b|c,d'.")
    ] = None,
    classes: Annotated[
        str | None, typer.Option(help="Classes in the order of the model's outputs: 'cat,dog,...'.")
    ] = None,
    selected: Annotated[
        list[str] | None,
        typer.Option("--data-set", "-d", metavar="KEY=VALUE", help="Any other setting of the data. Repeatable."),
    ] = None,
    held_out: Annotated[
        str | None,
        typer.Option(metavar="FOLDER|NPZ", help="Images of the same classes that it was not trained on."),
    ] = None,
    normalisation: Annotated[
        str, typer.Option(help="How pixels were normalised: auto, centred, unit, symmetric, channels, imagenet, ...")
    ] = "auto",
    mean: Annotated[str | None, typer.Option(help="Subtracted from pixels in [0, 1]: 0.5 or 0.49,0.48,0.45.")] = None,
    std: Annotated[str | None, typer.Option(help="Pixels are divided by it: 0.5 or 0.25,0.24,0.26.")] = None,
    threshold: Annotated[float, typer.Option(help="SSIM above which an image counts as reconstructed.")] = 0.4,
    anyway: AuditAnywayOption = False,
    fail_above: Annotated[
        int | None,
        typer.Option(metavar="K", help="Exit code 1 if more than K images came back beyond the chance level."),
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write the report as one HTML file.")] = None,
    json: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write the report as JSON; - for standard output.")
    ] = None,
    recipe: RecipeOption = None,
    m: CountOption = None,
    settings: SettingsOption = None,
    input_shape: ShapeOption = None,
    activation: ActivationOption = None,
    layout: LayoutOption = None,
    name: NameOption = None,
    quiet: QuietOption = False,
) -> None:
    """Attack a model without any data, then count the reconstructed training images against chance.

    Exit code 0: judged, and at most K images came back; 1: more than K; 2: bad input, a set that is not its training
    set among it; 130: interrupted, and `runs resume` continues it.
    """
    from recon_core.config import parse_config
    from recon_core.runs.attached import attached_data
    from recon_core.runs.audit import AuditConfig, check_audit, create_audit
    from recon_core.runs.reconstruction import attack_settings, warning_for
    from recon_core.scheduling.memory import refuse_shortage
    from recon_core.studies.needs import audit_memory

    if fail_above is not None and fail_above < 0:
        raise InputError(f"--fail-above must be 0 or more, got {fail_above}")
    for file in (html, None if json in (None, _STANDARD_OUTPUT) else Path(json)):
        _check_place(file)
    given = given_settings(settings, recipe=recipe, m=m)
    options = {"activation": activation, "layout": layout}
    source = find_model(store_of(context), model, read_shape(input_shape), {**options, "mean": mean, "std": std})
    if source.file is None and (said := next((key for key, value in options.items() if value is not None), None)):
        raise InputError(f"--{said} goes with a file; run {model} knows its layers")
    chosen = attack_settings(source.model, given)
    of_data = _data_settings(selected, n=n, per_class=per_class, partition=partition, classes=classes)
    attachment = {"held_out": _absolute(held_out), "normalisation": normalisation, "mean": mean, "std": std}
    outputs = source.model.architecture.outputs
    wishes = {key: value for key, value in attachment.items() if value not in (None, "auto")}
    values = {
        "model": "",
        "settings": chosen,
        "attached": attached_data(data, outputs, {**of_data, **wishes}),
        "threshold": threshold,
        "anyway": anyway,
    }
    config = parse_config(AuditConfig, values)
    check_audit(source.model, config)
    refuse_shortage(audit_memory(source.model.architecture, config, source.model.samples), anyway=anyway)
    if (warning := warning_for(source.model, chosen)) is not None:
        note("warning: " + warning)
    owner = source.in_store(quiet)
    run = create_audit(source.store, config.model_copy(update={"model": owner.id}), name)
    _finish(run, html=html, json=json, fail_above=fail_above, quiet=quiet)


def _finish(run: Run, *, html: Path | None, json: str | None, fail_above: int | None, quiet: bool) -> None:
    from recon_core.kinds import perform
    from recon_core.runs import stopping_on_signals
    from recon_core.views.audits import read_audit

    with stopping_on_signals() as stop, progress_bar("audit", quiet) as listener:
        state = perform(run, stop, listener)
    if state is not RunState.DONE:
        complain(f"{run.id} is {state}: {run.status().message}")
        raise typer.Exit(_EXIT_CODES.get(state, FAILED))
    audited = read_audit(run)
    if audited.report.fit.likeness != "fits":  # also where only the id is asked for
        note("warning: " + audited.report.fit.sentence)
    if html is not None:
        _write(html, audited.to_html(), run)
    if json == _STANDARD_OUTPUT:
        sys.stdout.write(audited.to_json() + "\n")
    else:
        if json is not None:
            _write(Path(json), audited.to_json(), run)
        out().print(run.id)
        if not quiet:
            for line in findings(audited.report):
                out().print("  " + line, markup=False)
    beyond = audited.report.leak.beyond_chance
    if fail_above is not None and beyond > fail_above:
        complain(f"{beyond} training images came back beyond the chance level, more than --fail-above {fail_above}")
        raise typer.Exit(FAILED)


def _write(file: Path, text: str, run: Run) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"the report of {run.id} could not be written to {str(file)!r} ({error.strerror}); repeat the command with "
            "another place: the candidates are there and are not drawn again"
        ) from None


def _data_settings(selected: list[str] | None, **options: Any) -> dict[str, Any]:
    from recon_core.config import DataConfig, assign

    values = {key: value for key, value in options.items() if value is not None}
    for setting in selected or ():
        assign(DataConfig, values, setting)
    return values


def _absolute(path: str | None) -> str | None:
    return None if path is None else str(Path(os.path.expanduser(path)).absolute())


def _check_place(file: Path | None) -> None:
    """Before anything is computed: a report that cannot be written would be lost."""
    if file is not None and (file.is_dir() or not file.absolute().parent.is_dir()):
        raise InputError(
            f"cannot write {str(file)!r}: it is a folder, or in one that does not exist; choose another file"
        )
