"""The same attack with each prior on images, so that nothing differs but what it knows of them."""

from __future__ import annotations

from collections.abc import Sequence

from recon_core.attacks import CopiesSettings
from recon_core.attacks.settings import Prior
from recon_core.config import parse_config
from recon_core.errors import AfterimageError
from recon_core.runs.reconstruction import ReconstructConfig
from recon_core.store import RunState, RunStore, RunSummary


def prior_of(config: ReconstructConfig) -> Prior | None:
    """What the attack assumes of images; None for a baseline, and for a recipe that cannot be given any prior."""
    if config.baseline is None and isinstance(config.settings, CopiesSettings):
        return config.settings.prior
    return None


def with_prior(config: ReconstructConfig, prior: Prior) -> ReconstructConfig:
    """The same attack with this prior."""
    return config.model_copy(update={"settings": config.settings.model_copy(update={"prior": prior})})


def attacks_by_prior(store: RunStore, runs: Sequence[RunSummary], config: ReconstructConfig) -> dict[Prior, RunSummary]:
    """Runs that are this attack but for the prior: for each the newest finished one, else the newest."""
    alike = _alike(store, runs, config)
    return {prior: max(found, key=_preference) for prior, found in alike.items()}


def matches_by_prior(store: RunStore, runs: Sequence[RunSummary], config: ReconstructConfig) -> dict[Prior, str]:
    """The newest finished match run of such an attack, for each prior there is."""
    matches = [run for run in runs if run.kind == "match" and run.status.state is RunState.DONE]
    newest: dict[Prior, str] = {}
    for prior, attacks in _alike(store, runs, config).items():
        ids = {attack.id for attack in attacks}
        of_these = [match for match in matches if ids & set(match.parents)]
        if of_these:
            newest[prior] = max(of_these, key=lambda match: match.created).id
    return newest


def _alike(store: RunStore, runs: Sequence[RunSummary], config: ReconstructConfig) -> dict[Prior, list[RunSummary]]:
    alike: dict[Prior, list[RunSummary]] = {}
    if prior_of(config) is None:
        return alike
    for run in runs:
        if run.kind == "reconstruct" and config.model in run.parents:
            other = attack_config(store, run.id)
            prior = None if other is None else prior_of(other)
            if prior is not None and other == with_prior(config, prior):
                alike.setdefault(prior, []).append(run)
    return alike


def _preference(run: RunSummary) -> tuple[bool, str]:
    return run.status.state is RunState.DONE, run.created


def attack_config(store: RunStore, run_id: str) -> ReconstructConfig | None:
    """None if it cannot be read: deleted meanwhile, damaged, or no attack."""
    try:
        return parse_config(ReconstructConfig, store.open(run_id).config)
    except AfterimageError:
        return None
