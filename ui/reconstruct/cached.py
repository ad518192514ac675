"""Cached reads of the Reconstruct page, kept until the files they come from change."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor, TimeoutError
from dataclasses import dataclass
from threading import Lock

import plotly.graph_objects as go
import streamlit as st

from recon_core.analysis.frames import Tabular
from recon_core.analysis.search import TrialTable, parameter_importance
from recon_core.errors import AfterimageError
from recon_core.matching.certainty import Certainty
from recon_core.matching.controls import LeakCount
from recon_core.plots.attack import plot_residuals
from recon_core.plots.model import plot_multipliers
from recon_core.plots.search import plot_importance, plot_parallel, plot_trials
from recon_core.plots.sheet import Sheet, sheet
from recon_core.runs.models import MODEL_KINDS, AttackModel, model_of
from recon_core.runs.scoring import PointCount
from recon_core.store import Run, RunStore, default_root
from recon_core.views.live_reconstruction import (
    CandidatePairs,
    Evaluator,
    Picture,
    TileOrder,
    Truth,
    attack_residuals,
    evaluator_of,
    moments,
    newest_picture,
    picture_at,
    picture_version,
    search_trials,
    truth_of,
)
from ui.shared.cached import RunKey, open_run, run_key, run_read, store_read
from ui.shared.store import RunDetails, recent_runs

CHART_SECONDS = 4.0
"""Between two looks of a chart at a run at work."""
COUNT_SECONDS = 2.0
"""Between two counts of a run at work, at least."""
# Seconds a page waits for a count before it goes on without: of a run at work, and of one that is over.
LIVE_PATIENCE, PATIENCE = 0.3, 2.0
_COUNT_SHARE = 5  # and at least this many times as long as a count takes
_COUNTS_KEPT = 64

Count = LeakCount | tuple[PointCount, ...] | str


@run_read(keep=4, shared=True, spinner="Reading the weights …")
def attack_model(run: Run) -> AttackModel:
    """The weights a finished run left."""
    return model_of(run)


def attacked_model(run: RunDetails) -> str | None:
    """Id of the run whose model was attacked; None where it is gone."""
    kinds = {summary.id: summary.kind for summary in recent_runs()}
    return next((parent for parent in run.parents if kinds.get(parent) in MODEL_KINDS), None)


@dataclass(frozen=True)
class PictureKey:
    """One picture of one run; `moment` is a place among `picture_moments`, None for the newest."""

    run: RunKey
    moment: int | None = None


def picture_key(run_id: str, moment: int | None = None) -> PictureKey | None:
    """None before there is a picture."""
    key = run_key(run_id, picture_version)
    return PictureKey(key, moment) if key.version else None


def steady_key(run_id: str, *, active: bool) -> PictureKey | None:
    """The same for a chart, which blinks when it changes: of a run at work it may be some seconds old."""
    version = _steady_version(run_id) if active else picture_version(open_run(run_id))
    return PictureKey(RunKey(str(default_root()), run_id, version)) if version else None


@store_read(keep=32, seconds=CHART_SECONDS)
def _steady_version(store: RunStore, run_id: str) -> str:
    return picture_version(store.open(run_id))


def picture(key: PictureKey) -> Picture | None:
    return _picture.at(key.run, key.moment)


@run_read(keep=8, shared=True)
def _picture(run: Run, moment: int | None) -> Picture | None:
    return newest_picture(run) if moment is None else picture_at(run, moment)


def picture_moments(key: PictureKey) -> tuple[int, ...]:
    return _moments.at(key.run)


@run_read(keep=32)
def _moments(run: Run) -> tuple[int, ...]:
    return moments(run)


@dataclass(frozen=True, eq=False)
class Tiles:
    """The first candidates in some order, as one picture."""

    sheet: Sheet
    rows: tuple[int, ...]
    """Of the run's candidates, in this order."""
    total: int
    step: int | None


def tiles(key: PictureKey, order: TileOrder, most: int) -> Tiles | None:
    return _tiles.at(key.run, key.moment, order, most, _key=key)


@run_read(keep=32, shared=True)
def _tiles(run: Run, moment: int | None, order: TileOrder, most: int, *, _key: PictureKey) -> Tiles | None:
    found = picture(_key)
    if found is None:
        return None
    rows = found.order(order)[:most]
    return Tiles(sheet(found.images(rows)), tuple(rows.tolist()), found.total, found.step)


@dataclass(frozen=True, eq=False)
class TilePairs:
    """The same candidates beside the training images they resemble most."""

    found: CandidatePairs
    images: Sheet
    candidates: Sheet


def tile_pairs(model_id: str, key: PictureKey, order: TileOrder, most: int) -> TilePairs | None:
    """None where there is nothing to compare with."""
    return _tile_pairs.at(key.run, key.moment, order, most, model_id, _key=key)


@run_read(keep=8, shared=True)
def _tile_pairs(
    run: Run, moment: int | None, order: TileOrder, most: int, model_id: str, *, _key: PictureKey
) -> TilePairs | None:
    seen, judge = picture(_key), _evaluator_or_fault(model_id)
    if seen is None or isinstance(judge, str) or not judge.fits(seen):
        return None
    found = judge.pairs(seen, seen.order(order)[:most])
    return TilePairs(found, sheet(found.images), sheet(found.candidates))


@dataclass(frozen=True)
class Chart:
    """A figure drawn once for what it shows, of which `version` is the name."""

    figure: go.Figure
    table: Tabular
    version: str


def residual_chart(run_id: str, *, active: bool) -> Chart | None:
    """None before the first measurement."""
    return _residual_chart(run_id, "" if active else _metrics_version(open_run(run_id)))


@store_read(keep=16, seconds=CHART_SECONDS, shared=True)
def _residual_chart(store: RunStore, run_id: str, version: str) -> Chart | None:
    curves = attack_residuals(store.open(run_id))
    if curves is None:
        return None
    return Chart(plot_residuals(curves), curves, f"{store.root} {run_id} {version or curves.steps[-1]}")


def multiplier_chart(run_id: str, *, active: bool) -> Chart | None:
    """None where multipliers say nothing."""
    key = steady_key(run_id, active=active)
    return None if key is None else _multiplier_chart.at(key.run, _key=key)


@run_read(keep=16, shared=True)
def _multiplier_chart(run: Run, *, _key: PictureKey) -> Chart | None:
    found = picture(_key)
    histogram = None if found is None else found.histogram()
    if histogram is None:
        return None
    return Chart(plot_multipliers(histogram, "the candidates"), histogram, " ".join(_key.run))


@dataclass(frozen=True)
class SearchCharts:
    """What a search has to show; None where it is too early."""

    table: TrialTable
    trials: Chart | None
    parallel: Chart | None
    importance: Chart | None


def _metrics_version(run: Run) -> str:
    """Changes with every measurement, and when a search stores its trials."""
    parts = []
    for name in ("metrics.jsonl", "trials.json"):
        try:
            found = (run.dir / name).stat()
        except FileNotFoundError:
            continue
        parts.append(f"{name} {found.st_ino} {found.st_mtime_ns} {found.st_size}")
    return " ".join(parts)


@run_read(keep=8, shared=True, version=_metrics_version)
def search_charts(run: Run) -> SearchCharts:
    table = search_trials(run)
    version = f"{run.dir} {_metrics_version(run)}"
    mattered = parameter_importance(table)
    return SearchCharts(
        table,
        Chart(plot_trials(table), table, version) if table.complete else None,
        Chart(plot_parallel(table), table, version) if table.complete else None,
        None if mattered is None else Chart(plot_importance(mattered), mattered, version),
    )


def truth(model_id: str) -> Truth:
    return truth_of(open_run(model_id))


@run_read(keep=4, shared=True, spinner="Reading the training samples …")
def evaluator(model_run: Run) -> Evaluator:
    return evaluator_of(model_run)


@dataclass(frozen=True)
class Counted:
    """What was counted in a picture; a sentence where counting was not possible."""

    count: Count
    certainty: Certainty | None
    step: int | None
    examined: int
    """Candidates that were looked at, the first ones of `total`."""
    total: int
    version: str
    due: float


class _Counts:
    """The newest count of each run, computed in the background once for all sessions."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Counted] = {}
        self._under_way: dict[tuple[str, str], Future[Counted]] = {}
        self._lock = Lock()
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="evaluator")

    def of(self, model_id: str, key: PictureKey, *, final: bool) -> Counted | None:
        place = (key.run.root, key.run.run_id)
        with self._lock:
            known = self._known.get(place)
            if known is not None and (known.version == key.run.version or (time.monotonic() < known.due and not final)):
                return known
            counting = self._under_way.get(place)
        if counting is None:
            seen, judge = picture(key), _evaluator_or_fault(model_id)
            if seen is None:
                return known
            with self._lock:
                counting = self._under_way.get(place) or self._worker.submit(_count, judge, seen, key.run.version)
                self._under_way[place] = counting
        try:
            found = counting.result(timeout=PATIENCE if final else LIVE_PATIENCE)
        except TimeoutError:
            return known
        except Exception:
            self._forget(place)  # the next look may find it mended
            raise
        self._forget(place)
        with self._lock:
            self._known[place] = found
            while len(self._known) > _COUNTS_KEPT:
                del self._known[next(iter(self._known))]
        # A count that was started while the run was still running is not final.
        return self.of(model_id, key, final=final) if final and found.version != key.run.version else found

    def _forget(self, place: tuple[str, str]) -> None:
        with self._lock:
            self._under_way.pop(place, None)


def _evaluator_or_fault(model_id: str) -> Evaluator | str:
    """The evaluator that can count, or a sentence why there is none."""
    try:
        return evaluator(model_id)
    except AfterimageError as error:
        return f"The training samples cannot be compared with: {error}."


def _count(evaluator: Evaluator | str, seen: Picture, version: str) -> Counted:
    began = time.monotonic()
    count: Count
    certainty = None
    if isinstance(evaluator, str):
        count = evaluator
    elif not evaluator.fits(seen):
        count = "These are not of the size of a training sample, so there is nothing to compare."
    else:
        try:
            count = evaluator.count(seen)
            certainty = evaluator.certainty(seen)
        except AfterimageError as error:
            count = f"The candidates cannot be compared: {error}."
    now = time.monotonic()
    due = now + max(COUNT_SECONDS, _COUNT_SHARE * (now - began))
    return Counted(count, certainty, seen.step, len(seen.candidates), seen.total, version, due)


@st.cache_resource(max_entries=1, show_spinner=False)
def _counts() -> _Counts:
    return _Counts()


def counted(model_id: str, key: PictureKey, *, final: bool) -> Counted | None:
    """The count, a little old while the run is at work; None while the first is being made."""
    return _counts().of(model_id, key, final=final)
