"""What a store offers to analyse: runs, models, families, controls, from runs whose content is known."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from recon_core.errors import InputError
from recon_core.kinds import perform
from recon_core.runs import StopFlag
from recon_core.runs.match_source import load_source
from recon_core.store import Run, RunState, RunStore
from recon_core.views.leak_view import (
    analysed_runs,
    decay_point,
    leak_panel,
    match_request,
    membership_curve,
    model_index,
    ranked_ssim,
    stored_scores,
    threshold_counts,
)
from recon_core.views.live_match import ImagePool, open_pool
from tests.runs.match_runs import CIRCLE, MNIST, candidate_run, data_of, leaking_run, noise, train_run

SHAPE = (1, 28, 28)


def with_decay(weight_decay: float) -> dict[str, Any]:
    return {**MNIST, "training": {"epochs": 1, "weight_decay": weight_decay}}


def matched(store: RunStore, *runs: Run, **settings: Any) -> Run:
    run = store.create("match", {"runs": [run.id for run in runs], **settings}, parents=[run.id for run in runs])
    assert perform(run, StopFlag()) is RunState.DONE
    return run


@pytest.fixture
def model(store: RunStore) -> Run:
    return train_run(store, MNIST)


@pytest.fixture
def leaked(store: RunStore, model: Run) -> Run:
    """Training images 0 to 3 themselves among noise."""
    return leaking_run(store, model)


def test_a_match_run_is_analysed_as_it_was_matched(store: RunStore, leaked: Run) -> None:
    run = matched(store, leaked, merge_factor=1.25, ssim="authors")
    request = match_request(store, run.id)
    assert (request.runs, request.merge_factor, request.ssim) == ((leaked.id,), 1.25, "authors")


def test_a_reconstruction_gets_the_newest_untrained_control(store: RunStore, model: Run, leaked: Run) -> None:
    assert match_request(store, leaked.id).untrained is None
    candidate_run(store, model, noise(3, SHAPE, 2), baseline="untrained")
    newest = candidate_run(store, model, noise(3, SHAPE, 3), baseline="untrained")
    candidate_run(store, train_run(store, MNIST), noise(3, SHAPE, 4), baseline="untrained")
    assert match_request(store, leaked.id).untrained == newest.id


def test_what_cannot_be_analysed_is_a_sentence(store: RunStore, model: Run) -> None:
    with pytest.raises(InputError, match="is a train run"):
        match_request(store, model.id)
    failed = candidate_run(store, model, noise(3, SHAPE, 2), state=RunState.FAILED)
    with pytest.raises(InputError, match="is failed, not done"):
        match_request(store, failed.id)


def test_runs_are_offered_likeliest_first(store: RunStore, model: Run, leaked: Run) -> None:
    run = matched(store, leaked)
    weights = candidate_run(store, model, noise(3, SHAPE, 2), baseline="weights")
    later = candidate_run(store, model, noise(3, SHAPE, 3))
    candidate_run(store, model, noise(3, SHAPE, 4), baseline="untrained")
    candidate_run(store, model, noise(3, SHAPE, 5), state=RunState.CANCELLED)
    found = analysed_runs(store)
    assert [entry.run for entry in found] == [run.id, later.id, leaked.id, weights.id]
    assert not any(entry.planar for entry in found)
    assert found[0].model_name == model.name


def test_points_are_told_from_images(store: RunStore) -> None:
    circle = candidate_run(store, train_run(store, CIRCLE), torch.zeros(4, 2))
    assert [(entry.run, entry.planar) for entry in analysed_runs(store)] == [(circle.id, True)]


def test_damaged_runs_are_left_out(store: RunStore, model: Run, leaked: Run) -> None:
    run = matched(store, leaked)
    broken = matched(store, leaked)
    (broken.dir / "config.json").chmod(0o600)
    (broken.dir / "config.json").write_text("{torn")
    assert [entry.run for entry in analysed_runs(store) if entry.kind == "match"] == [run.id]
    assert [entry.match_run for entry in model_index(store)] == [run.id]


def test_models_know_their_newest_match_and_their_family(store: RunStore, model: Run, leaked: Run) -> None:
    matched(store, leaked)
    newest = matched(store, leaked, merge_factor=1.5)
    decayed = train_run(store, with_decay(0.01))
    other = train_run(store, {**MNIST, "data": {**MNIST["data"], "n": 4}})
    found = {entry.run: entry for entry in model_index(store)}
    assert set(found) == {model.id, decayed.id, other.id}
    assert found[model.id].match_run == newest.id
    assert found[decayed.id].match_run is None
    assert (found[model.id].weight_decay, found[decayed.id].weight_decay) == (0.0, 0.01)
    assert found[model.id].family == found[decayed.id].family != found[other.id].family
    assert found[model.id].family_id != found[other.id].family_id
    assert "6 of mnist" in found[model.id].family_label


def test_points_never_count_as_matched_images(store: RunStore) -> None:
    circle = candidate_run(store, train_run(store, CIRCLE), torch.zeros(4, 2))
    matched(store, circle)
    assert [entry.match_run for entry in model_index(store)] == [None]


def test_stored_scores_count_at_any_threshold(store: RunStore, model: Run, leaked: Run) -> None:
    untrained = candidate_run(store, model, data_of(MNIST).train_x[:1], baseline="untrained")
    run = matched(store, leaked, merge_factor=1.0, untrained=untrained.id)
    scores = stored_scores(run)
    assert scores.good(0.9) == 4
    assert scores.good(-1.0) == 6
    assert scores.chance(0.9) == 1  # the untrained network was given one training image
    assert scores.settings.merge_factor == 1.0


def test_a_pool_becomes_points_curves_and_a_decay_point(store: RunStore, model: Run, leaked: Run) -> None:
    run = matched(store, leaked, merge_factor=1.0)
    request = match_request(store, run.id)
    pool = open_pool(store, request, load_source(store, request))
    assert isinstance(pool, ImagePool)
    view = pool.view(request)
    scatter = leak_panel(pool, view).scatter
    assert scatter.good(0.9) == 4
    assert scatter.margin_distances.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]  # as `train_run` has them
    assert scatter.ids.tolist() == data_of(MNIST).train_ids.tolist()
    assert scatter.controls(0.9) == {"mean image": 0}
    counts = threshold_counts(view)
    assert counts.good[90] == 4
    assert counts.untrained is None
    assert set(ranked_ssim(view).samples[:4].tolist()) == {0, 1, 2, 3}
    curve = membership_curve(view)
    assert curve is not None
    assert curve.auc > 0.6
    (entry,) = model_index(store)
    point = decay_point(entry, view, 0.9)
    assert (point.good, point.of, point.control_mean_image, point.control_untrained) == (4, 6, 0, None)
    assert (point.train_error, point.test_error, point.weight_decay) == (0.0, 0.25, 0.0)
