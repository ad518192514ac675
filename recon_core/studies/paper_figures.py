"""Every figure and table of both papers: what it shows, and which study, or which commands, make ours."""

from __future__ import annotations

from dataclasses import dataclass

from recon_core.studies.plan import Check

HAIM, BUZAGLO, OURS = "Haim et al. 2022", "Buzaglo et al. 2023", "Ours"
PAPERS = (HAIM, BUZAGLO)
# Figures and tables of each paper, appendix included.
NUMBERS = {
    HAIM: (*(f"Fig. {number}" for number in range(1, 22)), "Table 1", "Table 2"),
    BUZAGLO: tuple(f"Fig. {number}" for number in range(1, 18)),
}


@dataclass(frozen=True)
class PaperFigure:
    """One entry of the results: figures of a paper that one experiment answers."""

    paper: str
    numbers: tuple[str, ...]
    """As the paper counts them, e.g. Fig. 4."""
    shows: str
    """What the paper shows, in our words."""
    study: str
    """Of the catalogue."""
    figures: tuple[str, ...] = ("good",)
    """Which of the study's figures answer it, by the first word of their names."""
    part: str = ""
    """Where the paper's figure has more to it, e.g. top."""
    checks: tuple[Check, ...] | None = None
    """Which of the study's claims this figure makes; None for all of them, none where it only shows something."""

    @property
    def title(self) -> str:
        return ", ".join(self.numbers) + (f" ({self.part})" if self.part else "")


PAPER_FIGURES: tuple[PaperFigure, ...] = (
    PaperFigure(
        HAIM, ("Fig. 1",), "Training images come back from a binary classifier of 50 CIFAR-10 images, animals against "
        "vehicles.", "samples", ("images",), checks=(Check.SOME_EVERYWHERE,),
    ),
    PaperFigure(
        HAIM, ("Fig. 2",), "Twenty points on a circle: trained, attacked with 100 candidates, filtered by multiplier, "
        "and found again.", "circle",
    ),
    PaperFigure(
        HAIM, ("Fig. 3",), "Reconstructions from classifiers of 500 CIFAR-10 images and of 500 digits. Of the "
        "30 best pairs in the released notebooks, scored with our SSIM, at least 19 (CIFAR-10, best 0.77) and 27 "
        "(digits, many of them one blurred 3) are above 0.4.", "digits", ("good", "images"),
        part="digits; for CIFAR-10 see Fig. 4, top",
    ),
    PaperFigure(
        HAIM, ("Fig. 4",), "SSIM of each training image against the output, for 50 to 1,000 training images: the "
        "more there are, the fewer come back, and those on the margin come back best.", "samples",
        ("good", "scatter"), part="top", checks=(Check.SHARE_FALLS,),
    ),
    PaperFigure(
        HAIM, ("Fig. 4",), "The same for a narrow, two deeper and a non-homogeneous network of 500 images.",
        "architectures", ("good", "scatter"), part="bottom", checks=(Check.SOME_EVERYWHERE,),
    ),
    PaperFigure(
        HAIM, ("Fig. 5", "Fig. 12", "Fig. 13"), "Model inversion, the baseline, gives blurred averages of the classes.",
        "baselines", ("good", "images"), part="model inversion",
    ),
    PaperFigure(
        HAIM, ("Fig. 5", "Fig. 14", "Fig. 15"), "Some weights of the first layer, taken as images, look like training "
        "images, far fewer than the attack finds.", "baselines", ("images",), part="weights as images",
    ),
    PaperFigure(
        HAIM, ("Fig. 6", "Fig. 7"), "The best reconstructions from 100 and from 1,000 training images.", "samples",
        ("images",), checks=(Check.SHARE_FALLS,),
    ),
    PaperFigure(
        HAIM, ("Fig. 8", "Fig. 9", "Fig. 10", "Fig. 11"), "The best reconstructions from each of those networks.",
        "architectures", ("images",), checks=(Check.SOME_EVERYWHERE,),
    ),
    PaperFigure(
        HAIM, ("Table 1",), "Train loss, test accuracy (72% to 79%, more with more images) and test loss by number of "
        "images.", "samples", ("models",), part="numbers of images", checks=(Check.TEST_ERROR_FALLS,),
    ),
    PaperFigure(
        HAIM, ("Table 1",), "The same by network: the test accuracy hardly depends on it (77% to 78%).",
        "architectures", ("models",), part="networks", checks=(Check.TEST_ERROR_STEADY,),
    ),
    PaperFigure(
        HAIM, ("Fig. 16",), "SSIM against the output where the theory does not hold: standard initialisation, "
        "mini-batches, 10^4 epochs.", "beyond-theory", ("good", "scatter"),
    ),
    PaperFigure(
        HAIM, ("Fig. 17", "Fig. 18", "Fig. 19", "Fig. 20", "Fig. 21"), "Reconstructions from each of these, of lower "
        "quality with standard initialisation, alike with fewer epochs and mini-batches.", "beyond-theory", ("images",),
    ),
    PaperFigure(
        HAIM, ("Table 2",), "Their losses and test accuracies, 71% to 77% on CIFAR-10 and 87% on digits.",
        "beyond-theory", ("models",), checks=(),
    ),
    PaperFigure(
        BUZAGLO, ("Fig. 1", "Fig. 2"), "Training images come back from a classifier of ten classes, 50 images each.",
        "classes", ("images",), checks=(Check.SOME_EVERYWHERE,),
    ),
    PaperFigure(
        BUZAGLO, ("Fig. 3",), "The more classes, with as many images of each, the more images come back.", "classes",
        ("good", "scatter"), checks=(Check.GROWS,),
    ),
    PaperFigure(
        BUZAGLO, ("Fig. 4",), "With weight decay, images come back from regression with L2, L2.5 and Huber loss.",
        "losses", ("good", "scatter"),
    ),
    PaperFigure(
        BUZAGLO, ("Fig. 5", "Fig. 9"), "Good reconstructions against weight decay, 12 values, two classes and ten; "
        "models without decay are dashed lines: start 1e-3 (Fig. 5) and, corrected, 1e-4 (Fig. 9). Some values raise "
        "the count dramatically.", "weight-decay", ("good", "on", "images"),
        part="and the poster's aligned images",
    ),
    PaperFigure(
        BUZAGLO, ("Fig. 6",), "Reconstructions from a convolutional classifier of 500 images.", "convolution",
        ("images",),
    ),
    PaperFigure(
        BUZAGLO, ("Fig. 7",), "How much comes back depends on the number of neurons and of training images.", "law",
        ("good",), part="by number of images only",
    ),
    PaperFigure(
        BUZAGLO, ("Fig. 8",), "Pairs around the threshold: those with SSIM above 0.4 look alike to people.",
        "pooled-seeds", ("images",), checks=(),
    ),
    PaperFigure(
        BUZAGLO, ("Fig. 10",), "With 500 images in all, ten classes let more than six times as many come back as two.",
        "classes-fixed-total", ("good", "scatter"),
    ),
    PaperFigure(
        BUZAGLO, ("Fig. 11", "Fig. 12", "Fig. 13"), "Reconstructions from regression of 300 images with each loss.",
        "losses", ("images",), checks=(Check.SOME_EVERYWHERE,),
    ),
    PaperFigure(
        BUZAGLO, ("Fig. 14",), "SSIM against the distance to the margin, one plot for each of 12 decay values: some "
        "put more samples on the margin, the test error hardly changes, and images come back even from models with "
        "training errors.", "weight-decay", ("scatter", "errors"),
        checks=(Check.MARGIN_RISES_TOO, Check.TEST_ERROR_STEADY),
    ),
    PaperFigure(
        BUZAGLO, ("Fig. 15",), "Convolutions by kernel size and channels: images come back for a wide range, fewer in "
        "between.", "convolution", ("good", "scatter"),
    ),
    PaperFigure(
        BUZAGLO, ("Fig. 16",), "All kernels of the first layer as images: none holds a training image.", "convolution",
        ("kernels",), checks=(),
    ),
    PaperFigure(
        BUZAGLO, ("Fig. 17",), "5,000 images of CIFAR-100 and 10,000 neurons a layer: a few dozen come back.",
        "many-samples", ("good", "scatter"),
    ),
)  # fmt: skip
