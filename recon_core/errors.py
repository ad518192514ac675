"""The two kinds of errors whose message is one sentence for the user."""

from __future__ import annotations

__all__ = ["AfterimageError", "InputError"]


def __dir__() -> list[str]:
    return sorted(__all__)


class AfterimageError(Exception):
    """An error whose message is one sentence for the user."""


class InputError(AfterimageError):
    """The request itself cannot be met: the message names the value and the fix. Exit code 2."""
