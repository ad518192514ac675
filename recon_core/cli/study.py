"""`study` and `report`: a whole experiment of the papers, or one's own, from one command."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from recon_core.cli.console import note, out
from recon_core.cli.findings import print_findings
from recon_core.cli.places import (
    AnywayOption,
    ClusterOption,
    CpusOption,
    GpusOption,
    WorkersOption,
    check_cluster,
    used,
)
from recon_core.cli.stores import store_of
from recon_core.cli.training import perform_and_report
from recon_core.errors import InputError
from recon_core.store import Run, RunState, RunStore

if TYPE_CHECKING:
    from recon_core.studies.plan import StudyPlan

_FILES = (".yaml", ".yml", ".json")


def study(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME|FILE", help="A built-in study, or your own in YAML or JSON.")
    ] = None,
    size: Annotated[
        str,
        typer.Option(
            help="quick: minutes on two cores. paper-n: the papers' n and networks with the bundled images and one "
            "seed, hours. full: as the papers, for a GPU."
        ),
    ] = "quick",
    listing: Annotated[
        bool, typer.Option("--list", help="List all studies, with estimated times on this machine.")
    ] = False,
    seeds: Annotated[
        int | None,
        typer.Option(help="Models trained for each value, with different seeds.", show_default="the study's"),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="VALUE", help="Run only this value of the axis. Repeatable.")
    ] = None,
    panel: Annotated[list[str] | None, typer.Option(metavar="PANEL", help="Run only this panel. Repeatable.")] = None,
    workers: WorkersOption = None,
    cluster: ClusterOption = None,
    cpus: CpusOption = None,
    gpus: GpusOption = None,
    anyway: AnywayOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --list: print JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the id of the run.")] = False,
) -> None:
    """Train, attack and match a grid of models; the study itself is kept as a run.

    Runs that are in the store already are not done again. Ctrl-C or a kill leaves a study that the same command, or
    `runs resume`, continues.
    """
    store = store_of(context)
    if listing:
        _list(store, as_json)
        return
    if name is None:
        raise InputError("which study? Name one, or see them all with: python -m recon_core study --list")
    from recon_core.config import parse_config
    from recon_core.scheduling import move, place_arguments
    from recon_core.scheduling.memory import refuse_shortage
    from recon_core.studies.needs import study_memory
    from recon_core.studies.starting import begun_before, check_data
    from recon_core.studies.study import StudyConfig, create_study

    plan = _plan(name, size).restricted(only or (), panel or (), seeds)
    places = {"workers": workers, "cluster": cluster, "cpus": cpus, "gpus": gpus}
    config = parse_config(StudyConfig, {"plan": plan, **used(places)})
    check_data(plan)
    run = begun_before(store, plan)
    if run is not None and run.status().state is RunState.DONE:
        note(f"this study has already been run as {run.id}")
        _tell(run, quiet)
        return
    check_cluster(config)
    refuse_shortage(study_memory(plan, config), anyway=anyway)
    if run is None:
        arguments = [name, "--size", size] if plan.size != "own" else [os.path.abspath(name)]
        run = create_study(store, config, [*arguments, *_restrictions(only, panel, seeds), *place_arguments(config)])
    else:
        move(run, places)
        if not quiet:
            note(f"continuing {run.id}")
    perform_and_report(run, quiet)


def report(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="STUDY", help="The id of a study run, or the name of a study for its newest run.")
    ],
    target: Annotated[
        Path | None, typer.Option("--to", metavar="FILE", help="The HTML file to write.", show_default="STUDY.html")
    ] = None,
) -> None:
    """Write a study as one self-contained HTML page: figures, images, findings, settings."""
    from recon_core.studies.report import newest_study, write_report

    store = store_of(context)
    run_id = newest_study(store, name)
    out().print(str(write_report(store, run_id, target or Path(f"{run_id}.html"))), markup=False)


def results(
    context: typer.Context,
    target: Annotated[
        Path | None,
        typer.Option(
            "--to", metavar="FILE", help="The file to write, .md or .html.", show_default="where the app reads it"
        ),
    ] = None,
    draw: Annotated[bool, typer.Option(help="Draw the figures as well; needs a browser, takes some seconds.")] = True,
    beside: Annotated[
        list[Path] | None,
        typer.Option(
            "--with",
            metavar="FOLDER",
            help="Results built elsewhere, for studies that are missing here: a folder with results.json. Repeatable.",
            show_default="for the app, those that come with the project",
        ),
    ] = None,
) -> None:
    """Build a page with every figure and table of both papers beside ours, from the finished studies of the store.

    Studies that are not in the store are carried over from the existing results.
    """
    from recon_core.studies.paper_results import write_results
    from recon_core.studies.results_files import default_target, shipped_folder

    store = store_of(context)
    shipped = shipped_folder() if target is None else None
    others = beside or ([] if shipped is None else [shipped])
    written = write_results(store, target or default_target(store), draw=draw, beside=others)
    out().print(str(written.page), markup=False)
    if written.missing is not None:
        note(written.missing)


def _plan(name: str, size: str) -> StudyPlan:
    from recon_core.studies.catalogue import StudySize, find_study
    from recon_core.studies.custom import read_own

    if size not in list(StudySize):
        raise InputError(f"--size must be {', '.join(list(StudySize)[:-1])} or {list(StudySize)[-1]}, got {size!r}")
    if Path(name).suffix.lower() in _FILES:
        return read_own(Path(name))
    return find_study(name).plan(StudySize(size))


def _restrictions(only: Sequence[str] | None, panels: Sequence[str] | None, seeds: int | None) -> list[str]:
    arguments = [word for value in only or () for word in ("--only", value)]
    arguments += [word for value in panels or () for word in ("--panel", value)]
    return arguments if seeds is None else [*arguments, "--seeds", str(seeds)]


def _tell(run: Run, quiet: bool) -> None:
    out().print(run.id if quiet else f"{run.id}: {run.status().message}", markup=False)
    if not quiet:
        print_findings(run)


def _list(store: RunStore, as_json: bool) -> None:
    """Name, figure of the paper, models and estimated time of each size."""
    from recon_core.studies.catalogue import CATALOGUE, StudySize
    from recon_core.studies.costs import single_thread_estimator, study_cost

    estimator = single_thread_estimator(store)
    listed: list[dict[str, Any]] = []
    for entry in CATALOGUE.values():
        costs = {size: study_cost(entry.plan(size), estimator) for size in entry.sizes}
        listed.append({"name": entry.name, "title": entry.title, "where": entry.where, "costs": costs})
    if as_json:
        rows = [
            {**row, "costs": {str(size): {"models": cost.models, "seconds": cost.seconds, "places": cost.places}
                              for size, cost in row["costs"].items()}}
            for row in listed
        ]  # fmt: skip
        typer.echo(json.dumps(rows))
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("study", no_wrap=True, min_width=max(len(name) for name in CATALOGUE))
    for heading in ("what", "where", *(f"{size} here" for size in StudySize)):
        table.add_column(heading, overflow="fold")
    for row in listed:
        cells = [_cost_text(row["costs"].get(size)) for size in StudySize]
        table.add_row(row["name"], row["title"], row["where"], *cells)
    out().print(table)
    note("estimated for this machine as it is; a study that shares runs with an earlier one takes less")


def _cost_text(cost: Any) -> str:
    return "–" if cost is None else f"{cost.text}, {cost.models} models"
