"""Every attack by its name. A new one is a module that calls `register`; all else reads what stands here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from recon_core.config import Task
from recon_core.errors import InputError
from recon_core.models import Architecture

if TYPE_CHECKING:
    from recon_core.attacks.settings import AttackSettings
    from recon_core.attacks.stepper import Stepper
    from recon_core.attacks.target import Target

S = TypeVar("S", bound="AttackSettings")

FIRST_VERSION = 1
"""Of results and checkpoints from before attacks had one."""


class NetworkSize(Protocol):
    """What decides the cost of a step on a network, known before it is trained."""

    @property
    def inputs(self) -> int: ...

    @property
    def widths(self) -> tuple[int, ...]: ...

    @property
    def dense(self) -> bool: ...

    @property
    def rank(self) -> int:
        """Directions that the first layer will have: at most one for each training sample."""
        ...

    @property
    def patches(self) -> int:
        """Numbers that a convolution reads and writes for one sample; 0 without one."""
        ...

    def weights(self, *, in_span: bool) -> int:
        """Of the dense layers; `in_span`, the first one only in the span of its inputs."""
        ...

    def convolution(self, samples: int) -> float:
        """Floating-point operations of its forward pass."""
        ...


class Cost(NamedTuple):
    """Floating-point operations: before the first step of a seed, and of each step; and memory at the peak."""

    start: float
    step: float
    bytes: float = 0.0
    """Beside what the libraries take; 0 where nobody has said."""


# Operations of a step per candidate and weight, measured: the closed form, and autograd's double backward.
_CLOSED_PASSES, _AUTOGRAD_PASSES = 13.0, 46.0
# Numbers alive at once at the peak, measured: copies of the weights, and of what a candidate and its activations are.
_CLOSED_COPIES, _AUTOGRAD_COPIES = 2.0, 6.5
_CLOSED_ACTIVATIONS, _AUTOGRAD_ACTIVATIONS = 8.0, 12.0
_EXACT_COPIES = 1.5
_ITEM = {"float32": 4, "float64": 8}


def autograd_cost(settings: AttackSettings, size: NetworkSize) -> Cost:
    """A double backward through the whole network."""
    weights = size.weights(in_span=False)
    work = _AUTOGRAD_PASSES * settings.m * weights + 8 * size.convolution(settings.m)
    kept = _AUTOGRAD_COPIES * weights + _AUTOGRAD_ACTIVATIONS * settings.m * _numbers_of_a_candidate(size)
    return Cost(0.0, work, _ITEM[settings.dtype] * kept)


def closed_form_cost(settings: AttackSettings, size: NetworkSize, *, in_span: bool) -> Cost:
    """The loss of a dense network written out; `in_span`, in the row space of the first layer, which is found first."""
    step = _CLOSED_PASSES * settings.m * size.weights(in_span=in_span)
    first = size.widths[0]
    start = 18.0 * min(first, size.inputs) ** 3 + 4.0 * first**2 * size.inputs
    found = Cost(start if in_span else 0.0, step)
    weights = size.weights(in_span=False)
    kept = _CLOSED_COPIES * weights + _CLOSED_ACTIVATIONS * settings.m * _numbers_of_a_candidate(size)
    # The row space is found in double precision, from the Gram matrix of the smaller side.
    exact = _EXACT_COPIES * 8 * (first * size.inputs + 2 * min(first, size.inputs) ** 2) if in_span else 0.0
    return found._replace(bytes=_ITEM[settings.dtype] * kept + exact)


def _numbers_of_a_candidate(size: NetworkSize) -> int:
    return size.inputs + sum(size.widths) + size.patches


def _nothing(_: object) -> Mapping[str, Any]:
    return {}


def _anything(target: Target, settings: Any) -> None:
    """Every network will do."""


@dataclass(frozen=True)
class Attack(Generic[S]):
    """One attack: what it is called, what can be set, how a start of it is made.

    Settings that are left out follow from `defaults`, `task_defaults` and `network_defaults`, later ones winning, and
    else from the settings class itself. `check` raises an `InputError` where the attack cannot be made on a target.
    """

    name: str
    description: str
    """One sentence, without a full stop."""
    settings: type[S]
    make: Callable[[Target, S, int], Stepper]
    """From the target, the settings and the seed of this start."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    task_defaults: Mapping[Task, Mapping[str, Any]] = field(default_factory=dict)
    network_defaults: Callable[[Architecture], Mapping[str, Any]] = _nothing
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Settings that others have found, by name."""
    version: int = FIRST_VERSION
    """Raised with every change after which the same weights and settings may give other counts."""
    measure_every: int = 10
    cost: Callable[[S, NetworkSize], Cost] = autograd_cost
    check: Callable[[Target, S], None] = _anything

    @property
    def setting_names(self) -> tuple[str, ...]:
        return tuple(self.settings.model_fields)


ATTACKS: dict[str, Attack[Any]] = {}
"""In the order in which they are offered."""


def register(attack: Attack[S]) -> Attack[S]:
    """Make an attack known to the command line, the form, the estimates and the library."""
    if attack.name in ATTACKS:
        raise ValueError(f"there is an attack {attack.name!r} already; choose another name")
    for name in sorted(attack.presets.keys() & (attack_presets().keys() | ATTACKS.keys())):
        raise ValueError(f"there is a preset {name!r} already; choose another name")
    ATTACKS[attack.name] = attack
    return attack


def find_attack(name: str) -> Attack[Any]:
    """The attack of that name, or a sentence that lists all of them."""
    if name not in ATTACKS:
        raise InputError(unknown_attack(name))
    return ATTACKS[name]


def unknown_attack(name: object) -> str:
    *others, last = [repr(known) for known in ATTACKS]
    return f"recipe must be {', '.join(others)} or {last}, got {repr(name)[:80]}"


def attack_presets() -> dict[str, Mapping[str, Any]]:
    """Released hyper-parameters of all attacks, by name; each says its recipe."""
    return {name: values for attack in ATTACKS.values() for name, values in attack.presets.items()}


def find_attack_preset(name: str | None, recipe: str | None) -> Mapping[str, Any]:
    """Released hyper-parameters by name, nothing for None; a `recipe` named as well must be theirs."""
    if name is None:
        return {}
    presets = attack_presets()
    if name not in presets:
        raise InputError(f"unknown preset {name!r}; the authors released {', '.join(presets)}")
    own = presets[name]["recipe"]
    if recipe not in (None, own):
        raise InputError(f"preset {name} is of recipe {own}, got recipe {recipe}; leave one of them out")
    return presets[name]


def all_setting_names() -> tuple[str, ...]:
    """Of all attacks, what they share first."""
    return tuple(dict.fromkeys(name for attack in ATTACKS.values() for name in attack.setting_names))


def describe_setting(name: str) -> str:
    """What a setting means, from the first attack that has it."""
    fields = (attack.settings.model_fields.get(name) for attack in ATTACKS.values())
    return next((found.description or "" for found in fields if found is not None), "")


def owners_of(setting: str) -> list[str]:
    """Attacks that have this setting."""
    return [attack.name for attack in ATTACKS.values() if setting in attack.settings.model_fields]


def make_stepper(target: Target, settings: AttackSettings, seed: int) -> Stepper:
    """One start of the attack asked for."""
    stepper: Stepper = find_attack(settings.recipe).make(target, settings, seed)
    return stepper
