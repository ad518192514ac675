"""Under which assumptions the answer of an audit holds: "no image came back" is not "nothing leaks"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from recon_core.auditing.fit import Fit
from recon_core.auditing.report import Assumption

# Half of the squared weights: below that the rest is something else than the samples.
_EXPLAINED = 0.5


@dataclass(frozen=True)
class Circumstances:
    """The facts on which the assumptions are checked."""

    parameters: int
    inputs: int
    homogeneous: bool | None
    rank: int | None
    recipe_known: str | None
    """How it was trained, where that is known."""
    normalisation_assumed: bool
    seeds: int


def assumptions(facts: Circumstances, fit: Fit) -> list[Assumption]:
    """Every assumption, and whether it holds here as far as weights and images can tell."""
    n = fit.data.n
    unknowns = facts.inputs * n
    found = [
        _said(
            "parameters",
            _yes(facts.parameters >= unknowns),
            f"{facts.parameters:,} parameters against {unknowns:,} unknown pixel values (d n = {facts.inputs:,} x {n})",
            no="fewer equations than unknowns, so images can leak without being drawn out by this attack",
        ),
        _said(
            "separated",
            _yes(bool(fit.members.right.all())),
            f"{int(fit.members.right.sum())} of {n} training images are classified correctly, "
            f"smallest margin {float(fit.members.margins.min()):.3g}",
            no="the attack expects a network that has fitted its training set",
        ),
    ]
    if fit.residuals is not None:
        first = next(iter(fit.residuals.by_layer.values()))
        explained = 1 - first**2
        found.append(
            _said(
                "stationary",
                _yes(explained >= _EXPLAINED),
                f"the training images explain {explained:.0%} of the squared weights of the first layer "
                f"(KKT residual {first:.2f})",
                no="the network is not at a stationary point: few epochs, a large initialisation or much noise of "
                "SGD hide images from this attack, but not necessarily from others",
            )
        )
    if facts.rank is not None and facts.rank < n:
        found.append(
            _said(
                "rank",
                "no",
                f"{facts.rank} directions of the first layer stand above its noise, for {n} images",
                no="images share directions, and those below the noise cannot be told apart",
            )
        )
    if facts.homogeneous is not None:
        found.append(
            _said(
                "homogeneous",
                _yes(facts.homogeneous),
                "scaling all parameters scales the output, as the theorem asks"
                if facts.homogeneous
                else "scaling all parameters does not scale the output alone (biases beyond the first layer)",
                no="the theorem behind the attack does not cover this network, whatever the attack finds",
            )
        )
    found += [
        _said(
            "training",
            "yes" if facts.recipe_known else "unknown",
            f"trained here with recipe {facts.recipe_known}"
            if facts.recipe_known
            else "how it was trained is not in the file; the attack expects long training by gradient descent",
        ),
        _said(
            "normalisation",
            "unknown" if facts.normalisation_assumed else "yes",
            f"inputs are taken to be {fit.normalisation.describe()}"
            + (", the customary ones that fit the network best" if facts.normalisation_assumed else ""),
        ),
        _said(
            "held-out",
            "unknown" if len(fit.data.test_x) else "no",
            f"{len(fit.data.test_x)} held-out images are taken to come from the same source and not to be trained on"
            if len(fit.data.test_x)
            else "no held-out images were given",
            no="the chance level rests on fewer controls, and membership was not tested",
        ),
        _said(
            "attack",
            "unknown",
            f"one attack with {facts.seeds} start{'s' if facts.seeds != 1 else ''} was made; "
            "a stronger one, or more starts, may find more",
        ),
    ]
    return found


def _yes(holds: bool) -> Literal["yes", "no"]:
    return "yes" if holds else "no"


def _said(name: str, holds: Literal["yes", "no", "unknown"], sentence: str, no: str = "") -> Assumption:
    return Assumption(name=name, holds=holds, sentence=f"{sentence}; {no}" if holds == "no" and no else sentence)
