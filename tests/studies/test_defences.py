"""A study of defences: its numbers from made-up models, what it says of them, its figure, and one done for real."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from recon_core.analysis.defences import DefenceNames, Defences, defences
from recon_core.analysis.studies import StudyRow, StudyTable
from recon_core.plots.defences import plot_defences
from recon_core.store import RunStore
from recon_core.studies.defences import NOT_TRIED, advice, readable_defences, tradeoff_finding
from recon_core.studies.figures import study_figures
from recon_core.studies.report import report_html
from recon_core.studies.results import study_results
from recon_core.studies.study import StudyConfig, create_study
from tests.studies.tiny_studies import do_study, tiny_plan

NAMES = [
    DefenceNames("none", "no defence", "As it is."),
    DefenceNames("decay", "in training", "A pull to zero."),
    DefenceNames("noise", "on the released weights", "Noise."),
    DefenceNames("DP-SGD", "differential privacy"),
]


def row(point: str, seed: int, good: int, error: float, state: str = "done", **numbers: Any) -> StudyRow:
    known: dict[str, Any] = {
        "good": good,
        "of": 50,
        "test_error": error,
        "control_mean_image": 0,
        "control_untrained": 1,
    }
    known |= {"non_members": 2, "non_members_of": 25, "train_seconds": 3.0, **numbers}
    message = "train: recipe dpsgd needs Opacus" if state == "failed" else ""
    return StudyRow(f"/{point}/{seed}", "", point, None, False, seed, state, message, {}, known if good >= 0 else {})


def made_up() -> Defences:
    rows = [
        *(row("none", seed, 30 + seed, 0.25, certain=10, certain_real=9, loss_tpr=0.5) for seed in (0, 1)),
        *(row("decay", seed, 40 + seed, 0.25) for seed in (0, 1)),
        *(row("noise", seed, 2 + seed, 0.40 + 0.01 * seed) for seed in (0, 1)),
        *(row("DP-SGD", seed, -1, 0.0, state="failed") for seed in (0, 1)),
    ]
    found = defences(StudyTable(tuple(rows)), "", NAMES)
    assert found is not None
    return found


def test_each_defence_has_its_numbers_and_its_change_against_none() -> None:
    found = made_up()
    none, decay, noise = found.rows
    assert none.share.mean == 0.61
    assert none.share_change is None
    # The largest control: 2 of 25 held-out images are 4 of 50.
    assert noise.chance.mean == 4
    assert noise.share_change is not None
    assert noise.share_change.mean == pytest.approx(-0.56)
    assert decay.accuracy_change is not None
    assert decay.accuracy_change.mean == 0
    assert found.missing == (("DP-SGD", "train: recipe dpsgd needs Opacus"),)
    assert found.to_frame().set_index("defence").loc["none", "certain_real"] == 9


def test_what_is_said_follows_from_the_intervals() -> None:
    found = made_up()
    said = tradeoff_finding(found)
    assert "Fewer come back with: noise. All of these cost accuracy. More come back with: decay." in said
    assert "Not run: DP-SGD (train: recipe dpsgd needs Opacus)." in said
    decay, noise = advice(found)
    assert decay.startswith(
        "decay: A pull to zero. 40.5 of 50 images come back (none: 30.5 of 50 images; chance level 4)"
    )
    assert "more beyond the spread of the seeds" in decay
    assert "no difference beyond the spread" in decay
    assert "fewer beyond the spread" in noise
    assert "lower beyond the spread" in noise
    assert list(readable_defences(found)["certain (right)"]) == ["10 (9)", "", ""]


def test_one_seed_judges_nothing() -> None:
    found = defences(StudyTable((row("none", 0, 30, 0.2), row("noise", 0, 2, 0.2))), "", NAMES)
    assert found is not None
    assert "no difference is judged" in tradeoff_finding(found)
    assert "not judged: one seed, so no interval" in advice(found)[0]


def test_without_a_model_without_defence_there_is_nothing_to_compare() -> None:
    assert defences(StudyTable((row("decay", 0, 3, 0.2),)), "", NAMES) is None


def test_every_mark_opens_a_model_and_bars_stay_between_0_and_1() -> None:
    figure = plot_defences(made_up(), "title", "caption")
    cells = {mark[0] for trace in figure.data if trace.customdata is not None for mark in trace.customdata}
    assert cells == {f"/{point}/{seed}" for point in ("none", "decay", "noise") for seed in (0, 1)}
    for trace in figure.data[:3]:
        for y, above, below in zip(trace.y, trace.error_y.array, trace.error_y.arrayminus, strict=True):
            assert y + above <= 1
            assert y - below >= 0
    chance = figure.data[-1]
    assert list(chance.y) == [0.08, 0.08, 0.08]


SGD = {"training.recipe": "sgd", "training.epochs": 20, "training.learning_rate": 0.1}


def test_a_study_of_defences_goes_on_without_opacus(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opacus", None)
    private = {"training.recipe": "dpsgd", "training.epsilon": 8, "training.epochs": 2}
    points = [
        {"label": "none", "group": "no defence"},
        {"label": "8 <bit>", "group": "release", "about": "Rounded.", "settings": {"release.bits": 8}},
        {"label": "DP", "group": "privacy", "settings": private},
    ]
    base = {**SGD, "data.n": 10, "data.test_n": 20, "model.widths": [30], "attack.iterations": 20, "attack.m": 20}
    plan = tiny_plan(name="defences", defences=True, scale="category", points=points, references=[], base=base)
    run = create_study(store, StudyConfig(plan=plan))
    do_study(run)
    results = study_results(store, run.id)
    numbers = {row.point: row.numbers for row in results.table.rows}
    assert {"certain", "certain_real", "loss_tpr", "tpr", "test_error", "train_seconds"} <= numbers["none"].keys()
    assert not numbers["DP"]
    shown = {item.name: item for item in study_figures(store, results)}
    assert list(shown)[:2] == ["tradeoff", "defences"]
    assert "Not run: DP (train: recipe dpsgd needs Opacus, which is not installed" in shown["tradeoff"].finding
    page = report_html(store, run.id)
    assert "8 &lt;bit&gt;: Rounded." in page
    assert "<bit>" not in page.replace("8 \\u003cbit", "")
    assert all(note[:40] in page for note in NOT_TRIED)
