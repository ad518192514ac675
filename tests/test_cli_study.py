"""`study` and `report` from a shell."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from recon_core.store import RunState, RunStore
from tests.studies.tiny_studies import InlineExecutor

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers have tests of their own; starting them takes longer than these studies."""
    monkeypatch.setattr("recon_core.scheduling.placement.LocalExecutor", lambda places, log: InlineExecutor())


OWN = """
name: small
title: A small study
set:
  data.n: 10
  data.test_n: 20
  widths: 50,50
  init_scale: kaiming
  recipe: flow
  target_log_loss: -5.0
  attack.iterations: 20
vary:
  model.bias: [first, none]
untrained_control: false
"""


def test_list_names_every_study_with_a_time(cli: Cli) -> None:
    code, output, _ = cli("study", "--list")
    assert code == 0
    for word in ("weight-decay", "convolution", "faces", "Buzaglo et al. 2023, Fig. 5", "90 models"):
        assert word in output
    code, output, _ = cli("study", "--list", "--json")
    listed = {row["name"]: row for row in json.loads(output)}
    quick = listed["weight-decay"]["costs"]["quick"]
    assert quick["models"] == 90
    assert 60 < quick["seconds"] * quick["places"] < 3 * 3600
    assert "quick" not in listed["many-samples"]["costs"]


def test_an_own_study_runs_reports_and_is_not_done_twice(cli: Cli, store: RunStore, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(OWN)
    code, output, errors = cli("study", "own.yaml")
    assert code == 0, errors
    assert "2 of 2 models trained, attacked and matched" in output
    assert "reconstructed at" in output
    run_id = store.list("study")[0].id
    assert f"next: python -m recon_core report {run_id}" in output
    assert store.open(run_id).command[-1] == str(tmp_path / "own.yaml")

    code, output, errors = cli("study", "own.yaml", "-q")
    assert (code, output.strip()) == (0, run_id)
    assert "has already been run" in errors

    code, output, _ = cli("report", "small", "--to", "page.html")
    assert code == 0
    assert "A small study" in (tmp_path / "page.html").read_text(encoding="utf-8")

    code, output, _ = cli("runs", "show", run_id)
    assert code == 0


def test_a_begun_study_is_continued_by_the_same_command(cli: Cli, store: RunStore, tmp_path: Path) -> None:
    from recon_core.studies.custom import read_own
    from recon_core.studies.study import StudyConfig, create_study

    (tmp_path / "own.yaml").write_text(OWN.replace("[first, none]", "[first]"))
    begun = create_study(store, StudyConfig(plan=read_own(tmp_path / "own.yaml")))
    assert begun.request_cancel()
    code, _, errors = cli("study", "own.yaml")
    assert code == 0
    assert f"continuing {begun.id}" in errors
    assert [summary.id for summary in store.list("study")] == [begun.id]
    assert begun.status().state is RunState.DONE


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("study",), "which study?"),
        (("study", "weight-dekay"), "did you mean weight-decay"),
        (("study", "weight-decay", "--size", "huge"), "--size must be quick, paper-n or full, got 'huge'"),
        (("study", "many-samples"), "has no size quick; choose --size paper-n or --size full"),
        (("study", "weight-decay", "--only", "7"), "has no value '7'"),
        (("study", "weight-decay", "--panel", "three"), "has no panel 'three'"),
        (("study", "weight-decay", "--seeds", "0"), "--seeds must be 1 to 100, got 0"),
        (("study", "weight-decay", "--workers", "0"), "workers must be greater than or equal to 1, got 0"),
        (("study", "absent.yaml"), "cannot read study file 'absent.yaml'"),
        (("report", "weight-decay"), "there is no study 'weight-decay'"),
        (("report", "../elsewhere"), "there is no study"),
    ],
)
def test_bad_requests_are_refused_in_one_sentence(
    cli: Cli, own_store: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    code, output, errors = cli(*arguments)
    assert code == 2
    assert sentence in errors
    assert "Traceback" not in errors
    assert output == ""
    assert not list(own_store.glob("study-*"))


def test_images_that_are_not_there_leave_no_run_behind(cli: Cli, own_store: Path, tmp_path: Path) -> None:
    (tmp_path / "big.yaml").write_text("preset: cifar10-50\nvary: {data.n: [10, 5000]}\n")
    code, _, errors = cli("study", "big.yaml")
    assert code == 2
    assert "n=5000 needs 2500 images" in errors
    assert not own_store.exists()
