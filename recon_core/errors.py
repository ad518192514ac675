"""The two ways something can go wrong that a user should read as a sentence."""

from __future__ import annotations


class AfterimageError(Exception):
    """Something the user should be told about, in one sentence."""


class InputError(AfterimageError):
    """The request itself cannot be met: the message names the value and the fix. Exit code 2."""
