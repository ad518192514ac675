"""The numbers of a training run as sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence

from recon_core.analysis.training import LayerReading

UNKNOWN = "–"


def percent(share: float | None) -> str:
    """'96%'; with a decimal below 1% and above 99%, where a whole number would read as none or all."""
    if share is None or math.isnan(share):
        return UNKNOWN
    nearly = 0 < share < 0.01 or 0.99 < share < 1
    text = f"{share:.1%}" if nearly else f"{share:.0%}"
    return text.replace("100.0%", "over 99.9%").replace("0.0%", "under 0.1%") if nearly else text


def layers_sentence(readings: Sequence[LayerReading]) -> str:
    """'96% of layer 1, 26% of layer 2 and 99.8% of layer 3 are explained by the training samples.'"""
    if not readings:
        return ""
    parts = [f"{percent(reading.explained)} of layer {reading.layer}" for reading in readings]
    listed = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    return f"{listed} {'is' if len(parts) == 1 else 'are'} explained by the training samples."


def margin_sentence(on_margin: int, n: int, share: float | None) -> str:
    """'42 of 50 samples are on the margin and carry 98% of the multipliers.'"""
    carried = "" if share is None else f" and carry {percent(share)} of the multipliers"
    return f"{on_margin} of {n} samples are on the margin{carried}."
