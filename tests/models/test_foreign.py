"""Checkpoints of other people: read for what they are, refused by a sentence, never run."""

from __future__ import annotations

import json
import os
import pickle
import struct
import subprocess
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from recon_core.config import BiasMode
from recon_core.errors import InputError
from recon_core.models import Architecture
from recon_core.models.foreign import ForeignModel, read_checkpoint

GENERATOR = torch.Generator().manual_seed(0)


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=GENERATOR)


def mlp(*sizes: int, bias: str = "first", names: str = "{}", dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """A state dict; `bias` is first, hidden, all or none."""
    state: dict[str, Tensor] = OrderedDict()
    last = len(sizes) - 2
    for index in range(last + 1):
        name = names.format(index)
        state[f"{name}.weight"] = normal(sizes[index + 1], sizes[index]).to(dtype)
        if bias == "all" or (bias == "hidden" and index < last) or (bias == "first" and index == 0):
            state[f"{name}.bias"] = normal(sizes[index + 1]).to(dtype)
    return state


def save(path: Path, content: Any) -> Path:
    if path.suffix == ".safetensors":
        safetensors.torch.save_file(content, path)
    else:
        torch.save(content, path)
    return path


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        read_checkpoint(path, **options)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert len(sentence) < 800
    return sentence


def output(state: dict[str, Tensor], x: Tensor) -> Tensor:
    """What the state dict's network gives, its weights in the order they stand in."""
    names = [name.removesuffix(".weight") for name in state if name.endswith(".weight")]
    for index, name in enumerate(names):
        x = (x.relu() if index else x) @ state[f"{name}.weight"].to(x).T + state.get(f"{name}.bias", torch.zeros(1)).to(
            x
        )
    return x


def normed(variance: float, size: int = 4) -> dict[str, Tensor]:
    """A dense network with batch normalisation behind its first layer."""
    state = mlp(784, 4, 1)
    norm = {"weight": normal(size), "bias": normal(size), "running_mean": normal(size)}
    return {
        **state,
        **{f"bn1.{key}": value for key, value in norm.items()},
        "bn1.running_var": torch.full((size,), variance),
    }


def stack(inner: int = 6) -> dict[str, Tensor]:
    """LeNet's weights, under names that tell nothing."""
    convs = {"a.weight": normal(6, 3, 5, 5), "b.weight": normal(16, inner, 5, 5)}
    return {**convs, **mlp(400, 12, 10, bias="all", names="c{}")}


# ---- what can be read ----

NAMES = ["layers.{}", "{}", "fc{}", "net.{}", "module.layers.{}", "_orig_mod.module.net.{}", "encoder.block{}.linear"]


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize("names", NAMES)
def test_names_of_all_sorts(tmp_path: Path, names: str, suffix: str) -> None:
    state = mlp(784, 12, 9, 1, names=names)
    model = read_checkpoint(save(tmp_path / f"model{suffix}", state))
    assert str(model.architecture) == "1x28x28-12-9-1"
    assert model.architecture.bias is BiasMode.FIRST
    assert model.network.architecture == model.architecture
    x = normal(5, 784)
    torch.testing.assert_close(model.network(x), output(state, x), rtol=1e-4, atol=1e-4)
    assert model.needs == ("activation", "input_shape")
    assert any("(1, 28, 28)" in note for note in model.notes)


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
@pytest.mark.parametrize(
    ("dtype", "kept"),
    [
        (torch.float64, torch.float64),
        (torch.float32, torch.float32),
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
    ],
)
def test_types(tmp_path: Path, dtype: torch.dtype, kept: torch.dtype, suffix: str) -> None:
    state = mlp(2, 7, 1, dtype=dtype)
    model = read_checkpoint(save(tmp_path / f"model{suffix}", state))
    assert {parameter.dtype for parameter in model.network.parameters()} == {kept}
    assert all(parameter.requires_grad for parameter in model.network.parameters())
    assert any("widened" in note for note in model.notes) == (dtype != kept)
    x = normal(5, 2).to(kept)
    torch.testing.assert_close(model.network(x), output(state, x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: {"state_dict": state, "epoch": 7, "lr": 0.1, "best": True, "name": "x", "history": [1.0, None]},
        lambda state: {"epoch": 7, "model": state, "optimizer": {"state": {0: {"step": torch.ones(1)}}, "groups": []}},
        lambda state: {"checkpoint": {"net": state, "epoch": 2**40}},
        lambda state: {**state, "epoch": 3},
        lambda state: {name: nn.Parameter(tensor) for name, tensor in state.items()},
        lambda state: {name: tensor.T.contiguous().T for name, tensor in state.items()},
    ],
)
@pytest.mark.filterwarnings("ignore:The use of `x.T` on tensors of dimension other than 2")
def test_wrappings(tmp_path: Path, wrap: Callable[[dict[str, Tensor]], Any]) -> None:
    state = mlp(3072, 6, 2, bias="none")
    model = read_checkpoint(save(tmp_path / "model.ckpt", wrap(state)))
    assert str(model.architecture) == "3x32x32-6-2"
    assert model.architecture.bias is BiasMode.NONE
    x = normal(4, 3072)
    torch.testing.assert_close(model.network(x), output(state, x), rtol=1e-4, atol=1e-4)


def test_module_as_torch_saves_it(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(64, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3, bias=False))
    model = read_checkpoint(save(tmp_path / "model.pth", module.state_dict()))
    assert (str(model.architecture), model.architecture.bias) == ("1x8x8-5-4-3", BiasMode.HIDDEN)
    x = normal(4, 64)
    torch.testing.assert_close(model.network(x), module(x))


def test_biases_that_are_zero_are_left_out(tmp_path: Path) -> None:
    state = mlp(2, 5, 4, 1, bias="all")
    state["1.bias"].zero_()
    state["2.bias"].zero_()
    model = read_checkpoint(save(tmp_path / "model.pth", state))
    assert model.architecture.bias is BiasMode.FIRST
    assert any("left out: '1', '2'" in note for note in model.notes)
    x = normal(4, 2)
    torch.testing.assert_close(model.network(x), output(state, x), rtol=1e-4, atol=1e-4)
    state["0.bias"].zero_()
    assert read_checkpoint(save(tmp_path / "model.pth", state)).architecture.bias is BiasMode.NONE


@pytest.mark.parametrize(
    ("where", "said"),
    [((0, 1, 2, 3), "All layers have a bias."), ((3,), "'3' have"), ((1,), "'1' have"), ((0, 3), "'0', '3' have")],
)
@pytest.mark.parametrize("outputs", [1, 4])
def test_biases_anywhere(where: tuple[int, ...], said: str, outputs: int, tmp_path: Path) -> None:
    state = mlp(12, 7, 6, 5, outputs, bias="none")
    state |= {f"{layer}.bias": normal(len(state[f"{layer}.weight"])) for layer in where}
    model = read_checkpoint(save(tmp_path / "model.pth", state), input_shape=(12,))
    architecture = model.architecture
    assert architecture.layer_biases == tuple(layer in where for layer in range(4))
    assert not architecture.homogeneous
    assert Architecture.from_json(json.loads(json.dumps(architecture.to_json()))) == architecture
    assert any(said in note for note in model.notes)
    assert any("equation of its own" in note for note in model.notes) == (3 in where)
    x = normal(3, 12)
    torch.testing.assert_close(model.network(x), output(state, x), rtol=1e-4, atol=1e-4)


def test_one_zero_bias_among_used_ones_stays(tmp_path: Path) -> None:
    state = mlp(2, 5, 4, 3, 1, bias="hidden")
    state["1.bias"].zero_()
    assert read_checkpoint(save(tmp_path / "m.pth", state)).architecture.bias is BiasMode.HIDDEN


def test_ten_and_more_layers_keep_their_order_in_safetensors(tmp_path: Path) -> None:
    state = mlp(2, *[4] * 12, 1, names="layers.{}", bias="none")
    model = read_checkpoint(save(tmp_path / "model.safetensors", state))
    x = normal(4, 2)
    torch.testing.assert_close(model.network(x), output(state, x), rtol=1e-4, atol=1e-4)


def test_unnumbered_layers_are_ordered_by_size(tmp_path: Path) -> None:
    state = {"input.weight": normal(9, 64), "hidden.weight": normal(9, 9), "final.weight": normal(1, 9)}
    model = read_checkpoint(save(tmp_path / "model.safetensors", state))
    assert any("sizes fit" in note for note in model.notes)
    x = normal(4, 64)
    torch.testing.assert_close(model.network(x), output(state, x), rtol=1e-4, atol=1e-4)
    two = {**state, "another.weight": normal(9, 9)}
    assert "number them in order" in refusal(save(tmp_path / "two.safetensors", two))


@pytest.mark.parametrize(("kernel", "side"), [(3, 32), (5, 28), (32, 32)])
def test_convolution_in_front(tmp_path: Path, kernel: int, side: int) -> None:
    conv = nn.Conv2d(3, 4, kernel)
    module = nn.Sequential(
        conv, nn.ReLU(), nn.Flatten(), nn.Linear(4 * (side - kernel + 1) ** 2, 6, bias=False), nn.ReLU(),
        nn.Linear(6, 1, bias=False),
    )  # fmt: skip
    for name in ("model.pth", "model.safetensors"):
        model = read_checkpoint(save(tmp_path / name, module.state_dict()))
        assert str(model.architecture) == f"3x{side}x{side}-CONV({kernel},4)-6-1"
        assert model.architecture.bias is BiasMode.FIRST
        x = normal(3, 3, side, side)
        torch.testing.assert_close(model.network(x), module(x))


def test_input_shape_is_taken_as_given(tmp_path: Path) -> None:
    path = save(tmp_path / "model.pth", mlp(100, 4, 1))
    model = read_checkpoint(path, input_shape=(2, 5, 10))
    assert model.architecture.input_shape == (2, 5, 10)
    assert model.needs == ("activation",)
    assert read_checkpoint(path).architecture.input_shape == (1, 10, 10)


# ---- what is asked for or not supported ----


@pytest.mark.parametrize(
    ("state", "options", "parts"),
    [
        (mlp(10, 4, 1), {}, ("10 numbers", "pass input_shape=(10,)")),
        (mlp(16, 4, 1), {}, ("16 numbers", "input_shape")),
        (mlp(784, 4, 1), {"input_shape": (3, 28, 28)}, ("784", "(3, 28, 28) has 2352")),
        (mlp(784, 4, 1), {"input_shape": (28, 28)}, ("input_shape must be", "(28, 28)")),
        (mlp(784, 4, 1), {"activation": "tanh"}, ("'tanh'", "relu")),
        (mlp(2, 1), {}, ("1 dense layers", "hidden")),
        ({"0.weight": normal(4, 2), "1.weight": normal(1, 5)}, {}, ("'0' 2 to 4", "'1' 5 to 1")),
        ({**mlp(2, 4, 1), "bn1.running_mean": normal(4)}, {}, ("BatchNorm", "'bn1'", "without running_var")),
        ({**mlp(2, 4, 1), "bn1.weight": normal(4)}, {}, ("BatchNorm layer without running statistics", "'bn1.weight'")),
        (normed(-1.0), {}, ("negative variance", "'bn1.running_var'")),
        (normed(1.0, size=3), {}, ("'bn1'", "follows no layer", "layout")),
        (normed(1.0), {"layout": "dense, relu, bn, dense"}, ("cannot be folded", "module in Python")),
        (normed(1.0), {"layout": "dense, relu, dense"}, ("1 BatchNorm layers and the layout 0",)),
        (mlp(784, 4, 1), {"layout": "dense, dense"}, ("no activation between",)),
        (mlp(784, 4, 1), {"layout": "dense, relu, dense, relu"}, ("behind the last dense",)),
        (mlp(784, 4, 1), {"layout": "dense, tanh, dense"}, ("unknown layer 'tanh'", "leaky_relu")),
        (mlp(784, 4, 1), {"layout": "dense, relu, dense", "activation": "gelu"}, ("one activation",)),
        (stack(), {"layout": "conv, relu, max(2), conv, relu, flatten, dense, relu, dense"}, ("no usual image size",)),
        (
            stack(),
            {"layout": "conv, relu, flatten, conv, relu, dense, relu, dense", "input_shape": (3, 32, 32)},
            ("conv behind flatten",),
        ),
        (
            stack(),
            {"layout": "conv(stride=2), relu, conv, relu, dense, relu, dense", "input_shape": (3, 32, 32)},
            ("1600 come out", "takes 400"),
        ),
        (stack(), {"layout": "conv(depth=2), relu, conv, dense, relu, dense"}, ("'depth=2'", "stride, padding")),
        (stack(), {"layout": "conv(padding=99999), relu, conv, dense, relu, dense"}, ("between 0 and 1024",)),
        (stack(), {"layout": "conv, relu, max, conv, dense, relu, dense"}, ("how much it pools",)),
        (stack(), {"input_shape": (3, 28, 28)}, ("input_shape (3, 28, 28)", "layout=")),
        (stack(inner=5), {}, ("'b' of 5 channels behind 6",)),
        ({**mlp(2, 4, 1), "n.num_batches_tracked": torch.tensor(3)}, {}, ("BatchNorm",)),
        ({**mlp(2, 4, 1), "5.weight": normal(4)}, {}, ("normalisation or PReLU", "'5'")),
        ({**mlp(2, 4, 1), "self_attn.in_proj_weight": normal(12, 4)}, {}, ("attention",)),
        ({"embedding.weight": normal(9, 4), **mlp(4, 4, 1)}, {}, ("an embedding", "'embedding.weight'")),
        ({**mlp(2, 4, 1), "rnn.weight_ih_l0": normal(4, 4)}, {}, ("recurrent",)),
        ({**mlp(2, 4, 1), "block.shortcut.weight": normal(4, 4)}, {}, ("residual",)),
        ({**mlp(2, 4, 1), "temperature": normal(1)}, {}, ("'temperature'", "no known layer")),
        ({**mlp(2, 4, 1), "9.bias": normal(4)}, {}, ("no weight for layer '9'",)),
        ({"c.weight": normal(4, 3, 3), **mlp(4, 4, 1)}, {}, ("1-D convolution", "'c'")),
        ({"c.weight": normal(4, 3, 3, 3), **mlp(4095, 4, 1)}, {}, ("4095", "padding", "input_shape=(3, H, W)")),
        ({"c.weight": normal(4, 3, 3, 3), **mlp(4, 4, 1)}, {"input_shape": (1, 9, 9)}, ("pass (3, H, W)",)),
        ({"0.weight": torch.ones(4, 2, dtype=torch.int8), "1.weight": normal(1, 4)}, {}, ("int8", "'0.weight'")),
        ({"0.weight": normal(4, 2), "0.bias": normal(3), "1.weight": normal(1, 4)}, {}, ("one number per output",)),
        ({"0.weight": normal(0, 2), "1.weight": normal(1, 0)}, {}, ("'0.weight'", "0x2")),
        ({"module.0.weight": normal(4, 2), **mlp(2, 4, 1)}, {}, ("twice",)),
        ({"0.weight": normal(4, 2) / 0, "1.weight": normal(1, 4)}, {}, ("'0.weight'", "NaN or infinite")),
        ({"0.weight": normal(4, 2), "1.weight": torch.full((1, 4), torch.nan).half()}, {}, ("'1.weight'", "NaN")),
        (mlp(2, 400, 1), {"max_parameters": 1000}, ("1600 parameters", "1000")),
        (mlp(2, 400, 1), {"max_bytes": 1000}, ("bytes, at most 1000",)),
    ],
)
@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_unsupported_models_are_told_why(
    tmp_path: Path, state: dict[str, Tensor], options: dict[str, Any], parts: tuple[str, ...], suffix: str
) -> None:
    sentence = refusal(save(tmp_path / f"model{suffix}", state), **options)
    assert all(part in sentence for part in parts), sentence


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ([normal(3, 2)], "holds a list"),
        (normal(3, 2), "holds a tensor"),
        ({}, "holds nothing"),
        (None, "holds nothing"),
        ({"epoch": 3}, "among 'epoch'"),
        ({"encoder": mlp(2, 3, 1), "decoder": mlp(2, 3, 1)}, "'encoder', 'decoder'"),
        ({**mlp(2, 3, 1), "more": mlp(2, 3, 1)}, "mixes tensors with the group 'more'"),
        (nn.Linear(2, 1), "torch.nn.modules.linear.Linear"),
        ({"a": torch.eye(3).to_sparse()}, "torch._utils._rebuild_sparse_tensor"),
        ({0: normal(2, 2)}, "'0', which is no name"),
        ({"a": {"b": {"c": {"d": {"e": {"f": 1}}}}}}, "holds a dict where a flat"),
        ({**mlp(4, 4, 1), "c.weight": normal(4, 3, 3, 3)}, "'c' behind the dense layer '0'"),
    ],
)
def test_not_a_state_dict(tmp_path: Path, content: Any, part: str) -> None:
    assert part in refusal(save(tmp_path / "model.pth", content))


# ---- broken files ----


def test_missing_empty_and_other_files(tmp_path: Path) -> None:
    assert "there is no file" in refusal(tmp_path / "nowhere.pth")
    assert "is a folder" in refusal(tmp_path)
    (tmp_path / "empty.pth").touch()
    assert "is empty" in refusal(tmp_path / "empty.pth")
    (tmp_path / "text.pth").write_text("these are no weights at all")
    assert "neither a .safetensors nor a torch.save file" in refusal(tmp_path / "text.pth")
    assert "cannot be read" in refusal(Path("a\0b"))
    os.mkfifo(tmp_path / "pipe.pth")
    assert "not an ordinary file" in refusal(tmp_path / "pipe.pth")
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        archive.writestr("a/b.txt", "hello")
    assert "not one of torch.save" in refusal(tmp_path / "photos.zip")


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_truncated_anywhere(tmp_path: Path, suffix: str) -> None:
    whole = save(tmp_path / f"whole{suffix}", mlp(2, 4, 1)).read_bytes()
    cut = tmp_path / f"cut{suffix}"
    for length in range(1, len(whole), 37):
        cut.write_bytes(whole[:length])
        refusal(cut)


def test_script_programs_are_not_opened(tmp_path: Path) -> None:
    _rezip(save(tmp_path / "model.pth", mlp(2, 4, 1)), add={"code/net.py": b"import os"})
    assert "TorchScript" in refusal(tmp_path / "model.pth")


# ---- hostile files ----


class _Runs:
    """Pickles as a call."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.call


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (_Runs(os.system, "touch owned"), "system"),
        (_Runs(eval, "open('owned', 'w')"), "eval"),
        (_Runs(bytearray, 10**13), "bytearray"),  # torch.load(weights_only=True) trusts this one
        (_Runs(torch.Tensor, 10**6, 10**6), "torch.Tensor"),  # and this
        (_Runs(torch.FloatStorage, 10**13), "torch.FloatStorage"),
    ],
)
@pytest.mark.parametrize("place", ["whole", "value", "tensor", "metadata"])
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_calls_in_pickles_are_named_and_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: _Runs, name: str, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    content: Any = mlp(2, 4, 1)
    if place == "whole":
        content = call
    elif place == "metadata":
        content._metadata = {"": call}
    else:
        content = {"model": content, "extra": call} if place == "value" else {**content, "9.weight": call}
    save(tmp_path / "model.pth", content)
    sentence = refusal(tmp_path / "model.pth")
    assert "would call" in sentence
    assert name in sentence
    assert os.listdir(tmp_path) == ["model.pth"]


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_bare_pickles_are_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: int) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.pth").write_bytes(pickle.dumps(_Runs(os.system, "touch owned"), protocol))
    sentence = refusal(tmp_path / "model.pth")
    assert "torch.save" in sentence
    torch.save(mlp(2, 4, 1), tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    assert "before 1.6" in refusal(tmp_path / "old.pth")
    assert sorted(os.listdir(tmp_path)) == ["model.pth", "old.pth"]


@pytest.mark.parametrize(
    ("tensor", "part"),
    [
        (torch.zeros(1).expand(100_000, 100_000), "claims shape 100000x100000 on 1 stored numbers"),
        (torch.zeros(1).expand(2**31, 2**31), "stored numbers"),
        (torch.zeros(4).as_strided((4, 2), (1, 0)), "'0.weight'"),
    ],
)
def test_stride_tricks(tmp_path: Path, tensor: Tensor, part: str) -> None:
    assert part in refusal(save(tmp_path / "model.pth", {"0.weight": tensor, "1.weight": normal(1, 4)}))


def test_tricks_beside_the_weights(tmp_path: Path) -> None:
    content = {"model": mlp(2, 4, 1), "ema": {"a": torch.zeros(1).expand(100_000, 100_000)}}
    assert "beside the weights" in refusal(save(tmp_path / "model.pth", content))


def test_tensors_that_share_numbers(tmp_path: Path) -> None:
    one = normal(50, 50)
    state = {f"{index}.weight": one for index in range(100)}
    assert "share memory" in refusal(save(tmp_path / "model.pth", state))


def _rezip(
    path: Path,
    *,
    change: dict[str, bytes] | None = None,
    add: dict[str, bytes] | None = None,
    drop: tuple[str, ...] = (),
    compression: int = zipfile.ZIP_STORED,
    rename: Callable[[str], str] = lambda name: name,
) -> None:
    """Write the archive again with other members."""
    with zipfile.ZipFile(path) as archive:
        members = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    members |= (change or {}) | (add or {})
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members.items():
            if name not in drop:
                archive.writestr(rename(f"model/{name}"), data)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"compression": zipfile.ZIP_DEFLATED}, "compressed"),
        ({"drop": ("data/0",)}, "0 bytes in 'data/0' for 8 numbers"),
        ({"change": {"data/0": b"\0" * 31}}, "31 bytes in 'data/0' for 8 numbers of float32"),
        ({"drop": ("data.pkl",)}, "not one of torch.save"),
        ({"change": {"data.pkl": b"\x80\x02}."}}, "holds nothing"),
        ({"change": {"data.pkl": b""}}, "damaged description"),
        ({"change": {"data.pkl": b"\x80\x02" + b"}" * 2**20}}, "1048578 bytes"),
        ({"change": {"data.pkl": b"\x80\x02" + b")" + b"\x85" * 200_000 + b"."}}, "holds a tuple"),
        ({"change": {"data.pkl": b"\x80\x02})" + b"\x85" * 200_000 + b"Ns."}}, "a key is of type tuple"),
        ({"change": {"data.pkl": b"\x80\x04\x8c\x05posix\x8c\x06system\x93."}}, "'posix.system'"),
        ({"change": {"data.pkl": b"\x80\x04)\x8c\x06system\x93."}}, "damaged description"),
        ({"change": {"data.pkl": b"\x80\x04\x8f."}}, "EMPTY_SET"),
        ({"change": {"byteorder": b"big"}}, "byte order"),
        ({"change": {"data.pkl": b"\x80\x02cposix\nsystem\nX\x01\0\0\0a\x85R."}}, "'posix.system'"),
        ({"rename": lambda name: "../" + name}, "'../model/data.pkl'"),
        ({"rename": lambda name: "/" + name}, "'/model/data.pkl'"),
        ({"rename": lambda name: name.replace("/", "\\")}, "would not write"),
        ({"rename": lambda name: name + "/" + name}, "not one of torch.save"),
        ({"rename": lambda name: name.replace("model", name.rpartition("/")[2])}, "folders"),
    ],
)
def test_archives_that_torch_would_not_write(tmp_path: Path, changes: dict[str, Any], part: str) -> None:
    path = save(tmp_path / "model.pth", mlp(2, 4, 1))
    _rezip(path)
    assert isinstance(read_checkpoint(path), ForeignModel)  # the rewriting itself does no harm
    _rezip(path, **changes)
    sentence = refusal(path)
    assert part in sentence, sentence


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_member_twice_and_too_many(tmp_path: Path) -> None:
    path = save(tmp_path / "model.pth", mlp(2, 4, 1))
    _rezip(path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("model/data.pkl", b"\x80\x02}.")
    assert "twice" in refusal(path)
    with zipfile.ZipFile(path, "w") as archive:
        for index in range(10_001):
            archive.writestr(f"model/{index}", b"")
    assert "10001 members" in refusal(path)


def _safetensors(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def _entry(shape: list[Any], begin: Any, end: Any, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (_safetensors(b"{}", length=10 * 2**30), "header of 10737418240 bytes"),
        (_safetensors(b"{}", length=2**64 - 1), "header of 18446744073709551615 bytes"),
        (_safetensors(b"{", length=1000), "cut short inside its header"),
        (_safetensors(b"{" + b'"a":[' * 100_000), "damaged header"),
        (_safetensors(b'{"a":' + b"9" * 10_000 + b"}"), "damaged header"),
        (_safetensors({}), "holds no tensors"),
        (_safetensors({"a": 3}), "damaged header"),
        (_safetensors({"a": _entry([2, 2], 0, 16)}), "0 bytes of data where its header claims 16"),
        (_safetensors({"a": _entry([2, 2], 0, 16)}, b"\0" * 17), "17 bytes of data"),
        (_safetensors({"a": _entry([2, 3], 0, 16)}, b"\0" * 16), "2x3 has 16 bytes"),
        (_safetensors({"a": _entry([10**6, 10**6], 0, 16)}, b"\0" * 16), "16 bytes"),
        (_safetensors({"a": _entry([-2, -2], 0, 16)}, b"\0" * 16), "not a whole number"),
        (_safetensors({"a": _entry([2.0, 2], 0, 16)}, b"\0" * 16), "not a whole number"),
        (_safetensors({"a": _entry([2**62] * 100_000, 0, 16)}, b"\0" * 16), "claims a header"),
        (_safetensors({"a": _entry([9] * 100_000, 0, 16)}, b"\0" * 16), "too many"),
        (_safetensors({"a": _entry([2, 2], 0, 16, "F8_E4M3")}, b"\0" * 16), "'F8_E4M3'"),
        (_safetensors({"a": _entry([2], 0, 8), "b": _entry([2], 4, 12)}, b"\0" * 12), "overlap"),
        (_safetensors({"a": _entry([2], 0, 8), "b": _entry([2], 12, 20)}, b"\0" * 20), "gap at byte 8"),
    ],
)
def test_lying_safetensors(tmp_path: Path, content: bytes, part: str) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    sentence = refusal(path)
    assert part in sentence, sentence


_MEASURE = """
import resource, sys
from pathlib import Path
from recon_core.errors import InputError
from recon_core.models.foreign import read_checkpoint
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
read_checkpoint(Path(sys.argv[1]))
before = peak()
limit = 4 * 2**30
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for name in sys.argv[2:]:
    try:
        read_checkpoint(Path(name))
    except InputError:
        continue
    raise SystemExit(f"{name} was read")
sys.stdout.write(str(peak() - before))
"""


@pytest.mark.processes
def test_memory_stays_bounded(tmp_path: Path) -> None:
    """Files of a few bytes up to 1 MiB that claim terabytes cost at most 200 MiB (measured in a process of its own)."""
    good = save(tmp_path / "good.pth", mlp(2, 4, 1))
    bad = [
        save(tmp_path / "stride.pth", {"0.weight": torch.zeros(1).expand(10**6, 10**6)}),
        save(tmp_path / "call.pth", {"a": _Runs(bytearray, 10**13)}),
    ]
    for name, pickled in (("dicts", b"}" * (2**20 - 3)), ("marks", b"(" * (2**20 - 3)), ("put", b"r\xff\xff\xff\xff")):
        path = save(tmp_path / f"{name}.pth", mlp(2, 4, 1))
        _rezip(path, change={"data.pkl": b"\x80\x02" + pickled + b"."})
        bad.append(path)
    for name, content in (
        ("header", _safetensors(b"{}", length=10 * 2**30)),
        ("shape", _safetensors({"a": _entry([10**6, 10**6], 0, 4 * 10**12)})),
        ("nested", _safetensors(b'{"a":' + b"[]," * 300_000)),
    ):
        path = tmp_path / f"{name}.safetensors"
        path.write_bytes(content)
        bad.append(path)
    with open(tmp_path / "hole.pth", "wb") as file:  # 10 GiB that take no space
        file.write(b"PK\x03\x04")
        file.truncate(10 * 2**30)
    bad.append(tmp_path / "hole.pth")
    command = [sys.executable, "-c", _MEASURE, str(good), *map(str, bad)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    assert int(done.stdout) < 200 * 1024  # KiB


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole")
    state = mlp(2, 4, 1)
    return {suffix: save(folder / f"m{suffix}", state).read_bytes() for suffix in (".pth", ".safetensors")}


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    suffix=st.sampled_from([".pth", ".safetensors"]),
    edits=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=4)), max_size=6),
)
def test_damaged_bytes_give_a_sentence_or_a_finite_network(
    tmp_path: Path, wholes: dict[str, bytes], suffix: str, edits: list[tuple[float, bytes]]
) -> None:
    content = bytearray(wholes[suffix])
    for place, replacement in edits:
        start = int(place * len(content))
        content[start : start + len(replacement)] = replacement
    path = tmp_path / f"fuzzed{suffix}"
    path.write_bytes(content)
    try:
        model = read_checkpoint(path)
    except InputError as error:
        assert "\n" not in str(error)  # noqa: PT017 - both outcomes are right
    else:
        assert all(parameter.isfinite().all() for parameter in model.network.parameters())


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    body=st.lists(
        st.sampled_from([bytes([code]) for code in b"}()]X\x85\x86\x87RQsuabhqrt.cNK0G\x88\x8a"])
        | st.binary(max_size=3),
        max_size=40,
    )
)
def test_random_pickles_give_a_sentence(tmp_path: Path, wholes: dict[str, bytes], body: list[bytes]) -> None:
    path = tmp_path / "fuzzed.pth"
    path.write_bytes(wholes[".pth"])
    _rezip(path, change={"data.pkl": b"\x80\x02" + b"".join(body) + b"."})
    refusal(path)
