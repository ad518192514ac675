"""Training samples out of weights alone: the stationarity losses of both papers and the recipes that minimise them."""

from recon_core.attacks.autograd_loss import AutogradStationarity, gated_relu
from recon_core.attacks.recipes import RECIPES
from recon_core.attacks.session import AttackOutcome, StopReason, attack
from recon_core.attacks.settings import (
    AUTHORS_PRESETS,
    INVERSION_RANGES,
    SEARCH_RANGES,
    AttackRecipe,
    AttackSettings,
    Engine,
    Hinge,
    LabelPolicy,
)
from recon_core.attacks.stationarity import (
    DenseStationarity,
    Evaluation,
    StationarityGradients,
    StationarityLoss,
    step_flops,
)
from recon_core.attacks.stepper import Candidates, Measurement, Stepper
from recon_core.attacks.target import Target, regression_warning

__all__ = [
    "AUTHORS_PRESETS",
    "INVERSION_RANGES",
    "RECIPES",
    "SEARCH_RANGES",
    "AttackOutcome",
    "AttackRecipe",
    "AttackSettings",
    "AutogradStationarity",
    "Candidates",
    "DenseStationarity",
    "Engine",
    "Evaluation",
    "Hinge",
    "LabelPolicy",
    "Measurement",
    "StationarityGradients",
    "StationarityLoss",
    "Stepper",
    "StopReason",
    "Target",
    "attack",
    "gated_relu",
    "regression_warning",
    "step_flops",
]
