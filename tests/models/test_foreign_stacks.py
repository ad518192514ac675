"""Checkpoints of convolution stacks: what they compute is what their own module computes in evaluation form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from recon_core.errors import InputError
from recon_core.models import Architecture
from recon_core.models.foreign import ForeignModel, read_checkpoint
from recon_core.models.stages import Stage, layout_text, parse_layout


def lenet(pool: type[nn.Module] = nn.MaxPool2d) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 6, 5), nn.ReLU(), pool(2), nn.Conv2d(6, 8, 5), nn.ReLU(), pool(2),
        nn.Flatten(), nn.Linear(200, 12), nn.ReLU(), nn.Linear(12, 9), nn.ReLU(), nn.Linear(9, 10),
    )  # fmt: skip


def vgg() -> nn.Sequential:
    """Batch normalisation behind every convolution and one dense layer, dropout in between."""
    layers: list[nn.Module] = []
    for takes, gives, pooled in ((3, 4, False), (4, 4, True), (4, 6, False), (6, 6, True)):
        layers += [nn.Conv2d(takes, gives, 3, padding=1, bias=False), nn.BatchNorm2d(gives), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if pooled else []
    head = [nn.Flatten(), nn.Linear(6 * 64, 20), nn.BatchNorm1d(20), nn.ReLU(), nn.Dropout(), nn.Linear(20, 1)]
    return nn.Sequential(*layers, *head)


def settled(module: nn.Module) -> nn.Module:
    """With running statistics as training leaves them."""
    generator = torch.Generator().manual_seed(0)
    for part in module.modules():
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            for tensor in (part.running_mean, part.bias):
                assert isinstance(tensor, Tensor)
                tensor.data.copy_(torch.randn(len(tensor), generator=generator))
            for tensor in (part.running_var, part.weight):
                assert isinstance(tensor, Tensor)
                tensor.data.copy_(0.5 + torch.rand(len(tensor), generator=generator))
    return module.eval()


def saved(module: nn.Module, path: Path, **options: object) -> Path:
    if path.suffix == ".safetensors":
        safetensors.torch.save_file(module.state_dict(), path)
    else:
        torch.save(module.state_dict(), path, **options)  # type: ignore[arg-type]
    return path


def same(module: nn.Module, model: ForeignModel) -> None:
    x = torch.randn(3, *model.architecture.input_shape, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(model.network(x), module(x), rtol=1e-4, atol=1e-5)
    assert Architecture.from_json(json.loads(json.dumps(model.architecture.to_json()))) == model.architecture


@pytest.mark.parametrize("name", ["model.pth", "model.th", "model.safetensors"])
@pytest.mark.parametrize("make", [lenet, vgg])
def test_sizes_and_numbers_tell_the_usual_layout(make: type[nn.Module], name: str, tmp_path: Path) -> None:
    module = settled(make())
    model = read_checkpoint(saved(module, tmp_path / name), input_shape=(3, 32, 32))
    same(module, model)
    assert "layout" in model.needs
    assert any("pooling may as well be average" in note for note in model.notes)
    assert any("Batch normalisation was folded" in note for note in model.notes) == (make is vgg)
    assert not model.architecture.dense_first


def test_the_image_size_follows_where_one_usual_one_fits(tmp_path: Path) -> None:
    model = read_checkpoint(saved(lenet(), tmp_path / "model.pth"))
    assert model.architecture.input_shape == (3, 32, 32)
    assert str(model.architecture) == "3x32x32-CONV(5,6)-MAX(2)-CONV(5,8)-MAX(2)-12-9-10"


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_pickle_protocol(protocol: int, tmp_path: Path) -> None:
    module = settled(vgg())
    path = saved(module, tmp_path / "model.th", pickle_protocol=protocol)
    same(module, read_checkpoint(path, input_shape=(3, 32, 32)))
    torch.save({"epoch": 3, "state_dict": module.state_dict()}, path, pickle_protocol=protocol)
    same(module, read_checkpoint(path, input_shape=(3, 32, 32)))


LAYOUTS: dict[str, nn.Sequential] = {
    "conv, relu, avg(2), conv, relu, avgpool(2), flatten, dense, relu, dense, relu, dense": lenet(nn.AvgPool2d),
    "conv(stride=2, padding=1), gelu, conv(dilation=2), gelu, max(3, stride=2, padding=1), dense": nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.GELU(), nn.Conv2d(4, 5, 3, dilation=2), nn.GELU(),
        nn.MaxPool2d(3, stride=2, padding=1), nn.Flatten(), nn.Linear(180, 3),
    ),
    "conv(padding=1x2), bn, leaky_relu, average(kernel=2x3), dropout, linear, leaky_relu, dense": nn.Sequential(
        nn.Conv2d(3, 4, (3, 5), padding=(1, 2)), nn.BatchNorm2d(4), nn.LeakyReLU(), nn.AvgPool2d((2, 3)),
        nn.Flatten(), nn.Dropout(), nn.Linear(640, 5), nn.LeakyReLU(), nn.Linear(5, 1),
    ),
    "conv, relu, conv(padding=1), relu, flatten, dense, relu, dense": nn.Sequential(
        nn.Conv2d(3, 6, 29), nn.ReLU(), nn.Conv2d(6, 4, 3, padding=1, groups=2), nn.ReLU(),
        nn.Flatten(), nn.Linear(64, 5), nn.ReLU(), nn.Linear(5, 1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_says_what_the_file_does_not(layout: str, tmp_path: Path) -> None:
    module = settled(LAYOUTS[layout])
    model = read_checkpoint(saved(module, tmp_path / "model.pth"), input_shape=(3, 32, 32), layout=layout)
    same(module, model)
    assert not model.needs


@pytest.mark.parametrize("activation", ["leaky_relu", "gelu"])
def test_other_activations(activation: str, tmp_path: Path) -> None:
    layer = {"leaky_relu": nn.LeakyReLU, "gelu": nn.GELU}[activation]
    module = nn.Sequential(nn.Linear(64, 9), layer(), nn.Linear(9, 2))
    path = saved(module, tmp_path / "model.pth")
    model = read_checkpoint(path, activation=activation)
    x = torch.randn(4, 64)
    torch.testing.assert_close(model.network(x), module(x))
    assert (model.architecture.dense, model.architecture.dense_first) == (False, True)
    assert "activation" not in model.needs


def test_several_layouts_are_asked_about(tmp_path: Path) -> None:
    """One pooling somewhere: the sizes do not tell behind which convolution."""
    state = {f"c{i}.weight": torch.randn(4, 4 if i else 3, 3, 3) for i in range(3)}
    state |= {"f.weight": torch.randn(5, 4 * 256), "g.weight": torch.randn(1, 5)}
    torch.save(state, tmp_path / "model.pth")
    with pytest.raises(InputError, match=r"3 layouts fit the 1024 numbers that 'f' takes; pass .* layout, e.g. conv"):
        read_checkpoint(tmp_path / "model.pth", input_shape=(3, 32, 32))


@pytest.mark.parametrize("order", [("conv1", "bn1", "conv2", "bn2"), ("conv1", "conv2", "bn1", "bn2")])
def test_normalisation_goes_by_its_number(order: tuple[str, ...], tmp_path: Path) -> None:
    parts = {
        "conv1": nn.Conv2d(3, 4, 3),
        "conv2": nn.Conv2d(4, 4, 3),
        "bn1": nn.BatchNorm2d(4),
        "bn2": nn.BatchNorm2d(4),
    }
    head = {"fc1": nn.Linear(4 * 28 * 28, 5), "fc2": nn.Linear(5, 1)}
    named = settled(nn.ModuleDict({**{name: parts[name] for name in order}, **head}))
    relu, flat = nn.ReLU(), nn.Flatten()
    module = nn.Sequential(
        parts["conv1"], parts["bn1"], relu, parts["conv2"], parts["bn2"], relu, flat, head["fc1"], relu, head["fc2"]
    )
    for name in ("model.pth", "model.safetensors"):
        model = read_checkpoint(saved(named, tmp_path / name), input_shape=(3, 32, 32))
        same(module, model)


STAGES = st.lists(
    st.builds(
        Stage,
        st.sampled_from(["conv", "max", "average", "activation"]),
        kernel=st.tuples(st.integers(2, 5), st.integers(2, 5)),
        stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
        padding=st.tuples(st.integers(0, 1), st.integers(0, 1)),
    ),
    min_size=1,
    max_size=6,
)


@given(STAGES)
@settings(max_examples=60, deadline=None)
def test_a_layout_is_read_as_it_is_written(stages: list[Stage]) -> None:
    words = parse_layout(layout_text(stages, 2, "gelu"))
    kinds = ["gelu" if stage.kind == "activation" else stage.kind for stage in stages]
    assert [word.kind for word in words] == [*kinds, "flatten", "dense", "gelu", "dense"]
    for word, stage in zip(words, stages, strict=False):
        for name, size in word.options.items():
            assert getattr(stage, name) == size


@given(st.text(alphabet="conv(),max=2relu pading1x dense9", max_size=60) | st.text(max_size=30))
@settings(max_examples=150, deadline=None)
def test_any_text_as_a_layout_is_read_or_refused(text: str) -> None:
    sentence = ""
    try:
        parse_layout(text)
    except InputError as error:
        sentence = str(error)
    assert "\n" not in sentence
    assert len(sentence) < 400


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


SHAPES = st.sampled_from(
    [(4, 3, 3, 3), (4, 4, 3, 3), (1, 4, 1, 1), (4,), (), (3,), (6, 4), (2, 6), (4, 1, 9, 1), (5, 1, 3, 3)]
)
NAMES = st.builds(
    "{}.{}".format,
    st.sampled_from(["0", "1", "3", "conv1", "bn1", "bn2", "fc"]),
    st.sampled_from(["weight", "bias", "running_mean", "running_var", "num_batches_tracked"]),
)


@given(
    shapes=st.dictionaries(NAMES, SHAPES, max_size=9),
    layout=st.sampled_from([None, "conv, bn, relu, max(2), dense", "dense, relu, dense"]),
)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_layers_are_read_or_refused_in_a_sentence(
    shapes: dict[str, tuple[int, ...]], layout: str | None, folder: Path
) -> None:
    path = folder / "model.pth"
    torch.save({name: torch.full(shape, 0.5) for name, shape in shapes.items()}, path)
    sentence = ""
    try:
        model = read_checkpoint(path, input_shape=(3, 8, 8), layout=layout)
    except InputError as error:
        sentence = str(error)
    assert "\n" not in sentence
    assert len(sentence) < 900
    if not sentence:
        assert model.network(torch.zeros(2, 3, 8, 8)).shape == (2, model.architecture.outputs)
