"""`audit` from a shell: files it writes, lines it prints, and the exit code a pipeline sees."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from recon_core.auditing.report import AuditReport
from recon_core.runs.models import model_of
from recon_core.store import RunStore
from tests.foreign_training import Foreign, train_elsewhere, write_images

Cli = Callable[..., tuple[int, str, str]]
QUICK = ("--m", "16", "-s", "iterations=30", "--input-shape", "1,12,12")


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Foreign:
    return train_elsewhere(tmp_path_factory.mktemp("elsewhere"))


def test_folder_gives_a_report_in_both_forms(cli: Cli, foreign: Foreign, tmp_path: Path, own_store: Path) -> None:
    places = ("--html", str(tmp_path / "audit.html"), "--json", str(tmp_path / "audit.json"))
    held_out = ("--held-out", str(foreign.others))
    code, printed, _ = cli("audit", str(foreign.file), "--data", str(foreign.photos), *held_out, *places, *QUICK)
    assert code == 0
    report = AuditReport.model_validate_json((tmp_path / "audit.json").read_text())
    assert report.leak.of == 8
    assert report.verdict.sentence in printed.replace("\n  ", "\n")
    assert "100% accuracy on its 8 images" in printed
    assert "membership by reconstruction: AUC" in printed
    page = (tmp_path / "audit.html").read_text()
    assert page.count("<figure") == 8
    (run,) = RunStore(own_store).list("audit")
    assert printed.startswith(run.id)
    # The command kept with the run makes the same run again.
    command = list(RunStore(own_store).open(run.id).command)[3:]
    assert cli(*command)[0] == 0
    again = RunStore(own_store).list("audit")
    configs = [RunStore(own_store).open(each.id).config for each in again]
    assert configs[0] == configs[1]


def test_exit_code_is_for_pipelines(cli: Cli, foreign: Foreign, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("audit", str(foreign.file), "--data", str(foreign.photos), *QUICK, "--json", "-", "-q")
    # At SSIM -1 every image counts, of the model as of the mean image: nothing beyond chance.
    code, printed, _ = cli(*command, "--threshold", "-1", "--fail-above", "0")
    assert code == 0
    report = json.loads(printed)
    assert (report["leak"]["reconstructed"], report["leak"]["beyond_chance"]) == (8, 0)

    monkeypatch.setattr("recon_core.matching.controls.LeakCount.chance", property(lambda count: 5))
    assert cli(*command, "--threshold", "-1", "--fail-above", "3")[0] == 0
    code, _, said = cli(*command, "--threshold", "-1", "--fail-above", "2")
    assert code == 1
    assert "3 training images came back beyond the chance level, more than --fail-above 2" in said


def test_a_report_that_cannot_be_written_is_named(cli: Cli, foreign: Foreign) -> None:
    """Not the standard output, and not for want of the audit, which is kept."""
    command = ("audit", str(foreign.file), "--data", str(foreign.photos), *QUICK, "-q")
    for option in ("--html", "--json"):
        code, _, said = cli(*command, option, "/dev/full")
        assert code == 2
        assert "could not be written to '/dev/full' (No space left on device)" in said
    assert said.count("\n") == 1


def test_wrong_set_is_bad_input(cli: Cli, foreign: Foreign) -> None:
    exchanged = ("--partition", "dogs|cats")
    command = ("audit", str(foreign.file), "--data", str(foreign.photos), *exchanged, *QUICK)
    code, _, said = cli(*command)
    assert code == 2
    assert "this does not look like its training set: 0% accuracy on its 8 images" in said
    code, printed, said = cli(*command, "--anyway", "--quiet")
    assert code == 0
    assert "warning: this does not look like its training set: 0% accuracy on its 8 images" in said
    assert printed.startswith("audit-")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--data", "nowhere/"), "there are no images 'nowhere'"),
        (("--data", "mnist"), "say which images of mnist the model was trained on"),
        (("--data", "mnist", "--n", "8"), "takes images of 1x12x12 and the attached ones are 1x28x28"),
        (("--data", "PHOTOS", "--fail-above", "-1"), "--fail-above must be 0 or more, got -1"),
        (("--data", "PHOTOS", "--html", "no/where/a.html"), "cannot write 'no/where/a.html'"),
        (("--data", "PHOTOS", "--mean", "x"), "mean"),
        (("--data", "PHOTOS", "--mean", "0.1,0.2"), "mean needs 1 number, got 2"),
        (("--data", "PHOTOS", "--normalisation", "imagenet"), "normalisation must be auto, centred"),
        (("--data", "PHOTOS", "--held-out", "nowhere/"), "there are no images"),
        (("--data", "PHOTOS", "--threshold", "2"), "threshold"),
        (("--data", "THREE"), "has 3 classes and no partition of its own"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_no_run(
    cli: Cli,
    foreign: Foreign,
    tmp_path: Path,
    own_store: Path,
    arguments: tuple[str, ...],
    sentence: str,
) -> None:
    write_images(tmp_path / "three", {"a": 1, "b": 1, "c": 1}, seed=0)
    words = {"PHOTOS": str(foreign.photos), "THREE": str(tmp_path / "three")}
    code, _, said = cli("audit", str(foreign.file), *(words.get(word, word) for word in arguments), *QUICK)
    assert code == 2
    assert sentence in said
    assert "Traceback" not in said
    assert not own_store.exists() or RunStore(own_store).list() == []


def test_what_a_file_does_not_tell_is_told_to_the_audit(
    cli: Cli, foreign: Foreign, tmp_path: Path, own_store: Path
) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(
        *(nn.Conv2d(1, 2, 3, padding=1), nn.LeakyReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(72, 6), nn.LeakyReLU(), nn.Linear(6, 1)),
    )
    file = tmp_path / "convolution.pth"
    torch.save(module.state_dict(), file)
    quick = ("--m", "4", "-s", "iterations=2", "--input-shape", "1,12,12", "--anyway", "-q")
    layout = (
        "--layout",
        "conv(padding=1), leaky_relu, max(2), flatten, dense, leaky_relu, dense",
        "--activation",
        "leaky_relu",
    )
    values = ("--mean", "0.5", "--std", "0.5")
    code, _, said = cli("audit", str(file), "--data", str(foreign.photos), *layout, *values, *quick)
    assert code == 0, said
    (imported,) = RunStore(own_store).list("model")
    owner = RunStore(own_store).open(imported.id)
    assert (owner.config["activation"], owner.config["mean"], owner.config["std"]) == ("leaky_relu", [0.5], [0.5])
    assert "max" in str(owner.result() or {})
    x = torch.rand(3, 1, 12, 12)
    torch.testing.assert_close(model_of(owner).network(x), module(x).detach())
    # A run has been told before.
    code, _, said = cli("audit", imported.id, "--data", str(foreign.photos), "--layout", "dense", "--m", "4")
    assert code == 2
    assert "--layout goes with a file" in said
