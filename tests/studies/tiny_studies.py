"""Studies small enough for a test: networks of 50 neurons on 10 images, done in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from recon_core.config import parse_config
from recon_core.kinds import perform
from recon_core.runs import StopFlag
from recon_core.scheduling import Ended
from recon_core.store import Run
from recon_core.studies.plan import StudyPlan
from recon_core.studies.study import perform_study

BASE = {
    "data.n": 10,
    "data.test_n": 20,
    "model.widths": [50, 50],
    "model.init_scale": "kaiming",
    "attack.recipe": "fast",
    "attack.iterations": 30,
}
FLOW = {"training.recipe": "flow", "training.target_log_loss": -10.0}


def tiny_plan(**changes: Any) -> StudyPlan:
    """Weight decay: none and one value, a reference, one seed."""
    values = {
        "name": "tiny",
        "title": "A tiny study",
        "axis": "weight decay λ",
        "scale": "log",
        "base": BASE,
        "points": [
            {"label": "none", "settings": FLOW},
            {"label": "0.001", "position": 1e-3, "settings": {"training.weight_decay": 1e-3, "training.epochs": 20}},
        ],
        "references": [{"label": "small start", "settings": {**FLOW, "model.init_scale": 1e-3}}],
    }
    return parse_config(StudyPlan, {**values, **changes})


class InlineExecutor:
    """One place, in this very process; `performed` says what was worked on, `after` is called after each run."""

    def __init__(self, after: Callable[[Run], None] = lambda run: None) -> None:
        self.performed: list[str] = []
        self.closed = False
        self._after = after
        self._waiting: Run | None = None

    def free(self) -> int:
        return int(self._waiting is None)

    def submit(self, run: Run) -> None:
        assert self._waiting is None
        self._waiting = run

    def wait(self, seconds: float) -> list[Ended]:
        run, self._waiting = self._waiting, None
        if run is None:
            return []
        trouble = None
        try:
            perform(run, StopFlag())
        except Exception as error:  # as a worker does
            trouble = str(error)
        self.performed.append(run.id)
        self._after(run)
        return [Ended(run.id, trouble)]

    def close(self) -> None:
        self.closed = True


def do_study(run: Run, executor: InlineExecutor | None = None, stop: StopFlag | None = None) -> InlineExecutor:
    """Do a study run in this process."""
    used = executor or InlineExecutor()
    with run.writer() as writer:
        perform_study(run, writer, stop or StopFlag(), lambda *told: None, None, lambda *asked: used)
    return used
