"""A study of defences in numbers: what each leaves to an attacker, and what it costs, against no defence."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from recon_core.analysis.studies import Measure, Spread, StudyRow, StudyTable, differences, spread


@dataclass(frozen=True)
class DefenceNames:
    """The name of a defence, its kind, and what it does in plain words."""

    label: str
    group: str = ""
    about: str = ""


@dataclass(frozen=True)
class Defence:
    """One defence over its seeds. Changes are against no defence, with simultaneous 95% intervals (Dunnett)."""

    names: DefenceNames
    rows: tuple[StudyRow, ...]
    good: Spread
    share: Spread
    """Share of the training images that are reconstructed."""
    chance: Spread
    """The chance level: images that would count as reconstructed although nothing leaked."""
    accuracy: Spread
    """On test images."""
    certain: Spread | None
    """Candidates that the attack itself calls certain."""
    certain_real: Spread | None
    """Certain candidates that show a training image."""
    loss_tpr: Spread | None
    """True-positive rate of the loss-threshold membership test at 1% false positives."""
    tpr: Spread | None
    """The same rate of the test by SSIM with the nearest reconstruction."""
    seconds: float
    """Mean duration of a training run."""
    epsilon: float | None
    share_change: Spread | None = None
    accuracy_change: Spread | None = None

    @property
    def of(self) -> int:
        """Training images."""
        return max(int(row.numbers["of"]) for row in self.rows)


@dataclass(frozen=True)
class Defences:
    """All finished defences; the first row is the model without any."""

    rows: tuple[Defence, ...]
    missing: tuple[tuple[str, str], ...]
    """Defences of which no model is finished, and why."""

    @property
    def none(self) -> Defence:
        return self.rows[0]

    def to_frame(self) -> pd.DataFrame:
        return pd.DataFrame([_record(row) for row in self.rows])


def defences(table: StudyTable, panel: str, names: Sequence[DefenceNames]) -> Defences | None:
    """In the order of `names`, of which the first is no defence; None before there is a model without defence."""
    by_label: dict[str, list[StudyRow]] = {}
    for row in table.rows:
        if row.panel == panel and not row.reference:
            by_label.setdefault(row.point, []).append(row)
    found, missing = [], []
    for one in names:
        rows = [row for row in by_label.get(one.label, ()) if "good" in row.numbers and "test_error" in row.numbers]
        if rows:
            found.append(_defence(one, tuple(rows)))
        elif any(row.state in ("failed", "lost") for row in by_label.get(one.label, ())):
            missing.append((one.label, by_label[one.label][0].message))
    if not found or found[0].names.label != names[0].label:
        return None
    return Defences(_compared(found), tuple(missing))


def _defence(names: DefenceNames, rows: tuple[StudyRow, ...]) -> Defence:
    def over(key: str) -> Spread | None:
        values = [float(row.numbers[key]) for row in rows if row.numbers.get(key) is not None]
        return spread(values) if len(values) == len(rows) else None

    good = over("good")
    assert good is not None
    return Defence(
        names=names,
        rows=rows,
        good=good,
        share=spread(_values(rows, Measure.SHARE), 1.0),
        chance=spread([row.chance or 0.0 for row in rows]),
        accuracy=spread(_values(rows, Measure.TEST_ACCURACY), 1.0),
        certain=over("certain"),
        certain_real=over("certain_real"),
        loss_tpr=over("loss_tpr"),
        tpr=over("tpr"),
        seconds=statistics.fmean(float(row.numbers.get("train_seconds", 0.0)) for row in rows),
        epsilon=max((float(row.numbers["epsilon"]) for row in rows if "epsilon" in row.numbers), default=None),
    )


def _compared(found: Sequence[Defence]) -> tuple[Defence, ...]:
    first, *others = found
    if not others:
        return (first,)
    changes = [
        differences([_values(one.rows, measure) for one in others], _values(first.rows, measure))
        for measure in (Measure.SHARE, Measure.TEST_ACCURACY)
    ]
    return (
        first,
        *(
            Defence(**{**vars(one), "share_change": share, "accuracy_change": accuracy})
            for one, share, accuracy in zip(others, *changes, strict=True)
        ),
    )


def _values(rows: Sequence[StudyRow], measure: Measure) -> list[float]:
    return [value for row in rows if (value := row.value(measure)) is not None]


def _record(row: Defence) -> dict[str, object]:
    def mean(value: Spread | None) -> float | None:
        return None if value is None else value.mean

    return {
        "defence": row.names.label,
        "group": row.names.group,
        "seeds": len(row.rows),
        "good": row.good.mean,
        "good_low": row.good.low,
        "good_high": row.good.high,
        "of": row.of,
        "chance": row.chance.mean,
        "certain": mean(row.certain),
        "certain_real": mean(row.certain_real),
        "loss_tpr": mean(row.loss_tpr),
        "tpr": mean(row.tpr),
        "test_accuracy": row.accuracy.mean,
        "test_accuracy_low": row.accuracy.low,
        "test_accuracy_high": row.accuracy.high,
        "train_seconds": row.seconds,
        "epsilon": row.epsilon,
    }
