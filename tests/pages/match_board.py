"""What the board of the Match page was sent, counted as its script counts it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from streamlit.testing.v1 import AppTest


def board(app: AppTest) -> dict[str, Any] | None:
    """None where the page shows none."""
    for element in app.get("bidi_component"):
        if element.proto.component_name == "afterimage_match_board":
            sent: dict[str, Any] = json.loads(element.proto.json)
            return sent
    return None


def board_counts(app: AppTest) -> dict[str, str]:
    """By label, at the threshold of the slider; empty without a board."""
    sent = board(app)
    if sent is None:
        return {}
    threshold = float(np.float32(sent["threshold"]))
    scores = {**sent["scores"], "good": sent["scores"]["ssim"]}

    def said(name: str) -> str:
        if name == "auc":
            return str(sent["texts"][name]["value"])
        found = scores[name]
        return "not run" if found is None else f"{sum((s or 0) > threshold for s in found)} of {len(found)}"

    return {text["label"]: said(name) for name, text in sent["texts"].items()}
