"""The five lines, and what each of them gives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import plotly.graph_objects as go
import pytest
import torch

import recon_core as rc
from tests.library.conftest import ATTACK, TRAIN, Experiment


def test_five_lines_from_data_to_a_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = rc.load_data("cifar10", n=8)
    model = rc.train(data, **TRAIN)
    found = rc.reconstruct(model, **ATTACK)
    score = rc.match(found, data)
    figure = score.plot()
    assert isinstance(figure, go.Figure)
    assert f"{score.good(0.4)} of 8" in figure.layout.title.text
    assert list(tmp_path.iterdir()) == []  # nothing has to be written


def test_a_network_that_learnt_by_heart_gives_images_back(experiment: Experiment) -> None:
    score = experiment.score
    assert score.good(0.4) >= 2
    assert score.chance_at(0.4) < score.good(0.4)
    assert score.good(-1.0) == 8
    assert score.good() == score.good(0.4)
    assert score.good(0.4) == int((score.ssim > 0.4).sum())


def test_results_have_the_shapes_they_promise(experiment: Experiment) -> None:
    data, model, found, score = experiment
    assert data.images.shape == (8, 3, 32, 32)
    assert 0 <= float(data.images.min()) < float(data.images.max()) <= 1
    assert data.labels.tolist() == data.samples.train_labels.tolist()
    assert model.network(data.samples.train_x).shape == (8, 1)
    assert (model.network(data.samples.train_x)[:, 0].sign() == data.samples.signs).all()
    assert model.samples["margins"].shape == (8,)
    assert found.candidates.shape == (16, 3, 32, 32)
    assert found.multipliers.shape == found.labels.shape == found.seeds.shape == (16,)
    assert len(found) == 16
    assert score.reconstructions.shape == data.images.shape
    assert score.ssim.shape == (8,)


def test_history_and_table_are_data_frames(experiment: Experiment) -> None:
    history = experiment.model.history()
    assert history["step"].is_monotonic_increasing
    assert history["log_loss"].iloc[-1] == pytest.approx(experiment.model.summary["log_loss"])
    table = experiment.score.table(threshold=0.5)
    assert len(table) == 8
    assert table["ssim"].to_numpy() == pytest.approx(experiment.score.ssim.numpy())
    assert int(table["good"].sum()) == experiment.score.good(0.5)


def test_seeds_decide_alone(experiment: Experiment) -> None:
    again = rc.train(experiment.data, **TRAIN)
    other = rc.train(experiment.data, seed=1, **TRAIN)
    same, differs = (
        all(torch.equal(a, b) for a, b in zip(experiment.model.network.parameters(), parameters, strict=True))
        for parameters in (again.network.parameters(), other.network.parameters())
    )
    assert same
    assert not differs
    candidates = [rc.reconstruct(again, seed=seed, **ATTACK).candidates for seed in (0, 1)]
    assert torch.equal(candidates[0], experiment.found.candidates)
    assert not torch.equal(candidates[1], experiment.found.candidates)


def test_more_starts_pool_their_candidates(experiment: Experiment) -> None:
    found = rc.reconstruct(experiment.model, seeds=2, **ATTACK)
    assert found.seeds.tolist() == [0] * 16 + [1] * 16
    assert torch.equal(found.candidates[:16], experiment.found.candidates)


def test_an_untrained_network_is_one_more_control(experiment: Experiment) -> None:
    untrained = rc.reconstruct(experiment.model, baseline="untrained", **ATTACK)
    score = rc.match(experiment.found, experiment.data, untrained=untrained)
    assert experiment.score.count(0.1).control_untrained is None
    assert score.count(0.1).control_untrained is not None
    assert score.chance_at(0.1) >= experiment.score.chance_at(0.1)
    assert score.good(0.1) == experiment.score.good(0.1)


def test_progress_is_told_to_a_function(experiment: Experiment) -> None:
    told: list[tuple[float | None, str]] = []
    rc.reconstruct(experiment.model, m=16, iterations=40, measure_every=10, progress=lambda *heard: told.append(heard))
    fractions = [fraction for fraction, _ in told if fraction is not None]
    assert len(fractions) > 1
    assert fractions == sorted(fractions)
    assert all("residual" in message for _, message in told)


def test_progress_goes_to_standard_error_and_can_be_silenced(
    experiment: Experiment, capsys: pytest.CaptureFixture[str]
) -> None:
    rc.reconstruct(experiment.model, m=16, iterations=5)
    shown = capsys.readouterr()
    assert shown.out == ""
    rc.reconstruct(experiment.model, m=16, iterations=5, progress=False)
    assert capsys.readouterr() == ("", "")


def test_points_in_the_plane() -> None:
    data = rc.load_data("circle", n=6)
    model = rc.train(data, widths=100, progress=False)
    found = rc.reconstruct(model, m=20, iterations=200, progress=False)
    score = rc.match(found, data)
    assert found.kept is not None
    assert found.kept.shape == (20,)
    assert score.good(10.0) == 6
    assert score.good() == score.good(0.03)
    assert {"distance", "x", "y"} <= set(score.table().columns)
    assert isinstance(score.plot(), go.Figure)
    with pytest.raises(rc.errors.InputError, match="SSIM"):
        _ = score.ssim


def test_importing_the_package_loads_no_torch() -> None:
    project = Path(__file__).parents[2]
    program = "import sys, recon_core as rc; dir(rc); sys.exit('torch' in sys.modules or 'typer' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=project, check=False).returncode == 0
    program = "import sys, recon_core.cli; sys.exit('torch' in sys.modules)"  # its help is to be there at once
    assert subprocess.run([sys.executable, "-c", program], cwd=project, check=False).returncode == 0


def test_every_public_name_is_there() -> None:
    assert set(dir(rc)) == set(rc.__all__)
    for name in rc.__all__:
        assert getattr(rc, name) is not None
    for part in (rc.attacks, rc.errors):
        assert dir(part) == sorted(part.__all__)
    for name in dir(rc.plots):
        assert callable(getattr(rc.plots, name))
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = rc.trian
    assert Path(rc.__file__).with_name("py.typed").is_file()


def test_an_attack_says_how_sure_it_is(experiment: Experiment) -> None:
    assert experiment.found.confidence is None
    assert not experiment.found.certain.any()
    found = rc.reconstruct(experiment.model, **ATTACK | {"recipe": "copies"})
    assert found.confidence is not None
    assert found.confidence.shape == (len(found),)
    assert 0 <= float(found.confidence.min()) <= float(found.confidence.max()) <= 1
    assert found.certain.tolist() == (found.confidence > rc.attacks.CERTAIN).tolist()
    assert found._repr_html_()
