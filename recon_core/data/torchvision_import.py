"""The one place torchvision is imported through."""

from __future__ import annotations

import importlib
from types import ModuleType

import torch

_MISSING_OPERATORS = ("nms", "qnms")


def import_torchvision(module: str = "torchvision") -> ModuleType:
    """`module`, e.g. torchvision.datasets, also where torchvision was built for CUDA and torch was not.

    Such a pair fails on import with "operator torchvision::nms does not exist". Declaring the two
    operators, which nothing here calls, lets datasets, transforms and utils load. Where the plain
    import works nothing is declared.
    """
    try:
        return importlib.import_module(module)
    except RuntimeError as error:
        if "operator torchvision::" not in str(error):
            raise
    for operator in _MISSING_OPERATORS:
        torch.library.define(f"torchvision::{operator}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return importlib.import_module(module)
