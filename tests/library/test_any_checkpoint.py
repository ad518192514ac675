"""What a checkpoint does not tell is asked for, kept with the run, and used: activation, layout, pixels, classes."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import recon_core as rc
from recon_core.errors import InputError
from recon_core.kinds import perform
from recon_core.models.normalisation import Normalisation
from recon_core.runs.models import ImportOptions, imported_before, model_of, read_foreign
from recon_core.runs.reconstruction import attack_settings
from recon_core.runs.requests import create_import
from recon_core.runs.signals import StopFlag
from recon_core.store import RunStore

QUICK = {"m": 6, "iterations": 3, "progress": False, "recipe": "fast"}
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)


@pytest.fixture
def mlp(tmp_path: Path) -> Path:
    module = nn.Sequential(nn.Flatten(), nn.Linear(192, 12), nn.ReLU(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 1))
    torch.save(module.state_dict(), tmp_path / "mlp.pth", pickle_protocol=4)
    return tmp_path / "mlp.pth"


@pytest.mark.parametrize("recipe", ["fast", "copies"])
def test_a_default_sequential_with_all_its_biases(mlp: Path, recipe: str) -> None:
    found = rc.reconstruct(mlp, m=8, iterations=25, recipe=recipe, progress=False)
    assert found.candidates.shape[1:] == (3, 8, 8)
    assert found.network.architecture.layer_biases == (True, True, True)
    assert found.candidates.isfinite().all()


def test_candidates_are_pixels_where_the_normalisation_is_known(mlp: Path, tmp_path: Path) -> None:
    expected_norm = 0.24 * math.sqrt(192) * 3 / sum(STD)
    plain = rc.reconstruct(mlp, input_norm=expected_norm, **QUICK)
    found = rc.reconstruct(mlp, mean=MEAN, std=STD, **QUICK)
    scale = torch.tensor(STD)[:, None, None]
    torch.testing.assert_close(found.candidates, plain.candidates * scale)
    torch.testing.assert_close(found.network_inputs, plain.network_inputs)
    shown = found.candidates + torch.tensor(MEAN)[:, None, None]
    torch.testing.assert_close(found.images, shown.clamp(0, 1))
    assert plain.images.amax((1, 2, 3)).tolist() == pytest.approx([1.0] * 6)
    kept = rc.reconstruct(mlp, mean=MEAN, std=STD, store=tmp_path / "runs", **QUICK)
    torch.testing.assert_close(kept.candidates, found.candidates)
    assert kept.run is not None
    again = rc.reconstruct(kept.run.parents[0], store=tmp_path / "runs", **QUICK)
    torch.testing.assert_close(again.candidates, found.candidates)


def test_what_was_said_is_kept_with_the_run(mlp: Path, store: RunStore) -> None:
    options = ImportOptions(activation="gelu", mean=MEAN, std=(0.25,), classes=("cat", "dog"))
    run = create_import(store, mlp, None, options=options)
    perform(run, StopFlag())
    model = model_of(run)
    assert model.architecture.activation == "gelu"
    assert model.normalisation == Normalisation(MEAN, (0.25,) * 3)
    assert model.class_names == ("cat", "dog")
    result = run.result() or {}
    assert result["needs"] == ["input_shape"]
    assert result["normalisation"] == {"mean": list(MEAN), "std": [0.25] * 3}
    assert imported_before(store, mlp, None, options) is not None
    assert imported_before(store, mlp, None) is None
    assert "--activation gelu --mean 0.5,0.4,0.3 --std 0.25 --classes cat,dog" in " ".join(run.command)
    assert attack_settings(model, {"recipe": "fast"}).model_dump()["input_norm"] == pytest.approx(
        0.24 * math.sqrt(192) / 0.25
    )


def test_without_being_told_it_says_what_it_needs(mlp: Path, store: RunStore) -> None:
    run = create_import(store, mlp, None)
    perform(run, StopFlag())
    assert (run.result() or {})["needs"] == ["activation", "input_shape", "normalisation", "classes"]


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"mean": (0.5, 0.5)}, "mean needs 1 or 3 numbers, one per channel, got 2"),
        ({"std": 0.0}, "std must be a number such as 0.25"),
        ({"std": float("nan")}, "std must be a finite number, got nan"),
        ({"mean": 1e9}, "mean must be a number such as 0.5"),
        ({"activation": "tanh"}, "'tanh' is not supported"),
        ({"layout": "conv, relu, dense"}, "0 convolutions and the layout 1"),
        ({"mean": 0.5, "input_shape": (192,)}, "mean and std go with images"),
    ],
)
def test_what_cannot_be_is_refused(mlp: Path, said: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence.replace("(", r"\(")):
        rc.reconstruct(mlp, **said, **QUICK)  # type: ignore[arg-type]


def test_a_module_and_a_run_have_their_own(mlp: Path) -> None:
    with pytest.raises(InputError, match="a module has its own"):
        rc.reconstruct(nn.Linear(192, 1), layout="dense", **QUICK)
    with pytest.raises(InputError, match="classes needs 2 names"):
        read_foreign(mlp, None, ImportOptions(classes=("cat",)))


def test_a_stack_of_convolutions(tmp_path: Path) -> None:
    module = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(4, 4, 3), nn.ReLU(),
        nn.Flatten(), nn.Linear(16, 9), nn.ReLU(), nn.Linear(9, 3),
    )  # fmt: skip
    torch.save(module.state_dict(), tmp_path / "stack.th")
    layout = "conv(padding=1), bn, relu, average(2), conv, relu, flatten, dense, relu, dense"
    found = rc.reconstruct(
        tmp_path / "stack.th", layout=layout, input_shape=(3, 8, 8), store=tmp_path / "runs", **QUICK
    )
    assert str(found.network.architecture) == "3x8x8-CONV(3,4)-AVERAGE(2)-CONV(3,4)-9-3"
    assert found.candidates.shape == (6, 3, 8, 8)
    x = torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(found.network(x), module.eval()(x), rtol=1e-4, atol=1e-5)


@given(
    st.lists(st.floats(), max_size=4) | st.none(),
    st.lists(st.floats(), max_size=4) | st.none(),
    st.sampled_from([(3, 8, 8), (1, 4, 4), (2,)]),
)
@settings(max_examples=150, deadline=None)
def test_any_numbers_are_a_normalisation_or_a_sentence(
    mean: list[float] | None, std: list[float] | None, shape: tuple[int, ...]
) -> None:
    try:
        made = Normalisation.of(mean, std, shape)
    except InputError as error:
        made = None
        sentence = str(error)
    else:
        sentence = ""
    assert "\n" not in sentence
    if made is not None:
        images = torch.rand(2, *shape, dtype=torch.float64)
        assert made.inputs(images).isfinite().all()
        torch.testing.assert_close(made.pixels(made.centred(made.inputs(images))), images, rtol=1e-6, atol=1e-6)
