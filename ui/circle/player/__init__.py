"""The circle's player: the data it is sent, and the canvas that plays them in the browser without the server."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st
from numpy.typing import NDArray

from recon_core.views.circle_frames import CandidateFrames, FieldFrames, Points, TrainingPoints

if TYPE_CHECKING:
    from streamlit.components.v2.types import ComponentRenderer

_FOLDER = Path(__file__).parent
_STILL_REACH = 1.6


class Mode(StrEnum):
    """A still picture; the newest frame of a running run; a recording to play."""

    STILL = "still"
    LIVE = "live"
    RECORDING = "recording"


@dataclass(frozen=True)
class Stage:
    """A step of the story: `word` goes on its button, `title` and `note` below the picture."""

    key: str
    word: str
    title: str
    note: str


@dataclass(frozen=True, eq=False)
class Overlay:
    """Further points: those of model inversion (with labels) or of the first layer's weights."""

    kind: str
    words: str
    points: Points
    labels: Sequence[int] = ()


@dataclass(frozen=True, eq=False)
class Scene:
    """All that the player shows. `filtered` and `kept` are over the candidates, `found` over the training points."""

    id: str
    slot: str
    mode: Mode
    label: str
    truth: TrainingPoints
    fields: FieldFrames | None = None
    candidates: CandidateFrames | None = None
    filtered: NDArray[np.bool_] | None = None
    kept: NDArray[np.bool_] | None = None
    found: NDArray[np.bool_] | None = None
    found_radius: float = 0.1
    stages: Sequence[Stage] = ()
    overlays: Sequence[Overlay] = ()
    neurons: Points | None = None
    """(k, 4): lines of the first layer's neurons, see `recon_core.views.circle_recording.neuron_lines`."""
    beside: bool = False
    """Whether it shares the screen with another one."""
    lecture: bool = False
    """Whether it has the whole screen, large type, and the keys of the whole page."""
    autoplay: bool = False
    """Whether a recording starts by itself, from its beginning, where this window has not played it yet."""


def show_player(scene: Scene, *, key: str) -> None:
    """Draw it. The same `key` is the same canvas: a rerun neither restarts nor moves what is played."""
    _player()(key=key, data=described(scene))


def described(scene: Scene) -> dict[str, Any]:
    """The scene as the browser gets it: numbers in base64, bytes for fields and float32 for points."""
    fields, candidates = scene.fields, scene.candidates
    m = 0 if candidates is None else len(candidates.labels)
    newest = candidates or fields
    return {
        "id": scene.id,
        "slot": scene.slot,
        "mode": scene.mode,
        "label": scene.label,
        "beside": scene.beside,
        "autoplay": scene.autoplay,
        "lecture": scene.lecture,
        "reach": _STILL_REACH if fields is None else fields.reach,
        "points": _encoded(scene.truth.points, np.float32),
        "labels": scene.truth.labels.tolist(),
        "side": 0 if fields is None else fields.fields.shape[-1],
        "fields": None if fields is None else _encoded(fields.fields, np.uint8),
        "field_steps": [] if fields is None else fields.steps.tolist(),
        "candidates": None if candidates is None else _encoded(candidates.points, np.float32),
        "candidate_labels": [] if candidates is None else candidates.labels.tolist(),
        "candidate_steps": [] if candidates is None else candidates.steps.tolist(),
        "filtered": _bits(scene.filtered, m),
        "kept": _bits(scene.kept, m),
        "found": None if scene.found is None else scene.found.astype(int).tolist(),
        "radius": scene.found_radius,
        "step": None if newest is None else int(newest.steps[-1]),
        "stages": [
            {"key": stage.key, "word": stage.word, "title": stage.title, "note": stage.note} for stage in scene.stages
        ],
        "overlays": [
            {"kind": one.kind, "points": _encoded(one.points, np.float32), "labels": list(one.labels)}
            for one in scene.overlays
        ],
        "neurons": None if scene.neurons is None else _encoded(scene.neurons, np.float32),
        "legend": _legend(scene),
    }


def _legend(scene: Scene) -> list[tuple[str, str]]:
    legend = [("times", "training points, class −"), ("plus", "class +")]
    if scene.candidates is not None:
        legend += [("disc", "candidates, class −"), ("diamond", "class + (hollow: further out)")]
    legend += [(one.kind, one.words) for one in scene.overlays]
    if scene.neurons is not None:
        legend.append(("neuron", f"the {len(scene.neurons)} neurons that act most: off on one side of their line"))
    if scene.found is not None:
        legend.append(("ring", f"found within {scene.found_radius:g}"))
    return legend


def _bits(mask: NDArray[np.bool_] | None, count: int) -> list[int]:
    return [1] * count if mask is None else mask.astype(int).tolist()


def _encoded(array: NDArray[Any], kind: type[np.generic]) -> str:
    little = np.dtype(kind).newbyteorder("<")
    return base64.b64encode(np.ascontiguousarray(array, dtype=little).tobytes()).decode()


# Registered when first drawn, once for a process.
@cache
def _player() -> ComponentRenderer:
    html, css, js = ((_FOLDER / f"player.{kind}").read_text(encoding="utf-8") for kind in ("html", "css", "js"))
    return st.components.v2.component("afterimage_circle", html=html, css=css, js=js)
