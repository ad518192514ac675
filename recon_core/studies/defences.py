"""What a study of defences found, for whoever decides: what each brings, what it costs, what was not tried."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from recon_core.analysis.defences import Defence, DefenceNames, Defences, defences
from recon_core.analysis.studies import ONE_SEED, Spread
from recon_core.studies.results import StudyResults

NOT_TRIED = (
    "One attack was made, with one start, by somebody who does not know of the defence. An attacker who knows it may "
    "undo part of it (several released copies average noise away; smoothed labels have equations of their own).",
    "Each defence was tried at the few strengths listed, not tuned; its best setting may cost less.",
    "One kind of network (dense, of one size but where said), one data set and few images. Convolutions, large data "
    "sets and pre-trained networks may behave otherwise.",
    "Not tried at all: distillation, ensembles, unlearning, federated training, regularisers made against membership "
    "inference, and giving access to answers only instead of to the weights.",
    "DP-SGD is the only one here with a guarantee, which holds against every attack. It is stated by its epsilon, not "
    "by this count; in these experiments the seed of its noise is stored and the mean image is subtracted without "
    "noise, so these very models carry no guarantee.",
)
_HOW_TO_READ = (
    "Reconstructed: training images that the attack drew out of the released weights well enough to be recognised. "
    "Chance level: how many would count although nothing leaked; a count at or below it means nothing was found, not "
    "that nothing leaks. Certain: candidates of which an attacker can be sure without knowing the training images, and "
    "how many of those are right. Membership: of the training images, the share that can be told to be such when 1 in "
    "100 other images is wrongly accused, by the loss or by a likeness to what was drawn out; 1% is guessing."
)


def found_defences(results: StudyResults, panel: str) -> Defences | None:
    points = [DefenceNames(point.label, point.group, point.about) for point in results.plan.points]
    return defences(results.table, panel, points)


def tradeoff_finding(found: Defences) -> str:
    """The picture in two or three sentences."""
    none = found.none
    sentences = [
        f"Without a defence {_back(none)} come back (chance level {none.chance.mean:.3g}) from a network that is right "
        f"on {_percent(none.accuracy)} of test images."
    ]
    fewer = [row for row in found.rows[1:] if _below(row.share_change)]
    kept = [row.names.label for row in fewer if not _below(row.accuracy_change)]
    more = [row.names.label for row in found.rows[1:] if _above(row.share_change)]
    if all(row.share_change is None or row.share_change.low is None for row in found.rows):
        sentences.append("One model of each was made, so there are no intervals, and no difference is judged.")
    elif fewer:
        sentences.append(f"Fewer come back with: {_listed([row.names.label for row in fewer])}.")
        sentences.append(
            f"Of these, no loss of accuracy shows with: {_listed(kept)}." if kept else "All of these cost accuracy."
        )
    else:
        sentences.append("No defence has fewer beyond the spread of the seeds.")
    if more:
        sentences.append(f"More come back with: {_listed(more)}.")
    return " ".join([*sentences, *_missing(found)])


def advice(found: Defences) -> tuple[str, ...]:
    """One line for each defence: what it is, what it brings, what it costs."""
    none = found.none
    lines = []
    for row in found.rows[1:]:
        what = f"{row.names.label}: {row.names.about}" if row.names.about else f"{row.names.label}."
        brings = (
            f"{_back(row)} come back (none: {_back(none)}; chance level {row.chance.mean:.3g}), "
            f"{_judged(row.share_change, 'fewer', 'more')}"
        )
        costs = (
            f"Test accuracy {_percent(row.accuracy)} (none: {_percent(none.accuracy)}), "
            f"{_judged(row.accuracy_change, 'lower', 'higher')}"
        )
        spent = "" if row.epsilon is None else f" The accountant's figure is epsilon {row.epsilon:.3g}."
        lines.append(f"{what} {brings}. {costs}.{spent}")
    return tuple(lines)


def defence_finding(found: Defences) -> str:
    return " ".join([_HOW_TO_READ, *_missing(found)])


def readable_defences(found: Defences) -> pd.DataFrame:
    """The table of the section."""
    return pd.DataFrame(
        [
            {
                "defence": row.names.label,
                "reconstructed": _counted(row.good, row.of),
                "chance level": f"{row.chance.mean:.3g}",
                "certain (right)": _certain(row),
                "membership by loss": "" if row.loss_tpr is None else f"{row.loss_tpr.mean:.0%}",
                "by reconstruction": "" if row.tpr is None else f"{row.tpr.mean:.0%}",
                "test accuracy": _percent(row.accuracy),
                "training": f"{row.seconds:.0f} s",
                "seeds": len(row.rows),
            }
            for row in found.rows
        ]
    )


def _certain(row: Defence) -> str:
    if row.certain is None or row.certain_real is None:
        return ""
    return f"{row.certain.mean:.3g} ({row.certain_real.mean:.3g})"


def _counted(value: Spread, of: int) -> str:
    interval = (
        "" if value.low is None or value.high is None else f" ({max(0.0, value.low):.0f}-{min(of, value.high):.0f})"
    )
    return f"{value.mean:.3g}{interval} of {of}"


def _back(row: Defence) -> str:
    return f"{row.good.mean:.3g} of {row.of} images"


def _percent(value: Spread) -> str:
    if value.low is None or value.high is None:
        return f"{value.mean:.0%}"
    return f"{value.mean:.0%} ({max(0.0, value.low):.0%}-{min(1.0, value.high):.0%})"


def _below(change: Spread | None) -> bool:
    return change is not None and change.sign is False


def _above(change: Spread | None) -> bool:
    return change is not None and change.sign is True


def _judged(change: Spread | None, less: str, more: str) -> str:
    """In words, from the interval of the difference."""
    if change is None or change.undecided:
        return f"not judged: {ONE_SEED if change is None else change.undecided}"
    if _below(change):
        return f"{less} beyond the spread of the seeds"
    return (
        f"{more} beyond the spread of the seeds" if _above(change) else "no difference beyond the spread of the seeds"
    )


def _missing(found: Defences) -> list[str]:
    return [f"Not run: {label} ({message.rstrip('.')})." for label, message in found.missing]


def _listed(labels: Sequence[str]) -> str:
    return ", ".join(labels)
