"""Match runs on candidates whose origin is known."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from recon_core.errors import InputError
from recon_core.kinds import perform
from recon_core.runs import StopFlag
from recon_core.runs.match_cache import MatchCache, cache_key, content_digest
from recon_core.runs.match_source import MatchConfig, load_source
from recon_core.runs.scoring import lay_out
from recon_core.store import Run, RunState, RunStore
from recon_core.views.match_report import match_report
from tests.runs.match_runs import CIRCLE, MNIST, candidate_run, data_of, noise, train_run


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path / "runs")


@pytest.fixture
def model(store: RunStore) -> Run:
    return train_run(store, MNIST)


def matched(store: RunStore, *runs: Run, **settings: Any) -> Run:
    config = {"runs": [run.id for run in runs], **settings}
    run = store.create("match", config, parents=config["runs"])
    assert perform(run, StopFlag()) is RunState.DONE
    return run


def result_of(run: Run) -> dict[str, Any]:
    result = run.result()
    assert result is not None
    return result


def test_candidates_that_are_training_images_are_found(store: RunStore, model: Run) -> None:
    data = data_of(MNIST)
    shape = data.input_shape
    leaked = candidate_run(store, model, torch.cat([noise(5, shape, 1), data.train_x[:4]]))
    rest = candidate_run(store, model, noise(5, shape, 2), kind="search")
    untrained = candidate_run(store, model, noise(12, shape, 3), baseline="untrained")
    run = matched(store, leaked, rest, untrained=untrained.id, merge_factor=1.0, threshold=0.9)
    result, tensors = result_of(run), run.tensors("match")
    count = result["count"]
    assert (count["good"], count["unique"], count["of"], count["candidates"]) == (4, 4, 6, 14)
    assert (count["control_mean_image"], count["control_untrained"], count["non_members"]) == (0, 0, 0)
    assert (count["non_members_of"], count["untrained_candidates"]) == (6, 12)
    assert result["tpr_at_1_percent_fpr"] >= 4 / 6
    assert result["auc"] > 0.6
    assert result["seeds"] is None
    assert tensors["nearest"][:4].tolist() == [5, 6, 7, 8]
    assert tensors["distances"][:4].abs().max() < 1e-3
    assert tensors["ssim"][:4].min() > 0.99
    assert tensors["run_starts"].tolist() == [0, 9]
    assert torch.allclose(tensors["images"], data.train_x + data.mean, atol=1e-6)
    # The row of the chosen factor is the count's own.
    own = tensors["factors"].tolist().index(1.0)
    assert tensors["ssim_by_factor"][own].equal(tensors["ssim"])


def test_a_second_match_comes_from_the_cache(store: RunStore, model: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = data_of(MNIST).input_shape
    made = candidate_run(store, model, noise(10, shape, 1))
    first = matched(store, made)
    assert not result_of(first)["from_cache"]

    def fail(*args: object) -> None:
        raise AssertionError("searched again")

    monkeypatch.setattr("recon_core.runs.cached_matching.neighbours_for", fail)
    again = matched(store, made)
    assert result_of(again)["from_cache"]
    for name, tensor in first.tensors("match").items():
        assert tensor.equal(again.tensors("match")[name])
    # Another threshold or B needs no neighbours either.
    other = matched(store, made, threshold=0.1, merge_factor=1.5)
    assert result_of(other)["count"]["merge_factor"] == 1.5
    assert (other.tensors("match")["merged_counts"] >= first.tensors("match")["merged_counts"]).all()


def test_live_matching_equals_the_run_at_every_factor(store: RunStore, model: Run) -> None:
    made = candidate_run(store, model, noise(10, data_of(MNIST).input_shape, 1))
    tensors = matched(store, made).tensors("match")
    config = MatchConfig(runs=(made.id,))
    live = lay_out(load_source(store, config), config, MatchCache.of_store(store.root))
    for factor, ssim in zip(tensors["factors"].tolist(), tensors["ssim_by_factor"], strict=True):
        settings = live.members.settings.merging_within(factor)
        assert live.evidence(settings).matching.ssim.equal(ssim)


def test_several_seeds_give_an_interval(store: RunStore, model: Run) -> None:
    data = data_of(MNIST)
    candidates = torch.cat([data.train_x[:2], data.train_x[:4]])
    made = candidate_run(store, model, candidates, seeds=torch.tensor([7, 7, 9, 9, 9, 9]))
    seeds = result_of(matched(store, made, merge_factor=1.0, threshold=0.95))["seeds"]
    assert seeds["counts"] == {"7": 2, "9": 4}
    assert seeds["mean"] == 3.0
    # Student's t with one degree of freedom: 12.706 standard errors of 1.
    assert seeds["high"] - seeds["mean"] == pytest.approx(12.706, abs=1e-3)


def test_a_convolution_takes_the_larger_merge_factor(store: RunStore) -> None:
    values = {**MNIST, "model": {"widths": [8], "conv_kernel": 3, "conv_channels": 2}}
    made = candidate_run(store, train_run(store, values), noise(10, (1, 28, 28), 1))
    assert result_of(matched(store, made))["count"]["merge_factor"] == 1.5


def test_haim_protocol_has_no_factors(store: RunStore, model: Run) -> None:
    made = candidate_run(store, model, noise(10, (1, 28, 28), 1))
    run = matched(store, made, protocol="haim", ssim="authors", vote="median", assignment="exclusive")
    assert result_of(run)["settings"]["protocol"] == "haim"
    assert len(run.tensors("match")["factors"]) == 0


def test_points_are_counted_within_a_radius_and_a_class(store: RunStore) -> None:
    model, data = train_run(store, CIRCLE), data_of(CIRCLE)
    far = torch.full((1, 2), 5.0)
    candidates = torch.cat([data.train_x[:3] + 0.01, data.train_x[3:4] + 0.05, data.train_x[4:5], far])
    labels = torch.cat([data.train_labels[:4], 1 - data.train_labels[4:5], torch.zeros(1, dtype=torch.long)])
    made = candidate_run(store, model, candidates, labels=labels)
    run = matched(store, made)
    near, wide = result_of(run)["counts"]
    assert (near["recovered"], wide["recovered"], near["of"]) == (3, 4, 6)
    assert (near["settled"], near["kept"]) == (3, 6)
    assert near["non_members"] == 0
    assert run.tensors("match")["nearest"][:3].tolist() == [0, 1, 2]


def test_a_cancelled_match_can_be_resumed(store: RunStore, model: Run) -> None:
    made = candidate_run(store, model, noise(10, (1, 28, 28), 1))
    run = store.create("match", {"runs": [made.id]}, parents=[made.id])
    stop = StopFlag()
    stop.raised = True
    assert perform(run, stop) is RunState.CANCELLED
    assert perform(run, StopFlag()) is RunState.DONE


def bad_cases(store: RunStore, model: Run) -> dict[str, tuple[dict[str, Any], str]]:
    shape = (1, 28, 28)
    made = candidate_run(store, model, noise(4, shape, 1))
    other_model = train_run(store, MNIST)
    blank = {**MNIST, "data": {**MNIST["data"], "n": 2}}
    return {
        "no candidates": ({"runs": [candidate_run(store, model, noise(0, shape, 1)).id]}, "0 candidates"),
        "other data": (
            {"runs": [candidate_run(store, train_run(store, blank, "f" * 64), noise(4, shape, 1)).id]},
            "saw other data",
        ),
        "mixed shapes": (
            {"runs": [made.id, candidate_run(store, model, noise(4, (1, 8, 8), 1)).id]},
            "(1, 8, 8)",
        ),
        "wrong shape": ({"runs": [candidate_run(store, model, noise(4, (1, 8, 8), 1)).id]}, "(1, 8, 8)"),
        "two models": (
            {"runs": [made.id, candidate_run(store, other_model, noise(4, shape, 1)).id]},
            "match runs of one model",
        ),
        "not done": (
            {"runs": [candidate_run(store, model, noise(4, shape, 1), state=RunState.FAILED).id]},
            "is failed, not done",
        ),
        "wrong kind": ({"runs": [model.id]}, "is a train run"),
        "named twice": ({"runs": [made.id, made.id]}, "named twice"),
        "none named": ({"runs": []}, "at least one"),
        "threshold": ({"runs": [made.id], "threshold": 1.5}, "[-1, 1], got 1.5"),
        "merge factor": ({"runs": [made.id], "merge_factor": 0.9}, "at least 1, got 0.9"),
        "protocol": ({"runs": [made.id], "protocol": "cosine"}, "'cosine'"),
        "trained control": ({"runs": [made.id], "untrained": made.id}, "gives no chance level"),
        "not there": ({"runs": ["reconstruct-20000101-aaaaaa"]}, "no run reconstruct-20000101-aaaaaa"),
        "no number": ({"runs": [candidate_run(store, model, noise(4, shape, 1) * torch.nan).id]}, "NaN"),
    }


def test_bad_input_is_a_sentence(store: RunStore, model: Run) -> None:
    for case, (config, named) in bad_cases(store, model).items():
        run = store.create("match", config)
        with pytest.raises(InputError) as caught:
            perform(run, StopFlag())
        sentence = str(caught.value)
        assert named in sentence, (case, sentence)
        assert "\n" not in sentence, case
        assert run.status().state is RunState.FAILED


def own_images(path: Path, images: NDArray[np.float32]) -> dict[str, Any]:
    np.savez(path, images=images, labels=np.arange(len(images)) % 2)
    return {**MNIST, "data": {"source": "npz", "path": str(path), "n": 4}}


def test_images_too_small_for_the_window_are_refused_before_the_search(store: RunStore, tmp_path: Path) -> None:
    values = own_images(tmp_path / "tiny.npz", np.random.default_rng(0).random((8, 8, 8)).astype(np.float32))
    made = candidate_run(store, train_run(store, values), noise(4, (1, 8, 8), 1))
    with pytest.raises(InputError, match="11x11"):
        load_source(store, MatchConfig(runs=(made.id,)))
    assert load_source(store, MatchConfig(runs=(made.id,), ssim="authors")).data.n == 4


def test_a_copy_of_a_training_image_is_no_non_member(store: RunStore, tmp_path: Path) -> None:
    images = np.random.default_rng(0).random((10, 12, 12)).astype(np.float32)
    images[6] = images[0]
    made = candidate_run(store, train_run(store, own_images(tmp_path / "own.npz", images)), noise(4, (1, 12, 12), 1))
    tensors = matched(store, made).tensors("match")
    assert tensors["non_member_ids"].tolist() == [4, 5, 7, 8]
    assert len(tensors["non_member_ssim"]) == 4


def test_planar_runs_are_matched_after_their_own_stages(store: RunStore) -> None:
    model, data = train_run(store, CIRCLE), data_of(CIRCLE)
    run = store.create("reconstruct", {"model": model.id}, parents=[model.id])
    with run.writer() as writer:
        writer.start(1)
        ones, seeds = torch.ones(6), torch.zeros(6, dtype=torch.long)
        tensors = {"candidates": data.train_x, "multipliers": ones, "labels": data.train_labels, "seeds": seeds}
        writer.save_tensors("candidates", tensors)
        writer.save_tensors("stages", {"deduplicated": torch.arange(6) % 3 == 0})
        writer.finish(RunState.DONE, {})
    result = result_of(matched(store, run))
    assert (result["counts"][0]["recovered"], result["counts"][0]["kept"]) == (2, 2)


def test_a_report_survives_export_and_import(store: RunStore, model: Run, tmp_path: Path) -> None:
    made = candidate_run(store, model, noise(6, (1, 28, 28), 1))
    run = matched(store, made)
    elsewhere = RunStore(tmp_path / "elsewhere")
    elsewhere.import_zip(store.export(run.id, tmp_path / "run.zip"))
    table = match_report(elsewhere, run.id).tables["table"].to_frame()
    assert table["ssim"].tolist() == run.tensors("match")["ssim"].double().tolist()
    with pytest.raises(InputError, match="choose a match run"):
        match_report(elsewhere, made.id)


def test_constant_training_images_are_refused(store: RunStore, tmp_path: Path) -> None:
    # All alike: centred, they are all zero.
    values = own_images(tmp_path / "flat.npz", np.full((8, 12, 12), 0.3, dtype=np.float32))
    made = candidate_run(store, train_run(store, values), noise(4, (1, 12, 12), 1))
    with pytest.raises(InputError, match="constant"):
        load_source(store, MatchConfig(runs=(made.id,)))


class TestCache:
    @pytest.fixture
    def cache(self, tmp_path: Path) -> MatchCache:
        return MatchCache.of_store(tmp_path)

    def test_keeps_tensors_and_is_private(self, cache: MatchCache) -> None:
        value = {"a": torch.arange(5), "b": torch.randn(3, 2)}
        cache.tensors("k", lambda: value)
        found = cache.tensors("k", dict)
        assert found["a"].equal(value["a"])
        assert found["b"].equal(value["b"])
        assert (cache.hits, cache.misses) == (1, 1)
        assert stat.S_IMODE(cache.folder.stat().st_mode) == 0o700

    def test_a_damaged_entry_is_computed_again(self, cache: MatchCache) -> None:
        large = {"a": torch.randn(50_000)}
        cache.tensors("k", lambda: large)
        (entry,) = cache.folder.rglob("*.val")
        damaged = bytearray(entry.read_bytes())
        damaged[-3] ^= 1
        entry.write_bytes(damaged)
        assert cache.tensors("k", lambda: large)["a"].equal(large["a"])
        assert (cache.hits, cache.misses) == (0, 2)
        cache.tensors("k", dict)
        assert cache.hits == 1

    def test_a_damaged_index_starts_over(self, cache: MatchCache) -> None:
        cache.tensors("k", lambda: {"a": torch.ones(1)})
        for part in cache.folder.glob("cache.db*"):
            part.write_bytes(b"not a database" * 100)
        assert cache.tensors("k", lambda: {"a": torch.zeros(1)})["a"].item() == 0
        assert cache.tensors("k", dict)["a"].item() == 0

    def test_nothing_is_ever_unpickled(self, cache: MatchCache) -> None:
        import diskcache

        cache.folder.mkdir(parents=True)
        with diskcache.Cache(str(cache.folder)) as plain:
            plain["k"] = {"a": "a pickle"}
        assert cache.tensors("k", lambda: {"a": torch.ones(1)})["a"].item() == 1
        assert cache.misses == 1

    def test_old_entries_make_room(self, tmp_path: Path) -> None:
        cache = MatchCache(tmp_path / "small", size_limit=1 << 20)
        for key in range(30):
            cache.tensors(str(key), lambda: {"a": torch.zeros(25_000)})
        assert sum(entry.stat().st_size for entry in cache.folder.rglob("*.val")) < 3 << 20

    def test_a_folder_that_cannot_be_made_only_costs_time(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        cache = MatchCache(tmp_path / "file" / "matching")
        assert cache.tensors("k", lambda: {"a": torch.ones(1)})["a"].item() == 1

    def test_keys_follow_content(self) -> None:
        a = torch.arange(6.0)
        assert content_digest(a) == content_digest(a.clone())
        assert content_digest(a) != content_digest(a.view(2, 3))
        assert content_digest(a) != content_digest(a.double())
        assert cache_key("x", 1) != cache_key("x", 2)
