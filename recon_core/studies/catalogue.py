"""Every built-in study: the experiments of both papers, and ours. Adding one is adding one entry here.

Quick takes the embedded images in sizes that two cores finish in minutes. Paper-n takes the papers' numbers of images
and networks, as far as the embedded images go, with one seed and one start of the attack: hours on two cores. Full is
the papers' experiment with the full sets, for a GPU. All train with the fast recipes, which follow the papers' path to
the same points; where a paper's own optimiser is the question (SGD, fewer epochs) that one is used.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from recon_core.config import parse_config
from recon_core.errors import InputError
from recon_core.presets import CONV_STEPS, FAR, FAR_MANY
from recon_core.studies.custom import value_variants
from recon_core.studies.plan import Check, PaperClaim, Scale, StudyPlan, Variant
from recon_core.studies.settings import Settings
from recon_core.units import log10_loss


class StudySize(StrEnum):
    QUICK = "quick"
    PAPER_N = "paper-n"
    FULL = "full"


SIZE_NOTES = {
    StudySize.QUICK: "minutes on two cores",
    StudySize.PAPER_N: "the papers' numbers of images and networks, with the bundled images, one seed and one start of "
    "the attack: hours on two cores",
    StudySize.FULL: "the papers' experiment with the full sets, for a GPU",
}


_PAPER_N = "With the papers' numbers of images, as far as the embedded images go; one seed and one start of the attack."


@dataclass(frozen=True)
class BuiltInStudy:
    """One experiment. `quick`, `paper_n` and `full` hold what differs between the sizes, as fields of a plan."""

    name: str
    title: str
    where: str
    about: str
    axis: str
    quick: dict[str, Any] | None
    """None where nothing small would say anything."""
    full: dict[str, Any]
    paper_n: dict[str, Any] | None = None
    """None where quick or full already has the papers' numbers, and where the embedded images are too few for them."""
    scale: Scale = Scale.CATEGORY
    overlay: bool = False
    kernels: bool = False
    defences: bool = False
    claims: tuple[PaperClaim, ...] = ()
    base: Settings = field(default_factory=dict)

    @property
    def sizes(self) -> tuple[StudySize, ...]:
        return tuple(size for size in StudySize if self._sized(size) is not None)

    def _sized(self, size: StudySize) -> dict[str, Any] | None:
        return {StudySize.QUICK: self.quick, StudySize.PAPER_N: self.paper_n, StudySize.FULL: self.full}[size]

    def plan(self, size: StudySize = StudySize.QUICK) -> StudyPlan:
        sized = self._sized(size)
        if sized is None:
            raise InputError(f"study {self.name} has no size {size}; choose --size {' or --size '.join(self.sizes)}")
        common = {
            "name": self.name,
            "title": self.title,
            "where": self.where,
            "size": size,
            "about": f"{self.about} {_PAPER_N}" if size is StudySize.PAPER_N else self.about,
            "axis": self.axis,
            "scale": self.scale,
            "overlay": self.overlay,
            "kernels": self.kernels,
            "defences": self.defences,
            "claims": self.claims,
        }
        return parse_config(StudyPlan, {**common, **sized, "base": {**self.base, **sized.get("base", {})}})


def _flow(target: float = FAR) -> Settings:
    return {"training.recipe": "flow", "training.target_log_loss": target}


def _at(label: str, position: float | None = None, **settings: Any) -> Variant:
    """A variant with settings written group__name."""
    named = {key.replace("__", "."): value for key, value in settings.items()}
    return Variant(label=label, position=position, settings=named)


def _loss_label(log_loss: float) -> str:
    """As a sentence names it; on the axis stands the number."""
    return f"log10 loss {log10_loss(log_loss):.3g}"


def _with(variant: Variant, settings: Settings) -> Variant:
    return variant.model_copy(update={"settings": {**variant.settings, **settings}})


_FULL_SOURCE = {"data.source": "cifar10-full"}
_KAIMING = {"model.init_scale": "kaiming"}
_THREE = [0, 1, 2]
# Starts that are pooled at full size, as the papers pool a search.
_POOLED = {"attack.seeds": 5}

_DECAYS = [1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2]
_DECAY_POINTS = [
    Variant(label="none", settings=_flow()),
    *value_variants("training.weight_decay", _DECAYS),
]
_DECAY_REFERENCES = [
    Variant(label="no decay, start 1e-3", settings={**_flow(), "model.init_scale": 1e-3}),
    Variant(label="no decay, start 1e-4", settings={**_flow(), "model.init_scale": 1e-4}),
]
_MULTICLASS = {"data.task": "multiclass"}


def _multiclass(per_class: int) -> Settings:
    return {**_MULTICLASS, "data.per_class": per_class}


_DECAY_PANELS = [
    Variant(label="two classes", settings={"data.n": 100}),
    Variant(label="ten classes", settings=_multiclass(50)),
]


_WIDE = [1000, 1000]
_ARCHITECTURES = [
    _at("1000-1000", model__widths=_WIDE),
    _at("100-100", model__widths=[100, 100]),
    _at("1000-500-100", model__widths=[1000, 500, 100]),
    _at("1000-500-100-50", model__widths=[1000, 500, 100, 50]),
    _at("1000-1000, all biases", model__widths=_WIDE, model__bias="hidden"),
]
_BASELINES = [
    _at("model inversion", attack__baseline="inversion"),
    _at("first-layer weights", attack__baseline="weights"),
]
_BASELINE_PANELS = [_at("CIFAR-10", data__source="cifar10"), _at("digits", data__source="mnist")]
_CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
_CLASS_COUNTS = [2, 3, 4, 5, 10]


def _classes(**counted: int) -> list[Variant]:
    size = {f"data.{key}": value for key, value in counted.items()}
    return [
        Variant(
            label=str(count),
            position=count,
            settings={**_MULTICLASS, "data.classes": _CLASSES[:count], **size},
        )
        for count in _CLASS_COUNTS
    ]


_LOSSES = [
    _at("L2", training__loss="l2"),
    _at("L2.5", training__loss="l2.5"),
    _at("Huber", training__loss="huber"),
]
_REGRESSION = {"data.task": "regression", **_KAIMING, "training.weight_decay": 1e-3}
_CONVERGENCE = [-2.0, -5.0, -14.0, -50.0, -150.0, -400.0, -1000.0]

_PRIORS = [
    _at("none", attack__prior="off"),
    _at("box", attack__prior="box"),
    _at("natural images", attack__prior="natural"),
]
_PRIOR_PANELS = [
    Variant(label="no decay", settings=_flow()),
    Variant(label="decay 1e-4", settings={"training.weight_decay": 1e-4}),
]

_TRAINING, _SIZE, _RELEASE, _PRIVATE = (
    "in training", "network and data", "on the released weights", "differential privacy",
)  # fmt: skip


def _defence(label: str, group: str, about: str, **settings: Any) -> Variant:
    return _at(label, **settings).model_copy(update={"group": group, "about": about})


def _private(epsilon: float, epochs: int) -> Variant:
    return _defence(
        f"DP-SGD, epsilon {epsilon:g}",
        _PRIVATE,
        "Every image may move the weights only a little, and noise covers the rest, so that the model with and "
        "without any one image can hardly be told apart. The smaller epsilon, the stronger.",
        training__recipe="dpsgd",
        training__epsilon=epsilon,
        training__epochs=epochs,
        training__learning_rate=0.02,  # at that of the others the noise of small epsilons drowns the weights
    )


def _defences(n: int, width: int, private_epochs: int) -> list[Variant]:
    """Around one model of `n` images and `width` neurons a layer; the first is that model."""
    stops = "Training ends once the loss has fallen this far, while the network still errs a little on single images."
    decay = "A pull of all weights towards zero, customary against overfitting."
    shrunk = "Noise is added to the weights before they are given away, this much of their own size."
    sized = "The same images, a network with {} neurons in each layer."
    pruned = "The smallest weights, this share of them, are set to zero before the network is given away."
    return [
        _defence("none", "no defence", "Trained long, given away as it is."),
        _defence("early stopping, loss 0.3", _TRAINING, stops, training__target_loss=0.3),
        _defence("early stopping, loss 0.05", _TRAINING, stops, training__target_loss=0.05),
        _defence("weight decay 1e-3", _TRAINING, decay, training__weight_decay=1e-3),
        _defence("weight decay 1e-2", _TRAINING, decay, training__weight_decay=1e-2),
        _defence("augmentation", _TRAINING, "Every time an image is seen it is mirrored and moved by a few pixels at "
                 "random.", training__augmentation="flip-shift"),
        _defence("label smoothing 0.1", _TRAINING, "The network is trained to be 95% sure instead of wholly sure.",
                 training__label_smoothing=0.1),
        _defence("dropout 0.5", _TRAINING, "In each step a random half of the neurons is left out.",
                 training__dropout=0.5),
        _defence("smaller network", _SIZE, sized.format(width // 6), model__widths=[width // 6] * 2),
        _defence("larger network", _SIZE, sized.format(2 * width), model__widths=[2 * width] * 2),
        _defence("more data", _SIZE, f"The same network, {4 * n} training images instead of {n}.", data__n=4 * n),
        _defence("noise 10%", _RELEASE, shrunk, release__noise=0.1),
        _defence("noise 50%", _RELEASE, shrunk, release__noise=0.5),
        _defence("pruning 50%", _RELEASE, pruned, release__pruned=0.5),
        _defence("pruning 90%", _RELEASE, pruned, release__pruned=0.9),
        _defence("8-bit rounding", _RELEASE, "Each weight is stored as one of 255 values, as is done to save memory.",
                 release__bits=8),
        *(_private(epsilon, private_epochs) for epsilon in (1, 8, 100)),
    ]  # fmt: skip


_DEFENDED = {"training.recipe": "sgd", "training.batch_size": 10, "training.learning_rate": 0.05,
             "training.epochs": 1000, "training.measure_every": 10}  # fmt: skip

CATALOGUE: dict[str, BuiltInStudy] = {
    study.name: study
    for study in (
        BuiltInStudy(
            "weight-decay",
            "Weight decay: how many training images are reconstructed",
            "Buzaglo et al. 2023, Fig. 5, 9 and 14",
            "Networks trained to a stationary point with ever stronger weight decay, two classes and ten.",
            "weight decay λ",
            scale=Scale.LOG,
            base=_KAIMING,
            claims=(
                PaperClaim(text="Some decay values raise the number of images that can be reconstructed.",
                           check=Check.RISES_SOMEWHERE),
                PaperClaim(text="With such a decay more training samples sit on the margin.",
                           check=Check.MARGIN_RISES_TOO),
                PaperClaim(text="The test error does not change much.", check=Check.TEST_ERROR_STEADY),
            ),
            # Half the papers' width takes half the time and leaks about as much.
            quick={
                "points": _DECAY_POINTS, "references": _DECAY_REFERENCES, "seeds": _THREE,
                "base": {"model.widths": [500, 500]},
                "panels": [Variant(label="two classes", settings={"data.n": 50}),
                           Variant(label="ten classes", settings=_multiclass(5))],
            },
            paper_n={
                "points": _DECAY_POINTS, "references": _DECAY_REFERENCES, "panels": _DECAY_PANELS,
            },
            full={
                "points": _DECAY_POINTS, "references": _DECAY_REFERENCES, "seeds": _THREE, "panels": _DECAY_PANELS,
                "base": {**_FULL_SOURCE, **_POOLED},
            },
        ),
        BuiltInStudy(
            "circle",
            "Points on a circle",
            "Haim et al. 2022, Fig. 2",
            "Points of alternating class on the unit circle, learnt and found again.",
            "training points",
            scale=Scale.LINEAR,
            base={"data.source": "circle", "model.init_scale": 0.01, **_flow(-6.0)},
            claims=(PaperClaim(text="The points are found again.", check=Check.SOME_EVERYWHERE),),
            quick={"points": value_variants("data.n", [20]), "seeds": _THREE},
            full={"points": value_variants("data.n", [20]), "seeds": list(range(10))},
        ),
        BuiltInStudy(
            "digits",
            "Digits",
            "Haim et al. 2022, Fig. 3",
            "Odd against even digits. Counts depend on the SSIM window more than elsewhere, so both are given.",
            "training images",
            scale=Scale.LOG,
            claims=(PaperClaim(text="Digits are reconstructed from their classifier.", check=Check.SOME_EVERYWHERE),),
            base={"data.source": "mnist", **_flow(FAR_MANY)},
            quick={"points": value_variants("data.n", [20, 50, 100]), "seeds": _THREE},
            paper_n={"points": value_variants("data.n", [50, 100, 500])},
            full={"points": value_variants("data.n", [50, 100, 500]), "seeds": _THREE,
                  "base": {"data.source": "mnist-full", **_POOLED}},
        ),
        BuiltInStudy(
            "samples",
            "More training images, fewer reconstructed",
            "Haim et al. 2022, Fig. 4 (top) and Table 1",
            "The same network trained on ever more images of animals and vehicles.",
            "training images",
            scale=Scale.LOG,
            claims=(PaperClaim(text="More training images make reconstruction harder.", check=Check.SHARE_FALLS),
                    PaperClaim(text="Training images are reconstructed from a binary classifier.",
                               check=Check.SOME_EVERYWHERE),
                    PaperClaim(text="With more training images the test error is lower.",
                               check=Check.TEST_ERROR_FALLS)),
            quick={"points": value_variants("data.n", [10, 20, 50, 100, 200]), "seeds": _THREE,
                   "base": _flow(FAR_MANY)},
            # The embedded subset holds 416 vehicles.
            paper_n={"points": value_variants("data.n", [10, 50, 100, 500, 800]), "base": _flow(FAR_MANY)},
            full={"points": value_variants("data.n", [10, 50, 100, 500, 1000]), "seeds": _THREE,
                  "base": {**_flow(FAR_MANY), **_FULL_SOURCE, **_POOLED}},
        ),
        BuiltInStudy(
            "architectures",
            "Narrow, deep and non-homogeneous networks",
            "Haim et al. 2022, Fig. 4 (bottom) and Table 1",
            "Five architectures trained on the same images.",
            "architecture",
            claims=(PaperClaim(text="Images are reconstructed from all of them, even with biases in all layers.",
                               check=Check.SOME_EVERYWHERE),
                    PaperClaim(text="The test error hardly depends on the network.", check=Check.TEST_ERROR_STEADY)),
            quick={"points": _ARCHITECTURES, "seeds": _THREE, "base": {"data.n": 100, **_flow(FAR_MANY)}},
            paper_n={"points": _ARCHITECTURES, "base": {"data.n": 500, **_flow(FAR_MANY)}},
            full={"points": _ARCHITECTURES, "seeds": _THREE,
                  "base": {"data.n": 500, **_flow(FAR_MANY), **_FULL_SOURCE, **_POOLED}},
        ),
        BuiltInStudy(
            "baselines",
            "Model inversion and first-layer weights",
            "Haim et al. 2022, Fig. 5 and 12 to 15",
            "What the attack is compared with: inputs that maximise or minimise the output, and the weights of the "
            "first layer taken as images.",
            "method",
            claims=(PaperClaim(text="Neither gives as many training images as the attack.",
                               check=Check.BELOW_REFERENCE),),
            quick={"points": _BASELINES, "references": [Variant(label="the attack")], "panels": _BASELINE_PANELS,
                   "base": {"data.n": 100, **_flow(FAR_MANY)}, "seeds": _THREE},
            paper_n={"points": _BASELINES, "references": [Variant(label="the attack")], "panels": _BASELINE_PANELS,
                     "base": {"data.n": 500, **_flow(FAR_MANY)}},
            full={"points": _BASELINES, "references": [Variant(label="the attack", settings=_POOLED)],
                  "panels": [_at("CIFAR-10", data__source="cifar10-full"), _at("digits", data__source="mnist-full")],
                  "base": {"data.n": 500, **_flow(FAR_MANY)}, "seeds": _THREE},
        ),
        BuiltInStudy(
            "beyond-theory",
            "Standard start, fewer epochs, mini-batches",
            "Haim et al. 2022, Fig. 16 to 21 and Table 2",
            "Networks for which the theory behind the attack does not hold, beside one for which it does.",
            "how it was trained",
            claims=(PaperClaim(text="Images are still reconstructed where the theory does not hold.",
                               check=Check.SOME_EVERYWHERE),
                    PaperClaim(text="They are fewer, or worse, than from a small start.",
                               check=Check.BELOW_REFERENCE)),
            quick={
                "points": [
                    _with(_at("standard start, 10 images", data__n=10, model__init_scale="kaiming"), _flow()),
                    _with(_at("standard start, 50 images", model__init_scale="kaiming"), _flow()),
                    _at("mini-batches", training__recipe="sgd", training__batch_size=10,
                        training__learning_rate=0.05, training__epochs=2000),
                    _at("10^4 epochs", training__recipe="flow", training__target_loss=0.0039),
                    _at("10^4 epochs, digits", data__source="mnist", training__recipe="flow",
                        training__target_loss=0.014),
                ],
                "references": [Variant(label="small start, far", settings=_flow())],
                "base": {"data.n": 50}, "seeds": _THREE,
            },
            paper_n={
                "points": [
                    _with(_at("standard start, 10 images", data__n=10, model__init_scale="kaiming"), _flow()),
                    _with(_at("standard start, 50 images", data__n=50, model__init_scale="kaiming"), _flow()),
                    # A hundredth of the paper's epochs, at ten times its rate.
                    _at("mini-batches", training__recipe="sgd", training__batch_size=50,
                        training__learning_rate=0.1, training__epochs=10**4),
                    _at("10^4 epochs", training__recipe="flow", training__target_loss=0.0039),
                    _at("10^4 epochs, digits", data__source="mnist", training__recipe="flow",
                        training__target_loss=0.014),
                ],
                "references": [Variant(label="small start, far", settings=_flow(FAR_MANY))],
                "base": {"data.n": 500},
            },
            full={
                "points": [
                    _with(_at("standard start, 10 images", data__n=10, model__init_scale="kaiming"), _flow()),
                    _with(_at("standard start, 50 images", data__n=50, model__init_scale="kaiming"), _flow()),
                    _at("mini-batches", training__recipe="sgd", training__batch_size=50,
                        training__learning_rate=0.01, training__epochs=10**6),
                    _at("10^4 epochs", training__recipe="paper", training__epochs=10**4),
                    _at("10^4 epochs, digits", data__source="mnist-full", training__recipe="paper",
                        training__epochs=10**4),
                ],
                "references": [Variant(label="small start, far", settings=_flow(FAR_MANY))],
                "base": {"data.n": 500, **_FULL_SOURCE, **_POOLED}, "seeds": _THREE,
            },
        ),
        BuiltInStudy(
            "classes",
            "More classes, the same number of images of each",
            "Buzaglo et al. 2023, Fig. 3",
            "Networks that tell 2, 3, 4, 5 and 10 kinds of images apart.",
            "classes",
            scale=Scale.LINEAR,
            claims=(PaperClaim(text="The number of reconstructed images grows with the number of classes.",
                               check=Check.GROWS),
                    PaperClaim(text="Training images are reconstructed from classifiers of several classes.",
                               check=Check.SOME_EVERYWHERE)),
            quick={"points": _classes(per_class=10), "seeds": _THREE, "base": _flow(FAR_MANY)},
            paper_n={"points": _classes(per_class=50), "base": _flow(FAR_MANY)},
            full={"points": _classes(per_class=50), "seeds": _THREE,
                  "base": {**_flow(FAR_MANY), **_FULL_SOURCE, **_POOLED}},
        ),
        BuiltInStudy(
            "classes-fixed-total",
            "More classes, the same number of images in all",
            "Buzaglo et al. 2023, Fig. 10",
            "As many images in all, divided over more and more classes.",
            "classes",
            scale=Scale.LINEAR,
            claims=(PaperClaim(text="With as many images in all, more classes let more of them be reconstructed.",
                               check=Check.GROWS),),
            quick={"points": _classes(n=60), "seeds": _THREE, "base": _flow(FAR_MANY)},
            # 500 as in the paper, or the nearest number that the classes divide evenly.
            full={"points": [_with(point, {"data.n": 500 - 500 % int(point.label)}) for point in _classes()],
                  "seeds": _THREE, "base": {**_flow(FAR_MANY), **_FULL_SOURCE, **_POOLED}},
        ),
        BuiltInStudy(
            "losses",
            "Regression: L2, L2.5 and Huber",
            "Buzaglo et al. 2023, Fig. 4 and 11 to 13",
            "Regression on labels of -1 and 1 with weight decay, and without it.",
            "loss",
            claims=(PaperClaim(text="With weight decay images are reconstructed from regression with any loss.",
                               check=Check.SOME_EVERYWHERE),
                    PaperClaim(text="Without weight decay nothing is reconstructed from a regression.",
                               check=Check.REFERENCE_FAILS)),
            base=_REGRESSION,
            quick={
                "points": _LOSSES, "seeds": _THREE, "base": {"data.n": 50},
                "references": [_at("L2 without decay", training__weight_decay=0.0, training__recipe="paper",
                                   training__epochs=3000)],
            },
            paper_n={
                "points": _LOSSES, "base": {"data.n": 300},
                "references": [_at("L2 without decay", training__weight_decay=0.0, training__recipe="paper",
                                   training__epochs=3000)],
            },
            full={
                "points": _LOSSES, "seeds": _THREE, "base": {"data.n": 300, **_FULL_SOURCE, **_POOLED},
                "references": [_at("L2 without decay", training__weight_decay=0.0, training__recipe="paper",
                                   training__epochs=10**6)],
            },
        ),
        BuiltInStudy(
            "convolution",
            "Convolutions: kernel size and channels",
            "Buzaglo et al. 2023, Fig. 15 and 16",
            "One convolution before the dense layers, with weight decay; the kernels are shown as images.",
            "kernel size",
            scale=Scale.LINEAR,
            overlay=True,
            kernels=True,
            base={**_KAIMING, "training.weight_decay": 1e-3},
            claims=(PaperClaim(text="Images are reconstructed for a wide range of kernels and channels.",
                               check=Check.SOME_EVERYWHERE),),
            quick={
                "points": value_variants("model.conv_kernel", [3, 8, 16, 32]),
                "panels": [_at("8 channels", model__conv_channels=8), _at("32 channels", model__conv_channels=32)],
                "base": {"data.n": 50, "model.widths": [300]}, "seeds": [0],
            },
            # Part of the papers' grid.
            paper_n={
                "points": value_variants("model.conv_kernel", [3, 7, 16, 32]),
                "panels": [_at("8 channels", model__conv_channels=8), _at("32 channels", model__conv_channels=32)],
                "base": {"data.n": 500, "model.widths": [1000], "training.epochs": CONV_STEPS},
            },
            full={
                "points": value_variants("model.conv_kernel", [3, 5, 7, 10, 16, 24, 32]),
                "panels": [_at(f"{count} channels", model__conv_channels=count) for count in (8, 16, 32, 64)],
                "base": {"data.n": 500, "model.widths": [1000], "attack.iterations": 2000, **_FULL_SOURCE},
                "seeds": _THREE,
            },
        ),
        BuiltInStudy(
            "many-samples",
            "5,000 images and 10,000 neurons a layer",
            "Buzaglo et al. 2023, Fig. 17",
            "CIFAR-100, 50 images of each class, trained with mini-batches.",
            "width",
            claims=(PaperClaim(text="Some of 5,000 images are still reconstructed.", check=Check.SOME_EVERYWHERE),),
            quick=None,
            # As many images as the embedded subset has of each class, at a tenth of the width.
            paper_n={
                "points": [_at("1000-1000, 800 images of ten classes", model__widths=_WIDE)],
                "base": {**_multiclass(80), "training.recipe": "sgd", "training.batch_size": 80,
                         "training.learning_rate": 0.1, "training.epochs": 10**4},
            },
            full={
                "points": [_at("10000-10000", model__widths=[10_000, 10_000])],
                "base": {"data.source": "cifar100", **_multiclass(50), "training.recipe": "sgd",
                         "training.batch_size": 500, "training.learning_rate": 0.1, "training.epochs": 10**4},
                "seeds": [0],
            },
        ),
        BuiltInStudy(
            "convergence",
            "How far training went",
            "ours",
            "One network along its way to the margin: the further it has come, the better the weights are explained "
            "by the samples. The papers stop near a log10 loss of -6.",
            "−log10 of the loss reached",
            scale=Scale.LOG,
            claims=(PaperClaim(text="Ours: the further training went, the more is reconstructed.", check=Check.GROWS),),
            quick={"points": [_at(_loss_label(loss), -log10_loss(loss), training__target_log_loss=loss)
                              for loss in _CONVERGENCE],
                   "base": {"data.n": 50, "training.recipe": "flow"}, "seeds": _THREE},
            full={"points": [_at(_loss_label(loss), -log10_loss(loss), training__target_log_loss=loss)
                             for loss in _CONVERGENCE],
                  "base": {"data.n": 500, "training.recipe": "flow", **_FULL_SOURCE, **_POOLED}, "seeds": _THREE},
        ),
        BuiltInStudy(
            "priors",
            "What the attack knows of images",
            "ours",
            "One network attacked without a prior, with the papers' box on pixels, and with the prior on natural "
            "images. Without one the equations have many solutions; the prior says which of them are images "
            "(arXiv 2509.21296).",
            "Prior",
            claims=(PaperClaim(text="Ours: knowing that edges are sparse reconstructs more.", check=Check.GROWS),),
            quick={"points": _PRIORS, "panels": _PRIOR_PANELS, "base": {"data.n": 50, "attack.recipe": "copies"},
                   "seeds": _THREE},
            full={"points": _PRIORS, "panels": _PRIOR_PANELS,
                  "base": {"data.n": 500, "attack.recipe": "copies", **_FULL_SOURCE}, "seeds": _THREE},
        ),
        BuiltInStudy(
            "law",
            "How many images a network of one size gives away",
            "ours",
            "One architecture of p parameters, trained on ever more images of d pixels: p / (d n) falls from above 100 "
            "to about 1 (arXiv 2509.22214 puts a threshold there). Attacked with the prior on natural images.",
            "Training images n",
            scale=Scale.LOG,
            claims=(PaperClaim(text="Ours: the share reconstructed falls with n.", check=Check.SHARE_FALLS),),
            quick={"points": value_variants("data.n", [10, 20, 50, 100, 200]),
                   "base": {**_flow(), "attack.recipe": "copies"}, "seeds": _THREE},
            full={"points": value_variants("data.n", [10, 20, 50, 100, 200, 500, 1000]),
                  "base": {**_flow(), "attack.recipe": "copies", **_FULL_SOURCE}, "seeds": _THREE},
        ),
        BuiltInStudy(
            "defences",
            "Defences, compared",
            "ours",
            "One network trained by mini-batches, with one defence at a time: what an attacker with the weights gets "
            "back, and what the defence costs in accuracy. All are attacked alike, on the same budget.",
            "defence",
            defences=True,
            base=_DEFENDED,
            claims=(PaperClaim(text="Ours: some defences leave fewer images to an attacker.",
                               check=Check.FALLS_SOMEWHERE),),
            quick={"points": _defences(50, 300, 20), "seeds": _THREE,
                   "base": {"data.n": 50, "model.widths": [300, 300], "attack.m": 100, "attack.iterations": 600}},
            full={"points": _defences(500, 1000, 100), "seeds": _THREE,
                  "base": {"data.n": 500, "training.batch_size": 50, "training.epochs": 5000, **_FULL_SOURCE}},
        ),
        BuiltInStudy(
            "pooled-seeds",
            "Attacking the same model again and again",
            "ours",
            "Candidates of several starts of the attack, put together before they are matched. A larger pool also "
            "matches more by chance, so look at the chance level.",
            "starts pooled",
            scale=Scale.LOG,
            claims=(PaperClaim(text="Ours: more starts, put together, find more.", check=Check.GROWS),),
            quick={"points": value_variants("attack.seeds", [1, 2, 4, 8]),
                   "base": {"data.n": 50, **_flow()}, "seeds": _THREE},
            full={"points": value_variants("attack.seeds", [1, 2, 5, 10, 20, 50]),
                  "base": {"data.n": 500, **_flow(FAR_MANY), **_FULL_SOURCE}, "seeds": _THREE},
        ),
        BuiltInStudy(
            "faces",
            "Faces",
            "ours",
            "Small pictures of faces against other patches: what leaks when the training images are people.",
            "training images",
            scale=Scale.LOG,
            claims=(PaperClaim(text="Ours: faces are reconstructed like other images.", check=Check.SOME_EVERYWHERE),),
            base={"data.source": "faces", **_flow()},
            quick={"points": value_variants("data.n", [10, 20, 50, 100]), "seeds": _THREE},
            full={"points": value_variants("data.n", [10, 20, 50, 100, 140]), "seeds": _THREE, "base": _POOLED},
        ),
    )
}  # fmt: skip


def find_study(name: str) -> BuiltInStudy:
    """The study of that name, or a sentence that lists the nearest ones."""
    if name in CATALOGUE:
        return CATALOGUE[name]
    near = difflib.get_close_matches(name, CATALOGUE, n=3, cutoff=0.4) or list(CATALOGUE)
    raise InputError(
        f"unknown study {name!r}; did you mean {', '.join(near)}? (all: python -m recon_core study --list)"
    )
