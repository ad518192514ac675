"""Experiments: a network and everything that was done to it, as one thing to find, look at and compare."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recon_core.errors import InputError
from recon_core.runs.titles import data_label, decay_text
from recon_core.store import Notes, RunState, RunStore, RunSummary

MODEL_KINDS = ("train", "model")
IMPORTED = "imported model"
_REMEMBERED = 2**13
_ACTIVE = (RunState.RUNNING, RunState.QUEUED)
# What is worth telling about a network beside its data, and what stands there unasked.
_USUAL: dict[tuple[str, str], Any] = {
    ("model", "widths"): [1000, 1000],
    ("model", "conv_kernel"): None,
    ("model", "bias"): "first",
    ("model", "init_scale"): 1e-4,
    ("model", "seed"): 0,
    ("training", "weight_decay"): 0.0,
    ("data", "selection"): "first",
}
_WORDS = {
    "widths": "width",
    "conv_kernel": "convolution",
    "init_scale": "initial scale",
    "weight_decay": "decay",
    "m": "candidates",
}


@dataclass(frozen=True)
class Count:
    """Good reconstructions beside what chance alone gives."""

    good: int
    of: int
    chance: int
    match: str
    """The run that counted."""
    other: str = ""
    """The same with the other SSIM window, and its chance level; empty for points, and where nobody counted."""

    @property
    def share(self) -> float:
        return self.good / self.of if self.of else 0.0


@dataclass(frozen=True)
class Experiment:
    """One network; it goes by the id of the run that trained or imported it."""

    model: RunSummary
    attacks: tuple[RunSummary, ...]
    controls: tuple[RunSummary, ...]
    matchings: tuple[RunSummary, ...]
    count: Count | None
    """Of the matching that found most; None before there is one."""
    data: str
    loss: str
    decay: float | None
    """None of a model whose training nobody knows."""
    varied: tuple[str, ...]
    """What is unusual about it, and what differs between its attacks."""
    notes: Notes

    @property
    def id(self) -> str:
        return self.model.id

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def runs(self) -> tuple[RunSummary, ...]:
        return (self.model, *self.attacks, *self.controls, *self.matchings)

    @property
    def state(self) -> str:
        """At work, as far as it got, or done."""
        states = [run.status.state for run in self.runs]
        if any(state in _ACTIVE for state in states):
            return "at work"
        if self.count is not None:
            return "counted"
        return "trained" if self.model.status.state is RunState.DONE else str(self.model.status.state)

    @property
    def decay_label(self) -> str:
        return "unknown" if self.decay is None else decay_text(self.decay) if self.decay else "none"


def experiments(store: RunStore, runs: Sequence[RunSummary]) -> list[Experiment]:
    """Of all `runs` of a store, under the names they are to be shown with, the newest first."""
    owner = _owners(runs)
    parts: dict[str, list[RunSummary]] = {}
    for run in runs:
        if run.id in owner:
            parts.setdefault(owner[run.id], []).append(run)
    return [_experiment(store, run, parts.get(run.id, [])) for run in runs if run.kind in MODEL_KINDS]


def find_experiment(store: RunStore, runs: Sequence[RunSummary], model_id: str) -> Experiment:
    """One of them; an old link to a deleted one is a sentence."""
    known = {run.id: run for run in runs}
    if model_id not in known:
        raise InputError(f"the experiment {model_id} that this link names is not in the store any more; it was deleted")
    if known[model_id].kind not in MODEL_KINDS:
        raise InputError(f"run {model_id} is of kind {known[model_id].kind!r}; an experiment goes by its network's run")
    owner = _owners(runs)
    return _experiment(store, known[model_id], [run for run in runs if owner.get(run.id) == model_id])


def differences(store: RunStore, found: Sequence[Experiment]) -> dict[str, list[str]]:
    """Settings in which the networks of some experiments differ, by name, a value for each of them."""
    configs = [_flat(_config(store, experiment.id)) for experiment in found]
    names = dict.fromkeys(name for config in configs for name in config)
    columns = {name: [_text(config.get(name, "–")) for config in configs] for name in names}
    return {name: values for name, values in columns.items() if len(set(values)) > 1}


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for group in ("data", "model", "training"):
        values = config.get(group)
        if isinstance(values, Mapping):
            found |= {f"{group}.{name}": value for name, value in values.items() if value is not None}
    return found


def _owners(runs: Sequence[RunSummary]) -> dict[str, str]:
    """The network each run is about, by the runs it was made from."""
    known = {run.id: run for run in runs}
    found: dict[str, str] = {}
    for run in runs:
        at: RunSummary | None = run
        seen = set()
        while at is not None and at.id not in seen:
            seen.add(at.id)
            if at.kind in MODEL_KINDS:
                if at.id != run.id:
                    found[run.id] = at.id
                break
            at = known.get(at.parents[0]) if at.parents else None
    return found


def _experiment(store: RunStore, model: RunSummary, parts: Sequence[RunSummary]) -> Experiment:
    config = _config(store, model.id)
    attacks, controls, matchings = [], [], []
    for run in parts:
        if run.kind == "match":
            matchings.append(run)
        elif run.kind == "reconstruct" and _config(store, run.id).get("baseline"):
            controls.append(run)
        elif run.kind in ("reconstruct", "search"):
            attacks.append(run)
    counts = [count for run in matchings if (count := _count(store, run)) is not None]
    training = config.get("training") if model.kind == "train" else None
    trained = training if isinstance(training, Mapping) else {}
    decay = trained.get("weight_decay")
    return Experiment(
        model=model,
        attacks=tuple(attacks),
        controls=tuple(controls),
        matchings=tuple(matchings),
        count=max(counts, key=lambda count: (count.good, count.share), default=None),
        data=data_label(config) if model.kind == "train" else IMPORTED,
        loss=str(trained.get("loss", "unknown")),
        decay=float(decay) if isinstance(decay, int | float) else None,
        varied=(*_unusual(config), *_between([_config(store, run.id) for run in attacks])),
        notes=store.open(model.id).notes if _is_there(store, model.id) else Notes(),
    )


def _is_there(store: RunStore, run_id: str) -> bool:
    try:
        store.open(run_id)
    except InputError:  # deleted since the list was made, or damaged
        return False
    return True


def _unusual(config: Mapping[str, Any]) -> list[str]:
    found = []
    for (group, name), usual in _USUAL.items():
        values = config.get(group)
        value = values.get(name, usual) if isinstance(values, Mapping) else usual
        if value != usual and value is not None:
            text = decay_text(value) if name == "weight_decay" else _text(value)
            found.append(f"{_WORDS.get(name, name)} {text}")
    return found


def _between(attacks: Sequence[Mapping[str, Any]]) -> list[str]:
    """Settings that its attacks do not share, with their values."""
    settings = [part for config in attacks if isinstance(part := config.get("settings"), Mapping)]
    if len(settings) < 2:
        return []
    found = []
    for name in dict.fromkeys(name for part in settings for name in part):
        values = list(dict.fromkeys(_text(part.get(name)) for part in settings))
        if len(values) > 1:
            found.append(f"{_WORDS.get(name, name.replace('_', ' '))} {', '.join(values[:4])}")
    return found[:4]


def _text(value: Any) -> str:
    if isinstance(value, list):
        return "-".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _count(store: RunStore, run: RunSummary) -> Count | None:
    if run.status.state is not RunState.DONE:
        return None
    try:
        return _read_count(store.root, run.id)
    except (InputError, OSError, KeyError, TypeError, ValueError):
        return None


@functools.lru_cache(maxsize=_REMEMBERED)  # finished runs do not change
def _read_count(root: Path, run_id: str) -> Count | None:
    from recon_core.matching.controls import WindowCount, chance_level
    from recon_core.matching.ssim import SsimKind
    from recon_core.runs.stored_names import with_current_names

    result = RunStore(root).open(run_id).result() or {}
    if result.get("kind") == "images":
        count, other = with_current_names(result["count"]), ""
        if (window := count.get("other")) is not None:
            other = str(WindowCount(SsimKind(window["ssim_kind"]), int(window["good"]), int(window["chance"])))
        chance = chance_level(
            count["of"],
            mean_image=count["control_mean_image"],
            untrained=count["control_untrained"],
            held_out=count["non_members"],
            held_out_of=count["non_members_of"],
        )
        return Count(int(count["good"]), int(count["of"]), chance, run_id, other)
    fine = result["counts"][0]
    others, of = fine["non_members"], fine["non_members_of"]
    chance = round(others / of * fine["of"]) if others is not None and of else 0
    return Count(int(fine["recovered"]), int(fine["of"]), chance, run_id)


def _config(store: RunStore, run_id: str) -> Mapping[str, Any]:
    try:
        return _read_config(store.root, run_id)
    except (InputError, OSError):
        return {}


@functools.lru_cache(maxsize=_REMEMBERED)
def _read_config(root: Path, run_id: str) -> Mapping[str, Any]:
    return RunStore(root).open(run_id).config
