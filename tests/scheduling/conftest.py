"""Runs that tests hold where they want them."""

from __future__ import annotations

from tests.gates import gates  # noqa: F401
