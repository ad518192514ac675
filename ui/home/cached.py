"""Cached reads of an experiment's page, kept until the files they come from change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import streamlit as st

from recon_core.config import TrainConfig, parse_config
from recon_core.plots.sheet import Sheet, sheet
from recon_core.store import Run, layout
from recon_core.views.live_pairs import LivePairs, live_pairs, training_images
from recon_core.views.live_reconstruction import (
    CandidatePairs,
    Evaluator,
    TileOrder,
    evaluator_of,
    newest_picture,
    picture_version,
)
from ui.shared.cached import run_key, run_read

PAIRS = 20
CANDIDATES = 100


@dataclass(frozen=True, eq=False)
class Drawn:
    """One picture of an attack, drawn."""

    version: str
    found: LivePairs
    reconstructions: Sheet
    candidates: Sheet
    total: int
    """Candidates there are; the sheet holds the first of them."""
    by_confidence: bool
    """Whether the first are those the attack is surest of, or those that come first in it."""
    alone: CandidatePairs | None
    """The candidates of the sheet, each beside the training image it resembles most; once the attack has ended."""
    alone_sheet: Sheet | None


@dataclass(frozen=True, eq=False)
class Originals:
    """The training images as one picture, and the name of each one's class."""

    sheet: Sheet
    classes: tuple[str, ...]


def originals(config: dict[str, Any]) -> Originals:
    return _originals(parse_config(TrainConfig, config).model_dump_json())


@st.cache_resource(max_entries=4, show_spinner=False)
def _originals(config: str) -> Originals:
    found = training_images(TrainConfig.model_validate_json(config))
    return Originals(sheet(found.images), found.classes)


def _metrics_version(run: Run) -> str:
    try:
        found = (run.dir / layout.METRICS).stat()
    except FileNotFoundError:
        return ""
    return f"{found.st_ino} {found.st_mtime_ns} {found.st_size}"


@run_read(keep=8, version=_metrics_version)
def margins(train: Run) -> list[dict[str, Any]]:
    """All measurements of a training run so far."""
    return train.metrics()


def drawn(train_id: str, attack_id: str) -> Drawn | None:
    """The newest picture of an attack, matched and drawn; None before there is one."""
    key = run_key(attack_id, picture_version)
    return _drawn.at(key, train_id, key.version) if key.version else None


# Twenty open tabs cost as much as one: a picture is matched once.
@run_read(keep=8, shared=True)
def _drawn(attack: Run, train_id: str, version: str) -> Drawn | None:
    seen = newest_picture(attack)
    evaluator = _evaluator(train_id)
    if seen is None or not evaluator.fits(seen):
        return None
    found = live_pairs(evaluator, seen, PAIRS)
    rows = seen.order(TileOrder.CONFIDENCE)[:CANDIDATES]
    shown = sheet(seen.images(rows))
    alone = evaluator.pairs(seen, rows) if seen.step is None else None
    return Drawn(
        version,
        found,
        sheet(found.pairs.reconstructions),
        shown,
        seen.total,
        seen.confidence is not None,
        alone,
        None if alone is None else sheet(alone.candidates),
    )


@run_read(keep=4, shared=True)
def _evaluator(train: Run) -> Evaluator:
    return evaluator_of(train)
