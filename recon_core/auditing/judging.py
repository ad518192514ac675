"""From candidates and attached images to a report. By now the attack is over: nothing here can change a candidate."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import torch
from torch import Tensor, nn

from recon_core.attacks import CERTAIN
from recon_core.auditing.assumptions import Circumstances, assumptions
from recon_core.auditing.fit import Fit, Likeness, fit_of
from recon_core.auditing.normalisation import AUTO, normalisations
from recon_core.auditing.report import (
    AttackFacts,
    AuditReport,
    CertainOnes,
    Controls,
    CountAt,
    DataFacts,
    FitFacts,
    ImageRow,
    Leak,
    Level,
    Membership,
    ModelFacts,
    OtherWindow,
    TrueRate,
    Verdict,
)
from recon_core.config import Task
from recon_core.data import TaskData
from recon_core.errors import InputError
from recon_core.matching.certainty import judge_certain
from recon_core.matching.controls import Evidence, LeakCount, score_mean_image, score_mean_image_other
from recon_core.matching.membership import exact_interval, membership_test, more_than_chance
from recon_core.matching.protocol import GOOD_SSIM, Matching, MatchSettings, match
from recon_core.matching.roc import Roc
from recon_core.matching.ssim import SsimKind
from recon_core.version import __version__

Tell = Callable[[str], None]

DENSE_FACTOR, CONVOLUTION_FACTOR = 1.1, 1.5
THRESHOLDS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
_MOST_HELD_OUT = 1000
"""Enough for a false-positive rate of 0.1%; each is searched for among all candidates."""
_CURVE_POINTS = 200
_SIGNIFICANT = 0.05
_COIN = 0.5  # AUC of guessing
_BY = {"loss": "their loss", "margin": "their margin", "reconstruction": "their likeness to a candidate"}


@dataclass(frozen=True, eq=False)
class Audited:
    """The model under audit; `network` maps inputs (k, *input_shape) to outputs (k, outputs)."""

    network: nn.Module
    name: str
    architecture: str
    input_shape: tuple[int, ...]
    outputs: int
    task: Task
    dense: bool
    homogeneous: bool | None = None
    rank: int | None = None
    recipe: str | None = None
    """How it was trained, where that is known."""
    notes: tuple[str, ...] = ()
    run: str | None = None


@dataclass(frozen=True, eq=False)
class Drawn:
    """An attack: candidates (M, *input_shape) as network inputs, confidence (M,), facts about the attack."""

    candidates: Tensor
    confidence: Tensor | None
    recipe: str
    iterations: int
    seeds: int
    seconds: float
    residual: float | None


@dataclass(frozen=True)
class Asked:
    """The settings with which candidates are judged."""

    source: str
    """The attached images in a few words."""
    normalisation: str = AUTO
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    threshold: float = GOOD_SSIM
    anyway: bool = False
    """Count although the images do not look like the training set."""


@dataclass(frozen=True, eq=False)
class Judged:
    """The report, and its pictures in the order of its rows: images and reconstructions (n, C, H, W) in [0, 1]."""

    report: AuditReport
    images: Tensor
    reconstructions: Tensor


def pictures_of(judged: Judged) -> tuple[Tensor, Tensor]:
    """Images and reconstructions as uint8, 0..255."""
    images, reconstructions = ((part * 255).round().to(torch.uint8) for part in (judged.images, judged.reconstructions))
    return images, reconstructions


def judge(
    model: Audited,
    drawn: Drawn,
    untrained: Tensor | None,
    data: TaskData,
    asked: Asked,
    tell: Tell = lambda message: None,
) -> Judged:
    """Check that the images fit the model, then count. `tell` hears what comes next and may raise to end it.

    `untrained` (U, *input_shape) are candidates of an untrained network. Images that do not look like the training set
    are an `InputError` with the numbers, unless asked to count anyway.
    """
    check_shapes(model.input_shape, model.outputs, data)
    choices = normalisations(data, asked.normalisation, asked.mean, asked.std)
    fit = fit_of(model.network, data, choices, model.task, lambda: tell("checking the attached images"))
    if fit.likeness is Likeness.REFUSED and not asked.anyway:
        raise InputError(f"{fit.sentence}; attach the images it was trained on, or count anyway (anyway)")
    with torch.no_grad():
        evidence, others = _matched(model, drawn, untrained, fit, tell)
    tell("testing membership")
    count = evidence.at(asked.threshold)
    beyond = max(0, count.good - count.chance)
    leak = Leak(
        threshold=asked.threshold,
        reconstructed=count.good,
        of=count.of,
        candidates_behind=count.unique,
        chance=count.chance,
        beyond_chance=beyond,
        controls=Controls(
            mean_image=count.control_mean_image,
            untrained=count.control_untrained,
            held_out=count.non_members,
            held_out_of=count.non_members_of,
        ),
        other_window=_other_window(count),
        by_threshold=[
            CountAt(threshold=level, reconstructed=at.good, chance=at.chance, other_window=_other_window(at))
            for level in THRESHOLDS
            for at in [evidence.at(level)]
        ],
    )
    settings = evidence.matching.settings
    certain = _certain(drawn, fit, settings, asked.threshold)
    facts = Circumstances(
        parameters=sum(parameter.numel() for parameter in model.network.parameters()),
        inputs=math.prod(model.input_shape),
        homogeneous=model.homogeneous,
        rank=model.rank,
        recipe_known=model.recipe,
        normalisation_assumed=len(choices) > 1,
        seeds=drawn.seeds,
    )
    tests = _membership(fit, evidence.matching, others)
    order = evidence.matching.ssim.nan_to_num(nan=-2.0).argsort(descending=True, stable=True)
    report = AuditReport(
        version=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        verdict=_verdict(leak, tests),
        model=ModelFacts(
            name=model.name,
            architecture=model.architecture,
            parameters=facts.parameters,
            input_shape=list(model.input_shape),
            outputs=model.outputs,
            notes=list(model.notes),
            run=model.run,
        ),
        data=DataFacts(
            source=asked.source,
            images=data.n,
            classes={name: int((data.train_labels == number).sum()) for number, name in enumerate(data.class_names)},
            held_out=len(data.test_x),
            normalisation=fit.normalisation.describe(),
            normalisation_assumed=facts.normalisation_assumed,
            fingerprint=data.fingerprint,
        ),
        fit=_fit_facts(fit),
        attack=AttackFacts(
            recipe=drawn.recipe,
            candidates=len(drawn.candidates),
            iterations=drawn.iterations,
            seeds=drawn.seeds,
            seconds=drawn.seconds,
            residual=_finite(drawn.residual),
        ),
        leak=leak,
        certain=certain,
        membership=tests,
        assumptions=assumptions(facts, fit),
        images=_rows(order, evidence.matching, fit, drawn, asked.threshold),
    )
    return Judged(report, evidence.matching.images[order].cpu(), evidence.matching.reconstructions[order].cpu())


def check_shapes(input_shape: Sequence[int], outputs: int, data: TaskData) -> None:
    """Whether images of this shape and so many classes can have been trained on."""
    check_kind(tuple(input_shape), outputs, data.input_shape, data.class_names, data.task)


def check_kind(
    input_shape: tuple[int, ...], outputs: int, shape: tuple[int, ...], class_names: Sequence[str], task: Task
) -> None:
    """As `check_shapes`, from what a source says before it is read."""
    if len(input_shape) != 3:
        raise InputError(
            f"an audit is of networks that take images (C, H, W), got inputs of shape {input_shape}; "
            "give input_shape, or use reconstruct and match for points"
        )
    smallest = SsimKind.WANG.smallest_side
    if min(input_shape[1:]) < smallest:
        raise InputError(
            f"an audit compares images in windows of {smallest}x{smallest} pixels, and this network takes "
            f"{_size(input_shape)}; use reconstruct and match with ssim=authors for smaller images"
        )
    if input_shape != shape:
        raise InputError(
            f"the network takes images of {_size(input_shape)} and the attached ones are {_size(shape)}; "
            "attach its training images in the size it was trained on"
        )
    # Two sides are told apart by the sign of one output, or by the larger of two.
    fitting = {Task.MULTICLASS: (len(class_names),), Task.BINARY: (1, 2), Task.REGRESSION: (1,)}[task]
    if outputs not in fitting:
        said = f"{outputs} outputs" if outputs > 1 else "one output, so two classes"
        raise InputError(
            f"the network has {said}, and the attached images have {len(class_names)} classes "
            f"({', '.join(class_names[:6])}{', ...' if len(class_names) > 6 else ''}); attach the classes it was "
            "trained on" + (", or split them in two by partition" if outputs == 1 else ", in the order of its outputs")
        )


def _matched(
    model: Audited, drawn: Drawn, untrained: Tensor | None, fit: Fit, tell: Tell
) -> tuple[Evidence, Matching | None]:
    """The training images with the candidates, and all controls."""
    settings = MatchSettings(merge_factor=DENSE_FACTOR if model.dense else CONVOLUTION_FACTOR)
    data, mean = fit.data, fit.data.mean
    candidates = fit.normalisation.pixels(drawn.candidates)
    tell(f"matching {len(candidates)} candidates with {data.n} training images")
    members = match(data.train_x, mean, candidates, settings)
    control = None
    if untrained is not None:
        tell("matching candidates of an untrained network")
        control = match(data.train_x, mean, fit.normalisation.pixels(untrained), settings)
    others = None
    rows = held_out_rows(data)
    if len(rows):
        tell(f"matching {len(rows)} held-out images")
        others = match(data.test_x[rows], mean, candidates, settings)
    images = members.images.cpu()
    mean_image = score_mean_image(images, images.mean(0), settings.ssim)
    other = score_mean_image_other(images, images.mean(0), settings.ssim)
    return Evidence(members, mean_image, control, others, other), others


def _other_window(count: LeakCount) -> OtherWindow | None:
    if count.other is None:
        return None
    return OtherWindow(ssim="authors", reconstructed=count.other.good, chance=count.other.chance)


def held_out_rows(data: TaskData) -> Tensor:
    """The first test images, at most `_MOST_HELD_OUT`; none that was trained on, none constant."""
    trained = {image.numpy().tobytes() for image in data.train_x}
    fit = [
        row
        for row, image in enumerate(data.test_x[: 2 * _MOST_HELD_OUT])
        if float(image.max()) > float(image.min()) and image.numpy().tobytes() not in trained
    ]
    return torch.tensor(fit[:_MOST_HELD_OUT], dtype=torch.int64)


def _certain(drawn: Drawn, fit: Fit, settings: MatchSettings, threshold: float) -> CertainOnes | None:
    if drawn.confidence is None:
        return None
    sure = fit.normalisation.pixels(drawn.candidates[drawn.confidence > CERTAIN])
    found = judge_certain(fit.data.train_x, fit.data.mean, sure, settings, threshold)
    interval = exact_interval(found.real, found.certain) if found.certain else None
    return CertainOnes(
        certain=found.certain,
        real=found.real,
        images_shown=found.recalled,
        precision=found.precision,
        precision_low=None if interval is None else interval.low,
        precision_high=None if interval is None else interval.high,
    )


def _membership(fit: Fit, members: Matching, others: Matching | None) -> list[Membership]:
    if fit.held_out is None or others is None:
        return []
    rows = held_out_rows(fit.data)
    outside = fit.held_out
    scores: Mapping[str, tuple[str, Tensor, Tensor]] = {
        "loss": ("the image, its label and the network", -fit.members.losses, -outside.losses[rows]),
        "margin": ("the image, its label and the network", fit.members.margins, outside.margins[rows]),
        "reconstruction": ("the image and the network's weights", members.ssim.cpu(), others.ssim.cpu()),
    }
    return [_tested(name, *values) for name, values in scores.items()]


def _tested(name: str, needs: str, members: Tensor, others: Tensor) -> Membership:
    test = membership_test(members, others)
    return Membership(
        name=name,
        needs=needs,
        members=test.members,
        non_members=test.non_members,
        auc=test.auc,
        auc_low=test.auc_interval.low,
        auc_high=test.auc_interval.high,
        at=[
            TrueRate(
                false_positive_rate=at.allowed,
                true_positive_rate=at.rate,
                low=at.interval.low,
                high=at.interval.high,
                false_positive_rate_high=at.false_positives_high,
                resolved=at.resolved,
            )
            for at in test.at
        ],
        curve=_points(test.curve),
    )


def _points(curve: Roc) -> list[tuple[float, float]]:
    """Corners of the curve, thinned where there are very many."""
    pairs = list(zip(curve.false_positive_rates.tolist(), curve.true_positive_rates.tolist(), strict=True))
    corners = [
        point
        for index, point in enumerate(pairs)
        if index in (0, len(pairs) - 1) or not _straight(pairs[index - 1], point, pairs[index + 1])
    ]
    every = max(1, math.ceil(len(corners) / _CURVE_POINTS))
    kept = corners[::every]
    return [(round(x, 6), round(y, 6)) for x, y in (kept if kept[-1] == corners[-1] else [*kept, corners[-1]])]


def _straight(before: tuple[float, float], here: tuple[float, float], after: tuple[float, float]) -> bool:
    return before[0] == here[0] == after[0] or before[1] == here[1] == after[1]


def _fit_facts(fit: Fit) -> FitFacts:
    return FitFacts(
        likeness=fit.likeness.value,
        sentence=fit.sentence,
        accuracy=fit.members.accuracy,
        held_out_accuracy=None if fit.held_out is None else fit.held_out.accuracy,
        guessing=fit.guessing,
        mean_loss=float(fit.members.losses.mean()),
        margin_min=float(fit.members.margins.min()),
        margin_median=float(fit.members.margins.median()),
        kkt_residual_by_layer=None if fit.residuals is None else _finite_only(fit.residuals.by_layer),
        kkt_residual=None if fit.residuals is None else _finite(fit.residuals.overall),
    )


def _verdict(leak: Leak, tests: Sequence[Membership]) -> Verdict:
    """Beyond chance where an exact test against the held-out images says so; without any, where the count does."""
    controls = leak.controls
    p = None
    if controls.held_out is not None and controls.held_out_of:
        p = more_than_chance(leak.reconstructed, leak.of, controls.held_out, controls.held_out_of)
    counted = (
        f"{leak.reconstructed} of {leak.of} training images can be drawn out of the weights (SSIM above "
        f"{leak.threshold:g}); {leak.chance} are expected by chance"
    )
    if leak.beyond_chance and (p is None or p < _SIGNIFICANT):
        return Verdict(level=Level.LEAKS, sentence=f"This model leaks: {counted}.", p_value=p)
    caution = f"This does not show that nothing leaks{_told(tests)}."
    if leak.beyond_chance:
        return Verdict(level=Level.UNCLEAR, sentence=f"Unclear: {counted}, which may be chance. {caution}", p_value=p)
    sentence = f"No image came back beyond chance: {counted}. {caution}"
    return Verdict(level=Level.NOTHING_FOUND, sentence=sentence, p_value=p)


def _told(tests: Sequence[Membership]) -> str:
    """A sentence on the best membership test, for a model from which no image was reconstructed."""
    best = max(tests, key=lambda test: test.auc_low, default=None)
    if best is None or best.auc_low <= _COIN:
        return ""
    at = best.at[0]
    return (
        f": by {_BY[best.name]} training images can be told from others with an AUC of {best.auc:.2f} "
        f"({at.true_positive_rate:.0%} of them at {at.false_positive_rate:.0%} false positives)"
    )


def _rows(order: Tensor, matching: Matching, fit: Fit, drawn: Drawn, threshold: float) -> list[ImageRow]:
    rows = []
    for rank, index in enumerate(order.tolist()):
        ssim, nearest = float(matching.ssim[index]), int(matching.nearest[index])
        sure = None if drawn.confidence is None or nearest < 0 else float(drawn.confidence[nearest])
        rows.append(
            ImageRow(
                rank=rank + 1,
                id=int(fit.data.train_ids[index]),
                label=fit.data.class_names[int(fit.data.train_labels[index])],
                ssim=None if math.isnan(ssim) else max(-1.0, min(1.0, ssim)),
                reconstructed=ssim > threshold,
                confidence=None if sure is None else max(0.0, min(1.0, sure)),
                certain=sure is not None and sure > CERTAIN,
                margin=float(fit.members.margins[index]),
                loss=float(fit.members.losses[index]),
            )
        )
    return rows


def _finite(value: Any) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None


def _finite_only(values: Mapping[str, float]) -> dict[str, float] | None:
    return dict(values) if all(math.isfinite(value) for value in values.values()) else None


def _size(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))
