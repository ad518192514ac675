"""One function scores candidates against data: the run, the live view, the page and the library count alike."""

from __future__ import annotations

from dataclasses import asdict

import pytest
import torch

import recon_core as rc
from recon_core.config import parse_config
from recon_core.kinds import perform
from recon_core.matching.controls import Evidence
from recon_core.matching.protocol import GOOD_SSIM
from recon_core.runs import StopFlag
from recon_core.runs.match_cache import MatchCache
from recon_core.runs.match_request import create_match
from recon_core.runs.match_source import MatchConfig, load_source
from recon_core.runs.scoring import score
from recon_core.store import Run, RunState, RunStore
from recon_core.views.live_match import ImagePool, open_pool
from recon_core.views.live_reconstruction import evaluator_of, newest_picture
from tests.runs.match_runs import MNIST, candidate_run, data_of, noise, train_run


@pytest.fixture
def found(store: RunStore) -> Run:
    """Three of the training images among noise."""
    data = data_of(MNIST)
    candidates = torch.cat([data.train_x[:3] + 0.02 * noise(3, data.input_shape, 2), noise(9, data.input_shape, 1)])
    return candidate_run(store, train_run(store, MNIST), candidates)


def test_everybody_counts_alike(store: RunStore, found: Run) -> None:
    config = MatchConfig(runs=(found.id,), device="cpu")
    run = create_match(store, config)
    assert perform(run, StopFlag()) is RunState.DONE
    counted = (run.result() or {})["count"]
    assert counted["good"] >= 3
    assert counted["threshold"] == GOOD_SSIM

    source = load_source(store, config)
    scores = [score(source, config), score(source, config, MatchCache.of_store(store.root))]
    pool = open_pool(store, config, source)
    assert isinstance(pool, ImagePool)
    scores.append(pool.view(config).evidence)
    for evidence in scores:
        assert isinstance(evidence, Evidence)
        count = evidence.at(GOOD_SSIM)
        assert asdict(count) == counted

    model = store.open(found.parents[0])
    picture = newest_picture(found)
    assert picture is not None
    live = evaluator_of(model).count(picture)
    assert not isinstance(live, tuple)
    assert (live.good, live.unique, live.control_mean_image) == tuple(
        counted[name] for name in ("good", "unique", "control_mean_image")
    )
    assert live.non_members is None  # which would take as long again


def test_the_threshold_of_the_papers_stands_in_one_place() -> None:
    assert parse_config(MatchConfig, {"runs": "reconstruct-1"}).threshold == GOOD_SSIM == 0.4
    assert "0.4" in (rc.match.__doc__ or "")
