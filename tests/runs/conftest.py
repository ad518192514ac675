"""Runs of all kinds, held where a test wants them."""

from __future__ import annotations

from tests.gates import gates  # noqa: F401
