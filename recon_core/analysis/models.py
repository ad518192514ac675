"""The papers' tables of models: how well each fits and how well it generalises."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from recon_core.errors import InputError
from recon_core.units import log10_loss


@dataclass(frozen=True)
class ModelRow:
    """One model; rates in [0, 1], None where there was no test set."""

    name: str
    architecture: str
    n: int
    log10_train_loss: float
    train_error: float
    test_accuracy: float | None
    test_loss: float | None
    reconstructed: int | None = None
    """Good reconstructions, where a match run counted them."""
    chance: int | None = None
    """The chance level of that count."""
    merge_factor: float | None = None
    """B of the match run, like `ssim`, the kind it scored with."""
    ssim: str | None = None
    weight_decay: float | None = None
    margin: float | None = None
    """The smallest of all samples'."""
    kkt_layer1: float | None = None
    """Share of layer 1 that samples on the margin do not explain, 0 to 1; like `kkt`, of all layers."""
    kkt: float | None = None


@dataclass(frozen=True)
class ModelTable:
    """Haim et al. 2022, Tables 1 and 2."""

    rows: tuple[ModelRow, ...]

    def to_frame(self) -> pd.DataFrame:
        return pd.DataFrame([vars(row) for row in self.rows])


def model_row(
    name: str, result: Mapping[str, Any], reconstructed: int | None = None, weight_decay: float | None = None
) -> ModelRow:
    """From the result of a training run; the decay stands in its config."""
    missing = [key for key in ("n", "log_loss", "train_error") if result.get(key) is None]
    if missing:
        raise InputError(f"the result of {name} does not hold {', '.join(missing)}; it is not a finished training run")
    shape = result.get("architecture", {})
    test_error = result.get("test_error")
    return ModelRow(
        name=name,
        architecture=architecture_text(shape) if shape else "",
        n=int(result["n"]),
        log10_train_loss=log10_loss(float(result["log_loss"])),
        train_error=float(result["train_error"]),
        test_accuracy=None if test_error is None else 1.0 - float(test_error),
        test_loss=_number(result.get("test_loss")),
        reconstructed=reconstructed,
        weight_decay=weight_decay,
        margin=_number(result.get("margin_min")),
        kkt_layer1=_number(result.get("kkt_layer1")),
        kkt=_number(result.get("kkt")),
    )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def architecture_text(shape: Mapping[str, Any]) -> str:
    """As the papers write it, 3072-1000-1000-1."""
    conv = f"CONV({shape['conv_kernel']},{shape['conv_channels']})-" if shape.get("conv_kernel") else ""
    for stage in shape.get("stages", ()):
        if stage["kind"] != "activation":
            sizes = [stage["kernel"][0], *([stage["channels"]] if stage["kind"] == "conv" else [])]
            conv += f"{stage['kind'].upper()}({','.join(map(str, sizes))})-"
    start = "" if conv else f"{math.prod(shape['input_shape'])}-"
    return f"{start}{conv}{'-'.join(map(str, shape['widths']))}-{shape['outputs']}"
