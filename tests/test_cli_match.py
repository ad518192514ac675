"""`match` from a shell: counts in words, files in a folder, one sentence where input is bad."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import torch
from PIL import Image

from recon_core.store import Run, RunStore
from tests.runs.match_runs import CIRCLE, MNIST, candidate_run, data_of, noise, train_run


@pytest.fixture
def leaked(store: RunStore) -> Run:
    """Four training images among noise, in a run on six."""
    data = data_of(MNIST)
    return candidate_run(store, train_run(store, MNIST), torch.cat([noise(5, data.input_shape, 1), data.train_x[:4]]))


def test_a_match_run_names_the_runs_it_was_made_from(cli, store: RunStore, leaked: Run) -> None:
    run_id = cli("match", leaked.id, "-q")[1].strip()
    assert f"from     {leaked.id}\n" in cli("runs", "show", run_id)[1]
    assert f"from     {leaked.parents[0]}\n" in cli("runs", "show", leaked.id)[1]
    assert "\nfrom " not in cli("runs", "show", leaked.parents[0])[1]


def test_match_counts_in_words_and_exports(cli, store: RunStore, leaked: Run, tmp_path: Path) -> None:
    model = store.open(leaked.parents[0])
    untrained = candidate_run(store, model, noise(9, (1, 28, 28), 5), baseline="untrained")
    code, out, err = cli(
        *("match", leaked.id, "--untrained", untrained.id, "--threshold", "0.9", "--merge-factor", "1.0"),
        *("--export", "out", "--no-static"),
    )
    assert (code, err) == (0, "")
    assert "4 of 6 training images reconstructed with SSIM (wang) above 0.9, from 4 different candidates of 9" in out
    assert "the mean image alone matches 0" in out
    assert "untrained network match 0" in out
    assert "untrained network match 0; of 6 held-out images the same candidates match 0" in out
    assert "chance level 0: the mean image alone matches 0; " in out
    assert "AUC" in out

    table = pd.read_csv("out/table.csv")
    assert table["good"].tolist() == [True] * 4 + [False] * 2
    assert table["nearest"][:4].tolist() == [5, 6, 7, 8]
    assert set(table["run"]) == {leaked.id}
    assert table["id"].tolist() == data_of(MNIST).train_ids.tolist()
    assert (table["margin_distance"] - torch.arange(6).numpy()).abs().max() < 1e-6
    pd.testing.assert_frame_equal(pd.read_parquet("out/table.parquet"), table, check_dtype=False)
    with Image.open("out/grid.png") as grid:
        assert grid.width > 6 * 28
    names = {path.stem for path in Path("out").glob("*.html")}
    assert {"ssim_by_output", "ssim_by_margin", "count_by_threshold", "count_by_factor", "sorted_ssim", "roc"} <= names
    assert {"multipliers", "singular_values", "models"} <= names
    assert Path("out/first_layer.png").is_file()


def test_an_existing_match_takes_another_threshold(
    cli, store: RunStore, leaked: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = cli("match", leaked.id, "--threshold", "0.9", "-B", "1.2", "-q")[1].strip()

    def fail(*args: object) -> None:
        raise AssertionError("searched again")

    monkeypatch.setattr("recon_core.runs.cached_matching.neighbours_for", fail)
    code, out, _ = cli("match", first, "--threshold", "-0.5", "-q")
    assert code == 0
    again = store.open(out.strip())
    assert (again.config["threshold"], again.config["merge_factor"]) == (-0.5, 1.2)
    assert again.config["runs"] == [leaked.id]
    assert (again.result() or {})["from_cache"]
    assert cli("match", first, "-B", "1.5", "-q")[0] == 0
    # The stored command does the same.
    code, out, _ = cli(*again.command[3:], "-q")
    assert code == 0
    assert store.open(out.strip()).config == again.config


def test_points_are_told_in_words(cli, store: RunStore) -> None:
    data = data_of(CIRCLE)
    made = candidate_run(store, train_run(store, CIRCLE), data.train_x[:4], labels=data.train_labels[:4])
    code, out, _ = cli("match", made.id, "--export", "out", "--no-static")
    assert code == 0
    assert "within 0.03: 4 of 6 training points found" in out
    assert (pd.read_csv("out/table.csv")["distance"] < 1e-6).sum() == 4
    assert Path("out/points.html").is_file()


BAD_INPUT = {
    "threshold": (["LEAKED", "--threshold", "1.5"], "1.5"),
    "merge factor": (["LEAKED", "--merge-factor", "0.5"], "0.5"),
    "protocol": (["LEAKED", "--protocol", "cosine"], "'cosine'"),
    "ssim": (["LEAKED", "--ssim", "box"], "'box'"),
    "wrong kind": (["MODEL"], "is a train run"),
    "not there": (["reconstruct-20000101-aaaaaa"], "reconstruct-20000101-aaaaaa"),
    "twice": (["LEAKED", "LEAKED"], "twice"),
    "trained control": (["LEAKED", "--untrained", "LEAKED"], "gives no chance level"),
    "pairs": (["LEAKED", "--pairs", "0"], "--pairs"),
    "folder is a file": (["LEAKED", "--export", "taken"], "'taken'"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_one_sentence_and_writes_nothing(cli, store: RunStore, leaked: Run, case: str) -> None:
    Path("taken").write_text("")
    arguments, named = BAD_INPUT[case]
    ids = {"LEAKED": leaked.id, "MODEL": leaked.parents[0]}
    code, _, err = cli("match", *(ids.get(word, word) for word in arguments))
    assert code == 2
    assert named in err
    assert len(err.strip().splitlines()) == 1
    assert store.list("match") == []
