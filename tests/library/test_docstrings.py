"""Examples in docstrings run, and every public function has one."""

from __future__ import annotations

import doctest
import importlib

import pytest

import recon_core as rc

MODULES = ["recon_core.library.data", "recon_core.library.training", "recon_core.library.reconstruction"]
MODULES += ["recon_core.library.scoring", "recon_core.units"]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str) -> None:
    ran = doctest.testmod(importlib.import_module(name))
    assert ran.attempted > 0
    assert ran.failed == 0


@pytest.mark.parametrize("function", [rc.load_data, rc.train, rc.reconstruct, rc.match])
def test_every_call_has_an_example(function: object) -> None:
    assert ">>> " in (function.__doc__ or "")
