"""Afterimage: train a classifier to its margin, then draw its training images back out of its weights.

    import recon_core as rc
    data  = rc.load_data("cifar10", n=50)
    model = rc.train(data)
    found = rc.reconstruct(model)
    score = rc.match(found, data)
    score.plot()

Names are loaded when they are first used, so importing the package is instant.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from recon_core.version import __version__

if TYPE_CHECKING:
    from recon_core import attacks, errors, plots
    from recon_core.library import (
        Audit,
        Data,
        Reconstruction,
        Score,
        TrainedModel,
        audit,
        load_data,
        match,
        reconstruct,
        train,
    )

__all__ = [
    "Audit",
    "Data",
    "Reconstruction",
    "Score",
    "TrainedModel",
    "__version__",
    "attacks",
    "audit",
    "errors",
    "load_data",
    "match",
    "plots",
    "reconstruct",
    "train",
]

_MODULES = ("attacks", "errors", "plots")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"recon_core.{name}")
    if name in __all__:
        return getattr(importlib.import_module("recon_core.library"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
