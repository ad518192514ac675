"""Reconstruction from weights alone: the stationarity losses of both papers and the attacks that minimise them."""

# The modules of the attacks register them, in the order in which they are offered.
from recon_core.attacks.fast import FastSettings  # isort: skip
from recon_core.attacks.copies import CopiesSettings  # isort: skip
from recon_core.attacks.paper import AUTHORS_PRESETS, PaperSettings  # isort: skip
from recon_core.attacks.autograd_loss import AutogradStationarity
from recon_core.attacks.registry import ATTACKS, Attack, attack_presets, find_attack, register
from recon_core.attacks.session import AttackOutcome, StopReason, attack
from recon_core.attacks.settings import (
    INVERSION_RANGES,
    SEARCH_RANGES,
    AttackSettings,
    Engine,
    Hinge,
    LabelPolicy,
    Prior,
    StationaritySettings,
)
from recon_core.attacks.smoothing import SmoothRelu, gated_relu
from recon_core.attacks.stationarity import (
    DenseStationarity,
    Evaluation,
    StationarityGradients,
    StationarityLoss,
    step_flops,
)
from recon_core.attacks.stepper import CERTAIN, Candidates, Measurement, Stepper
from recon_core.attacks.target import Target, regression_warning

__all__ = [
    "ATTACKS",
    "AUTHORS_PRESETS",
    "CERTAIN",
    "INVERSION_RANGES",
    "SEARCH_RANGES",
    "Attack",
    "AttackOutcome",
    "AttackSettings",
    "AutogradStationarity",
    "Candidates",
    "CopiesSettings",
    "DenseStationarity",
    "Engine",
    "Evaluation",
    "FastSettings",
    "Hinge",
    "LabelPolicy",
    "Measurement",
    "PaperSettings",
    "Prior",
    "SmoothRelu",
    "StationarityGradients",
    "StationarityLoss",
    "StationaritySettings",
    "Stepper",
    "StopReason",
    "Target",
    "attack",
    "attack_presets",
    "find_attack",
    "gated_relu",
    "register",
    "regression_warning",
    "step_flops",
]


def __dir__() -> list[str]:
    """What a notebook completes: the modules behind these names are nobody's business there."""
    return sorted(__all__)
