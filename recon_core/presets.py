"""Ready-made training runs: the papers' models and what people start with, each in a quick and in the paper's size.

Quick takes the embedded images and the fast recipes (seconds to minutes on two cores); paper takes the
full sets and the papers' own recipe, in float64 as their code does. Adding a preset is adding one entry here.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from recon_core.config import TrainConfig, parse_config
from recon_core.errors import InputError

# How far flow goes by default (natural log of the mean loss). The papers stop near e^-13; further along
# the same path the weights are explained better by the samples, and images come back better.
FAR = -1000.0
# For hundreds of samples, where a step costs more.
FAR_MANY = -150.0
# Where decay has left e^-8 of the initialisation (the paper's 10^6 epochs: e^-10) and about 40 directions of the first
# dense layer stand above it. Stops before the polish on smoothed networks; what that does to them was not measured.
CONV_STEPS = 120
# A dense layer that starts this small has nothing to forget, so training can stop before decay collapses the kernels:
# on two development draws, where the loss reaches 1e-3 (decay holds it at 4e-4), 50 and 76 directions stand out of the
# layer and the kernels have all of their 27. From the standard start 25 do, and decay has left two kernels.
CONV_SMALL_START = 3e-8
CONV_SMALL_LOSS = 1e-3

Values = dict[str, Any]


class Size(StrEnum):
    QUICK = "quick"
    PAPER = "paper"


@dataclass(frozen=True)
class Preset:
    """One named run; `where` says which table or figure it is."""

    name: str
    title: str
    where: str
    quick: Values
    paper: Values

    def values(self, size: Size) -> Values:
        """A copy of the settings, which callers may change."""
        chosen = self.quick if size is Size.QUICK else self.paper
        copied = {key: dict(part) if isinstance(part, Mapping) else part for key, part in chosen.items()}
        return copied if size is Size.QUICK else {**copied, "model": {"dtype": "float64", **copied.get("model", {})}}

    def config(self, size: Size = Size.QUICK) -> TrainConfig:
        return parse_config(TrainConfig, self.values(size))


def _flow(target: float = FAR) -> Values:
    return {"recipe": "flow", "target_log_loss": target}


def _paper(epochs: int = 10**6, **more: Any) -> Values:
    return {"recipe": "paper", "epochs": epochs, **more}


def _haim(
    name: str, title: str, where: str, n: int, *, quick_n: int | None = None, quick: Values | None = None,
    paper: Values | None = None, data: str = "cifar10", **model: Any,
) -> Preset:  # fmt: skip
    """A binary model of Haim et al.; the full set differs from the embedded one only by its source."""
    return Preset(
        name,
        title,
        where,
        {
            "data": {"source": data, "n": quick_n or n},
            "model": model,
            "training": quick or _flow(FAR if n <= 100 else FAR_MANY),
        },
        {"data": {"source": f"{data}-full", "n": n}, "model": model, "training": paper or _paper()},
    )


_T1 = "Haim et al. 2022, Table 1 and Fig. 4"
_T2 = "Haim et al. 2022, Table 2 and Fig. 16"

PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        _haim("cifar10-50", "25 animals and 25 vehicles", _T1 + ", Fig. 1", 50),
        _haim("cifar10-10", "5 animals and 5 vehicles", "Haim et al. 2022, Fig. 4", 10),
        _haim("cifar10-100", "50 animals and 50 vehicles", _T1, 100),
        _haim("cifar10-500", "250 animals and 250 vehicles", _T1 + ", Fig. 3", 500),
        # The embedded subset holds 416 vehicles.
        _haim("cifar10-1000", "500 animals and 500 vehicles (quick: 400 each)", _T1, 1000, quick_n=800),
        _haim("cifar10-500-narrow", "500 images, widths 100-100", _T1, 500, widths=(100, 100)),
        _haim("cifar10-500-deep4", "500 images, widths 1000-500-100", _T1, 500, widths=(1000, 500, 100)),
        _haim("cifar10-500-deep5", "500 images, widths 1000-500-100-50", _T1, 500, widths=(1000, 500, 100, 50)),
        _haim("cifar10-500-biases", "500 images, biases in all hidden layers", _T1, 500, bias="hidden"),
        _haim("cifar10-10-standard-init", "10 images, standard initialisation", _T2, 10, init_scale="kaiming"),
        _haim("cifar10-50-standard-init", "50 images, standard initialisation", _T2, 50, init_scale="kaiming"),
        _haim(
            "cifar10-500-sgd", "500 images, mini-batches of 50", _T2, 500,
            quick={"recipe": "sgd", "batch_size": 50, "learning_rate": 0.1, "epochs": 1000},
            paper={"recipe": "sgd", "batch_size": 50, "learning_rate": 0.01, "epochs": 10**6},
        ),
        # Quick: the same point of the flow, found by the loss the paper reports there.
        _haim(
            "cifar10-500-10k-epochs", "500 images, 10^4 epochs", _T2, 500,
            quick={"recipe": "flow", "target_loss": 0.0039}, paper=_paper(10**4),
        ),
        _haim(
            "mnist-500-10k-epochs", "500 digits, 10^4 epochs", _T2, 500, data="mnist",
            quick={"recipe": "flow", "target_loss": 0.014}, paper=_paper(10**4),
        ),
        _haim("mnist-50", "25 odd and 25 even digits", "Haim et al. 2022, Section 5", 50, data="mnist"),
        _haim("mnist-500", "250 odd and 250 even digits", "Haim et al. 2022, Fig. 3", 500, data="mnist"),
        Preset(
            "circle", "20 points on the unit circle, alternating labels", "Haim et al. 2022, Fig. 2",
            {"data": {"source": "circle", "n": 20}, "model": {"init_scale": 0.01}, "training": _flow(-6.0)},
            {"data": {"source": "circle", "n": 20}, "model": {"init_scale": 0.01}, "training": _paper()},
        ),
        Preset(
            "faces-50", "25 faces and 25 other patches", "ours",
            {"data": {"source": "faces", "n": 50}, "training": _flow()},
            {"data": {"source": "faces", "n": 50}, "training": _paper()},
        ),
        Preset(
            "cifar10-50-decay", "25 animals and 25 vehicles, weight decay 1e-4", "Buzaglo et al. 2023, Fig. 5",
            {"data": {"n": 50}, "model": {"init_scale": "kaiming"}, "training": {"weight_decay": 1e-4}},
            {"data": {"source": "cifar10-full", "n": 100}, "model": {"init_scale": "kaiming"},
             "training": _paper(weight_decay=1e-4)},
        ),
        Preset(
            "cifar10-multiclass", "10 classes, 5 images each", "Buzaglo et al. 2023, Fig. 2 and 3",
            {"data": {"task": "multiclass", "per_class": 5}, "training": _flow()},
            {"data": {"source": "cifar10-full", "task": "multiclass", "per_class": 50}, "training": _paper()},
        ),
        Preset(
            "cifar10-l2", "25+25 images, L2 regression with weight decay", "Buzaglo et al. 2023, Fig. 4 and 11",
            {"data": {"n": 50, "task": "regression"}, "model": {"init_scale": "kaiming"},
             "training": {"weight_decay": 1e-3}},
            {"data": {"source": "cifar10-full", "n": 300, "task": "regression"}, "model": {"init_scale": "kaiming"},
             "training": _paper(weight_decay=1e-3)},
        ),
        Preset(
            "cifar10-l2-released", "250+250 images, L2 regression, decay 7.5e-4, small first layer (quick: 25+25)",
            "Buzaglo et al. 2023, the released regression model",
            {"data": {"n": 50, "task": "regression"}, "training": {"weight_decay": 7.5e-4}},
            {"data": {"source": "cifar10-full", "n": 500, "task": "regression"}, "model": {"init_scale": 1e-4},
             "training": _paper(weight_decay=7.5e-4)},
        ),
        Preset(
            "cifar10-conv", "25+25 images, CONV(3,32)-1000-1 with weight decay", "Buzaglo et al. 2023, Fig. 6 and 15",
            {"data": {"n": 50}, "model": {"widths": (1000,), "conv_kernel": 3, "conv_channels": 32,
             "init_scale": "kaiming"}, "training": {"weight_decay": 1e-3, "epochs": CONV_STEPS}},
            {"data": {"source": "cifar10-full", "n": 500}, "model": {"widths": (1000,), "conv_kernel": 3,
             "conv_channels": 32, "init_scale": "kaiming"}, "training": _paper(weight_decay=1e-3)},
        ),
        Preset(
            "cifar10-conv-small-start", "25+25 images, CONV(3,32)-1000-1 whose dense layer starts small",
            "ours, after Haim et al. 2022 and Buzaglo et al. 2023, Fig. 6",
            {"data": {"n": 50}, "model": {"widths": (1000,), "conv_kernel": 3, "conv_channels": 32,
             "init_scale": "kaiming", "dense_init_scale": CONV_SMALL_START},
             "training": {"weight_decay": 1e-3, "target_loss": CONV_SMALL_LOSS, "measure_every": 2}},
            {"data": {"source": "cifar10-full", "n": 500}, "model": {"widths": (1000,), "conv_kernel": 3,
             "conv_channels": 32, "init_scale": "kaiming", "dense_init_scale": CONV_SMALL_START},
             "training": _paper(weight_decay=1e-3)},
        ),
    )
}  # fmt: skip

DEFAULT_PRESET = "cifar10-50"

FIGURES: dict[str, tuple[str, ...]] = {
    "Haim et al. 2022, Fig. 1 to 3: what comes back": ("cifar10-50", "circle", "cifar10-500", "mnist-50", "mnist-500"),
    "Haim et al. 2022, Fig. 4 and Table 1: more images, other shapes": (
        "cifar10-10", "cifar10-100", "cifar10-1000", "cifar10-500-narrow", "cifar10-500-deep4", "cifar10-500-deep5",
        "cifar10-500-biases",
    ),
    "Haim et al. 2022, Fig. 16 and Table 2: other trainings": (
        "cifar10-10-standard-init", "cifar10-50-standard-init", "cifar10-500-sgd", "cifar10-500-10k-epochs",
        "mnist-500-10k-epochs",
    ),
    "Buzaglo et al. 2023, Fig. 2 and 3: several classes": ("cifar10-multiclass",),
    "Buzaglo et al. 2023, Fig. 4 and 11: regression": ("cifar10-l2", "cifar10-l2-released"),
    "Buzaglo et al. 2023, Fig. 5: weight decay": ("cifar10-50-decay",),
    "Buzaglo et al. 2023, Fig. 6 and 15: convolution": ("cifar10-conv",),
    "Our own": ("faces-50", "cifar10-conv-small-start"),
}  # fmt: skip
"""All presets by the figure that they belong to; each once."""


@dataclass(frozen=True)
class DataPreset:
    """What the authors' own loaders select, so that their released checkpoints can be counted; n can be changed."""

    title: str
    data: Mapping[str, Any]


_CIFAR = {"source": "cifar10-full", "task": "binary", "partition": "animals-vehicles"}
_DIGITS = {"source": "mnist-full", "task": "binary", "partition": "odd-even"}
DATA_PRESETS = {
    "haim2022-cifar10": DataPreset("first 250 vehicles and first 250 animals of CIFAR-10", {**_CIFAR, "n": 500}),
    "haim2022-mnist": DataPreset("first 250 even and first 250 odd digits of MNIST", {**_DIGITS, "n": 500}),
    "buzaglo2023-cifar10": DataPreset(
        "first 50 of each of the ten classes of CIFAR-10",
        {"source": "cifar10-full", "task": "multiclass", "per_class": 50},
    ),
    "buzaglo2023-mnist": DataPreset(
        "first 50 of each of the ten digits of MNIST", {"source": "mnist-full", "task": "multiclass", "per_class": 50}
    ),
}
"""The mean training image is subtracted in all of them."""


def find_preset(name: str) -> Preset:
    """The preset of that name, or a sentence that lists the nearest ones."""
    if name in PRESETS:
        return PRESETS[name]
    near = difflib.get_close_matches(name, PRESETS, n=3, cutoff=0.4) or list(PRESETS)[:5]
    raise InputError(f"unknown preset {name!r}; did you mean {', '.join(near)}? (all: python -m recon_core presets)")
