"""Output of the command line: results on standard output, everything else on standard error."""

from __future__ import annotations

from rich.text import Text

from recon_core.runs.progress import progress_bar
from recon_core.runs.terminal import PlainConsole

__all__ = ["complain", "note", "out", "progress_bar"]


def complain(sentence: str) -> None:
    """One sentence about what went wrong."""
    PlainConsole(stderr=True, highlight=False, soft_wrap=True).print(Text.assemble(("error: ", "bold red"), sentence))


def note(sentence: str) -> None:
    """Something worth knowing that is not the result."""
    PlainConsole(stderr=True, highlight=False, soft_wrap=True).print(Text(sentence))


def out() -> PlainConsole:
    """Where results go."""
    return PlainConsole(highlight=False, soft_wrap=True)
