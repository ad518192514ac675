"""`runs`: look at what is in the store and look after it."""

from __future__ import annotations

import gc
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from recon_core.cli.console import complain, note, out
from recon_core.cli.places import AnywayOption, CpusOption, GpusOption, WorkersOption
from recon_core.cli.stores import store_of
from recon_core.errors import InputError
from recon_core.runs.terminal import one_line
from recon_core.runs.titles import titles
from recon_core.store import Run, RunState, RunSummary

app = typer.Typer(no_args_is_help=True, help="List, show, resume, repeat, export, import and delete runs.")

_COLOURS = {
    RunState.DONE: "green",
    RunState.RUNNING: "cyan",
    RunState.QUEUED: "blue",
    RunState.CANCELLED: "yellow",
    RunState.INTERRUPTED: "yellow",
    RunState.FAILED: "red",
}

_LEAST_WIDTH = 10

RunId = Annotated[str, typer.Argument(metavar="RUN", help="A run's id; see [b]runs list[/b].")]


@app.command("list")
def list_runs(
    context: typer.Context,
    kind: Annotated[
        str | None,
        typer.Option(help="Only runs of this kind: train, model, reconstruct, search, match, audit or study."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List all runs, newest first."""
    gc.disable()  # garbage collection would walk thousands of summaries again and again while they are read
    try:
        found = store_of(context).list(kind)
    finally:
        gc.enable()
    if as_json:
        typer.echo(json.dumps([asdict(summary) for summary in found]))
        return
    if not found and kind is not None and (kinds := sorted({one.kind for one in store_of(context).list()})):
        raise InputError(f"there are no runs of kind {kind!r}; there are: {', '.join(kinds)}")
    if not found:
        out().print("no runs yet; start one with: python -m recon_core train --preset cifar10-50")
        return
    out().print(_Listing(found, titles(store_of(context), found)))


class _Listing:
    """A line for each run, however long its message: `runs show` has all of it.

    Not rich's table, which takes seconds for thousands of rows.
    """

    def __init__(self, runs: Sequence[RunSummary], names: Mapping[str, str]) -> None:
        self._runs, self._names = runs, names

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        named = max(console.width // 4, _LEAST_WIDTH)
        rows = [
            (
                run.id,
                f"{run.status.state}{' (imported)' if run.imported else ''}",
                run.created[5:16].replace("T", " "),
                _fitted(one_line(self._names[run.id]), named),
                one_line(run.status.message),
            )
            for run in self._runs
        ]
        headings = ("run", "state", "created", "name", "message")
        widths = [max(cell_len(row[column]) for row in (headings, *rows)) + 2 for column in range(4)]
        left = max(_LEAST_WIDTH, console.width - sum(widths))
        styles = {state: Style.parse(colour) for state, colour in _COLOURS.items()}
        bold = Style(bold=True)
        yield Segment("".join(map(set_cell_size, headings, widths)) + headings[4], bold)
        yield Segment.line()
        for run, (run_id, state, *rest, message) in zip(self._runs, rows, strict=True):
            yield Segment(set_cell_size(run_id, widths[0]))
            yield Segment(set_cell_size(state, widths[1]), styles[run.status.state])
            yield Segment(f"{''.join(map(set_cell_size, rest, widths[2:]))}{_fitted(message, left)}".rstrip() + "\n")


def _fitted(text: str, width: int) -> str:
    return text if cell_len(text) <= width else f"{set_cell_size(text, width - 1)}…"


@app.command()
def show(
    context: typer.Context,
    run_id: RunId,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show one run: settings, state, results, the last lines of its log, the command that repeats it."""
    run = store_of(context).open(run_id)
    status, imported = run.status(), run.imported
    whole = {
        "id": run.id,
        "name": run.name,
        "kind": run.kind,
        "created": run.created,
        "folder": str(run.dir),
        "status": asdict(status),
        "config": run.config,
        "result": run.result(),
        "parents": list(run.parents),
        "versions": dict(run.versions),
        "imported": None if imported is None else asdict(imported),
        "command": shlex.join(_command(run)),
    }
    if as_json:
        typer.echo(json.dumps(whole))
        return
    console = out()
    heading = {"run": run.id, "name": run.name or "", "state": one_line(f"{status.state} {status.message}")}
    if imported is not None:
        left_out = f"; left out then: {', '.join(imported.dropped)}" if imported.dropped else ""
        heading["imported"] = one_line(f"{imported.at}{left_out}")
    if run.parents:
        heading["from"] = ", ".join(run.parents)
    for label, value in {**heading, "created": run.created, "folder": str(run.dir)}.items():
        console.print(Text.assemble((f"{label:<8} ", "bold"), value))
    console.print(Text.assemble(("repeat   ", "bold"), one_line(str(whole["command"]))))
    for label in ("config", "result"):
        if whole[label]:
            console.print(Text(label, style="bold"))
            console.print_json(json.dumps(_short(whole[label])))
    console.print(Text("log", style="bold"))
    for line in run.log_tail(10):
        console.print(Text("  " + line))


def _command(run: Run) -> Sequence[str]:
    if run.imported is None:
        return run.command
    import recon_core.studies.requests  # noqa: F401 - says how searches are repeated
    from recon_core.runs.commands import offered_command

    return offered_command(run)


def _short(value: object) -> object:
    """Long lists cut to their first entries: this is for reading."""
    if isinstance(value, dict):
        return {key: _short(entry) for key, entry in value.items()}
    if isinstance(value, list) and len(value) > 12:
        return [*value[:10], f"... {len(value)} in all"]
    return value


@app.command()
def resume(
    context: typer.Context,
    run_id: RunId,
    workers: WorkersOption = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="Resume on this Ray cluster; none for this machine.", show_default="as before"
        ),
    ] = None,
    cpus: CpusOption = None,
    gpus: GpusOption = None,
    anyway: AnywayOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the id of the run.")] = False,
) -> None:
    """Resume a run that was stopped, killed or failed from its last checkpoint."""
    from recon_core.cli.training import perform_and_report
    from recon_core.scheduling import move
    from recon_core.scheduling.memory import refuse_shortage
    from recon_core.studies.needs import memory_of

    run = store_of(context).open(run_id)
    run.refuse_without_path()
    move(run, {"workers": workers, "cluster": cluster, "cpus": cpus, "gpus": gpus})
    refuse_shortage(memory_of(store_of(context), run.kind, run.config), anyway=anyway)
    perform_and_report(run, quiet)


@app.command()
def repeat(
    context: typer.Context,
    run_id: RunId,
    anyway: AnywayOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the id of the run.")] = False,
) -> None:
    """Repeat a run with the same settings, as a new run."""
    from recon_core.cli.training import perform_and_report
    from recon_core.scheduling.memory import refuse_shortage
    from recon_core.studies.needs import memory_of

    store = store_of(context)
    old = store.open(run_id)
    old.refuse_without_path()
    refuse_shortage(memory_of(store, old.kind, old.config), anyway=anyway)
    name = None if old.name == old.id else old.name
    new = store.create(old.kind, old.config, name=name, parents=old.parents, command=_command(old))
    perform_and_report(new, quiet)


@app.command()
def attach(
    context: typer.Context,
    run_id: RunId,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The folder or file for the run to read.")],
) -> None:
    """Attach images or a checkpoint of this machine to an imported run, whose own path was removed at import."""
    store_of(context).attach(run_id, path)
    out().print(f"{run_id} now reads {path.absolute()}", markup=False)


@app.command()
def cancel(context: typer.Context, run_id: RunId) -> None:
    """Stop a run, or take it out of the queue. It writes a checkpoint first and can be resumed."""
    run = store_of(context).open(run_id)
    if run.request_cancel():
        out().print(f"asked {run_id} to stop")
    else:
        out().print(f"{run_id} is {run.status().state} already; there was nothing to stop")


@app.command()
def rename(context: typer.Context, run_id: RunId, name: str) -> None:
    """Rename a run."""
    store_of(context).rename(run_id, name)
    out().print(f"{run_id} is now called {name.strip()!r}", markup=False)


@app.command()
def delete(
    context: typer.Context,
    run_id: RunId,
    with_dependents: Annotated[bool, typer.Option(help="Delete the runs that depend on it too.")] = False,
) -> None:
    """Delete a run permanently. Refused, and the runs named, while other runs depend on it."""
    store_of(context).delete(run_id, with_dependents=with_dependents)
    out().print(f"deleted {run_id}")


@app.command()
def export(
    context: typer.Context,
    run_id: RunId,
    target: Annotated[Path | None, typer.Option("--to", help="The zip file to write.", show_default="RUN.zip")] = None,
) -> None:
    """Export a run, with the runs it was made from, to a zip file."""
    path = store_of(context).export(run_id, target or Path(f"{run_id}.zip"))
    out().print(str(path))


@app.command("import")
def import_runs(context: typer.Context, archive: Annotated[Path, typer.Argument(metavar="ZIP")]) -> None:
    """Import the runs of an exported zip file into the store."""
    from recon_core.kinds import import_zip

    for run in import_zip(store_of(context), archive):
        out().print(run.id)
        if run.imported is not None and run.imported.dropped:
            left_out = one_line(", ".join(run.imported.dropped))
            note(f"{run.id}: left out at import, since a file must not decide it: {left_out}")
        if run.imported is not None and run.imported.fault:
            note(one_line(f"{run.id}: {run.status().message}"))


@app.command()
def check(context: typer.Context) -> None:
    """Check the store for damaged runs; exit code 1 if there are any problems."""
    problems = store_of(context).check()
    for problem in problems:
        complain(f"{problem.run_id}: {problem.sentence}")
    if problems:
        raise typer.Exit(1)
    out().print("no problems found")
