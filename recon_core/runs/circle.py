"""The circle of Haim et al. 2022, Fig. 2, as one experiment: its few settings, and its runs in the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import Field, field_validator

from recon_core.config import Frozen, PlanarLabels, TrainConfig, parse_config
from recon_core.errors import InputError
from recon_core.presets import Size, find_preset
from recon_core.runs.chains import attack_requests, create_attack_chain, create_attacks, planned_model
from recon_core.runs.reconstruction import Baseline, ReconstructConfig
from recon_core.store import Run, RunState, RunStore, RunSummary

BASELINES = (Baseline.INVERSION, Baseline.UNTRAINED)
"""What a circle is compared with; the third comparison, the first layer's weights, needs no run."""

_ACTIVE = (RunState.QUEUED, RunState.RUNNING)


class CircleSettings(Frozen):
    """The settings of the circle that can be changed; all others are those of the preset."""

    n: int = Field(20, ge=2, le=100, description="training points")
    labels: PlanarLabels = PlanarLabels.ALTERNATING
    width: int = Field(1000, ge=1, le=4000, description="neurons in each of the two hidden layers")
    weight_decay: float = Field(0.0, ge=0.0)
    seed: int = Field(0, ge=0, description="of random labels, of the network's start and of the candidates'")

    @field_validator("n")
    @classmethod
    def _even(cls, n: int) -> int:
        if n % 2:
            raise ValueError(f"n must be even, half the points for each class, got {n}; try {n + 1}")
        return n

    def training(self) -> TrainConfig:
        values = find_preset("circle").values(Size.QUICK)
        values["data"] |= {"n": self.n, "labels": self.labels, "seed": self.seed}
        values["model"] |= {"widths": (self.width, self.width), "seed": self.seed}
        if self.weight_decay > 0:
            # With weight decay the network forgets its start, and from a tiny one it would never leave the origin.
            values["model"]["init_scale"] = "kaiming"
            values["training"] = {"weight_decay": self.weight_decay}
        return parse_config(TrainConfig, values)

    def attacks(self) -> list[ReconstructConfig]:
        """The attack and its baselines, on a model yet to be named."""
        return attack_requests(planned_model(self.training()), self._attack(), BASELINES)

    def _attack(self) -> dict[str, Any]:
        return {"seed": self.seed}

    def queue(self, store: RunStore, trained: Run | None = None) -> list[Run]:
        """The runs of this circle, queued, in order; of one that is `trained` already, the attack's."""
        if trained is not None:
            return create_attacks(store, trained, self.attacks())
        chain = create_attack_chain(
            store, self.training(), name=self.title(), attack=self._attack(), baselines=BASELINES, match=False
        )
        return list(chain.runs)

    def title(self) -> str:
        decay = f", decay {self.weight_decay:g}" if self.weight_decay else ""
        seed = f", seed {self.seed}" if self.seed else ""
        return f"circle, {self.n} {self.labels} points, width {self.width}{decay}{seed}"


@dataclass(frozen=True)
class CircleRuns:
    """One try at a circle: its training, and what was started on it, each None if it was not."""

    train: RunSummary
    attack: RunSummary | None
    inversion: RunSummary | None
    untrained: RunSummary | None

    @property
    def done(self) -> bool:
        return self.attack is not None and self.attack.status.state is RunState.DONE

    @property
    def stopped(self) -> RunSummary | None:
        """The run that ended before there was a reconstruction, and on which the others wait."""
        for run in (self.train, self.attack):
            if run is not None and run.status.state not in (*_ACTIVE, RunState.DONE):
                return run
        return None

    @property
    def active(self) -> bool:
        """Whether more will come by itself."""
        if self.stopped is not None:
            return False
        return any(run is not None and run.status.state in _ACTIVE for run in self._all)

    @property
    def current(self) -> RunSummary:
        """The run that is being worked on, or that comes next, or the last."""
        for run in self._all:
            if run is not None and run.status.state is not RunState.DONE:
                return run
        return self.attack or self.train

    @property
    def _all(self) -> tuple[RunSummary | None, ...]:
        return (self.train, self.attack, self.inversion, self.untrained)


def find_circle(store: RunStore, settings: CircleSettings, train_id: str | None = None) -> CircleRuns | None:
    """The try with training run `train_id`; else a finished one, else one that is going on, else the newest."""
    wanted = settings.training().model_dump(mode="json")
    asked = settings.attacks()
    listed = store.list()
    tries = []
    for train in listed:
        if train.kind == "train" and _config(store, train.id) == wanted:
            children = [run for run in listed if run.kind == "reconstruct" and train.id in run.parents]
            tries.append(CircleRuns(train, *(_furthest(store, children, request) for request in asked)))
    named = [found for found in tries if found.train.id == train_id]
    finished = [found for found in tries if found.done]
    going_on = [found for found in tries if found.active]
    return next(iter(named or finished or going_on or tries), None)


def _furthest(store: RunStore, children: list[RunSummary], request: ReconstructConfig) -> RunSummary | None:
    """The newest run of this request, a finished one if there is any."""
    alike = []
    for run in children:
        config = _config(store, run.id)
        if config is not None and {**config, "model": request.model} == request.model_dump(mode="json"):
            alike.append(run)
    done = [run for run in alike if run.status.state is RunState.DONE]
    return next(iter(done or alike), None)


def _config(store: RunStore, run_id: str) -> dict[str, Any] | None:
    """None if it cannot be read: deleted meanwhile, or damaged."""
    try:
        return store.open(run_id).config
    except InputError:
        return None
