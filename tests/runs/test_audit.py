"""An audit as a run: weights first, images after, numbers that say what they are worth."""

from __future__ import annotations

import html
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import torch

from recon_core.auditing.judging import check_kind
from recon_core.auditing.page import render
from recon_core.auditing.report import AuditReport, Level
from recon_core.cli.audit_findings import findings
from recon_core.config import Task
from recon_core.errors import InputError
from recon_core.kinds import import_zip, perform
from recon_core.matching.controls import score_mean_image
from recon_core.matching.ssim import SsimKind, ssim
from recon_core.runs import StopFlag
from recon_core.runs.attached import attached_data, describe_attached, load_attached
from recon_core.runs.audit import AuditConfig, audit_run, check_audit, create_audit
from recon_core.runs.models import model_of
from recon_core.runs.reconstruction import attack_settings
from recon_core.runs.requests import create_import
from recon_core.store import Run, RunState, RunStore
from recon_core.views.audits import read_audit
from tests.foreign_training import SIDE, Foreign, train_elsewhere, write_images

PROJECT = Path(__file__).parents[2]
QUICK = {"m": 16, "iterations": 30, "device": "cpu"}


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Foreign:
    return train_elsewhere(tmp_path_factory.mktemp("elsewhere"))


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path / "runs")


def imported(store: RunStore, foreign: Foreign) -> Run:
    run = create_import(store, foreign.file, (1, SIDE, SIDE))
    perform(run, StopFlag())
    return run


def asked(model: Run, photos: Path, outputs: int = 1, **values: Any) -> AuditConfig:
    own = {key: values.pop(key) for key in ("threshold", "anyway") if key in values}
    attached = attached_data(photos, outputs, values)
    return AuditConfig(model=model.id, settings=attack_settings(model_of(model), QUICK), attached=attached, **own)


def audit(store: RunStore, foreign: Foreign, photos: Path | None = None, **values: Any) -> Run:
    run = create_audit(store, asked(imported(store, foreign), photos or foreign.photos, **values))
    perform(run, StopFlag())
    return run


def report_of(run: Run) -> AuditReport:
    return AuditReport.model_validate(run.result())


def test_report_of_a_foreign_checkpoint(store: RunStore, foreign: Foreign) -> None:
    run = audit(store, foreign, held_out=str(foreign.others), normalisation="symmetric")
    report = report_of(audit_run(store, run.id))
    assert report.model.name == "theirs.pth"
    assert report.data.classes == {"cats": 5, "dogs": 3}  # all of them, however uneven
    assert report.data.held_out == 20
    assert report.fit.accuracy == 1
    assert report.fit.kkt_residual_by_layer is not None
    assert list(report.fit.kkt_residual_by_layer) == ["layers.0", "layers.1", "layers.2"]
    assert report.data.normalisation == "(pixel - 0.5) / 0.5 (symmetric)"
    assert not report.data.normalisation_assumed
    assert report.leak.of == 8
    assert report.leak.controls.untrained is not None
    assert report.leak.controls.held_out_of == 20
    assert [test.name for test in report.membership] == ["loss", "margin", "reconstruction"]
    ssim = [row.ssim for row in report.images]
    assert ssim == sorted(ssim, reverse=True, key=lambda value: -2 if value is None else value)
    assert {row.label for row in report.images} == {"cats", "dogs"}
    jsonschema.validate(run.result(), AuditReport.model_json_schema())
    pictures = run.tensors("pictures")
    assert pictures["images"].shape == pictures["reconstructions"].shape == (8, 1, SIDE, SIDE)
    assert pictures["images"].dtype == torch.uint8


def test_page_says_how_to_read_it_and_why_the_attack_may_fail(store: RunStore, foreign: Foreign) -> None:
    run = audit(store, foreign)
    report = report_of(run)
    assert report.verdict.level is not Level.LEAKS
    assert report.reasons == [each.sentence for each in report.assumptions if each.holds == "no"] != []
    page = read_audit(run).to_html()
    assert "How to read these figures" in page
    for reason in report.reasons:
        assert f"<li>{html.escape(reason)}</li>" in page
    leaking = report.model_copy(update={"verdict": report.verdict.model_copy(update={"level": Level.LEAKS})})
    pictures = run.tensors("pictures")
    assert "<li>" + html.escape(report.reasons[0]) not in render(
        leaking, pictures["images"].numpy(), pictures["reconstructions"].numpy()
    )


def test_counts_stand_beside_those_of_the_papers_window(store: RunStore, foreign: Foreign) -> None:
    """As a matching with that window counts them, and in the page; a report from before reads without them."""
    run = audit(store, foreign, held_out=str(foreign.others), normalisation="symmetric", threshold=0.1)
    report = report_of(run)
    found = report.leak.other_window
    assert found is not None
    pictures = run.tensors("pictures")
    images, drawn = (pictures[name].float() / 255 for name in ("images", "reconstructions"))
    assert found.reconstructed == int((ssim(images, drawn, SsimKind.AUTHORS) > 0.1).sum())
    mean_image = score_mean_image(images, images.mean(0), SsimKind.AUTHORS)
    assert found.chance >= int((mean_image > 0.1).sum()) > 0
    assert [at.other_window is not None for at in report.leak.by_threshold] == [True] * 6
    assert f"{found.reconstructed} with the papers&#x27; 3x3 window (chance level {found.chance})" in (
        read_audit(run).to_html()
    )
    assert any(str(found) in line for line in findings(report))
    values = report.model_dump(mode="json")
    del values["leak"]["other_window"]
    for at in values["leak"]["by_threshold"]:
        del at["other_window"]
    jsonschema.validate(values, AuditReport.model_json_schema())
    older = AuditReport.model_validate(values)
    assert older.leak.other_window is None
    assert "3x3" not in render(older, pictures["images"].numpy(), pictures["reconstructions"].numpy())


def test_schema_refuses_what_is_no_report(store: RunStore, foreign: Foreign) -> None:
    result = audit(store, foreign).result()
    assert result is not None
    schema = AuditReport.model_json_schema()
    jsonschema.validate(result, schema)
    for broken in (
        {**result, "verdict": {**result["verdict"], "level": "fine"}},
        {**result, "leak": {**result["leak"], "reconstructed": "many"}},
        {key: value for key, value in result.items() if key != "assumptions"},
        {**result, "extra": 1},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, schema)


BLIND = """
import sys
import zipfile
from pathlib import Path
folder = Path(sys.argv[1])
class Blind:
    def find_spec(self, name, path=None, target=None):
        hidden = name.split(".")[:2] in (["recon_core", part] for part in ("data", "matching", "training", "auditing"))
        if hidden and not all((folder / f"{part}.safetensors").exists() for part in ("candidates", "untrained")):
            raise ImportError(name + " is out of reach until the candidates are written")
sys.meta_path.insert(0, Blind())
from recon_core.worker import main
code = main([str(folder)])
assert "recon_core.data" in sys.modules
sys.exit(code)
"""


@pytest.mark.processes
def test_attack_is_over_before_the_code_that_reads_data_is_loaded(store: RunStore, foreign: Foreign) -> None:
    run = create_audit(store, asked(imported(store, foreign), foreign.photos))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", BLIND, str(run.dir)]
    done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr
    assert run.status().state is RunState.DONE


def test_images_are_read_after_both_sets_of_candidates_are_written(
    store: RunStore, foreign: Foreign, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = create_audit(store, asked(imported(store, foreign), foreign.photos))
    looked = []

    def look(*given: Any, **named: Any) -> Any:
        looked.append((run.has_tensors("candidates"), run.has_tensors("untrained")))
        return load_attached(*given, **named)

    monkeypatch.setattr("recon_core.runs.attached.load_attached", look)
    perform(run, StopFlag())
    assert looked == [(True, True)]


def test_candidates_are_the_same_whatever_is_attached(tmp_path: Path, foreign: Foreign) -> None:
    """Blank pages in place of the photos: the attack cannot tell."""
    write_images(tmp_path / "blank", {"cats": 2, "dogs": 2}, seed=7)
    found = []
    for number, photos in enumerate((foreign.photos, tmp_path / "blank")):
        run = audit(RunStore(tmp_path / f"store{number}"), foreign, photos, anyway=True)
        found.append([run.tensors(name)["candidates"] for name in ("candidates", "untrained")])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


def test_wrong_set_is_refused_with_numbers_and_the_candidates_stay(store: RunStore, foreign: Foreign) -> None:
    """Cats for dogs; a second try takes the candidates over and says so."""
    wrong = store.root.parent / "wrong"
    shutil.copytree(foreign.photos / "dogs", wrong / "a")
    shutil.copytree(foreign.photos / "cats", wrong / "b")
    model = imported(store, foreign)
    run = create_audit(store, asked(model, wrong))
    with pytest.raises(InputError, match=r"does not look like its training set: 0% accuracy on its 8 images"):
        perform(run, StopFlag())
    status = run.status()
    assert status.state is RunState.FAILED
    assert "with its two classes exchanged it would be 100%" in status.message
    again = create_audit(store, asked(model, foreign.photos))
    perform(again, StopFlag())
    assert report_of(again).fit.likeness == "fits"
    assert any(f"candidates are those of audit {run.id}" in line for line in again.log_tail())
    assert torch.equal(again.tensors("candidates")["candidates"], run.tensors("candidates")["candidates"])
    anyway = create_audit(store, asked(model, wrong, anyway=True))
    perform(anyway, StopFlag())
    assert report_of(anyway).fit.likeness == "refused"


def test_stopped_audit_resumes_to_the_same_report(store: RunStore, foreign: Foreign, tmp_path: Path) -> None:
    model = imported(store, foreign)
    run = create_audit(store, asked(model, foreign.photos))
    stop = StopFlag()
    stop.raised = True
    assert perform(run, stop) is RunState.CANCELLED
    assert not run.has_tensors("pictures")
    assert perform(run, StopFlag()) is RunState.DONE
    whole = audit(RunStore(tmp_path / "other"), foreign)
    assert report_of(run).leak == report_of(whole).leak
    assert report_of(run).images == report_of(whole).images


@pytest.mark.parametrize(
    ("counts", "values", "sentence"),
    [
        ({"a": 1, "b": 1, "c": 1}, {}, r"folder .* has 3 classes and no partition of its own"),
        (None, {"normalisation": "imagenet"}, r"normalisation must be auto, .* got 'imagenet'"),
    ],
)
def test_what_cannot_be_attached_is_said(
    store: RunStore, foreign: Foreign, tmp_path: Path, counts: Any, values: dict[str, Any], sentence: str
) -> None:
    photos = foreign.photos
    if counts is not None:
        photos = tmp_path / "photos"
        write_images(photos, counts, seed=0)
    model = imported(store, foreign)
    config = asked(model, photos, **values)

    def refused() -> None:
        check_audit(model_of(model), config)
        perform(create_audit(store, config), StopFlag())

    with pytest.raises(InputError, match=sentence):
        refused()


def test_an_audit_can_be_sent_to_somebody_else(store: RunStore, foreign: Foreign, tmp_path: Path) -> None:
    """With its report and pictures; one whose report was tampered with is a row that says so."""
    run = audit(store, foreign, held_out=str(foreign.others))
    sent = store.export(run.id, tmp_path)
    theirs = RunStore(tmp_path / "theirs")
    arrived = import_zip(theirs, sent)[-1]
    assert (arrived.kind, arrived.status().state) == ("audit", RunState.DONE)
    assert read_audit(arrived).to_json() == read_audit(run).to_json()
    tampered = json.loads((run.dir / "result.json").read_text())
    tampered["verdict"] = 7
    with zipfile.ZipFile(sent) as whole, zipfile.ZipFile(tmp_path / "bad.zip", "w") as bad:
        for name in whole.namelist():
            forged = name == f"{run.id}/result.json"
            bad.writestr(name, json.dumps(tampered) if forged else whole.read(name))
    victim = import_zip(RunStore(tmp_path / "victim"), tmp_path / "bad.zip")[-1]
    assert victim.status().state is RunState.FAILED
    assert "result.json: verdict" in victim.status().message


def test_shapes_and_classes_are_checked_before_the_attack(store: RunStore, foreign: Foreign, tmp_path: Path) -> None:
    model = imported(store, foreign)
    with pytest.raises(InputError, match=r"takes images of 1x12x12 and the attached ones are 1x28x28"):
        check_audit(model_of(model), asked(model, Path("mnist"), n=8))
    for values, sentence in (
        ({"normalisation": "imagenet"}, r"normalisation must be auto, .* got 'imagenet'"),
        ({"mean": (0.5, 0.5)}, r"mean needs 1 number, got 2"),
        ({"std": (58.0,)}, r"std must be a number such as 0.25, .* got 58; divide it by 255"),
    ):
        with pytest.raises(InputError, match=sentence):
            check_audit(model_of(model), asked(model, foreign.photos, **values))
    with pytest.raises(InputError, match=r"there are no images '.*nowhere'"):
        check_audit(model_of(model), asked(model, foreign.photos, held_out=str(foreign.photos / "nowhere")))
    np.savez(tmp_path / "larger.npz", images=np.zeros((2, 14, 14), np.uint8), labels=np.arange(2))
    with pytest.raises(InputError, match=r"held-out images are of shape \(1, 14, 14\) and training images of"):
        check_audit(model_of(model), asked(model, foreign.photos, held_out=str(tmp_path / "larger.npz")))
    with pytest.raises(InputError, match=r"in windows of 11x11 pixels, and this network takes 3x8x8"):
        check_kind((3, 8, 8), 1, (3, 8, 8), ("a", "b"), Task.BINARY)
    with pytest.raises(InputError, match=r"has one output, so two classes, and the attached images have 10 classes"):
        check_kind((1, 28, 28), 1, (1, 28, 28), tuple("0123456789"), Task.MULTICLASS)


@pytest.mark.parametrize(
    ("source", "values", "sentence"),
    [
        ("cifar10", {}, r"say which images of cifar10 the model was trained on: n or per_class"),
        ("circle", {}, r"an audit is of images, got the planar source circle"),
        ("nowhere", {}, r"there are no images 'nowhere'; give a folder of class folders, .* haim2022-cifar10"),
        ("cifar10", {"n": 5}, None),
    ],
)
def test_source_that_says_too_little(source: str, values: dict[str, Any], sentence: str | None) -> None:
    if sentence is None:
        assert describe_attached(attached_data(source, 1, values)) == "cifar10: n=5"
        return
    with pytest.raises(InputError, match=sentence):
        attached_data(source, 1, values)


def test_selections_of_the_authors_are_presets() -> None:
    """First n of each side, in the order of the set; the number can be changed."""
    attached = attached_data("haim2022-cifar10", 1, {})
    assert (attached.data.n, attached.data.partition, attached.normalisation) == (500, "animals-vehicles", "centred")
    fewer = attached_data("buzaglo2023-cifar10", 10, {"n": 100})
    assert (fewer.data.n, fewer.data.per_class, str(fewer.data.task)) == (100, None, "multiclass")


def test_held_out_images_must_be_of_the_same_kind(store: RunStore, foreign: Foreign, tmp_path: Path) -> None:
    write_images(tmp_path / "strange", {"cats": 2, "horses": 2}, seed=3)
    attached = attached_data(foreign.photos, 1, {"held_out": str(tmp_path / "strange")})
    with pytest.raises(InputError, match=r"held-out images have a class 'horses', the training images cats, dogs"):
        load_attached(attached)


def test_page_shows_names_as_text_and_runs_nothing(store: RunStore, foreign: Foreign) -> None:
    run = audit(store, foreign, held_out=str(foreign.others))
    report = report_of(run)
    evil = report.model_copy(
        update={
            "model": report.model.model_copy(update={"name": "<script>alert(1)</script>"}),
            "images": [row.model_copy(update={"label": "<img src=x onerror=alert(1)>"}) for row in report.images],
        }
    )
    pictures = run.tensors("pictures")
    page = render(evil, pictures["images"].numpy(), pictures["reconstructions"].numpy())
    assert "<script" not in page
    assert "<img src=x" not in page
    assert "&lt;script&gt;" in page
    assert "http://" not in page
    assert "https://" not in page
    assert page.count("<figure") == 8
    first = page.index("1. ")
    assert first < page.index("2. ", first)
