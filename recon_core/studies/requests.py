"""An attack, or a search of many: checked, and created as a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recon_core.attacks import AttackSettings
from recon_core.config import parse_config
from recon_core.runs.attack_request import usual_count
from recon_core.runs.models import AttackModel
from recon_core.runs.reconstruction import ReconstructConfig, check_request, warning_for
from recon_core.runs.requests import PYTHON, known_init_words, queue_reconstruction, setting_words
from recon_core.scheduling import place_words
from recon_core.store import Run, RunStore
from recon_core.studies.search import SearchConfig, check_search, trial_settings
from recon_core.studies.trials import SearchSettings

# Of an attack inside a search, where the command's defaults are not the recipe's.
_SEARCH_CHOICES = ("engine", "dtype", "iterations")

Request = ReconstructConfig | SearchConfig


def queue_search(store: RunStore, config: SearchConfig, name: str | None = None) -> Run:
    """Many attacks on the model of run `config.model`."""
    settings = config.settings
    asked = settings.model_dump(mode="json", exclude={"attack"})
    options = [word for key, value in asked.items() for word in (f"--{key}", str(value))]
    words = ["search", "--model", config.model, *options, *setting_words(settings.attack, always=_SEARCH_CHOICES)]
    words += [*known_init_words(config.known_init), *place_words(config)]
    for option, value in (("--storage", config.storage), ("--share", config.share)):
        words += [] if value is None else [option, value]
    values = config.model_dump(mode="json")
    return store.create("search", values, name=name, parents=[config.model], command=[*PYTHON, *words])


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
    attack = trial_settings(model, {"m": usual_count(model_run), "recipe": recipe, **given})
    asked = parse_config(SearchSettings, {**search, "attack": attack.model_dump()})
    config = {**(places or {}), "model": model_run.id, "settings": asked, "known_init": known_init}
    return parse_config(SearchConfig, config)


def check(model: AttackModel, request: Request) -> None:
    """Raise now what would end the run at its start."""
    if isinstance(request, SearchConfig):
        check_search(model, request)
    else:
        check_request(model, request)


def warning(model: AttackModel, request: Request) -> str | None:
    """Why this will not work, where that is known beforehand."""
    return warning_for(model, attack_of(request))


def attack_of(request: Request) -> AttackSettings:
    """The settings of one attack of it."""
    return request.settings.attack if isinstance(request, SearchConfig) else request.settings


def queue_request(store: RunStore, model: AttackModel, request: Request) -> Run:
    """A run for it, if it can be done; whoever calls puts it in line."""
    check(model, request)
    if isinstance(request, SearchConfig):
        return queue_search(store, request)
    return queue_reconstruction(store, request)
