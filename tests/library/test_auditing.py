"""`rc.audit`: modules, files, arrays and folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import recon_core as rc
from recon_core.auditing.report import AuditReport
from recon_core.errors import InputError
from recon_core.kinds import perform
from recon_core.runs import StopFlag
from recon_core.runs.models import ImportOptions
from recon_core.runs.requests import create_import
from recon_core.store import RunStore
from tests.foreign_training import SIDE, Foreign, train_elsewhere
from tests.library.conftest import ATTACK, Experiment

QUICK: dict[str, Any] = {"m": 16, "iterations": 30, "progress": False, "input_shape": (1, SIDE, SIDE)}


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Foreign:
    return train_elsewhere(tmp_path_factory.mktemp("elsewhere"), counts={"a": 4, "b": 3, "c": 3})


def test_module_and_file_folder_and_arrays_give_one_answer(foreign: Foreign, tmp_path: Path) -> None:
    data = rc.load_data(str(foreign.photos), task="multiclass", per_class=3)
    by_file = rc.audit(foreign.file, foreign.photos, held_out=foreign.others, **QUICK)
    kept = rc.audit(foreign.file, foreign.photos, held_out=foreign.others, store=tmp_path / "kept", **QUICK)
    by_module = rc.audit(foreign.module, (all_images(foreign), torch.tensor([0] * 4 + [1] * 3 + [2] * 3)), **QUICK)
    assert by_file.report.leak == kept.report.leak
    assert by_file.report.images == kept.report.images
    assert kept.run is not None
    assert by_module.report.data.images == by_file.report.data.images == 10
    assert [row.ssim for row in by_module.report.images] == pytest.approx([row.ssim for row in by_file.report.images])
    some = rc.audit(foreign.module, data, **QUICK)
    assert some.report.data.images == 9


CONVOLUTIONS = {
    "lenet": lambda: nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(4, 6, 3), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(54, 20), nn.ReLU(), nn.Linear(20, 3)),
    ),
    "vgg": lambda: nn.Sequential(
        *(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1), nn.ReLU()),
        *(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(144, 20), nn.ReLU(), nn.Dropout(0.1), nn.Linear(20, 3)),
    ),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_of_ones_own_are_counted(foreign: Foreign, name: str) -> None:
    """Whatever the count is; how far the images explain each layer is measured too."""
    torch.manual_seed(0)
    module = CONVOLUTIONS[name]()
    images = torch.from_numpy(all_images(foreign)).float()[:, None] / 255
    labels = torch.tensor([0] * 4 + [1] * 3 + [2] * 3)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
    for _ in range(150):
        loss = nn.functional.cross_entropy(module(images), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    settings = QUICK | {"iterations": 5, "normalisation": "unit"}
    audit = rc.audit(module, (all_images(foreign), labels), held_out=foreign.others, **settings)
    report = audit.report
    assert report.fit.accuracy == 1
    assert report.data.normalisation == "pixels in [0, 1], nothing subtracted"
    assert 0 <= report.leak.reconstructed <= report.leak.of == 10
    assert report.leak.controls.untrained is not None
    assert report.fit.kkt_residual_by_layer is not None
    assert len(report.fit.kkt_residual_by_layer) == 4


def all_images(foreign: Foreign) -> Any:
    return np.stack([np.asarray(Image.open(file)) for file in sorted(foreign.photos.glob("*/*.png"))])


@pytest.fixture(scope="module")
def audit(experiment: Experiment) -> rc.Audit:
    return rc.audit(experiment.model, experiment.data, **ATTACK)


def test_count_is_that_of_match(experiment: Experiment, audit: rc.Audit) -> None:
    """Same candidates, same images, one count; here the held-out images are more."""
    score = experiment.score
    assert audit.report.leak.reconstructed == score.good()
    ordered = sorted(score.ssim.tolist(), reverse=True)
    assert [row.ssim for row in audit.report.images] == pytest.approx(ordered, abs=1e-6)
    assert audit.report.data.normalisation == "the mean training image subtracted"


def test_normalisation_told_at_import_is_taken(foreign: Foreign, tmp_path: Path) -> None:
    """In the store and in memory, with the same candidates."""
    store = RunStore(tmp_path / "options")
    run = create_import(store, foreign.file, (1, SIDE, SIDE), options=ImportOptions(mean=(0.5,), std=(0.5,)))
    perform(run, StopFlag())
    settings = {key: value for key, value in QUICK.items() if key != "input_shape"}
    kept = rc.audit(run.id, foreign.photos, store=store, **settings)
    loose = rc.audit(run, foreign.photos, **settings)
    for audit in (kept, loose):
        assert audit.report.data.normalisation == "(pixel - 0.5) / 0.5"
        assert not audit.report.data.normalisation_assumed
    assert [row.ssim for row in loose.report.images] == pytest.approx(
        [row.ssim for row in kept.report.images], abs=1e-5
    )


def test_report_is_written_as_html_and_json(audit: rc.Audit, tmp_path: Path) -> None:
    page = audit.save(tmp_path / "audit.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert audit.report.verdict.sentence.split(":")[0] in page
    values = json.loads(audit.save(tmp_path / "audit.json").read_text())
    assert AuditReport.model_validate(values) == audit.report
    with pytest.raises(InputError, match=r"a report is an \.html or a \.json file, got 'audit\.pdf'"):
        audit.save("audit.pdf")


def test_two_outputs_for_two_sides_of_a_set() -> None:
    """As `nn.Linear(..., 2)` and cross-entropy have it; the set's own partition gives the labels."""
    data = rc.load_data("cifar10", n=10, progress=False)
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(3072, 20), nn.ReLU(), nn.Linear(20, 2))
    optimiser = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
    for _ in range(60):
        loss = nn.functional.cross_entropy(module(data.samples.train_x), data.labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    quick: dict[str, Any] = {"m": 4, "iterations": 2, "progress": False, "input_shape": (3, 32, 32)}
    report = rc.audit(module, "cifar10", n=10, partition=data.config.partition or "animals-vehicles", **quick).report
    assert report.fit.accuracy == 1
    assert list(report.data.classes.values()) == [5, 5]
    with pytest.raises(InputError, match=r"has 3 outputs, and the attached images have 2 classes"):
        rc.audit(nn.Sequential(nn.Flatten(), nn.Linear(3072, 3)), data, **quick)


def test_leak_is_called_a_leak() -> None:
    """A network that holds its images in plain sight."""
    data = rc.load_data("cifar10", n=10, test_n=60)
    audit = rc.audit(
        rc.train(data, widths=(60, 60), target_log_loss=-100, progress=False), data, iterations=200, progress=False
    )
    leak = audit.report.leak
    assert audit.leaks
    assert leak.beyond_chance == leak.reconstructed - leak.chance >= 4
    assert audit.report.verdict.p_value is not None
    assert audit.report.verdict.p_value < 0.01


@pytest.mark.parametrize("kept", [False, True])
def test_what_a_file_does_not_tell_is_said(foreign: Foreign, tmp_path: Path, kept: bool) -> None:
    """Convolutions by their layout, the activation, and constants of the pixels: as by the command line."""
    torch.manual_seed(0)
    module = nn.Sequential(
        *(nn.Conv2d(1, 4, 3, padding=1), nn.GELU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(144, 3)),
    )
    torch.save(module.state_dict(), tmp_path / "theirs.th")
    asked = {**QUICK, "iterations": 3, "anyway": True, "store": tmp_path / "runs" if kept else None}
    layout = "conv(padding=1), gelu, average(2), flatten, dense"
    audit = rc.audit(tmp_path / "theirs.th", foreign.photos, layout=layout, mean=0.5, std=0.25, **asked)
    assert audit.report.model.architecture == "1x12x12-CONV(3,4)-AVERAGE(2)-3 with gelu"
    assert audit.report.data.normalisation == "(pixel - 0.5) / 0.25"
    pixels = torch.from_numpy(all_images(foreign)).float()[:, None] / 255
    right = module((pixels - 0.5) / 0.25).argmax(1) == torch.tensor([0] * 4 + [1] * 3 + [2] * 3)
    assert audit.report.fit.accuracy == pytest.approx(float(right.float().mean()))
    with pytest.raises(InputError, match="a module has its own"):
        rc.audit(module, foreign.photos, layout=layout, **asked)
    with pytest.raises(InputError, match="come out with this layout"):
        rc.audit(tmp_path / "theirs.th", foreign.photos, layout="conv, relu, flatten, dense", **asked)


@pytest.mark.parametrize(
    ("data", "settings", "sentence"),
    [
        (7, {}, r"data are a Data, \(images, labels\), a path or a name, got int"),
        ("cifar10", {"n": 8, "colour": 1}, r"unknown setting 'colour' of audit"),
        ("cifar10", {"n": 10, "mean": 125.3}, r"mean must be a number such as 0.5, for pixels in \[0, 1\], got 125.3"),
        ("cifar10", {"n": 10, "std": (0.2, 0.3)}, r"std needs 1 or 3 numbers, one per channel, got 2"),
        ("cifar10", {"n": 10, "normalisation": "mnist"}, r"normalisation must be auto, .* got 'mnist'"),
        ("mnist", {"n": 8}, r"takes images of 3x32x32 and the attached ones are 1x28x28"),
    ],
)
def test_bad_requests_are_one_sentence(
    experiment: Experiment, data: Any, settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        rc.audit(experiment.model, data, progress=False, **settings)
