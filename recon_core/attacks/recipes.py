"""Every recipe by its name. A new one is one entry."""

from __future__ import annotations

from collections.abc import Callable

from recon_core.attacks.fast import FastRecipe
from recon_core.attacks.fast_conv import FastConvRecipe
from recon_core.attacks.paper import PaperRecipe
from recon_core.attacks.settings import AttackRecipe, AttackSettings
from recon_core.attacks.stepper import Stepper
from recon_core.attacks.target import Target
from recon_core.errors import InputError

# From the target, the settings and the seed of this start.
RECIPES: dict[AttackRecipe, Callable[[Target, AttackSettings, int], Stepper]] = {
    AttackRecipe.FAST: lambda target, settings, seed: (
        FastRecipe(target, settings, seed) if target.architecture.dense else FastConvRecipe(target, settings, seed)
    ),
    AttackRecipe.PAPER: PaperRecipe,
}


def make_stepper(target: Target, settings: AttackSettings, seed: int) -> Stepper:
    """One start of the recipe asked for."""
    if settings.recipe not in RECIPES:
        raise InputError(f"recipe {settings.recipe} is not in this version; it has: {', '.join(RECIPES)}")
    return RECIPES[settings.recipe](target, settings, seed)
