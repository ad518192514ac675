"""The duration of a study on this machine, from estimates for each of its runs."""

from __future__ import annotations

from dataclasses import dataclass

from recon_core.runs.reconstruction import Baseline
from recon_core.scheduling.estimates import Estimator
from recon_core.scheduling.local import local_places
from recon_core.store import RunStore
from recon_core.studies.cells import Cell, expand
from recon_core.studies.plan import StudyPlan


@dataclass(frozen=True)
class StudyCost:
    """`seconds` with all places at work; None where nobody can know, e.g. on a GPU."""

    models: int
    seconds: float | None
    places: int

    @property
    def text(self) -> str:
        return "unknown" if self.seconds is None else duration_text(self.seconds)


def study_cost(plan: StudyPlan, estimator: Estimator, workers: int | None = None) -> StudyCost:
    """As if nothing of it were in the store. `estimator` is one for runs of a single thread."""
    cells, places = expand(plan), len(local_places(workers))
    seconds: list[float | None] = []
    untrained: set[tuple[object, ...]] = set()
    for cell in cells:
        seconds += _cell_seconds(cell, estimator)
        if plan.untrained_control and cell.baseline is None and cell.untrained_shape not in untrained:
            untrained.add(cell.untrained_shape)
            seconds.append(estimator.reconstruction(cell.training, cell.attack))
    known = [one for one in seconds if one is not None]
    total = None if len(known) < len(seconds) else sum(known) / min(places, len(cells))
    return StudyCost(len(cells), total, places)


def single_thread_estimator(store: RunStore) -> Estimator:
    """For runs as a study does them."""
    return Estimator(store, threads=1)


def _cell_seconds(cell: Cell, estimator: Estimator) -> list[float | None]:
    match cell.baseline:
        case None:
            candidates, attack = cell.attack.m * cell.attack.seeds, estimator.reconstruction(cell.training, cell.attack)
        case Baseline.INVERSION:
            candidates, attack = cell.attack.m, estimator.inversion(cell.training, cell.attack)
        case _:  # written down as they are
            candidates, attack = cell.architecture.widths[0], 0.0
    return [estimator.training(cell.training), attack, estimator.matching(cell.training, candidates)]


def duration_text(seconds: float) -> str:
    """A duration in words: 40 s, 12 min, 3.5 h, 4 days."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{round(seconds / 86400)} days"
