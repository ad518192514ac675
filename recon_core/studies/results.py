"""A study run read back: its plan, its numbers, and the pictures its runs still have. Works while it goes on, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from recon_core.analysis.leakage import LeakPanel, leak_scatter
from recon_core.analysis.models import ModelRow, ModelTable, model_row
from recon_core.analysis.studies import (
    CONTROLS,
    AlignedGrid,
    Measure,
    Reconstructed,
    StudyCurve,
    StudyRow,
    StudyTable,
    align,
    curve,
)
from recon_core.analysis.weights import WeightImages, weight_images
from recon_core.attacks.settings import Prior
from recon_core.config import TrainConfig, parse_config
from recon_core.errors import AfterimageError, InputError
from recon_core.matching.protocol import GOOD_SSIM, MatchSettings
from recon_core.runs.reconstruction import ReconstructConfig
from recon_core.store import Run, RunState, RunStore
from recon_core.studies.cells import expand
from recon_core.studies.plan import StudyPlan
from recon_core.studies.record import CellRecord, read_record
from recon_core.studies.study import StudyConfig

T = TypeVar("T")

ALIGNED_IMAGES = 12
"""Images followed through the values, at most."""


@dataclass(frozen=True)
class StudyResults:
    """The results of a study run."""

    run_id: str
    plan: StudyPlan
    state: RunState
    table: StudyTable

    @property
    def panels(self) -> tuple[str, ...]:
        return tuple(panel.label for panel in self.plan.panels)

    @property
    def complete(self) -> bool:
        return all(row.numbers for row in self.table.rows)

    def curve(self, panel: str, measure: Measure, *, shares: bool = False) -> StudyCurve | None:
        return curve(self.table, panel, measure, shares=shares)

    def controls(self, panel: str, *, shares: bool = False) -> tuple[StudyCurve, ...]:
        found = (self.curve(panel, measure, shares=shares) for measure in CONTROLS)
        return tuple(one for one in found if one is not None)

    def sizes_vary(self, *panels: str) -> bool:
        """Whether models were trained on different numbers of images: then shares compare, and counts do not."""
        rows = (row for row in self.table.finished if row.panel in panels)
        return len({row.numbers["of"] for row in rows if row.numbers.get("of")}) > 1

    def rows(self, panel: str, seed: int | None = None) -> tuple[StudyRow, ...]:
        """Finished models of a panel, values before references; of one seed if asked for."""
        found = [row for row in self.table.finished if row.panel == panel and seed in (None, row.seed)]
        return tuple(sorted(found, key=lambda row: row.reference))

    def row(self, cell: str) -> StudyRow:
        """The model of a cell, e.g. of the mark that was clicked."""
        for row in self.table.rows:
            if row.cell == cell:
                return row
        raise InputError(f"study {self.run_id} has no model {cell!r}; choose one of its table")


def study_results(store: RunStore, run_id: str) -> StudyResults:
    """Read a study run, finished or not."""
    run = store.open(run_id)
    if run.kind != "study":
        raise InputError(f"run {run_id} is a {run.kind} run; choose a study")
    plan = parse_config(StudyConfig, run.config).plan
    return StudyResults(run_id, plan, run.status().state, StudyTable(_rows(plan, read_record(run).cells)))


def _rows(plan: StudyPlan, cells: Sequence[CellRecord]) -> tuple[StudyRow, ...]:
    """One for each cell of the plan, in its order, whether or not it was begun."""
    kept = {cell.id: cell for cell in cells}
    positions = {point.label: point.position for point in plan.points}
    rows = []
    for cell in expand(plan):
        record = kept.get(cell.id)
        rows.append(
            StudyRow(
                cell=cell.id,
                panel=cell.panel,
                point=cell.point,
                position=None if cell.reference else positions[cell.point],
                reference=cell.reference,
                seed=cell.seed,
                state="waiting" if record is None else str(record.state),
                message="" if record is None else record.message,
                runs={} if record is None else record.runs,
                numbers={} if record is None else record.numbers,
            )
        )
    return tuple(rows)


# -- pictures: what the runs themselves still have ---------------------------------------------------


@dataclass(frozen=True, eq=False)
class Pictures(Generic[T]):
    """What could be read, and whose runs are gone or cannot be drawn."""

    found: tuple[T, ...]
    missing: tuple[str, ...]


def scatters(store: RunStore, results: StudyResults, panel: str, seed: int | None = None) -> Pictures[LeakPanel]:
    """SSIM against the distance to the margin, one small plot for each value (Buzaglo et al. 2023, Fig. 14)."""
    return _read(results.rows(panel, _seed(results, seed)), lambda row: _leak_panel(store, row))


def aligned(
    store: RunStore, results: StudyResults, panel: str, seed: int | None = None, most: int = ALIGNED_IMAGES
) -> AlignedGrid | None:
    """The same training images across the values; None where no run has images."""
    found = _read(results.rows(panel, _seed(results, seed)), lambda row: _reconstructed(store, row)).found
    return align(found, most, threshold_of(results)) if found else None


def kernels(store: RunStore, results: StudyResults, panel: str) -> Pictures[tuple[str, WeightImages]]:
    """The first layer of each convolutional model as images (Buzaglo et al. 2023, Fig. 16)."""
    return _read(results.rows(panel, _seed(results, None)), lambda row: (row.point, _kernels(store, row)))


def models(store: RunStore, results: StudyResults, panel: str) -> ModelTable:
    """How well each model fits and generalises (Haim et al. 2022, Tables 1 and 2)."""
    rows = _read(results.rows(panel, _seed(results, None)), lambda row: _model_row(store, row)).found
    return ModelTable(rows)


def match_settings(store: RunStore, results: StudyResults) -> MatchSettings | None:
    """How the counts were made, from the first match run that is still there."""
    found = _read(results.table.finished[:20], lambda row: _settings(store.open(row.runs["match"])))
    return found.found[0] if found.found else None


def attack_text(store: RunStore, results: StudyResults) -> str:
    """With what the counts were made: the attack and its version, its prior, the candidates, how they were matched."""
    versions, priors, candidates = set(), set(), set()
    for run_id in sorted({row.runs["attack"] for row in results.table.finished if "attack" in row.runs}):
        try:
            run = store.open(run_id)
            config = parse_config(ReconstructConfig, run.config)
        except AfterimageError:  # deleted since, or written by another version
            continue
        if config.baseline is None:
            settings = config.settings
            version = (run.result() or {}).get("attack_version", "not recorded")
            versions.add(f"{settings.recipe}, version {version}")
            priors.add(str(getattr(settings, "prior", Prior.OFF)))
            candidates.add(settings.m)
    parts = [
        f"attack {' and '.join(sorted(versions))}" if versions else "no attack",
        f"prior {' and '.join(sorted(priors))}" if priors else "",
        f"m = {min(candidates)}" + (f" to {max(candidates)}" if len(candidates) > 1 else "") if candidates else "",
    ]
    by_ssim = any("ssim_kind" in row.numbers for row in results.table.finished)  # points count by their distance
    if by_ssim and (matched := match_settings(store, results)) is not None:
        parts += [f"B = {matched.merge_factor:g}", matched.ssim.window]
    return ", ".join(filter(None, parts))


def threshold_of(results: StudyResults) -> float:
    known = (row.numbers["threshold"] for row in results.table.finished if "threshold" in row.numbers)
    return float(next(known, GOOD_SSIM))


def _seed(results: StudyResults, seed: int | None) -> int:
    return results.plan.seeds[0] if seed is None else seed


def _read(rows: Sequence[StudyRow], read: Callable[[StudyRow], T]) -> Pictures[T]:
    found, missing = [], []
    for row in rows:
        try:
            found.append(read(row))
        except (AfterimageError, KeyError):  # deleted since, or points of the plane
            missing.append(row.point)
    return Pictures(tuple(found), tuple(missing))


def _leak_panel(store: RunStore, row: StudyRow) -> LeakPanel:
    model, match = store.open(row.runs["train"]), store.open(row.runs["match"])
    facts, samples, found = model.result() or {}, model.tensors("samples"), match.tensors("match")
    scatter = leak_scatter(
        found["ssim"],
        samples["outputs"],
        found["labels"],
        samples["on_margin"],
        facts.get("train_error"),
        facts.get("test_error"),
        ids=facts["data"]["train_ids"],
        mean_image=found["mean_image_ssim"],
        untrained=found.get("untrained_ssim"),
    )
    errors = "" if facts.get("test_error") is None else f", test error {facts['test_error']:.0%}"
    name = f"{row.point}: train error {facts['train_error']:.0%}{errors}"
    return LeakPanel(name, tuple(facts["data"]["class_names"]), _settings(match), scatter)


def _reconstructed(store: RunStore, row: StudyRow) -> Reconstructed:
    model, found = store.open(row.runs["train"]), store.open(row.runs["match"]).tensors("match")
    ids = np.asarray((model.result() or {})["data"]["train_ids"], dtype=np.int64)
    return Reconstructed(
        label=row.point,
        ids=ids,
        images=found["images"].numpy(),
        reconstructions=found["reconstructions"].numpy(),
        ssim=found["ssim"].double().numpy(),
        run_id=row.runs["match"],
    )


def _kernels(store: RunStore, row: StudyRow) -> WeightImages:
    model = store.open(row.runs["train"])
    shape = tuple((model.result() or {})["data"]["input_shape"])
    return weight_images(model.tensors("weights")["layers.0.weight"], shape, most=32)


def _model_row(store: RunStore, row: StudyRow) -> ModelRow:
    model = store.open(row.runs["train"])
    decay = parse_config(TrainConfig, model.config).training.weight_decay
    return model_row(row.point, model.result() or {}, row.numbers.get("good"), decay)


def _settings(match: Run) -> MatchSettings:
    return parse_config(MatchSettings, (match.result() or {})["settings"])
