"""How much memory a run will take, said before it starts, beside how much there is.

What is counted: what the libraries take in a process of their own, the tensors that grow with the network, the samples
and the candidates, and the copies of them that are alive at once at the worst moment. The numbers of copies were
measured; the answer is right within a factor of two (`tests/scheduling/test_memory.py`), on a CPU. What an attack takes
beside its weights stands with the attack, in the registry.
"""

from __future__ import annotations

import resource
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psutil

from recon_core.config import Recipe, TrainConfig
from recon_core.errors import InputError
from recon_core.scheduling.estimates import NetworkShape, shape_of_training

if TYPE_CHECKING:
    from recon_core.attacks import AttackSettings
    from recon_core.models import Architecture

LIBRARIES = 310 * 2**20
"""A process that has loaded what a run needs, and done nothing yet."""
_UNBACKED = 500 * 2**20
"""Addresses that such a process has reserved and never fills; a limit on addresses (ulimit -v) counts them."""
_ITEM = {"float32": 4, "float64": 8}
# Copies of all weights: as drawn, as trained, outside the span of the data, put together and written at the end.
_WEIGHT_COPIES = 4.5
_SAMPLE_COPIES = 3.0
_ACTIVATION_COPIES = 3.0
_GRAM_COPIES = 3.0
_NEWTON_COPIES = 10.0
_CANDIDATE_COPIES = 4.0
_MERGED_COPIES = 6.0
_TABLE = 512 * 2**20
_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")


# -- what a run takes ------------------------------------------------------------------------------


def training_memory(config: TrainConfig) -> float | None:
    """Bytes at the peak of training with `config`; None where nobody can know, or on a GPU."""
    shape = shape_of_training(config)
    if shape is None or config.device in ("cuda", "mps"):
        return None
    item = _ITEM[config.model.dtype]
    rows, hidden = shape.n * shape.groups, sum(shape.widths)
    weights = _WEIGHT_COPIES * shape.weights(in_span=False)
    samples = _SAMPLE_COPIES * (shape.n + shape.test_n) * shape.inputs
    activations = _ACTIVATION_COPIES * (rows + shape.test_n) * (hidden + shape.patches)
    layers = len(shape.widths) + 1
    grams = _GRAM_COPIES * layers * rows**2 if config.training.recipe in (Recipe.FLOW, Recipe.STATIONARY) else 0.0
    newton = _NEWTON_COPIES * rows**2 if config.training.recipe is Recipe.STATIONARY else 0.0
    return LIBRARIES + item * (weights + samples + activations + grams + newton)


def attack_memory(architecture: Architecture, settings: AttackSettings, samples: int | None = None) -> float | None:
    """Bytes at the peak of one attack on a network trained on so many samples, where that is known.

    None for a network that only its own code describes, or on a GPU.
    """
    from recon_core.attacks import find_attack

    shape = NetworkShape.of(architecture, samples)
    if shape is None or settings.device in ("cuda", "mps"):
        return None
    return LIBRARIES + find_attack(settings.recipe).cost(settings, shape).bytes


def matching_memory(images: int, held_out: int, inputs: int, candidates: int) -> float:
    """Bytes at the peak of matching so many candidates with training and held-out images."""
    pool = _CANDIDATE_COPIES * 4.0 * candidates * inputs
    table = min(_TABLE, 8.0 * max(images, held_out) * candidates)
    return LIBRARIES + pool + table + 4.0 * inputs * _MERGED_COPIES * (images + held_out)


def together(parts: Iterable[float | None], at_once: int) -> float | None:
    """Bytes of the `at_once` largest of `parts`; None where one of them is not known."""
    known = sorted((part for part in parts if part is not None), reverse=True)
    return sum(known[:at_once]) if known else None


# -- what there is ---------------------------------------------------------------------------------


class FreeMemory(NamedTuple):
    """Bytes that a new process could have, and what sets that limit."""

    bytes: float
    limit: str


def free_memory() -> FreeMemory:
    """The smallest of what the machine, the container and the process limit leave free."""
    found = [FreeMemory(float(psutil.virtual_memory().available), "free")]
    found += [FreeMemory(left, "left in this container") for left in _cgroup_room()]
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        found.append(FreeMemory(max(0.0, soft - _UNBACKED), "left by this process's limit (ulimit -v)"))
    return min(found)


def _cgroup_room(root: Path = _CGROUPS, own: Path = _OWN_CGROUP) -> Iterator[float]:
    """What each control group above this process may still take; nothing where there is no limit."""
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory"):
            base = root / "memory" if controllers else root
            names = (
                ("memory.limit_in_bytes", "memory.usage_in_bytes") if controllers else ("memory.max", "memory.current")
            )
            folder = base / path.lstrip("/")
            for group in (folder, *folder.parents):
                if group == base.parent:
                    break
                limit, used = (_number(group / name) for name in names)
                if limit is not None and used is not None and limit < 2**60:
                    yield max(0.0, limit - used + (_cached(group / "memory.stat") or 0.0))


def _number(path: Path) -> float | None:
    try:
        return float(path.read_text(encoding="ascii"))
    except (OSError, ValueError):  # "max" is no number
        return None


def _cached(stat: Path) -> float | None:
    """Bytes of the page cache, which the system frees when memory is needed."""
    try:
        lines = dict(line.split() for line in stat.read_text(encoding="ascii").splitlines())
        return float(lines.get("inactive_file", 0))
    except (OSError, ValueError):
        return None


def shortage(needed: float | None, free: FreeMemory | None = None) -> str | None:
    """Why a run that needs so many bytes would not fit; None where it fits, or where that is not known."""
    if needed is None:
        return None
    there = free or free_memory()
    if needed <= there.bytes:
        return None
    return f"it takes about {gib(needed)} of memory and {gib(there.bytes)} are {there.limit}"


def refuse_shortage(needed: float | None, *, anyway: bool, insist: str = "--anyway") -> None:
    """Raise an `InputError` with both numbers where a run would not fit, unless the user insists (`anyway`)."""
    if not anyway and (why := shortage(needed)) is not None:
        raise InputError(f"this is too large for this machine: {why}; make it smaller, or insist with {insist}")


def gib(count: float) -> str:
    return f"{count / 2**30:,.1f} GiB"
