"""The same attack with each prior: the attacks themselves, and the match runs made of them."""

from __future__ import annotations

from recon_core.attacks import CopiesSettings, FastSettings
from recon_core.attacks.settings import Prior
from recon_core.runs.prior_runs import attacks_by_prior, matches_by_prior, with_prior
from recon_core.runs.reconstruction import ReconstructConfig
from recon_core.store import Run, RunState, RunStore


def done(run: Run) -> Run:
    with run.writer() as writer:
        writer.start(1)
        writer.finish(RunState.DONE, {})
    return run


def attacked(store: RunStore, config: ReconstructConfig) -> Run:
    return done(store.create("reconstruct", config.model_dump(mode="json"), parents=[config.model]))


def matched(store: RunStore, attack: Run) -> Run:
    return done(store.create("match", {"runs": [attack.id]}, parents=[attack.id]))


def test_only_the_prior_differs_between_attacks_and_between_their_matches(store: RunStore) -> None:
    model = done(store.create("train", {}))
    natural = ReconstructConfig(model=model.id, settings=CopiesSettings(m=10, prior=Prior.NATURAL))
    off = with_prior(natural, Prior.OFF)
    here, beside = attacked(store, natural), attacked(store, off)
    seed = natural.model_copy(update={"settings": natural.settings.model_copy(update={"seed": 1, "prior": Prior.BOX})})
    fast = ReconstructConfig(model=model.id, settings=FastSettings(m=10))
    others = [attacked(store, seed), attacked(store, fast)]
    matches = {attack.id: matched(store, attack).id for attack in (here, beside, *others)}
    found = attacks_by_prior(store, store.list(), natural)
    assert {prior: run.id for prior, run in found.items()} == {Prior.NATURAL: here.id, Prior.OFF: beside.id}
    assert matches_by_prior(store, store.list(), natural) == {
        Prior.NATURAL: matches[here.id],
        Prior.OFF: matches[beside.id],
    }
    assert matches_by_prior(store, store.list(), fast) == {}


def test_of_several_matches_the_newest_finished_one_counts(store: RunStore) -> None:
    model = done(store.create("train", {}))
    config = ReconstructConfig(model=model.id, settings=CopiesSettings(m=10))
    attack = attacked(store, config)
    matched(store, attack)
    newer = matched(store, attacked(store, config))  # of the same attack, made again
    store.create("match", {"runs": [attack.id]}, parents=[attack.id])
    assert list(matches_by_prior(store, store.list(), config).values()) == [newer.id]
