"""A progress bar: in a terminal, in a notebook, or as occasional lines in a log file."""

from __future__ import annotations

import contextlib
import html
import time
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from recon_core.observing import Listener
from recon_core.runs.terminal import PlainConsole

# A log file gets a line now and then instead of a bar.
_PLAIN_INTERVAL = 5.0
# A notebook is sent a new picture of its bar.
_NOTEBOOK_INTERVAL = 0.2


@contextlib.contextmanager
def progress_bar(title: str, quiet: bool) -> Iterator[Listener]:
    """A bar with the time left and the latest figures; plain lines where the output is not a terminal."""
    console = PlainConsole(stderr=True)
    if quiet:
        yield lambda fraction, message: None
    elif console.is_jupyter:
        yield _notebook_bar(title)
    elif not console.is_terminal:
        yield _plain_lines(console, title)
    else:
        columns = (TextColumn("[bold]{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
        times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.fields[message]}"))
        with Progress(*columns, *times, console=console) as bar:
            task = bar.add_task(title, total=1.0, message="")
            yield lambda fraction, message: bar.update(task, completed=fraction or 0.0, message=message)


def _plain_lines(console: Console, title: str) -> Listener:
    last = time.monotonic()

    def listen(fraction: float | None, message: str) -> None:
        nonlocal last
        if time.monotonic() - last >= _PLAIN_INTERVAL:
            last = time.monotonic()
            done = "" if fraction is None else f" {fraction:4.0%}"
            console.print(f"{title}{done}  {message}", highlight=False, markup=False, soft_wrap=True)

    return listen


def _notebook_bar(title: str) -> Listener:
    """Plain HTML, which every notebook shows; rich's own bar needs ipywidgets."""
    from IPython.display import HTML, display

    shown = display(HTML(""), display_id=True)
    last = -float("inf")

    def listen(fraction: float | None, message: str) -> None:
        nonlocal last
        if time.monotonic() - last >= _NOTEBOOK_INTERVAL or fraction == 1.0:
            last = time.monotonic()
            value = "" if fraction is None else f' value="{fraction:.3f}"'
            shown.update(HTML(f"{title} <progress max='1'{value}></progress> {html.escape(message)}"))

    return listen
