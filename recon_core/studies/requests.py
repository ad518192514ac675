"""An attack, or a search of many: checked, and created as a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recon_core.attacks import AttackSettings
from recon_core.config import parse_config
from recon_core.runs.commands import attack_arguments, create_run, flag, options, repeats
from recon_core.runs.models import AttackModel
from recon_core.runs.reconstruction import ReconstructConfig, check_request, warning_for
from recon_core.runs.requests import create_reconstruction
from recon_core.scheduling import place_arguments
from recon_core.store import Run, RunStore
from recon_core.studies.search import SearchConfig, check_search, trial_settings
from recon_core.studies.trials import SearchSettings

# Of an attack inside a search, where the command's defaults are not the recipe's.
_SEARCH_CHOICES = ("engine", "dtype", "iterations")

Request = ReconstructConfig | SearchConfig


def create_search(store: RunStore, config: SearchConfig, name: str | None = None) -> Run:
    """Many attacks on the model of run `config.model`."""
    return create_run(store, "search", config.model_dump(mode="json"), name=name, parents=[config.model])


@repeats("search")
def _search(config: Mapping[str, Any]) -> list[str]:
    asked = parse_config(SearchConfig, config)
    return [
        *("search", "--model", asked.model),
        *options(asked.settings.model_dump(mode="json", exclude={"attack"})),
        *attack_arguments(asked.settings.attack, always=_SEARCH_CHOICES),
        *flag("--known-init", asked.known_init),
        *place_arguments(asked),
        *options({"storage": asked.storage, "share": asked.share}),
    ]


def search_request(
    model_run: Run,
    model: AttackModel,
    recipe: str,
    given: Mapping[str, Any],
    search: Mapping[str, Any],
    known_init: bool,
    places: Mapping[str, Any] | None = None,
) -> SearchConfig:
    """Many attacks; `search` says how many and over what, `given` what they have in common, `places` where."""
    attack = trial_settings(model, {"recipe": recipe, **given})
    asked = parse_config(SearchSettings, {**search, "attack": attack.model_dump()})
    config = {**(places or {}), "model": model_run.id, "settings": asked, "known_init": known_init}
    return parse_config(SearchConfig, config)


def check(model: AttackModel, request: Request) -> None:
    """Raise an `InputError` for what would end the run at its start."""
    if isinstance(request, SearchConfig):
        check_search(model, request)
    else:
        check_request(model, request)


def warning(model: AttackModel, request: Request) -> str | None:
    """A warning where it is known beforehand that this will not work."""
    return warning_for(model, attack_of(request))


def attack_of(request: Request) -> AttackSettings:
    """The settings of one attack of it."""
    return request.settings.attack if isinstance(request, SearchConfig) else request.settings


def create_requested(store: RunStore, model: AttackModel, request: Request) -> Run:
    """A run for it, if it can be done; whoever calls queues it."""
    check(model, request)
    if isinstance(request, SearchConfig):
        return create_search(store, request)
    return create_reconstruction(store, request)
