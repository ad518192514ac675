"""The title of a run without a name: "CIFAR-10, 50 images, decay 1e-4: attack, seed 0".

Made from what the run was asked for, so that runs of older versions have one too. Ids stay what links are made of.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath
from typing import Any

from recon_core.errors import InputError
from recon_core.presets import PRESETS
from recon_core.settings_text import LEFT_OUT
from recon_core.sources import SOURCES
from recon_core.store import RunStore, RunSummary
from recon_core.store.remembered import Remembered

_FILE = ".titles-1.json"  # raised when the wording of titles changes
_STORES = 16
_DATA = {
    "cifar10": "CIFAR-10",
    "cifar10-full": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "mnist": "MNIST",
    "mnist-full": "MNIST",
    "fashion-mnist": "Fashion-MNIST",
}
_USUAL_WIDTHS = [1000, 1000]
_USUAL_LOSSES = ("logistic", "cross-entropy", "l2")
_BASELINES = {
    "untrained": "untrained network",
    "inversion": "model inversion",
    "weights": "first-layer weights",
    "kernels": "first-layer kernels",
}
_USUAL_ATTACKS = ("copies", "fast")


def titles(store: RunStore, runs: Iterable[RunSummary]) -> dict[str, str]:
    """A title for each run by its id, no two alike: of those that would be, the later ones are numbered."""
    known = {run.id: run for run in runs}
    remembered = _remembered(store.root)
    remembered.open()
    found = {run_id: _title(store, run, known) for run_id, run in known.items()}
    remembered.close()
    taken: Counter[str] = Counter()
    for run in sorted(known.values(), key=lambda run: (run.created, run.id)):
        title = found[run.id]
        taken[title] += 1
        if taken[title] > 1:
            found[run.id] = f"{title} #{taken[title]}"
    return found


def title_of(store: RunStore, run: RunSummary) -> str:
    """The title of one run, without a look at the others."""
    return _title(store, run, {})


def own_name(run: RunSummary) -> str | None:
    """The name its user gave it; None without one."""
    ours = run.name == run.id or run.name in _BASELINES or run.name in PRESETS
    return None if ours else run.name


def data_label(config: Mapping[str, Any]) -> str:
    """The data of a training run: CIFAR-10, or the name of the user's own folder."""
    data = _part(config, "data")
    source, path = str(data.get("source", "")), data.get("path")
    if path == LEFT_OUT:
        return "own images"
    if path:
        return PurePath(str(path)).name or str(path)
    return _DATA.get(source) or source[:1].upper() + source[1:]


def training_title(config: Mapping[str, Any]) -> str:
    """Data, how much of it, and what is unusual about the network: "CIFAR-10, 50 images, decay 1e-4"."""
    data, model, training = (_part(config, name) for name in ("data", "model", "training"))
    source = str(data.get("source", ""))
    unit = "points" if source in SOURCES and SOURCES[source].planar else "images"
    facts = [data_label(config) or "network"]
    if data.get("n"):
        facts.append(f"{data['n']} {unit}")
    elif data.get("per_class"):
        facts.append(f"{data['per_class']} {unit} per class")
    if data.get("task") == "multiclass":
        classes = data.get("classes")
        facts.append(f"{len(classes)} classes" if isinstance(classes, list) and classes else "all classes")
    elif data.get("task") == "regression":
        facts.append("regression")
    if data.get("selection") == "seeded" or data.get("labels") == "random":
        facts.append(f"draw {data.get('seed', 0)}")
    if model.get("conv_kernel"):
        facts.append(f"convolution {model['conv_kernel']}x{model['conv_kernel']}")
    widths = model.get("widths")
    if isinstance(widths, list) and widths != _USUAL_WIDTHS:
        facts.append("width " + "-".join(map(str, widths)))
    if model.get("bias") == "hidden":
        facts.append("all biases")
    if model.get("init_scale") == "kaiming" and not training.get("weight_decay"):
        facts.append("standard start")
    if model.get("dense_init_scale", "kaiming") != "kaiming":
        facts.append("small start")
    loss = training.get("loss")
    if loss and loss not in _USUAL_LOSSES:
        facts.append(f"{loss} loss")
    if training.get("weight_decay"):
        facts.append(f"decay {decay_text(training['weight_decay'])}")
    if training.get("recipe") in ("paper", "sgd"):
        facts.append({"paper": "gradient descent", "sgd": "SGD"}[training["recipe"]])
    if model.get("seed"):
        facts.append(f"seed {model['seed']}")
    return ", ".join(facts)


def decay_text(value: Any) -> str:
    """1e-4, not 0.0001 nor 1e-04."""
    if not isinstance(value, int | float) or not value:
        return str(value)
    mantissa, _, exponent = f"{value:.3e}".partition("e")
    kept = mantissa.rstrip("0").rstrip(".")
    return f"{kept}e{int(exponent)}" if not 0.01 <= abs(value) < 100 else f"{value:g}"


def _title(store: RunStore, run: RunSummary, known: Mapping[str, RunSummary]) -> str:
    own = own_name(run)
    if own is not None:
        return own
    words = _remembered(store.root).of(run.id, lambda: _words(run.kind, _config(store.root, run.id)))
    if run.kind in ("train", "model"):
        return words
    model = _model(store, run, known)
    if model is None:
        return words[:1].upper() + words[1:]
    return f"{_title(store, model, known)}: {words}"


def _words(kind: str, config: Mapping[str, Any]) -> str:
    """What a model was made from, or what is done to one."""
    if kind == "train":
        return training_title(config) if config else "Training"
    if kind == "model":
        path = config.get("path")
        return "Imported model" if path == LEFT_OUT else PurePath(str(path or "")).name or "Imported model"
    settings = _part(config, "settings")
    if kind == "reconstruct":
        baseline = config.get("baseline")
        if baseline:
            return _BASELINES.get(str(baseline), str(baseline))
        recipe, seed = settings.get("recipe"), settings.get("seed", 0)
        by = "" if recipe in (None, *_USUAL_ATTACKS) else f" by recipe {recipe}"
        seeds = settings.get("seeds", 1)
        first = seed if isinstance(seed, int) else 0
        which = f"seeds {first} to {first + seeds - 1}" if isinstance(seeds, int) and seeds > 1 else f"seed {first}"
        return f"attack{by}, {which}"
    if kind == "search":
        trials = settings.get("trials")
        return f"search, {trials} trials" if trials else "search"
    if kind == "match":
        runs = config.get("runs")
        return f"matching of {len(runs)} attacks" if isinstance(runs, list) and len(runs) > 1 else "matching"
    return kind


def _model(store: RunStore, run: RunSummary, known: Mapping[str, RunSummary]) -> RunSummary | None:
    """The model that a run is about: its first parent, and that one's, up to one that has none."""
    seen = {run.id}
    while run.parents and run.parents[0] not in seen:
        parent = run.parents[0]
        seen.add(parent)
        try:
            run = known[parent] if parent in known else store.summary(parent)
        except InputError:  # deleted
            return None
        if run.kind in ("train", "model"):
            return run
    return None


def _config(root: Path, run_id: str) -> Mapping[str, Any]:
    """Empty where it cannot be read."""
    try:
        return RunStore(root).open(run_id).config
    except (InputError, OSError):
        return {}


@functools.lru_cache(maxsize=_STORES)
def _remembered(root: Path) -> Remembered:
    return Remembered(root, _FILE)


def _part(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = config.get(name)
    return found if isinstance(found, Mapping) else {}
