"""Faults of a command line itself, e.g. an unknown option, in one sentence that names the value and the fix."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer
from pydantic import ValidationError

from recon_core.config import requirement
from recon_core.names import listed

if TYPE_CHECKING:
    from typer.exceptions import TyperException

_NOT_A_CHOICE = " is not one of "


def usage_sentence(error: TyperException) -> str:
    """The sentence; empty where help was asked for by giving no command, and is shown already."""
    if isinstance(error, typer.BadParameter) and error.param is not None:
        name = next((option for option in error.param.opts if option.startswith("--")), error.param.metavar)
        if isinstance(error.__cause__, ValidationError):
            return f"{name} must be {_wanted(error.message)}, got {error.__cause__.errors()[0]['input']!r}"
    message = error.format_message().rstrip(".").replace(". Did you", "; did you")
    message = message.replace("Got unexpected extra argument(s)", "too many arguments:")
    context = getattr(error, "ctx", None)
    help_hint = "" if context is None or message.endswith("?") else f"; see {context.command_path} --help"
    return f"{message[:1].lower()}{message[1:]}{help_hint}" if message else ""


def _wanted(message: str) -> str:
    """From "Value error, 'big' is not one of 'quick', 'paper'." to "'quick' or 'paper'"."""
    _, is_choice, choices = message.rstrip(".").partition(_NOT_A_CHOICE)
    return listed(choice.strip("'") for choice in choices.split(", ")) if is_choice else requirement(message)
