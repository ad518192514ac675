"""Listeners that follow the progress of a run, e.g. a progress bar."""

from __future__ import annotations

from collections.abc import Callable

Listener = Callable[[float | None, str], None]
"""Called with the fraction done, None where it cannot be known, and a message."""


def ignore(fraction: float | None, message: str) -> None:
    """A listener that does nothing."""
