"""Find an experiment that was done before: a chain of runs in the store with the same settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from recon_core.attacks.registry import find_attack
from recon_core.config import TrainConfig
from recon_core.errors import InputError
from recon_core.runs.chains import attack_requests, planned_model
from recon_core.runs.match_source import MatchConfig
from recon_core.runs.reconstruction import ReconstructConfig, attack_version
from recon_core.store import RunState, RunStore, RunSummary

_ACTIVE = (RunState.QUEUED, RunState.RUNNING)


@dataclass(frozen=True)
class FoundChain:
    """Training, attack and the match run that goes by the chain's name."""

    train: RunSummary
    attack: RunSummary
    match: RunSummary

    @property
    def done(self) -> bool:
        """Whether it has a result; its controls may still be at work."""
        return self.attack.status.state is RunState.DONE

    @property
    def active(self) -> bool:
        """Whether its result will come by itself."""
        states = (self.train.status.state, self.attack.status.state)
        return not self.done and all(state in (*_ACTIVE, RunState.DONE) for state in states)


def find_attack_chain(store: RunStore, config: TrainConfig) -> FoundChain | None:
    """The newest finished chain that trains as `config` says and attacks as usual, else one that is going on."""
    wanted = config.model_dump(mode="json")
    [request] = attack_requests(planned_model(config), {}, ())
    summaries = {run.id: run for run in store.list()}
    found = []
    for match in summaries.values():
        attack = _attack_of(store, match) if match.kind == "match" else None
        if attack is None or attack not in summaries or not _is(store, attack, request):
            continue
        train = next((parent for parent in summaries[attack].parents if parent in summaries), None)
        if train is not None and _config(store, train) == wanted:
            found.append(FoundChain(summaries[train], summaries[attack], match))
    done = [chain for chain in found if chain.done]
    going_on = [chain for chain in found if chain.active]
    return next(iter(done or going_on), None)


def _attack_of(store: RunStore, match: RunSummary) -> str | None:
    """The one attack that was matched, with settings nobody changed."""
    config = _config(store, match.id) or {}
    runs = tuple(config.get("runs", ()))
    if len(runs) != 1:
        return None
    usual = MatchConfig(runs=runs, untrained=config.get("untrained")).model_dump(mode="json")
    return str(runs[0]) if config == usual else None


def _is(store: RunStore, run_id: str, request: ReconstructConfig) -> bool:
    """Whether the run was asked for the same, and made by the attack's present version where it is done."""
    config = _config(store, run_id)
    if config is None or {**config, "model": request.model} != request.model_dump(mode="json"):
        return False
    recipe = request.settings.recipe
    try:
        return attack_version(store.open(run_id), recipe) == find_attack(recipe).version
    except InputError:  # deleted meanwhile
        return False


def _config(store: RunStore, run_id: str) -> dict[str, Any] | None:
    """None if it cannot be read: deleted meanwhile, or damaged."""
    try:
        return store.open(run_id).config
    except InputError:
        return None
