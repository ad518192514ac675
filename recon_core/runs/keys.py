"""One key for one computation: runs of the same key have the same result, whoever asked for them.

A key is a digest of all settings that change the outcome. The key of an attack holds that of its training, the key of
a matching those of both, so it does not matter which run computed them. It holds the attack's version too, so what an
earlier version found is not taken for what the present one would find. Left out is what only changes how a run is
watched or where it runs.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recon_core.attacks.registry import FIRST_VERSION, find_attack
from recon_core.config import DataConfig, TrainConfig, parse_config
from recon_core.data import load_task
from recon_core.errors import AfterimageError, InputError
from recon_core.models import Architecture
from recon_core.runs.match_source import MatchConfig
from recon_core.runs.reconstruction import Baseline, ReconstructConfig, attack_version
from recon_core.store import Run, RunState, RunStore, RunSummary, layout, lock

_UNSEEN_TRAINING = ("record_every",)
_UNSEEN_ATTACK = ("snapshots", "block_size", "measure_every", "device")


def training_key(config: TrainConfig, images: str | None) -> str:
    """`images` is what `own_images` says of the user's own; those of named sources never change."""
    values = config.model_dump(mode="json", exclude={"device": True, "training": set(_UNSEEN_TRAINING)})
    return _digest("train", values, images)


def own_images(data: DataConfig) -> str | None:
    """The fingerprint of the user's own images as they are now; None for a named source."""
    return load_task(data).fingerprint if data.source.needs_path else None


def attack_key(model_key: str, config: ReconstructConfig, version: int | None = None) -> str:
    """`version` is that of the attack; the present one where it is left out."""
    return _digest("attack", model_key, _asked(config, version))


def untrained_key(
    config: ReconstructConfig, training: TrainConfig, architecture: Architecture, version: int | None = None
) -> str:
    """An untrained network is identified by its architecture and its start, whatever was trained from there."""
    model = training.model
    start: dict[str, Any] = {"init_scale": model.init_scale, "seed": model.seed, "dtype": model.dtype}
    if model.dense_init_scale != "kaiming":
        start["dense_init_scale"] = model.dense_init_scale
    # The first word is part of keys that studies have stored since 0.1.0.
    return _digest("floor", architecture.to_json(), start, _asked(config, version))


def match_key(candidates: str, untrained: str | None, config: MatchConfig) -> str:
    asked = config.model_dump(mode="json", exclude={"runs", "untrained", "device"})
    return _digest("match", candidates, untrained, asked)


def _asked(config: ReconstructConfig, version: int | None) -> dict[str, Any]:
    """An m that follows from the weights is left out: it is unknown before training, and equal for equal weights."""
    unseen = {*_UNSEEN_ATTACK, "m"} if config.m_from_rank else set(_UNSEEN_ATTACK)
    asked = config.model_dump(mode="json", exclude={"model": True, "settings": unseen})
    made_by = find_attack(config.settings.recipe).version if version is None else version
    if config.attacks and made_by != FIRST_VERSION:  # keys of the first version are those of before there were any
        asked["attack_version"] = made_by
    return asked


def _digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True, allow_nan=False).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Known:
    """A run in the store that computes, or has computed, what its key says."""

    run_id: str
    name: str
    state: RunState


class RunIndex:
    """The runs of a store by key, as they were when this was made; `Known.state` may have moved on since."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._by_key: dict[str, list[Known]] = defaultdict(list)
        self._keys: dict[str, str] = {}
        summaries = {summary.id: summary for summary in store.list()}
        for summary in summaries.values():
            if (key := self._key_of(summary, summaries)) is not None:
                self._by_key[key].append(Known(summary.id, summary.name, summary.status.state))

    def all(self, key: str) -> tuple[Known, ...]:
        """The newest first."""
        return tuple(self._by_key.get(key, ()))

    def done(self, key: str) -> Run | None:
        """A finished run that is still there."""
        for known in self.all(key):
            run = find_run(self._store, known.run_id)
            if run is not None and run.status().state is RunState.DONE:
                return run
        return None

    def at_work(self, key: str) -> Run | None:
        """A run that some process is working on right now."""
        for known in self.all(key):
            run = find_run(self._store, known.run_id)
            if run is not None and is_at_work(run):
                return run
        return None

    def _key_of(self, summary: RunSummary, summaries: Mapping[str, RunSummary]) -> str | None:
        if summary.id not in self._keys:
            try:
                self._keys[summary.id] = self._compute(summary, summaries) or ""
            except (AfterimageError, KeyError, IndexError, TypeError):
                self._keys[summary.id] = ""  # damaged, or of another version: nobody's twin
        return self._keys[summary.id] or None

    def _compute(self, summary: RunSummary, summaries: Mapping[str, RunSummary]) -> str | None:
        if summary.kind not in ("train", "reconstruct", "match"):
            return None
        run = self._store.open(summary.id)
        if summary.kind == "train":
            return key_of_training(run)
        if summary.kind == "reconstruct":
            asked = parse_config(ReconstructConfig, run.config)
            return self._attack_key(asked, attack_version(run, asked.settings.recipe), summaries)
        config = parse_config(MatchConfig, run.config)
        if len(config.runs) != 1:
            return None
        parts = [self._key_of(summaries[part], summaries) for part in (*config.runs, config.untrained) if part]
        if None in parts:
            return None
        return match_key(str(parts[0]), parts[1] if config.untrained else None, config)

    def _attack_key(self, config: ReconstructConfig, version: int, summaries: Mapping[str, RunSummary]) -> str | None:
        model = summaries[config.model]
        if config.baseline is Baseline.UNTRAINED:
            run = self._store.open(model.id)
            if model.kind != "train" or model.status.state is not RunState.DONE:
                return None
            architecture = Architecture.from_json((run.result() or {})["architecture"])
            return untrained_key(config, parse_config(TrainConfig, run.config), architecture, version)
        key = self._key_of(model, summaries)
        return None if key is None else attack_key(key, config, version)


def find_run(store: RunStore, run_id: str) -> Run | None:
    """The run, unless it was deleted or damaged."""
    try:
        return store.open(run_id)
    except InputError:
        return None


def is_at_work(run: Run) -> bool:
    return lock.is_held(run.dir / layout.LOCK)


def key_of_training(run: Run) -> str | None:
    """None for one on the user's own images that has not said yet which they were."""
    config = parse_config(TrainConfig, run.config)
    if not config.data.source.needs_path:
        return training_key(config, None)
    seen = (run.result() or {}).get("data", {}).get("fingerprint")
    return None if seen is None else training_key(config, seen)
