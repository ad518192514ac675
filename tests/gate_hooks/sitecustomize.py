"""Imported by every Python that has this folder on its path, before anything else: sets up the gates of a test."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))

if os.environ.get("AFTERIMAGE_TEST_GATES"):
    import held

    held.patch_when_imported()

# This file hides the one of the machine, which is to have its turn all the same.
_others = [path for path in sys.path if os.path.abspath(path) != _HERE]
_spec = importlib.machinery.PathFinder.find_spec("sitecustomize", _others)
if _spec is not None and _spec.loader is not None:
    _spec.loader.exec_module(importlib.util.module_from_spec(_spec))
