"""What the Reconstruct page reads, kept as long as the files it comes from do not change."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor, TimeoutError
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import streamlit as st

from recon_core.analysis.residuals import ResidualCurves
from recon_core.analysis.search import ParameterImportance, TrialTable, parameter_importance
from recon_core.errors import AfterimageError
from recon_core.jobs.live_reconstruction import (
    Examiner,
    Picture,
    TileOrder,
    Truth,
    attack_residuals,
    examiner_of,
    moments,
    newest_picture,
    picture_at,
    picture_version,
    search_trials,
    truth_of,
)
from recon_core.jobs.matching import PointCount
from recon_core.jobs.models import MODEL_KINDS, AttackModel, model_of
from recon_core.matching.controls import LeakCount
from recon_core.plots.attack_mosaic import WIDEST, candidate_mosaic
from recon_core.store import Run, RunStore, default_root
from ui.store import RunDetails, recent_runs

CHART_SECONDS = 4.0
"""Between two looks of a chart at a run at work."""
COUNT_SECONDS = 2.0
"""Between two counts of a run at work, at least."""
# Seconds a page waits for a count before it goes on without: of a run at work, and of one that is over.
LIVE_PATIENCE, PATIENCE = 0.3, 2.0
_COUNT_SHARE = 5  # and at least this many times as long as a count takes
_COUNTS_KEPT = 64

Count = LeakCount | tuple[PointCount, ...] | str


def open_run(run_id: str) -> Run:
    return RunStore(default_root()).open(run_id)


def attack_model(run_id: str) -> AttackModel:
    """The weights a finished run left."""
    return _model(str(default_root()), run_id, open_run(run_id).content_version())


@st.cache_resource(max_entries=4, show_spinner="Reading the weights …")
def _model(root: str, run_id: str, version: str) -> AttackModel:
    return model_of(RunStore(Path(root)).open(run_id))


def attacked_model(run: RunDetails) -> str | None:
    """Id of the run whose model was attacked; None where it is gone."""
    kinds = {summary.id: summary.kind for summary in recent_runs()}
    return next((parent for parent in run.parents if kinds.get(parent) in MODEL_KINDS), None)


@dataclass(frozen=True)
class PictureKey:
    """One picture of one run; `moment` is a place among `picture_moments`, None for the newest."""

    root: str
    run_id: str
    version: str
    moment: int | None = None


def picture_key(run_id: str, moment: int | None = None) -> PictureKey | None:
    """None before there is a picture."""
    version = picture_version(open_run(run_id))
    return PictureKey(str(default_root()), run_id, version, moment) if version else None


def steady_key(run_id: str, *, active: bool) -> PictureKey | None:
    """The same for a chart, which blinks when it changes: of a run at work it may be some seconds old."""
    stamp = "" if active else picture_version(open_run(run_id))
    return _steady_key(str(default_root()), run_id, stamp)


@st.cache_data(ttl=CHART_SECONDS, max_entries=32, show_spinner=False)
def _steady_key(root: str, run_id: str, stamp: str) -> PictureKey | None:
    version = stamp or picture_version(RunStore(Path(root)).open(run_id))
    return PictureKey(root, run_id, version) if version else None


def picture(key: PictureKey) -> Picture | None:
    return _picture(key.root, key.run_id, key.version, key.moment)


@st.cache_resource(max_entries=8, show_spinner=False)
def _picture(root: str, run_id: str, version: str, moment: int | None) -> Picture | None:
    run = RunStore(Path(root)).open(run_id)
    return newest_picture(run) if moment is None else picture_at(run, moment)


def picture_moments(key: PictureKey) -> tuple[int, ...]:
    return _moments(key.root, key.run_id, key.version)


@st.cache_data(max_entries=32, show_spinner=False)
def _moments(root: str, run_id: str, version: str) -> tuple[int, ...]:
    return moments(RunStore(Path(root)).open(run_id))


@dataclass(frozen=True)
class Mosaic:
    """The first candidates in some order, as one PNG."""

    png: bytes
    shown: int
    total: int
    step: int | None


def mosaic(key: PictureKey, order: TileOrder, most: int, columns: int, widest: int = WIDEST) -> Mosaic | None:
    return _mosaic(key.root, key.run_id, key.version, key.moment, order, most, columns, widest)


@st.cache_data(max_entries=32, show_spinner=False)
def _mosaic(
    root: str, run_id: str, version: str, moment: int | None, order: TileOrder, most: int, columns: int, widest: int
) -> Mosaic | None:
    found = _picture(root, run_id, version, moment)
    if found is None:
        return None
    rows = found.order(order)[:most]
    return Mosaic(candidate_mosaic(found.images(rows), columns, widest), len(rows), found.total, found.step)


def residuals(run_id: str, *, active: bool) -> ResidualCurves | None:
    """For a chart, so of a run at work some seconds old."""
    stamp = "" if active else _metrics_version(run_id)
    return _residuals(str(default_root()), run_id, stamp)


@st.cache_data(ttl=CHART_SECONDS, max_entries=32, show_spinner=False)
def _residuals(root: str, run_id: str, stamp: str) -> ResidualCurves | None:
    del stamp  # part of the key
    return attack_residuals(RunStore(Path(root)).open(run_id))


def trials(run_id: str) -> TrialTable:
    return _trials(str(default_root()), run_id, _metrics_version(run_id))


@st.cache_data(max_entries=8, show_spinner=False)
def _trials(root: str, run_id: str, version: str) -> TrialTable:
    return search_trials(RunStore(Path(root)).open(run_id))


def importance(run_id: str) -> ParameterImportance | None:
    return _importance(str(default_root()), run_id, _metrics_version(run_id))


@st.cache_data(max_entries=8, show_spinner=False)
def _importance(root: str, run_id: str, version: str) -> ParameterImportance | None:
    return parameter_importance(search_trials(RunStore(Path(root)).open(run_id)))


def _metrics_version(run_id: str) -> str:
    """Changes with every measurement, and when a search stores its trials."""
    parts = []
    for name in ("metrics.jsonl", "trials.json"):
        try:
            found = (open_run(run_id).dir / name).stat()
        except FileNotFoundError:
            continue
        parts.append(f"{name} {found.st_ino} {found.st_mtime_ns} {found.st_size}")
    return " ".join(parts)


def truth(model_id: str) -> Truth:
    return truth_of(open_run(model_id))


def examiner(model_id: str) -> Examiner:
    return _examiner(str(default_root()), model_id, open_run(model_id).content_version())


@st.cache_resource(max_entries=4, show_spinner="Reading the training samples …")
def _examiner(root: str, model_id: str, version: str) -> Examiner:
    return examiner_of(RunStore(Path(root)).open(model_id))


@dataclass(frozen=True)
class Counted:
    """What the examiner found in a picture; a sentence where counting was not possible."""

    count: Count
    step: int | None
    examined: int
    """Candidates that were looked at, the first ones of `total`."""
    total: int
    version: str
    due: float


class _Counts:
    """The newest count of each run, made beside the page, in a part of the time however many sessions look on."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Counted] = {}
        self._under_way: dict[tuple[str, str], Future[Counted]] = {}
        self._lock = Lock()
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="examiner")

    def of(self, model_id: str, key: PictureKey, *, final: bool) -> Counted | None:
        place = (key.root, key.run_id)
        with self._lock:
            known = self._known.get(place)
            if known is not None and (known.version == key.version or (time.monotonic() < known.due and not final)):
                return known
            counting = self._under_way.get(place)
        if counting is None:
            seen, judge = picture(key), _judge(model_id)
            if seen is None:
                return known
            with self._lock:
                counting = self._under_way.get(place) or self._worker.submit(_count, judge, seen, key.version)
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
        # A count begun while the run was still at work is not the last word.
        return self.of(model_id, key, final=final) if final and found.version != key.version else found

    def _forget(self, place: tuple[str, str]) -> None:
        with self._lock:
            self._under_way.pop(place, None)


def _judge(model_id: str) -> Examiner | str:
    """Whoever can count, or why nobody can."""
    try:
        return examiner(model_id)
    except AfterimageError as error:
        return f"The training samples cannot be compared with: {error}."


def _count(judge: Examiner | str, seen: Picture, version: str) -> Counted:
    began = time.monotonic()
    count: Count
    if isinstance(judge, str):
        count = judge
    elif not judge.fits(seen):
        count = "These are not of the size of a training sample, so there is nothing to compare."
    else:
        try:
            count = judge.count(seen)
        except AfterimageError as error:
            count = f"The candidates cannot be compared: {error}."
    now = time.monotonic()
    due = now + max(COUNT_SECONDS, _COUNT_SHARE * (now - began))
    return Counted(count, seen.step, len(seen.candidates), seen.total, version, due)


@st.cache_resource(max_entries=1, show_spinner=False)
def _counts() -> _Counts:
    return _Counts()


def counted(model_id: str, key: PictureKey, *, final: bool) -> Counted | None:
    """The examiner's count, a little old while the run is at work; None while the first is being made."""
    return _counts().of(model_id, key, final=final)
