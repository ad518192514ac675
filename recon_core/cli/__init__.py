"""The command line: everything the dashboard can do, from a shell.

Heavy imports (torch) happen inside the commands that need them, so that `runs list` and `--help` are instant.
"""

from __future__ import annotations

import contextlib
import errno
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException

from recon_core.cli import audit, dashboard, match, places, reconstruct, runs, study, training
from recon_core.cli.console import complain
from recon_core.cli.usage import usage_sentence
from recon_core.errors import AfterimageError, InputError
from recon_core.version import __version__

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Afterimage: train a classifier, then reconstruct its training images from its weights.",
)


def _add(name: str, command: Callable[..., None]) -> None:
    """Register a command. Lines of its docstring are joined, so that help wraps them at the width of the terminal."""
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    app.command(name, help="\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs))(command)


_add("dashboard", dashboard.dashboard)
_add("train", training.train)
_add("presets", training.presets)
_add("import-model", reconstruct.import_model)
_add("attacks", reconstruct.attacks)
_add("reconstruct", reconstruct.reconstruct)
_add("baseline", reconstruct.baseline)
_add("search", reconstruct.search)
_add("match", match.match)
_add("audit", audit.audit)
_add("study", study.study)
_add("report", study.report)
_add("results", study.results)
_add("cluster", places.cluster)
app.add_typer(runs.app, name="runs")


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback(invoke_without_command=False)
def options(
    context: typer.Context,
    store: Annotated[
        Path | None, typer.Option(envvar="AFTERIMAGE_STORE", help="Folder in which runs are kept.", show_default="runs")
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Options of every command."""
    context.obj = store


_UNMAPPED = "failed to map segment"  # what the loader says of a library for which there is no room


def _flush() -> None:
    """Flush now, so that a failed write becomes a sentence and not a traceback at exit."""
    try:
        sys.stdout.flush()
    except OSError as error:
        _give_up_output()
        raise AfterimageError(_unwritten(error)) from None


def _unwritten(error: OSError) -> str:
    return f"standard output could not be written ({error.strerror}); send it elsewhere"


def _give_up_output() -> None:
    """Discard what is still in the buffer: the interpreter would try, and fail, to write it once more at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> None:
    """Run the command line; a request that cannot be met ends with one sentence and exit code 2."""
    try:
        try:
            code = app(standalone_mode=False)
        finally:
            _flush()
        sys.exit(code)
    except TyperException as error:
        if sentence := usage_sentence(error):
            complain(sentence)
        sys.exit(2)
    except InputError as error:
        complain(str(error))
        sys.exit(2)
    except AfterimageError as error:
        complain(str(error))
        sys.exit(1)
    except (MemoryError, ImportError) as error:
        if isinstance(error, ImportError) and _UNMAPPED not in str(error):
            raise
        complain("not enough memory to load what this command needs; free some, or raise its limit (ulimit -v)")
        sys.exit(1)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        _give_up_output()  # our own files raise an InputError that names them; this was standard output
        complain(_unwritten(error))
        sys.exit(1)
